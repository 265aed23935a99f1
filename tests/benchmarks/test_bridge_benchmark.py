"""The arithmetic of the bridge's benchmark, and its streams and readers on a small scale."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import bridge, bridge_drain, bridge_faults, bridge_pace
from benchmarks import bridge_peers as peers
from benchmarks.bridge_drain import Point
from benchmarks.bridge_faults import Tally
from benchmarks.report import Report
from broker_bridge.broker import is_available
from fleetgp.errors import ServiceError
from fleetgp.payloads import read
from fleetgp.runtime.link import Incoming
from fleetgp.runtime.packets import Framer

needs_mosquitto = pytest.mark.skipif(not is_available("mosquitto"), reason="mosquitto is not installed here")


def test_every_bound_of_the_bridge_is_a_bar_and_is_not_judged_unmeasured() -> None:
    report = Report("bridge", bridge.BARS)
    report.figures |= {"bridge.readings_per_s": 11_999, "bridge.p99_ms": 1_000, "influx.lost": 0.0, "record.lost": 1.0}
    holds = {bar["name"]: bar["holds"] for bar in report.as_dict()["bars"]}
    assert holds == {
        "bridge.readings_per_s": False,
        "bridge.ratio_subscriber": None,
        "bridge.p99_ms": True,
        "bridge.rss_mb": None,
        "record.ratio_subscriber": None,
        "record.lost": False,
        "replay.ratio_publisher": None,
        "replay.p99_late_ms": None,
        "bridge.lost": None,
        "bridge.duplicated": None,
        "influx.lost": True,
    }


def test_messages_carry_eight_channels_and_run_on_by_device() -> None:
    said = list(peers.messages(45, 1_700_000_000_000))
    contents = [read(message.payload) for message in said]
    assert {len(content.values) for content in contents} == {8}
    by_device: dict[str, list[int | None]] = {}
    for message, content in zip(said, contents, strict=True):
        by_device.setdefault(message.topic, []).append(content.sequence)
    assert len(by_device) == peers.DEVICES
    assert sorted(map(len, by_device.values())) == [2] * 15 + [3] * 5
    assert all(numbers == list(range(len(numbers))) for numbers in by_device.values())
    times = [content.at_ms for content in contents if content.at_ms is not None]
    assert set(np.diff(times[:: peers.DEVICES])) == {peers.STEP_MS}


@given(
    st.text(st.characters(codec="ascii", categories=["L"]), min_size=1), st.binary(max_size=400), st.integers(1, 10**6)
)
def test_the_packets_that_fill_a_queue_are_mqtt(topic: str, payload: bytes, number: int) -> None:
    (found,) = Framer(1, is_v5=False).feed(peers.publish_packet(peers.Said(topic, payload), number), 0)
    assert isinstance(found, Incoming)
    assert (found.topic, found.payload, found.qos) == (topic, payload, 1)
    assert found.mid == (number - 1) % 65_535 + 1


def test_a_rate_is_of_the_points_that_were_asked_for() -> None:
    seen = [Point(10.0, 5), Point(11.0, 105), Point(12.0, 305), Point(20.0, 310)]
    assert bridge_drain.rate(seen, 1, 310) == pytest.approx(30.5)
    assert bridge_drain.rate(seen, 50, 300) == pytest.approx(200.0)
    with pytest.raises(ServiceError, match="too few"):
        bridge_drain.rate(seen, 1, 5)


def test_a_delay_ends_when_so_many_are_there() -> None:
    seen = [Point(1.5, 1), Point(2.0, 3)]
    assert bridge_pace.delays_s([1.0, 1.1, 1.9], seen) == pytest.approx([0.5, 0.9, 0.1])


@given(st.lists(st.floats(0, 5), min_size=1, max_size=50), st.floats(-100, 100))
def test_lateness_does_not_depend_on_the_clock_and_the_most_punctual_has_none(
    late: list[float], began_s: float
) -> None:
    offsets = [0.005 * index for index in range(len(late))]
    found = bridge_pace.lateness_s([began_s + a + b for a, b in zip(offsets, late, strict=True)], offsets)
    assert found == pytest.approx(np.array(late) - min(late), abs=1e-9)


def test_what_is_missing_and_what_is_twice_there_are_counted_apart() -> None:
    sent = {"a": 4, "b": 3, "c": 2}
    stored = {"a": [0, 1, 1, 3], "b": [0, 1, 2], "c": list[int]()}
    assert bridge_faults.tally(sent, stored) == Tally(9, 3, 1)
    assert bridge_faults.tally(sent, {}) == Tally(9, 9, 0)


def test_victims_take_turns_and_moments_are_the_seeds() -> None:
    planned = bridge_faults.plan(20, ("bridge", "broker", "store"), 7)
    assert [one.victim for one in planned[:4]] == ["bridge", "broker", "store", "bridge"]
    assert planned == bridge_faults.plan(20, ("bridge", "broker", "store"), 7)
    assert planned != bridge_faults.plan(20, ("bridge", "broker", "store"), 8)
    assert all(1.0 <= one.after_s <= 3.0 and 0.1 <= one.down_s <= 1.0 for one in planned)


@pytest.mark.broker
@needs_mosquitto
@pytest.mark.parametrize("drain", [bridge_drain.by_subscriber, bridge_drain.by_bridge, bridge_drain.by_recorder])
def test_a_queue_is_worked_off_by_every_reader_and_nothing_is_missing(drain: object, tmp_path: Path) -> None:
    assert callable(drain)
    found = drain(tmp_path, 3_000)
    assert found.lost == 0
    assert found.per_s > 100


@pytest.mark.broker
@needs_mosquitto
def test_a_kill_of_the_bridge_and_one_of_the_broker_lose_and_double_nothing(tmp_path: Path) -> None:
    found = bridge_faults.kills(tmp_path, "mosquitto", 2, has_influx=False, seed=1)
    assert found.sent > 500
    assert (found.lost, found.duplicated) == (0, 0)
