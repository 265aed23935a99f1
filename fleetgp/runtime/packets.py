"""The packets of MQTT 3.1.1 and 5 that come and go in great numbers: PUBLISH and PUBACK. Pure.

paho reads a packet in four pieces and keeps a record of every one; at thousands of messages a second that is most of the
work. So these two kinds are read and written here, and every other packet is paho's.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass

from fleetgp.runtime.link import Incoming, Outgoing

LARGEST_BODY = 268_435_455  # what four bytes of length can say
_PUBLISH, _PUBACK = 0x30, 0x40
_CONTENT_TYPE = 0x03
# length of a version 5 property that may stand in PUBLISH; texts and the rest are read below
_FIXED = {0x01: 1, 0x02: 4, 0x23: 2}
_TEXTS = {0x03: 1, 0x08: 1, 0x09: 1, 0x26: 2}
_SUBSCRIPTION = 0x0B
_ACK = struct.Struct(">BBH")


@dataclass(frozen=True)
class Unreadable:
    """A message came whose topic is no text."""

    mid: int
    qos: int


@dataclass(frozen=True)
class Confirmed:
    """The broker has our message (QoS 1), or it was written to the socket (QoS 0); code: its verdict in MQTT 5."""

    mid: int
    code: int = 0


# bytes: a whole packet of another kind
Packet = Incoming | Unreadable | Confirmed | bytes


class Framer:
    """Cuts what comes from one connection into packets. ``feed`` raises ValueError or LookupError where it is no MQTT."""

    def __init__(self, generation: int, *, is_v5: bool) -> None:
        self._generation = generation
        self._is_v5 = is_v5
        self._rest = bytearray()
        self._needed = 2

    def feed(self, data: bytes, now_ns: int) -> list[Packet]:
        """The packets that are whole by now, in order. now_ns: when the data came."""
        if self._rest:
            self._rest += data
            if len(self._rest) < self._needed:
                return []
            data = bytes(self._rest)
        found: list[Packet] = []
        begin, end = 0, len(data)
        while (stop := self._end(data, begin, end)) <= end:
            found.append(self._read(data, begin, stop, now_ns))
            begin = stop
        self._rest = bytearray(data[begin:])
        self._needed = stop - begin
        return found

    def _end(self, data: bytes, begin: int, end: int) -> int:
        """Where the packet ends that begins there; beyond ``end`` where so much is needed to know, or to have it."""
        if begin + 2 > end:
            return begin + 2
        length = data[begin + 1]
        if length < 128:
            return begin + 2 + length
        length -= 128
        for place in (1, 2, 3):
            at = begin + 1 + place
            if at >= end:
                return at + 1
            length += (data[at] & 127) << (7 * place)
            if data[at] < 128:
                return at + 1 + length
        raise ValueError("a packet whose length has no end")

    def _read(self, data: bytes, begin: int, stop: int, now_ns: int) -> Packet:
        head = data[begin]
        if head & 0xF0 != _PUBLISH and head != _PUBACK:
            return data[begin:stop]
        body = begin + 2
        while data[body - 1] > 127:
            body += 1
        if head == _PUBACK:
            if stop < body + 2:
                raise ValueError("a confirmation without a number")
            mid = data[body] << 8 | data[body + 1]
            return Confirmed(mid, data[body + 2] if stop > body + 2 else 0)
        at = body + 2 + (data[body] << 8 | data[body + 1])
        topic, qos, mid, content_type = data[body + 2 : at], head >> 1 & 3, 0, ""
        if qos > 1:
            raise ValueError("a message of a quality that was not asked for")
        if qos:
            mid = data[at] << 8 | data[at + 1]
            at += 2
        if self._is_v5:
            at, content_type = _properties(data, at)
        if at > stop or not topic:
            raise ValueError("a message that is longer than its packet, or has no topic")
        try:
            return Incoming(
                str(topic, "utf-8"), data[at:stop], qos, bool(head & 1), mid, self._generation, now_ns, content_type
            )
        except UnicodeDecodeError:
            return Unreadable(mid, qos)


def publish_packet(message: Outgoing, mid: int, *, is_v5: bool) -> bytes:
    """PUBLISH; mid: its number where it is QoS 1. Raises ValueError for a topic or size that MQTT has no place for."""
    topic = message.topic.encode()
    if not topic or len(topic) > 65_535 or "+" in message.topic or "#" in message.topic:
        raise ValueError(f"{message.topic[:80]!r} is no topic to publish on")
    head = len(topic).to_bytes(2) + topic
    if message.qos:
        head += mid.to_bytes(2)
    if is_v5:
        properties = _property(message.content_type.encode())
        head += bytes(_length_bytes(len(properties))) + properties
    length = len(head) + len(message.payload)
    if length > LARGEST_BODY:
        raise ValueError(f"a message of {length} bytes; MQTT has room for {LARGEST_BODY}")
    kind_byte = _PUBLISH | message.qos << 1 | message.is_retained
    return bytes((kind_byte, *_length_bytes(length))) + head + message.payload


def puback_packets(mids: Iterable[int]) -> bytes:
    """PUBACK of every message number, in order; the same in both versions."""
    return b"".join([_ACK.pack(_PUBACK, 2, mid) for mid in mids])


def _property(content_type: bytes) -> bytes:
    return bytes((_CONTENT_TYPE,)) + len(content_type).to_bytes(2) + content_type if content_type else b""


def _length_bytes(length: int) -> list[int]:
    result = []
    while length > 127:
        result.append(length & 127 | 128)
        length >>= 7
    return [*result, length]


def _number(data: bytes, at: int) -> tuple[int, int]:
    """A number of variable length: where it ends, and what it says."""
    value = 0
    for place in range(4):
        value += (data[at + place] & 127) << (7 * place)
        if data[at + place] < 128:
            return at + place + 1, value
    raise ValueError("a number whose bytes have no end")


def _properties(data: bytes, at: int) -> tuple[int, str]:
    """Of a version 5 PUBLISH: where its properties end, and its content type."""
    at, size = _number(data, at)
    stop, content_type = at + size, ""
    while at < stop:
        kind = data[at]
        at += 1
        if kind in _FIXED:
            at += _FIXED[kind]
        elif kind == _SUBSCRIPTION:
            at, _ = _number(data, at)
        else:
            for _ in range(_TEXTS[kind]):
                size = data[at] << 8 | data[at + 1]
                if kind == _CONTENT_TYPE:
                    content_type = str(data[at + 2 : at + 2 + size], "utf-8", "replace")
                at += 2 + size
    if at != stop:
        raise ValueError("properties that are longer than they say")
    return stop, content_type
