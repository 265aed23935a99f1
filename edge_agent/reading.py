"""A sensor's message to a sample of this agent's inputs; what is left out of it is counted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from edge_agent.config import Wiring
from edge_agent.frames import Sample
from fleetgp.errors import PeerError
from fleetgp.payloads import plain, read
from fleetgp.payloads.content import ClockPolicy, settle
from fleetgp.runtime.mqtt import Incoming
from fleetgp.runtime.program import Program


class Read(NamedTuple):
    """What came of a payload: the sample (None: no field of an input), fields left out by reason, and those there were."""

    sample: Sample | None
    rejected: Mapping[str, int]
    names: tuple[str, ...]


def read_sample(payload: bytes, fields: Mapping[str, int], received_ms: int, policy: ClockPolicy) -> Read:
    """Readings in a sensor's payload; fields: position among the inputs by field. Raises PeerError where it is of no use."""
    content = read(payload)
    at_ms = settle(content.at_ms, received_ms, policy)
    # a field of the input's own name counts before a plain ``value``
    named = sorted(content.values.items(), key=lambda item: item[0] != plain.FIELD)
    found = {fields[name]: value for name, value in named if name in fields}
    values = tuple(float("nan") if value is None else value for value in found.values())
    sample = Sample(at_ms, received_ms, tuple(found), values) if found else None
    return Read(sample, content.rejected, tuple(content.values))


class Reader:
    """Reads by a wiring, whose positions its samples have. heard: messages so far, of use or not."""

    def __init__(self, program: Program, wiring: Wiring) -> None:
        self._program = program
        self.wiring = wiring
        self.policy: ClockPolicy = program.settings.text("agent.clock")  # type: ignore[assignment]
        self.heard = 0

    def is_for(self, topic: str) -> bool:
        return topic in self.wiring.fields

    def read(self, message: Incoming) -> Sample | None:
        """Readings of this agent in a sensor's message; None when there are none, which is counted."""
        program = self._program
        if message.is_retained:
            program.counts["retained"] += 1  # a broker's memory of a value, not a new reading
            return None
        self.heard += 1
        try:
            found = read_sample(message.payload, self.wiring.fields[message.topic], message.received_ms, self.policy)
        except PeerError as err:
            program.count(err.code, detail=f"{message.topic}: {err.detail}")
            return None
        for reason, number in found.rejected.items():
            program.counts[f"field_{reason}"] += number
        if found.sample is None:
            held = ", ".join(found.names[:8]) or "no number"
            program.count("no_known_field", detail=f"{message.topic} holds {held}")
        return found.sample

    def silence(self) -> str:
        """What to tell the owner as long as there is no reading."""
        topics = self.topics
        if not self.heard:
            return f"no reading yet on {topics}"
        why = ", ".join(sorted(self._program.counts)[:5])
        return f"messages come on {topics}, but none holds a reading of these channels (left out: {why})"

    @property
    def topics(self) -> str:
        return ", ".join(self.wiring.topics)[:200]
