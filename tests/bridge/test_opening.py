"""What a broker remembers, told twice as it comes: each once in the recording, in the order in which it first came."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from plain_mosquitto import plain_mosquitto, publisher

from broker_bridge.broker import EmbeddedBroker
from broker_bridge.opening import LONGEST_S, MOST, QUIET_S, Opening, twice
from fleetgp.cli import main
from fleetgp.recording import mcap
from fleetgp.recording.message import Message
from fleetgp.runtime.mqtt import Incoming


def said(topic: str, payload: bytes = b"1", qos: int = 0, *, is_retained: bool = True, at_ns: int = 0) -> Incoming:
    return Incoming(topic, payload, qos, is_retained, 0, 1, at_ns)


def test_a_message_that_is_remembered_is_told_once_with_its_quality() -> None:
    opening = Opening()
    first = [said(f"t/{n}", at_ns=n) for n in range(5)]
    again = [said(f"t/{n}", qos=1, at_ns=100 + n) for n in (1, 3)]
    assert opening.take(first, 1, 0.0) == []
    assert opening.take(again, 1, QUIET_S / 2) == []
    assert opening.due(QUIET_S) == [], "they still came then"
    assert opening.due(2 * QUIET_S) == [said(f"t/{n}", qos=int(n in (1, 3)), at_ns=n) for n in range(5)]
    later = [said("t/1", is_retained=False)]
    assert opening.take(later, 1, 5.0) is later, "after that nothing is held"


def test_news_keep_their_place_and_are_never_taken_for_memory() -> None:
    opening = Opening()
    came = [said("a"), said("a", is_retained=False), said("a", is_retained=False), said("a", b"2"), said("a", b"2", 1)]
    opening.take(came, 1, 0.0)
    assert opening.release() == [*came[:3], came[4]]
    assert opening.release() == []
    assert opening.repeats_dropped == 1


def test_nothing_is_held_where_nothing_is_remembered() -> None:
    opening = Opening()
    came = [said("a", is_retained=False)]
    assert opening.take(came, 1, 0.0) is came
    assert opening.release() == []


def test_what_is_held_is_bounded_in_time_and_number() -> None:
    opening = Opening()
    for tenth in range(int(LONGEST_S * 10)):
        assert opening.take([said(f"t/{tenth}")], 1, tenth / 10) == []
    assert len(opening.take([said("last")], 1, LONGEST_S)) == int(LONGEST_S * 10) + 1
    assert len(opening.take([said(f"t/{n}") for n in range(MOST)], 2, 9.0)) == MOST


def test_the_second_subscription_is_the_one_that_stays() -> None:
    assert twice(["a/#", "b"]) == (("a/#", 0), ("b", 0), ("a/#", 1), ("b", 1))


@pytest.mark.broker
def test_thousands_of_remembered_messages_are_all_recorded(tmp_path: Path, free_port: int) -> None:
    """With mosquitto's own limits: it keeps 1,000 messages of QoS 1 for a reader."""
    with plain_mosquitto(tmp_path, free_port, "sys_interval 1"):
        with publisher(free_port) as client:
            for n in range(3000):
                client.publish(f"t/{n}", b"%d" % n, qos=1, retain=True)
        told = _record_all(tmp_path, f"mqtt://127.0.0.1:{free_port}", 3000)
    assert told["broker_dropped"] == 0, "what it dropped of our second subscription nobody misses"


@pytest.mark.broker
def test_every_broker_tells_its_memory_once(broker: EmbeddedBroker, tmp_path: Path) -> None:
    with publisher(broker.port) as client:
        for n in range(30):
            client.publish(f"t/{n}", b"%d" % n, qos=1, retain=True)
    _record_all(tmp_path, broker.url, 30)


def _record_all(tmp_path: Path, url: str, count: int) -> dict[str, object]:
    out, report = tmp_path / "all.mcap", tmp_path / "all.json"
    flags = ["--broker", url, "--topics", "t/#", "-o", str(out), "--json", str(report)]
    assert main(["record", *flags, "--seconds", "3"]) == 0
    found = [one for one in mcap.read(out) if isinstance(one, Message)]
    assert sorted(int(one.payload) for one in found) == list(range(count))
    assert all(one.is_retained for one in found)
    assert sum(one.qos for one in found) > 0
    told: dict[str, object] = json.loads(report.read_text())
    assert told["messages"] == count
    return told
