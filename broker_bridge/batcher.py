"""The brain of the bridge: messages in, a batch to commit out, and what was left out by reason. Pure.

A reading keeps both its own time and the time it came. One whose time cannot be (live clocks only) is not lost: it is filed
under ``quarantine:<topic>`` at the time it came, with the time it claimed beside it.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Protocol

from fleetgp.errors import PeerError
from fleetgp.payloads import read
from fleetgp.payloads.content import ClockPolicy, settle
from fleetgp.store.base import Batch, Row
from fleetgp.wire import codec, topics
from fleetgp.wire.messages import AnomalyEvent, Health, Prediction, RoundNotice, Status

QUARANTINE = "quarantine:"


class Arrived(Protocol):
    """What the batcher reads of a message."""

    @property
    def topic(self) -> str: ...
    @property
    def payload(self) -> bytes: ...
    @property
    def is_retained(self) -> bool: ...
    @property
    def received_ms(self) -> int: ...


@dataclass
class Sorted:
    """Messages sorted into what a store keeps. counts: left out, by reason; details: an example of each reason."""

    rows: list[Row] = field(default_factory=list)
    statuses: list[Status] = field(default_factory=list)
    healths: list[Health] = field(default_factory=list)
    events: list[AnomalyEvent] = field(default_factory=list)
    rounds: list[RoundNotice] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    details: dict[str, str] = field(default_factory=dict)

    def batch(self) -> Batch:
        return Batch(self.rows, self.statuses, self.healths, self.events, self.rounds)

    def leave_out(self, reason: str, detail: str) -> None:
        self.counts[reason] += 1
        self.details.setdefault(reason, detail)


def sort(messages: list[Arrived], policy: ClockPolicy) -> Sorted:
    """Read every message; one that cannot be read is counted and never stops the others."""
    result = Sorted()
    for message in messages:
        address = topics.parse(message.topic)
        try:
            if message.topic.startswith(f"{topics.ROOT}/"):
                if address is not None:
                    _take_ours(result, address, message)
            elif message.is_retained:
                result.counts["retained"] += 1  # the broker's memory of a value, not a new reading
            else:
                _take_reading(result, message, policy)
        except PeerError as err:
            result.leave_out(err.code, f"{message.topic}: {err.detail}")
    return result


def _take_reading(result: Sorted, message: Arrived, policy: ClockPolicy) -> None:
    content = read(message.payload)
    for reason, number in content.rejected.items():
        result.counts[f"field_{reason}"] += number
    if not content.values:
        raise PeerError("no_field", "no field with a number")
    series, values = message.topic, dict(content.values)
    try:
        at_ms = settle(content.at_ms, message.received_ms, policy)
    except PeerError as err:
        result.leave_out(err.code, f"{message.topic}: {err.detail}")
        series, at_ms = QUARANTINE + series, message.received_ms
        values["claimed_at_ms"] = float(content.at_ms or 0)
    result.rows.append(Row("reading", series, at_ms, values, message.received_ms, content.sequence))


def _take_ours(result: Sorted, address: topics.Address, message: Arrived) -> None:
    if not message.payload:
        return
    match address.kind:
        case "predictions":
            result.rows.append(_prediction_row(codec.decode(message.payload, Prediction), message.received_ms))
        case "events":
            result.events.append(codec.decode(message.payload, AnomalyEvent))
        case "status":
            result.statuses.append(codec.decode(message.payload, Status))
        case "health":
            health = codec.decode(message.payload, Health)
            result.healths.append(health)
            result.rows.append(Row("health", health.name, health.at_ms, dict(health.figures), message.received_ms))
        case "round":
            result.rounds.append(codec.decode(message.payload, RoundNotice))


def _prediction_row(prediction: Prediction, received_ms: int) -> Row:
    values: dict[str, float | None] = {
        "score": prediction.score,
        "threshold": prediction.threshold,
        "is_alarmed": float(prediction.is_alarmed),
    }
    for name, law in prediction.channels.items():
        values[f"{name}.mean"] = law.mean
        values[f"{name}.low"] = law.low
        values[f"{name}.high"] = law.high
        values[f"{name}.observed"] = law.observed
        values[f"{name}.z"] = law.z
    finite = {name: value for name, value in values.items() if value is None or math.isfinite(value)}
    return Row("prediction", prediction.agent, prediction.at_ms, finite, received_ms)
