"""A bridge as a process of its own: what it was given is in the store once, whatever happens to it, its disk or its broker."""

from __future__ import annotations

import os
import signal
import time
from itertools import islice
from pathlib import Path

import pytest
from bench import Bench, Desk, Running, desk_at

from broker_bridge.broker import EmbeddedBroker
from broker_bridge.service import SHORT_LIFE_S
from fleetgp.store.base import Reader
from fleetgp.store.sqlite import open_reader
from fleetgp.wire import topics
from fleetgp.wire.messages import Status

pytestmark = pytest.mark.broker

SERIES = "sensors/mill"


def reading(sequence: int) -> dict[str, object]:
    """One of a thousand a second, of the last minute."""
    return {"seq": sequence, "time": START_MS + sequence, "load": sequence % 17, "heat": 40.0 + sequence % 5}


START_MS = time.time_ns() // 1_000_000 - 60_000


def rows(bench: Bench) -> int:
    reader = open_reader(bench.store)
    try:
        return sum(info.rows for info in reader.series("reading") if info.name == SERIES)
    finally:
        reader.close()


def assert_each_once(bench: Bench, count: int) -> Reader:
    reader = open_reader(bench.store)
    assert reader.sequences(SERIES) == list(range(count))
    assert [info.rows for info in reader.series("reading") if info.name == SERIES] == [count]
    return reader


def test_a_bridge_that_is_killed_under_load_loses_and_doubles_nothing(
    bench: Bench, desk: Desk, broker: EmbeddedBroker
) -> None:
    """Acknowledged or not at the moment of the kill: every reading is in the store exactly once."""
    bridge = bench.start("bridge", bridge__batch_s=0.05, bridge__batch_rows=50)
    desk.until(lambda: desk.is_online("bridge"))
    count = 4000
    said = iter(range(count))
    for stretch in (700, 900, 400):
        before = rows(bench)
        for sequence in islice(said, stretch):
            desk.say(SERIES, reading(sequence))
        desk.until(lambda before=before, stretch=stretch: rows(bench) > before + stretch // 3)
        bridge.kill()
        for sequence in islice(said, 300):  # kept by the broker
            desk.say(SERIES, reading(sequence))
        bridge = bench.start("bridge", bridge__batch_s=0.05, bridge__batch_rows=50)
    for sequence in said:
        desk.say(SERIES, reading(sequence))
    desk.until(lambda: rows(bench) == count, 25.0)
    assert bridge.stop() == 0
    assert_each_once(bench, count).close()


def test_a_full_disk_is_said_and_loses_nothing(bench: Bench, desk: Desk, broker: EmbeddedBroker) -> None:
    """Nothing is acknowledged, health and status say why; with room again all that came meanwhile is stored."""
    bridge = bench.start("bridge", bridge__batch_s=0.05)
    desk.until(lambda: desk.is_online("bridge"))
    for sequence in range(200):
        desk.say(SERIES, reading(sequence))
    desk.until(lambda: rows(bench) == 200)
    desk.until(lambda: desk.health("bridge") and not desk.health("bridge").note)
    bridge.limit_files(0)
    for sequence in range(200, 900):
        desk.say(SERIES, reading(sequence))
    desk.flush()
    desk.until(lambda: desk.dropped("bridge", "store_refused"))
    assert "cannot write to the history store" in desk.health("bridge").note
    desk.until(lambda: "cannot write to the history store" in desk.status("bridge").note)  # told after the health
    assert rows(bench) == 200
    bridge.limit_files(None)
    desk.until(lambda: rows(bench) == 900)
    desk.until(lambda: not desk.health("bridge").note)
    desk.until(lambda: desk.status("bridge").note == f"history in {bench.store}")
    bridge.limit_files(0)
    desk.say(SERIES, reading(900))
    desk.until(lambda: desk.health("bridge").note)
    assert bridge.stop() == 0, "to stop while the disk is full is no failure"
    bridge = bench.start("bridge", bridge__batch_s=0.05)
    desk.until(lambda: rows(bench) == 901)
    assert bridge.stop() == 0
    assert_each_once(bench, 901).close()


def test_no_payload_ends_a_bridge_and_each_is_counted(bench: Bench, desk: Desk, any_broker: EmbeddedBroker) -> None:
    """Unreadable ones are counted by reason; impossible times are filed apart, not lost; what is good is stored."""
    bridge = bench.start("bridge", bridge__batch_s=0.05)
    desk.until(lambda: desk.is_online("bridge"))
    unreadable = {
        b"\xff\xfe": "encoding", b'{"load": 1': "syntax", b'{"load": NaN}': "syntax", b"it rains": "text",
        b"": "empty", b"1e999": "range", b"[" * 5000: "depth", b'{"a":' * 5000 + b"1" + b"}" * 5000: "depth",
        b'{"a": "b"}': "no_field",
    }  # fmt: skip
    for payload in unreadable:
        desk.say(SERIES, payload)
    for claimed in ("1970-01-01T00:00:00Z", "2100-01-01T00:00:00Z"):
        desk.say(SERIES, {"time": claimed, "load": 3.0})
    for kind in ("status", "events", "health"):  # of our own topics, too
        desk.say(topics.agent("home", "ghost", kind), b'{"type": "spook"}')
    for sequence in range(10):
        desk.say(SERIES, reading(sequence))
        desk.say(SERIES, reading(sequence))  # at least once is twice at times
    desk.flush()
    desk.say_once(SERIES, bytes(50_000_000 if any_broker.kind == "mosquitto" else 12_000_000))
    desk.until(lambda: desk.dropped("bridge", "oversized") == 1)
    expected = {reason: list(unreadable.values()).count(reason) for reason in unreadable.values()}
    expected |= {"implausible_time": 2, "duplicate": 10, "tag": 3}
    assert {reason: desk.dropped("bridge", reason) for reason in expected} == expected
    assert bridge.stop() == 0
    reader = assert_each_once(bench, 10)
    (quarantined,) = [info for info in reader.series("reading") if info.name == f"quarantine:{SERIES}"]
    assert quarantined.rows == 2
    assert {"load", "claimed_at_ms"} <= set(quarantined.channels)
    reader.close()


def test_what_came_in_is_stored_before_the_end(bench: Bench, desk: Desk, any_broker: EmbeddedBroker) -> None:
    """Predictions are sent once, QoS 0: those that reached the bridge before SIGTERM are stored, however long a batch is."""
    bridge = bench.start("bridge", bridge__batch_s=60)
    desk.until(lambda: desk.is_online("bridge"))
    now_ms = time.time_ns() // 1_000_000
    for number in range(40):
        payload = (
            b'{"type":"prediction","at_ms":%d,"agent":"a","sequence":%d,"channels":{},"score":0,"threshold":8}'
            % (now_ms + number, number)
        )
        desk.say_once(topics.agent("home", "a", "predictions"), payload, qos=0)
    desk.until(lambda: len(desk.predictions("a")) == 40)
    desk.listen(0.3)
    assert bridge.stop() == 0
    reader = open_reader(bench.store)
    assert [(info.name, info.rows) for info in reader.series("prediction")] == [("a", 40)]
    reader.close()


@pytest.fixture
def own(bench: Bench, free_port: int) -> Running:
    """A bridge that runs a broker of its own on a port that was asked for."""
    bench.url = f"mqtt://127.0.0.1:{free_port}"
    flags = ["--data-dir", str(bench.data), "--own-broker", "--set", f"bridge.port={free_port}"]
    return bench.run("bridge", *flags, "--set", "bridge.health_s=1", "--set", "bridge.batch_s=0.05")


def broker_pid(bench: Bench) -> int:
    (file,) = (bench.data / "broker").glob("*/broker.pid")
    return int(file.read_text().split()[0])


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_a_broker_of_its_own_is_started_again_and_ends_with_the_bridge(
    bench: Bench, own: Running, tmp_path: Path
) -> None:
    """A user needs no other program: the address is printed, a dead broker comes back on it, SIGTERM leaves nothing behind."""
    with desk_at(bench.url, tmp_path) as desk:
        desk.until(lambda: desk.is_online("bridge"))
        assert f"at {bench.url}" in own.said
        for sequence in range(50):
            desk.say(SERIES, reading(sequence))
        desk.until(lambda: rows(bench) == 50)
        first = broker_pid(bench)
        alive_s = time.monotonic() + SHORT_LIFE_S  # sooner a death counts as that of a broker that cannot run
        desk.until(lambda: time.monotonic() > alive_s)
        os.kill(first, signal.SIGKILL)
        for sequence in range(50, 100):
            desk.say(SERIES, reading(sequence))
        desk.until(lambda: rows(bench) == 100)
        second = broker_pid(bench)
        assert second != first
        desk.until(lambda: desk.dropped("bridge", "broker_restarts") == 1)
        instance = desk.of(Status, topics.service("home", "bridge", "status"))[-1].instance
        assert instance
        assert own.stop() == 0
    assert not is_running(second)
    assert_each_once(bench, 100).close()


def test_a_broker_that_cannot_live_ends_the_bridge_with_its_words(bench: Bench, own: Running, tmp_path: Path) -> None:
    """One that dies as soon as it was started is not started for ever."""
    with desk_at(bench.url, tmp_path) as desk:
        desk.until(lambda: desk.is_online("bridge"))
        os.kill(broker_pid(bench), signal.SIGKILL)
        assert own.wait() == 2
    assert "broker ended soon after its start" in own.said
    assert "Traceback" not in own.said


def test_what_a_broker_sends_ahead_is_stored_without_waiting_for_more(
    bench: Bench, desk: Desk, broker: EmbeddedBroker
) -> None:
    """A broker that has sent its 20 unacknowledged messages waits for us: we must not wait for it."""
    bridge = bench.start("bridge", bridge__batch_s=60)
    desk.until(lambda: desk.is_online("bridge"))
    for sequence in range(30):
        desk.say(SERIES, reading(sequence))
    desk.until(lambda: rows(bench) == 30, 20.0)
    assert bridge.stop() == 0
    assert_each_once(bench, 30).close()
