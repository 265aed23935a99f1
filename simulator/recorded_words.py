"""What an agent read and said, as it was recorded, and what came of comparing."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from edge_agent.frames import Sample
from fleetgp.wire.messages import AnomalyEvent, Bootstrap, Prediction, Summary
from simulator.recorded_likeness import Tally

Answer = Summary | Bootstrap
Said = Prediction | AnomalyEvent | Answer


class Reading(NamedTuple):
    """A sample, and when the recorder heard it."""

    at_ns: int
    sample: Sample


class Word(NamedTuple):
    """What the agent said, and its payload."""

    at_ns: int
    message: Said
    payload: bytes


@dataclass
class Compared:
    """What came of one agent. trouble: why it cannot be run again, "" where it can."""

    predictions: Tally = field(default_factory=Tally)
    events: Tally = field(default_factory=Tally)
    answers: Tally = field(default_factory=Tally)
    left_out: dict[str, int] = field(default_factory=dict)
    trouble: str = ""

    @property
    def differences(self) -> int:
        """What did not come out as recorded so far."""
        return sum(one.recorded - one.counts["same"] for one in (self.predictions, self.events, self.answers))


def is_made_with(summary: Summary, message: Said) -> bool:
    """Whether a summary and a bootstrap answer the same round: the agent told them in one breath."""
    return (
        isinstance(message, Bootstrap)
        and (summary.incarnation, summary.at_ms) == (message.incarnation, message.at_ms)
        and summary.sequence == message.sequence + 1
    )


def answer_name(answer: Answer) -> tuple[type, int]:
    """What tells an answer from an agent's others."""
    return type(answer), answer.sequence


def event_key(event: AnomalyEvent) -> tuple[str, str, int]:
    """What tells a word on an event from an agent's others."""
    return event.event_id, event.state, event.frames
