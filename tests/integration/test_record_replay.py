"""Recorded, replayed and recorded again, by real programs over real brokers: the same messages in their order and spacing."""

from __future__ import annotations

import json
import os
import random
import signal
import statistics
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from bench import Bench, Desk, Running, desk_at

from broker_bridge.broker import EmbeddedBroker
from fleetgp.recording import mcap
from fleetgp.recording.message import Gap, Message
from fleetgp.runtime.mqtt import Outgoing

pytestmark = pytest.mark.broker

Eventually = Callable[..., None]


@pytest.fixture
def other(broker: EmbeddedBroker, tmp_path: Path) -> Iterator[EmbeddedBroker]:
    """A second broker of the same kind, with nothing in it."""
    with EmbeddedBroker.start(broker.kind, tmp_path / "other") as running:
        yield running


def record(bench: Bench, file: str, url: str, eventually: Eventually, *flags: str) -> Running:
    """A recorder that hears everything from now on."""
    recorder = bench.run("record", "--broker", url, "-o", file, "--json", f"{file}.json", *flags)
    eventually(lambda: "connected" in recorder.said or not recorder.is_alive)
    assert recorder.is_alive, recorder.said
    return recorder


def replay(bench: Bench, file: str, url: str, *flags: str) -> Running:
    return bench.run("replay", file, "--broker", url, "--json", "replay.json", *flags)


def report(bench: Bench, name: str) -> dict[str, object]:
    return json.loads((bench.folder / name).read_text())


def messages(path: Path) -> list[Message]:
    return [one for one in mcap.read(path) if isinstance(one, Message)]


def has(path: Path, count: int) -> bool:
    """Whether a recording that is still written holds so many messages."""
    return sum(isinstance(one, Message) for one in mcap.recover(path)) >= count


def same(message: Message) -> tuple[object, ...]:
    """All of a message but when it came, and whether it was the broker's memory."""
    return message.topic, message.payload, message.published_ns, message.qos


def test_a_recording_replayed_and_recorded_again_is_the_same(
    bench: Bench, broker: EmbeddedBroker, other: EmbeddedBroker, tmp_path: Path, eventually: Eventually
) -> None:
    """Messages, quality, retained state, order within a quality, and spacing within 20 ms at the median."""
    with desk_at(broker.url, tmp_path, "nothing/here") as desk:
        assert desk.session.wait_connected(10.0)
        desk.say("hall/lamp", b"on", is_retained=True)
        desk.flush()
        first = record(bench, "first.mcap", broker.url, eventually)
        for n in range(60):
            payload = (
                json.dumps({"seq": n, "time": time.time_ns() // 1_000_000}).encode() if n % 3 else b"\x00\xff%d" % n
            )
            assert desk.session.publish(Outgoing(f"sensors/{n % 4}", payload, n % 2))
            desk.listen(0.03)
        desk.flush()
        eventually(lambda: has(tmp_path / "first.mcap", 61))
        assert first.stop() == 0, first.said
    originals = messages(tmp_path / "first.mcap")
    assert [(m.topic, m.is_retained) for m in originals][:1] == [("hall/lamp", True)]
    assert len(originals) == 61
    assert sum(m.is_retained for m in originals) == 1
    second = record(bench, "second.mcap", other.url, eventually)
    assert replay(bench, "first.mcap", other.url).wait(30) == 0
    eventually(lambda: has(tmp_path / "second.mcap", 61))
    assert second.stop() == 0, second.said
    copies = messages(tmp_path / "second.mcap")
    for qos in (0, 1):
        assert [same(m) for m in copies if m.qos == qos] == [same(m) for m in originals if m.qos == qos]
    begin = {one[0].received_ns: one for one in (originals, copies)}
    spacings = [
        {m.payload: (m.received_ns - start_ns) / 1e6 for m in recorded} for start_ns, recorded in sorted(begin.items())
    ]
    off_ms = [abs(spacings[0][m.payload] - spacings[1][m.payload]) for m in originals]
    assert statistics.median(off_ms) < 20
    assert max(off_ms) < 500
    with desk_at(other.url, tmp_path, "hall/#", name="late") as late:
        late.until(lambda: late.heard)
        assert [(m.topic, m.payload, m.is_retained) for m in late.heard] == [("hall/lamp", b"on", True)]


def test_at_full_speed_all_arrive_in_order(
    bench: Bench, broker: EmbeddedBroker, tmp_path: Path, eventually: Eventually
) -> None:
    originals = [
        Message(f"sensors/{n % 5}", b'{"seq": %d}' % n, 1_700_000_000_000_000_000 + n * 10**9, 0, 1)
        for n in range(5000)
    ]
    with mcap.McapWriter(tmp_path / "day.mcap", {}) as writer:
        for message in originals:
            writer.write(message)
    recorder = record(bench, "copy.mcap", broker.url, eventually)
    player = replay(bench, "day.mcap", broker.url, "--speed", "max")
    assert player.wait(30) == 0, player.said
    eventually(lambda: has(tmp_path / "copy.mcap", 5000))
    assert recorder.stop() == 0
    assert [same(m) for m in messages(tmp_path / "copy.mcap")] == [same(m) for m in originals]
    told = report(bench, "copy.mcap.json")
    assert (told["messages"], told["topics"], told["lost"], told["gaps"]) == (5000, 5, 0, [])
    assert mcap.verify(tmp_path / "copy.mcap").is_whole
    assert report(bench, "replay.json")["sent"] == 5000


def test_a_recorder_that_is_killed_keeps_all_but_its_last_seconds(
    bench: Bench, any_broker: EmbeddedBroker, tmp_path: Path, eventually: Eventually
) -> None:
    """And the file that it left is replayed as far as it goes, said so, with an exit status that tells."""
    with desk_at(bench.url, tmp_path, "nothing/here") as desk:
        assert desk.session.wait_connected(10.0)
        recorder = record(bench, "cut.mcap", bench.url, eventually)
        for n in range(3000):
            desk.say("sensors/a", b'{"seq": %d, "filling": "%064d"}' % (n, n))
        desk.flush()
        eventually(lambda: has(tmp_path / "cut.mcap", 2900))
        recorder.kill()
    scan = mcap.recover(tmp_path / "cut.mcap")
    kept = [one for one in scan if isinstance(one, Message)]
    assert [json.loads(m.payload)["seq"] for m in kept] == list(range(len(kept)))
    assert not scan.is_closed
    with desk_at(bench.url, tmp_path, "again/#", name="ear") as ear:
        assert ear.session.wait_connected(10.0)
        player = replay(bench, "cut.mcap", bench.url, "--speed", "max", "--prefix", "again")
        assert player.wait(30) == 1
        ear.until(lambda: len(ear.heard) == len(kept))
        assert {m.topic for m in ear.heard} == {"again/sensors/a"}
    assert "damaged: cut.mcap: it is cut" in player.said
    assert "Traceback" not in player.said


def test_a_broker_that_is_killed_makes_a_gap_and_nothing_else_is_missing(
    bench: Bench, broker: EmbeddedBroker, tmp_path: Path, eventually: Eventually
) -> None:
    """A publisher with an outbox says on: what the recorder heard on both sides of the gap has no hole."""
    with desk_at(broker.url, tmp_path, "nothing/here") as desk:
        assert desk.session.wait_connected(10.0)
        recorder = record(bench, "day.mcap", broker.url, eventually)
        for n in range(200):
            desk.say("sensors/a", b"%d" % n)
        eventually(lambda: has(tmp_path / "day.mcap", 200))
        os.kill(broker.pid, signal.SIGKILL)
        for n in range(200, 300):
            desk.say("sensors/a", b"%d" % n)
        eventually(lambda: "disconnected" in recorder.said)
        with EmbeddedBroker.start(broker.kind, tmp_path / "broker", broker.port):
            eventually(lambda: "gap of" in recorder.said, 30.0)
            for n in range(300, 400):
                desk.say("sensors/a", b"%d" % n)
            desk.flush(30.0)
            eventually(lambda: has(tmp_path / "day.mcap", 300))
            assert recorder.stop() == 0, recorder.said
    recorded = list(mcap.read(tmp_path / "day.mcap"))
    (gap,) = [one for one in recorded if isinstance(one, Gap)]
    heard = [one for one in recorded if isinstance(one, Message)]
    before = [int(m.payload) for m in heard if m.received_ns <= gap.start_ns]
    after = {int(m.payload) for m in heard if m.received_ns >= gap.end_ns}
    assert before == list(range(200))
    assert after >= set(range(300, 400))
    assert not [m for m in heard if gap.start_ns < m.received_ns < gap.end_ns]
    told = report(bench, "day.mcap.json")
    assert len(told["gaps"]) == 1  # type: ignore[arg-type]
    assert told["lost"] == 0


def test_a_full_disk_ends_a_recording_in_order_with_what_is_written(
    bench: Bench, desk: Desk, any_broker: EmbeddedBroker, tmp_path: Path, eventually: Eventually
) -> None:
    recorder = record(bench, "full.mcap", bench.url, eventually, "--topics", "sensors/#")
    for n in range(100):
        desk.say("sensors/a", b"%d" % n)
    eventually(lambda: has(tmp_path / "full.mcap", 100))
    recorder.limit_files((tmp_path / "full.mcap").stat().st_size + 100)
    for n in range(100, 200):
        desk.say("sensors/a", b"%d" % n)
    assert recorder.wait() == 2
    assert "the recording ended early" in recorder.said
    assert "Traceback" not in recorder.said
    kept = [one.payload for one in mcap.recover(tmp_path / "full.mcap") if isinstance(one, Message)]
    assert kept[:100] == [b"%d" % n for n in range(100)]
    told = report(bench, "full.mcap.json")
    assert told["messages"] == len(kept)
    assert 0 < told["lost"] <= 200 - len(kept)  # type: ignore[operator]


def test_files_follow_one_another_and_are_replayed_as_one(
    bench: Bench, desk: Desk, any_broker: EmbeddedBroker, tmp_path: Path, eventually: Eventually
) -> None:
    """Named in any order: they are merged by their times."""
    recorder = record(bench, "day.mcap", bench.url, eventually, "--topics", "sensors/#", "--rotate", "64kB")
    rng = random.Random(3)
    for n in range(1500):
        desk.say("sensors/a", b"%d " % n + rng.randbytes(100))
    desk.flush()
    eventually(lambda: sum(map(len, map(list, map(mcap.recover, tmp_path.glob("day-*.mcap"))))) == 1500)
    assert recorder.stop(signal.SIGINT) == 0, recorder.said
    files = sorted(path.name for path in tmp_path.glob("day-*.mcap"))
    assert len(files) >= 2
    again = bench.run("record", "--broker", bench.url, "-o", "day.mcap", "--rotate", "64kB")
    assert again.wait() == 2
    assert "is there already" in again.said
    with desk_at(bench.url, tmp_path, "re/#", name="ear") as ear:
        assert ear.session.wait_connected(10.0)
        player = bench.run("replay", *reversed(files), "--broker", bench.url, "--speed", "max", "--prefix", "re/")
        assert player.wait(30) == 0, player.said
        ear.until(lambda: len(ear.heard) == 1500)
        assert [int(m.payload.split()[0]) for m in ear.heard] == list(range(1500))


@pytest.fixture
def hour(tmp_path: Path) -> str:
    """An hour of two sensors, one message a second each, and what the fleet said of itself."""
    with mcap.McapWriter(tmp_path / "hour.mcap", {}) as writer:
        for second in range(3600):
            at_ns = (1_700_000_000 + second) * 10**9
            for name in ("a", "b"):
                payload = json.dumps({"x": second, "time": at_ns // 10**6}).encode()
                writer.write(Message(f"sensors/{name}", payload, at_ns, at_ns, 1))
            writer.write(Message("fleetgp/home/agents/a/health", b"{}", at_ns))
    return "hour.mcap"


def test_a_span_moved_to_now_and_looped_with_a_fault_in_it(
    bench: Bench, any_broker: EmbeddedBroker, tmp_path: Path, hour: str
) -> None:
    with desk_at(bench.url, tmp_path, "#", name="ear") as ear:
        assert ear.session.wait_connected(10.0)
        now_ms = time.time_ns() // 1_000_000
        cut = ("--from", "+10min", "--to", "+11min", "--topic", "sensors/+", "--prefix", "x/", "--rebase", "now")
        fault = ("--inject", "drop:sensors/b=100%")
        player = replay(bench, hour, bench.url, *cut, "--loop", "2", "--speed", "600", *fault)
        assert player.wait(30) == 0, player.said
        ear.until(lambda: len(ear.heard) == 120)
        assert {m.topic for m in ear.heard} == {"x/sensors/a"}
        assert [json.loads(m.payload)["x"] for m in ear.heard] == [*range(600, 660)] * 2
        times = [json.loads(m.payload)["time"] for m in ear.heard]
        assert [after - before for before, after in pairwise(times)] == [1000] * 119
        assert now_ms <= times[0] <= now_ms + 10_000
    told = report(bench, "replay.json")
    assert (told["sent"], told["unconfirmed"], told["loops"]) == (120, 0, 2)
    assert told["faults"]["faults"][0]["messages"] > 0  # type: ignore[index]
    assert "late: p50" in player.said
    assert "leave the clock behind" in player.said


def test_ctrl_c_ends_a_replay_in_order_and_says_how_far_it_went(
    bench: Bench, desk: Desk, any_broker: EmbeddedBroker, hour: str
) -> None:
    with desk_at(bench.url, bench.folder, "sensors/#", name="ear") as ear:
        assert ear.session.wait_connected(10.0)
        player = replay(bench, hour, bench.url)
        ear.until(lambda: len(ear.heard) >= 2)
        assert player.stop(signal.SIGINT) == 1
    assert "stopped before the end" in player.said
    told = report(bench, "replay.json")
    assert told["stopped"] is True
    assert told["unconfirmed"] == 0
    assert 0 < told["sent"] < 60  # type: ignore[operator]
    assert "Traceback" not in player.said


def test_a_broker_that_is_away_for_a_while_stops_the_replays_clock(
    bench: Bench, broker: EmbeddedBroker, tmp_path: Path, hour: str, eventually: Eventually
) -> None:
    """No message is lost: what was on its way is sent again."""
    flags = ("--from", "+1min", "--to", "+5min", "--speed", "60")
    player = replay(bench, hour, broker.url, *flags)
    eventually(lambda: "connected" in player.said)
    with desk_at(broker.url, tmp_path, "sensors/#", name="ear") as ear:
        ear.until(lambda: len(ear.heard) >= 20)
        os.kill(broker.pid, signal.SIGKILL)
        eventually(lambda: "the broker is away" in player.said)
        with EmbeddedBroker.start(broker.kind, tmp_path / "broker", broker.port):
            assert player.wait(30) == 0, player.said
    told = report(bench, "replay.json")
    assert told["sent"] == 480
    assert told["unconfirmed"] == 0
    assert told["broker_away_s"] > 0  # type: ignore[operator]


def test_a_table_is_replayed_as_devices_would_send_it(bench: Bench, any_broker: EmbeddedBroker, tmp_path: Path) -> None:
    rows = "".join(f"2026-03-04T10:00:{n:02},{20 + n}\n" for n in range(5))
    (tmp_path / "attic.csv").write_text("time,temperature\n" + rows)
    with desk_at(bench.url, tmp_path, "sensors/#", name="ear") as ear:
        assert ear.session.wait_connected(10.0)
        player = replay(bench, "attic.csv", bench.url, "--speed", "10")
        assert player.wait(20) == 0, player.said
        ear.until(lambda: len(ear.heard) == 5)
    assert {m.topic for m in ear.heard} == {"sensors/attic"}
    assert [json.loads(m.payload)["temperature"] for m in ear.heard] == [20, 21, 22, 23, 24]


def test_a_fault_that_meets_nothing_and_a_recording_that_holds_nothing_are_said(
    bench: Bench, broker: EmbeddedBroker, hour: str
) -> None:
    """The times of the past, moved by a span that begins as a flag does."""
    flags = ("--to", "+5s", "--speed", "max", "--rebase", "-2d")
    player = replay(bench, hour, broker.url, *flags, "--inject", "offset:sensors/a:y=3")
    assert player.wait(20) == 1, player.said
    assert "fields there are x, time" in player.said
    assert report(bench, "replay.json")["sent"] == 10
    nothing = replay(bench, hour, "mqtt://127.0.0.1:1", "--topic", "hall/#")
    assert nothing.wait(20) == 2
    assert "nothing to play" in nothing.said
    assert "no connection" not in nothing.said, "nothing is connected for nothing"
