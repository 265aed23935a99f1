"""What was done to a recording: by fault, to which messages, and what was left alone and why."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fleetgp.errors import RecordingError
from simulator.fault_spec import Fault

VERSION = 1
MOST_INDICES = 100_000
MOST_TOPICS = 1000
NAMED = 8
WORDS = {
    "no_field": "without such a field",
    "no_number": "where it is no number",
    "unreadable": "that cannot be read",
    "no_time": "without a time of a known form",
    "never_varies": "where it never varies",
    "too_large": "where it would be too large to be written",
    "let_go_early": "let go early",
}


@dataclass
class Told:
    """What one fault did. indices: of the messages it changed, counted from 0 in the recording that it was put into.

    on_topic: messages on its topics; in_span: those of them in its span; fields: of one of these, where it had not the right one.
    """

    fault: Fault
    begin_ns: int | None = None
    end_ns: int | None = None
    messages: int = 0
    indices: list[int] = field(default_factory=list)
    topics: Counter[str] = field(default_factory=Counter)
    left_alone: Counter[str] = field(default_factory=Counter)
    on_topic: int = 0
    in_span: int = 0
    fields: tuple[str, ...] = ()
    first_ns: int | None = None
    last_ns: int | None = None

    def note(self, index: int, topic: str, received_ns: int) -> None:
        """This message was changed."""
        self.messages += 1
        self.topics[topic] += 1
        if len(self.indices) < MOST_INDICES:
            self.indices.append(index)
        self.first_ns = received_ns if self.first_ns is None else min(self.first_ns, received_ns)
        self.last_ns = received_ns if self.last_ns is None else max(self.last_ns, received_ns)

    def document(self) -> dict[str, Any]:
        fault = self.fault
        size = {
            "size": fault.size,
            "unit": "sd" if fault.is_in_sd else "messages" if fault.kind == "reorder" else "own",
            "size_by_topic": {topic: (fault.size or 0.0) * sd for topic, sd in fault.sds.items()},
        }
        return {
            "fault": fault.text,
            "kind": fault.kind,
            "topic": fault.topic,
            "field": fault.field,
            "from": _iso(self.begin_ns),
            "until": _iso(self.end_ns),
            **(size if fault.size is not None else {}),
            **({"span_s": fault.span_s} if fault.span_s else {}),
            **({"drift_ppm": fault.drift_ppm} if fault.drift_ppm else {}),
            **({"share": fault.share} if fault.share is not None else {}),
            "messages": self.messages,
            "first": _iso(self.first_ns),
            "last": _iso(self.last_ns),
            "topics": dict(sorted(self.topics.items())),
            "indices": sorted(self.indices),
            "indices_left_off": self.messages - len(self.indices),
            "left_alone": dict(sorted(self.left_alone.items())),
            "on_topic": self.on_topic,
            "in_span": self.in_span,
        }


class Truth:
    """What all faults did. messages_in, messages_out: of what is played or converted, before and after.

    topics, first_ns, last_ns: what there was to put faults into; topics the first MOST_TOPICS.
    """

    def __init__(self, seed: int, faults: Sequence[Fault]) -> None:
        self.seed = seed
        self.faults = [Told(fault) for fault in faults]
        self.messages_in = 0
        self.messages_out = 0
        self.topics: dict[str, None] = {}
        self.first_ns: int | None = None
        self.last_ns: int | None = None

    def see(self, topic: str, received_ns: int) -> None:
        """There is a message that faults may be put into."""
        self.messages_in += 1
        if len(self.topics) < MOST_TOPICS:
            self.topics[topic] = None
        self.first_ns = received_ns if self.first_ns is None else min(self.first_ns, received_ns)
        self.last_ns = received_ns if self.last_ns is None else max(self.last_ns, received_ns)

    def idle(self) -> list[str]:
        """For each fault that changed nothing: which, why, and what there is instead."""
        return [f"{told.fault.text} changed nothing: {self._why(told)}" for told in self.faults if not told.messages]

    def _why(self, told: Told) -> str:
        if not self.messages_in:
            return "there was no message"
        if not told.on_topic:
            return f"no message is on {told.fault.topic}; there are {_some(self.topics)}"
        if not told.in_span:
            return (
                f"none of the {told.on_topic:,} messages on {told.fault.topic} came from {_iso(told.begin_ns)} until "
                f"{_iso(told.end_ns) or 'the end'}; all messages are of {_iso(self.first_ns)} to {_iso(self.last_ns)}"
            )
        if told.left_alone:
            there = f"; fields there are {_some(dict.fromkeys(told.fields))}" if told.fields else ""
            return f"of {told.in_span:,} messages it was left alone in {_alone(told)}{there}"
        if told.fault.kind == "reorder":
            return f"of {told.in_span:,} in its span, none had another near it to change places with"
        return f"chance took none of {told.in_span:,} messages"

    def document(self) -> dict[str, Any]:
        """As it is written beside a recording: docs/faults.md."""
        return {
            "version": VERSION,
            "seed": self.seed,
            "messages_in": self.messages_in,
            "messages_out": self.messages_out,
            "faults": [told.document() for told in self.faults],
        }

    def lines(self) -> list[str]:
        """For people, one line a fault."""
        result = []
        for told in self.faults:
            alone = f" (left alone: {_alone(told)})" if told.left_alone else ""
            unit = "message" if told.messages == 1 else "messages"
            result.append(f"injected    {told.fault.text}: {told.messages:,} {unit}{alone}")
        return result

    def write(self, path: Path) -> None:
        """Raises RecordingError where it cannot be written."""
        try:
            path.write_text(json.dumps(self.document(), indent=1) + "\n", encoding="utf-8")
        except OSError as err:
            raise RecordingError(f"{path} cannot be written: {err.strerror}") from err


def _alone(told: Told) -> str:
    return ", ".join(f"{number:,} {WORDS.get(reason, reason)}" for reason, number in sorted(told.left_alone.items()))


def _some(names: Iterable[str]) -> str:
    found = list(names)
    return ", ".join(found[:NAMED]) + (", ..." if len(found) > NAMED else "")


def _iso(ns: int | None) -> str | None:
    """UTC, to the nanosecond where it has any."""
    if ns is None:
        return None
    seconds, rest = divmod(ns, 1_000_000_000)
    moment = datetime.fromtimestamp(seconds, tz=UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{moment}.{rest:09d}".rstrip("0").rstrip(".") + "Z"
