"""PUBLISH and PUBACK as we read and write them, against paho's own reading and writing."""

from __future__ import annotations

import struct
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from paho.mqtt._packet import decode_publish
from paho.mqtt.enums import MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from fleetgp.runtime.link import Incoming, Outgoing
from fleetgp.runtime.packets import Confirmed, Framer, Packet, Unreadable, puback_packets, publish_packet

TOPICS = st.text(st.characters(exclude_characters="+#\0", exclude_categories=("Cs",)), min_size=1, max_size=80)
MESSAGES = st.builds(
    Outgoing,
    topic=TOPICS,
    payload=st.binary(max_size=400),
    qos=st.integers(0, 1),
    is_retained=st.booleans(),
    content_type=st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=200),
)
MIDS = st.integers(1, 65_535)
PINGRESP, SUBACK = b"\xd0\x00", b"\x90\x03\x00\x07\x01"


def with_length(head: int, body: bytes) -> bytes:
    """A packet of this body, its length written as the standard's pseudo code does (2.2.3)."""
    length, result, left = [], bytes((head,)), len(body)
    while True:
        digit, left = left % 128, left // 128
        length.append(digit | 128 if left else digit)
        if not left:
            return result + bytes(length) + body


def read(data: bytes, *, is_v5: bool = False, now_ns: int = 5) -> list[Packet]:
    return Framer(3, is_v5=is_v5).feed(data, now_ns)


@given(MESSAGES, MIDS, st.booleans())
def test_paho_reads_what_we_write(message: Outgoing, mid: int, is_v5: bool) -> None:
    packet = publish_packet(message, mid, is_v5=is_v5)
    body = packet[1:]
    while body[0] > 127:
        body = body[1:]
    assert packet == with_length(packet[0], body[1:])
    version = MQTTProtocolVersion.MQTTv5 if is_v5 else MQTTProtocolVersion.MQTTv311
    told = decode_publish(packet[0], body[1:], version)
    assert (told.topic.decode(), told.payload, told.qos, told.retain) == (
        message.topic,
        message.payload,
        message.qos,
        message.is_retained,
    )
    assert told.mid == (mid if message.qos else 0)
    if is_v5:
        assert getattr(told.properties, "ContentType", "") == message.content_type


@given(st.lists(st.tuples(MESSAGES, MIDS), max_size=8), st.booleans(), st.lists(st.integers(0, 3000), max_size=12))
def test_packets_come_out_whole_and_in_order_however_they_are_cut(
    sent: list[tuple[Outgoing, int]], is_v5: bool, cuts: list[int]
) -> None:
    data, expected = b"", list[Packet]()
    for message, mid in sent:
        data += publish_packet(message, mid, is_v5=is_v5) + PINGRESP + puback_packets([mid])
        number, kind = mid if message.qos else 0, message.content_type if is_v5 else ""
        came = Incoming(message.topic, message.payload, message.qos, message.is_retained, number, 3, 5, kind)
        expected += [came, PINGRESP, Confirmed(mid)]
    framer, places = Framer(3, is_v5=is_v5), sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    found = [packet for a, b in pairwise(places) for packet in framer.feed(data[a:b], 5)]
    assert found == expected


def test_other_packets_keep_their_place_among_messages() -> None:
    one, two = (publish_packet(Outgoing("t", text), 0, is_v5=False) for text in (b"1", b"2"))
    found = read(one + SUBACK + two)
    assert [packet if isinstance(packet, bytes) else type(packet) for packet in found] == [Incoming, SUBACK, Incoming]


def test_properties_of_version_5_are_passed_over_and_the_content_type_is_kept() -> None:
    properties: Any = Properties(PacketTypes.PUBLISH)
    properties.PayloadFormatIndicator = 1
    properties.MessageExpiryInterval = 70_000
    properties.ResponseTopic = "back"
    properties.CorrelationData = b"\x00\x01"
    properties.SubscriptionIdentifier = 300
    properties.ContentType = "text/csv"
    properties.UserProperty = ("origin", "line 3")
    body = struct.pack("!H", 1) + b"t" + struct.pack("!H", 9) + properties.pack() + b"payload"
    assert read(with_length(0x32, body), is_v5=True) == [Incoming("t", b"payload", 1, False, 9, 3, 5, "text/csv")]


def test_a_verdict_of_version_5_is_told() -> None:
    assert read(b"\x40\x02\x00\x05" + b"\x40\x04\x01\x00\x97\x00") == [Confirmed(5), Confirmed(256, 0x97)]


def test_a_topic_that_is_no_text_is_told_with_its_number() -> None:
    assert read(with_length(0x32, b"\x00\x01\xff\x00\x07x")) == [Unreadable(7, 1)]


@pytest.mark.parametrize(
    "data",
    [
        b"\x30\xff\xff\xff\xff\x01",  # a length of five bytes
        b"\x36\x05\x00\x01t\x00\x07",  # QoS 3
        b"\x34\x05\x00\x01t\x00\x07",  # QoS 2, which we never ask for
        b"\x30\x03\x00\x09t",  # the topic is longer than the packet
        b"\x30\x02\x00\x00",  # no topic
        b"\x32\x03\x00\x01t" + PINGRESP,  # no room for a number
        b"\x40\x01\x00" + PINGRESP,  # half a number
    ],
)
def test_what_breaks_the_protocol_is_refused(data: bytes) -> None:
    with pytest.raises((ValueError, LookupError)):
        read(data)


@given(st.lists(st.binary(max_size=60), max_size=5), st.booleans())
def test_no_bytes_end_it_otherwise_than_by_a_refusal(parts: list[bytes], is_v5: bool) -> None:
    framer, size = Framer(1, is_v5=is_v5), 0
    try:
        for part in parts:
            for packet in framer.feed(part, 0):
                size += len(packet.payload) if isinstance(packet, Incoming) else 2
    except (ValueError, LookupError):
        return
    assert size <= sum(map(len, parts))


def test_a_great_message_in_small_parts_is_not_copied_for_each_of_them() -> None:
    """64 MB in parts of 4 kB: copying what is there for every part would take minutes."""
    body = b"\x00\x01t" + bytes(64_000_000)
    data, framer = with_length(0x30, body), Framer(1, is_v5=False)
    found = [packet for at in range(0, len(data), 4096) for packet in framer.feed(data[at : at + 4096], 0)]
    assert [len(packet.payload) for packet in found if isinstance(packet, Incoming)] == [64_000_000]


@pytest.mark.parametrize("topic", ["", "a/+", "a/#", "x" * 65_536])
def test_what_is_no_topic_cannot_be_published_on(topic: str) -> None:
    with pytest.raises(ValueError, match="no topic"):
        publish_packet(Outgoing(topic, b""), 1, is_v5=False)
