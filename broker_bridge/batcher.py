"""The brain of the bridge: messages in, a batch to commit out, and what was left out by reason. Pure.

A reading keeps both its own time and the time it came. One whose time cannot be (live clocks only) is not lost: it is filed
under ``quarantine:<topic>`` at the time it came, with the time it claimed beside it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from fleetgp.errors import PeerError
from fleetgp.payloads import read
from fleetgp.payloads.content import ClockPolicy, settle
from fleetgp.store.base import Batch, Row
from fleetgp.wire import codec, topics
from fleetgp.wire.messages import AnomalyEvent, Health, Prediction, RoundNotice, Status

QUARANTINE = "quarantine:"
LAYERS = ("shared", "deviation", "local")
_OURS = f"{topics.ROOT}/"


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

    def leave_out(self, reason: str, detail: str, number: int = 1) -> None:
        self.counts[reason] += number
        self.details.setdefault(reason, detail)


def sort(messages: Sequence[Arrived], policy: ClockPolicy) -> Sorted:
    """Read every message; one that cannot be read is counted and never stops the others."""
    result = Sorted()
    for message in messages:
        try:
            if message.topic.startswith(_OURS):
                _take_ours(result, message)
            elif message.is_retained:
                # the broker's memory of a value, not a new reading
                result.leave_out("retained", message.topic)
            else:
                _take_reading(result, message, policy)
        except PeerError as err:
            result.leave_out(err.code, f"{message.topic}: {err.detail}")
    return result


def _take_reading(result: Sorted, message: Arrived, policy: ClockPolicy) -> None:
    content = read(message.payload)
    for reason, number in content.rejected.items():
        result.leave_out(f"field_{reason}", message.topic, number)
    if not content.values:
        raise PeerError("no_field", "no field with a number")
    series, values = message.topic, content.values
    try:
        at_ms = settle(content.at_ms, message.received_ms, policy)
    except PeerError as err:
        result.leave_out(err.code, f"{series}: {err.detail}; kept under {QUARANTINE}{series}")
        series, at_ms = QUARANTINE + series, message.received_ms
        values = {**values, "claimed_at_ms": None if content.at_ms is None else float(content.at_ms)}
    result.rows.append(Row("reading", series, at_ms, values, message.received_ms, content.sequence))


def _take_ours(result: Sorted, message: Arrived) -> None:
    address = topics.parse(message.topic)
    if address is None:
        raise PeerError("unknown_topic", "nothing of this fleet is sent there")
    if not message.payload:
        return  # how a retained message is deleted
    match address.kind:
        case "predictions":
            prediction = codec.decode(message.payload, Prediction)
            _check_sender(prediction.agent, address)
            result.rows.append(_prediction_row(prediction, message.received_ms))
        case "events":
            event = codec.decode(message.payload, AnomalyEvent)
            _check_sender(event.agent, address)
            result.events.append(event)
        case "status":
            status = codec.decode(message.payload, Status)
            _check_sender(status.name, address)
            result.statuses.append(status)
        case "health":
            health = codec.decode(message.payload, Health)
            _check_sender(health.name, address)
            result.healths.append(health)
            result.rows.append(Row("health", health.name, health.at_ms, dict(health.figures), message.received_ms))
        case "round":
            result.rounds.append(codec.decode(message.payload, RoundNotice))


def _check_sender(named: str, address: topics.Address) -> None:
    if named != address.id:
        raise PeerError("other_sender", f"speaks as {named[:64]!r}")


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
        if len(law.layers) == 4:  # the first is what the others leave of the mean
            parts = zip(LAYERS, law.layers[1:], strict=True)
            values.update((f"{name}.{part}", value) for part, value in parts)
            values[f"{name}.pull"] = law.pull
    return Row("prediction", prediction.agent, prediction.at_ms, values, received_ms)
