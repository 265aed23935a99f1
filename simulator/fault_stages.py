"""One stage a fault: messages in, messages out, and what was done noted."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from paho.mqtt.client import topic_matches_sub

from fleetgp.payloads.moving import move_time
from fleetgp.recording.message import Gap, Message, Recorded
from simulator import fault_payload
from simulator.fault_spec import Fault
from simulator.fault_truth import Told
from simulator.fault_values import disturb

MOST_WAITING = 100_000
MOST_BLOCK = 10_000
MOST_KNOWN = 10_000
LAST_NS = 2**63 - 1  # a time that a recording can hold


class Item(NamedTuple):
    """A message or gap, and which message of the recording it is (a gap: which is next)."""

    number: int
    one: Recorded


Stage = Callable[[Iterator[Item]], Iterator[Item]]


class Filter:
    """An MQTT filter that remembers its verdicts."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._known: dict[str, bool] = {}

    def matches(self, topic: str) -> bool:
        verdict = self._known.get(topic)
        if verdict is None:
            verdict = bool(topic_matches_sub(self._pattern, topic))
            if len(self._known) < MOST_KNOWN:
                self._known[topic] = verdict
        return verdict


def begin_ns(one: Recorded) -> int:
    """When it was, UTC epoch ns."""
    return one.start_ns if isinstance(one, Gap) else one.received_ns


class Aim:
    """Which messages a fault meets: by topic, span and, of those, a share or a count."""

    def __init__(self, fault: Fault, first_ns: int, told: Told, rng: np.random.Generator) -> None:
        self.begin_ns = fault.begin.of(first_ns) if fault.begin else first_ns
        self.end_ns = fault.end.of(first_ns) if fault.end else None
        told.begin_ns, told.end_ns = self.begin_ns, self.end_ns
        self._told = told
        self._filter = Filter(fault.topic)
        self._rng = rng
        self._share = fault.share
        count = fault.count or (1 if fault.kind == "spike" and fault.share is None else None)
        self._left = count
        self._instants: list[int] | None = None
        if count is not None and self.end_ns is not None:
            drawn = rng.uniform(0.0, float(self.end_ns - self.begin_ns), count)
            self._instants = sorted((self.begin_ns + drawn.astype(np.int64)).tolist(), reverse=True)

    def is_near(self, one: Recorded) -> bool:
        """Of its topics and in its span; or after it, where an instant was drawn that no message has come since.

        Both are counted, so it is asked once of each message.
        """
        if isinstance(one, Gap) or not self._filter.matches(one.topic):
            return False
        self._told.on_topic += 1
        is_before_end = self.end_ns is None or one.received_ns < self.end_ns
        is_inside = self.begin_ns <= one.received_ns and (is_before_end or self._instants is not None)
        self._told.in_span += is_inside
        return is_inside

    @property
    def is_counted(self) -> bool:
        """Whether a count of messages is met, not a share or all."""
        return self._left is not None

    def waits(self, one: Message) -> bool:
        """Of a count: whether there is one left for a message of now."""
        if self._instants is not None:
            return bool(self._instants) and self._instants[-1] <= one.received_ns
        return bool(self._left)

    def is_of(self, one: Recorded) -> bool:
        """Of its topics, at any time."""
        return isinstance(one, Message) and self._filter.matches(one.topic)

    def takes(self, one: Message) -> bool:
        """Whether one that is near is met: by chance where a share was said, at drawn instants where a count was."""
        if self._share is not None:
            return bool(self._rng.random() < self._share)
        if self._left is None:
            return True
        if not self.waits(one):
            return False
        if self._instants is not None:
            self._instants.pop()
        self._left -= 1
        return True


def stage(fault: Fault, first_ns: int, told: Told, rng: np.random.Generator) -> Stage:
    """What to pass messages through; first_ns: when the recording begins."""
    rng_aim, rng_size = rng.spawn(2)
    aim = Aim(fault, first_ns, told, rng_aim)
    match fault.kind:
        case "drop":
            return lambda items: _drop(items, aim, told)
        case "duplicate":
            return lambda items: _duplicate(items, aim, told)
        case "late":
            return lambda items: _late(items, aim, told, round(fault.span_s * 1e9))
        case "reorder":
            return lambda items: _reorder(items, aim, told, rng_size)
        case "skew":
            return lambda items: _skew(items, aim, told)
        case _:
            return _Sensor(aim, told, rng_size)


def _drop(items: Iterator[Item], aim: Aim, told: Told) -> Iterator[Item]:
    for item in items:
        if isinstance(item.one, Message) and aim.is_near(item.one) and aim.takes(item.one):
            told.note(item.number, item.one.topic, item.one.received_ns)
        else:
            yield item


def _duplicate(items: Iterator[Item], aim: Aim, told: Told) -> Iterator[Item]:
    for item in items:
        yield item
        if isinstance(item.one, Message) and aim.is_near(item.one) and aim.takes(item.one):
            told.note(item.number, item.one.topic, item.one.received_ns)
            yield item


def _late(items: Iterator[Item], aim: Aim, told: Told, delay_ns: int) -> Iterator[Item]:
    waiting: list[tuple[int, int, Item]] = []
    order = 0
    for item in items:
        now_ns = begin_ns(item.one)
        while waiting and waiting[0][0] <= now_ns:
            yield heapq.heappop(waiting)[2]
        if not (isinstance(item.one, Message) and aim.is_near(item.one) and aim.takes(item.one)):
            yield item
            continue
        if len(waiting) >= MOST_WAITING:
            told.left_alone["let_go_early"] += 1
            early = heapq.heappop(waiting)[2]
            assert isinstance(early.one, Message)
            yield early._replace(one=early.one._replace(received_ns=now_ns))
        told.note(item.number, item.one.topic, item.one.received_ns)
        order += 1
        due_ns = item.one.received_ns + delay_ns
        heapq.heappush(waiting, (due_ns, order, item._replace(one=item.one._replace(received_ns=due_ns))))
    while waiting:
        yield heapq.heappop(waiting)[2]


def _reorder(items: Iterator[Item], aim: Aim, told: Told, rng: np.random.Generator) -> Iterator[Item]:
    most, span_ns = int(told.fault.size or MOST_BLOCK), round(told.fault.span_s * 1e9)
    block: list[Item] = []
    near: list[int] = []
    for item in items:
        is_over = bool(near) and span_ns > 0 and begin_ns(item.one) - begin_ns(block[near[0]].one) >= span_ns
        if is_over or len(near) >= most or len(block) >= MOST_BLOCK or isinstance(item.one, Gap):
            yield from _shuffled(block, near, told, rng)
            block, near = [], []
        if aim.is_near(item.one):
            near.append(len(block))
        if near:
            block.append(item)
        else:
            yield item
    yield from _shuffled(block, near, told, rng)


def _shuffled(block: list[Item], near: list[int], told: Told, rng: np.random.Generator) -> list[Item]:
    """The messages at these places change places; receive times stay where they are."""
    result = list(block)
    for place, other in zip(near, rng.permutation(near).tolist(), strict=True):
        slot, moved = block[place].one, block[other].one
        assert isinstance(slot, Message)
        assert isinstance(moved, Message)
        if place != other:
            told.note(block[other].number, moved.topic, moved.received_ns)
        result[place] = Item(block[other].number, moved._replace(received_ns=slot.received_ns))
    return result


def _skew(items: Iterator[Item], aim: Aim, told: Told) -> Iterator[Item]:
    """The device's clock: offset, and drift since the beginning. When its messages arrive is another clock's to say."""
    fault = told.fault
    for item in items:
        one = item.one
        if not (isinstance(one, Message) and aim.is_near(one)):
            yield item
            continue
        shift_ms = round(fault.span_s * 1000 + fault.drift_ppm * 1e-6 * (one.received_ns - aim.begin_ns) / 1e6)
        payload = move_time(one.payload, one.topic, shift_ms)
        moved_ns = one.published_ns + shift_ms * 1_000_000
        published_ns = min(max(1, moved_ns), LAST_NS) if one.published_ns else 0
        if shift_ms and payload == one.payload and not one.published_ns:
            told.left_alone["no_time"] += 1
        elif shift_ms:
            told.note(item.number, one.topic, one.received_ns)
        yield item._replace(one=one._replace(payload=payload, published_ns=published_ns))


class _Sensor:
    """A fault of one field's numbers. _held: by topic, what a stuck sensor goes on saying."""

    def __init__(self, aim: Aim, told: Told, rng: np.random.Generator) -> None:
        self._aim = aim
        self._told = told
        self._fault = told.fault
        self._rng = rng
        self._held: dict[str, float] = {}

    def __call__(self, items: Iterator[Item]) -> Iterator[Item]:
        for item in items:
            one = item.one
            if not (isinstance(one, Message) and self._aim.is_of(one)):
                yield item
                continue
            if not self._meets(one):
                if self._fault.kind == "stuck" and not isinstance(
                    place := fault_payload.find(one.payload, self._fault.field), str
                ):
                    self._remember(one.topic, place.value)
                yield item
                continue
            place = fault_payload.find(one.payload, self._fault.field)
            if isinstance(place, str):
                self._leave(one, place)
                yield item
                continue
            if self._aim.is_counted:
                self._aim.takes(one)
            payload = self._payload(one, place)
            if payload is not None:
                item = item._replace(one=one._replace(payload=payload))
            if payload is not None or self._fault.is_removed:
                self._told.note(item.number, one.topic, one.received_ns)
            if payload is not None or not self._fault.is_removed:
                yield item

    def _meets(self, one: Message) -> bool:
        """Whether it is to be changed, if it has the number. Of a count, one without the number takes nothing away."""
        if not self._aim.is_near(one):
            return False
        return self._aim.waits(one) if self._aim.is_counted else self._aim.takes(one)

    def _leave(self, one: Message, why: str) -> None:
        self._told.left_alone[why] += 1
        if why == "no_field" and not self._told.fields:
            self._told.fields = fault_payload.fields(one.payload)

    def _payload(self, one: Message, place: fault_payload.Place) -> bytes | None:
        """With the fault in it; None where it is to go (a removed plain value), or to be left alone."""
        if self._fault.is_removed:
            return fault_payload.removed(one.payload, place)
        size = self._fault.size or 0.0
        if self._fault.is_in_sd:
            size *= self._fault.sds.get(one.topic, 0.0)
            if not size:
                self._told.left_alone["never_varies"] += 1
                return None
        kind = self._fault.kind
        assert kind in ("spike", "offset", "drift", "stuck", "noise", "dropout")
        if kind == "stuck":
            self._remember(one.topic, place.value, is_first=True)
        held = self._fault.size if kind == "stuck" and self._fault.size is not None else self._held.get(one.topic)
        value = disturb(
            np.array([place.value]),
            np.array([self._progress(one.received_ns)]),
            kind,
            size,
            self._rng,
            math.nan if held is None else held,
        )
        if math.isinf(value[0]):
            self._told.left_alone["too_large"] += 1
            return None
        return fault_payload.replaced(one.payload, place, float(value[0]))

    def _progress(self, received_ns: int) -> float:
        begin, end = self._aim.begin_ns, self._aim.end_ns
        return 0.0 if end is None else (received_ns - begin) / (end - begin)

    def _remember(self, topic: str, value: float, *, is_first: bool = False) -> None:
        if topic in self._held and is_first:
            return
        if topic in self._held or len(self._held) < MOST_KNOWN:
            self._held[topic] = value
