"""What sensors can do to a running agent: unreadable payloads, impossible times, duplicates, silence, floods."""

from __future__ import annotations

import random
import signal
import time
import urllib.request
from collections import Counter
from pathlib import Path

import pytest
from bench import Bench, Desk, desk_at
from ports import unused_port
from streams import STREAM, by_the_brains, write_recording, write_spec
from test_agent_process import assert_same

from broker_bridge.broker import EmbeddedBroker
from edge_agent import agent
from edge_agent.config import agent_config
from edge_agent.frames import Sample
from edge_agent.memory import Memory
from edge_agent.service import BACKLOG
from edge_agent.state import Readings
from fleetgp.recording import csv, spec
from fleetgp.runtime.logs import Log
from fleetgp.runtime.settings import load

pytestmark = pytest.mark.broker

TOPIC = "sensors/pump-1"
TWO = "[stream]\ninterval = 0.1\nlags = 2\nphases = []\ninducing = 0\n[channels]\nflow = {}\ndust = {}\n"
# payload, what the agent counts it as
UNREADABLE: tuple[tuple[bytes, tuple[str, ...]], ...] = (
    (b"\xff\xfe\x00 not text", ("encoding",)),
    (b'{"flow": 1.0, "dust"', ("syntax",)),
    (b'{"flow": NaN}', ("syntax",)),
    (b"it rains", ("text",)),
    (b"", ("empty",)),
    (b"1e999", ("range",)),
    (b'{"flow": 1e999}', ("range",)),
    (b'{"flow": 1e300}', ("field_range", "no_known_field")),
    (b'{"flow": "much"}', ("field_text", "no_known_field")),
    (b'{"wind": 1.0}', ("no_known_field",)),
    (b"[" * 5000 + b"]" * 5000, ("depth",)),
    (b'{"a":' * 5000 + b"1" + b"}" * 5000, ("depth",)),
    (b'{"flow": 1.0, "time": 0}', ("implausible_time",)),
    (b'{"flow": 1.0, "time": "1970-01-02T00:00:00Z"}', ("implausible_time",)),
    (b'{"flow": 1.0, "time": "2100-01-01T00:00:00Z"}', ("implausible_time",)),
)


def test_no_payload_ends_an_agent_and_each_is_counted(bench: Bench, desk: Desk, any_broker: EmbeddedBroker) -> None:
    """Every unreadable payload is counted by its reason, and the reading that comes after it is taken."""
    running = bench.agent("pump-1", TWO)
    desk.until(lambda: desk.is_online("pump-1"))
    for payload, _ in UNREADABLE:
        desk.say(TOPIC, payload)
    desk.flush()
    # as large as this broker lets through
    desk.say_once(TOPIC, bytes(50_000_000 if any_broker.kind == "mosquitto" else 12_000_000))
    desk.say_once(TOPIC, b'{"flow": 1.0, "pad": "' + b"x" * 2_000_000 + b'"}')
    now_ms = time.time_ns() // 1_000_000
    for number in range(30):
        desk.say(TOPIC, {"time": now_ms - 3000 + 100 * number, "flow": 1.0 + number % 3, "dust": "nan"})
    desk.until(lambda: len(desk.predictions("pump-1")) > 5)
    expected = Counter(reason for _, reasons in UNREADABLE for reason in reasons) + Counter(size=1, oversized=1)
    desk.until(lambda: desk.dropped("pump-1", "size"))
    assert {reason: desk.dropped("pump-1", reason) for reason in expected} == expected
    assert running.stop() == 0
    assert "Traceback" not in running.said


def test_duplicate_late_and_swapped_readings_change_nothing(
    bench: Bench, desk: Desk, tmp_path: Path, any_broker: EmbeddedBroker
) -> None:
    """An unruly line gives the predictions of the orderly recording; what came twice or too late is counted."""
    file, described = write_recording(tmp_path / "pump-1.csv", 120, seed=4), write_spec(tmp_path / "spec.toml")
    truth, _ = by_the_brains("pump-1", file, described)
    fields = [item.name for item in spec.load(described).inputs]
    rows = [
        {"time": record.at_ms, **{n: None if v != v else v for n, v in zip(fields, record.values, strict=True)}}
        for record in csv.read(file, spec.load(described))
    ]
    rng = random.Random(7)
    unruly: list[dict[str, float | None]] = []
    repeated = late = 0
    order = list(range(len(rows)))
    for index in range(1, len(rows) - 2, 3):
        if rng.random() < 0.6:  # neighbours change places, but the first stays: it is what ticks are counted from
            order[index : index + 2] = index + 1, index
    for index in order:
        row = rows[index]
        unruly.append(row)
        if rng.random() < 0.2:
            unruly.append(dict(row))  # the same again, as a broker does
            repeated += 1
        if rng.random() < 0.1:
            unruly.append({**row, "flow": 99.0})  # another value for a time that has one
            repeated += 1
        if index > 60 and rng.random() < 0.1:
            unruly.append({**rows[index - 50], "flow": -99.0})
            late += 1
    running = bench.agent("pump-1", STREAM, agent__clock="recording")
    desk.until(lambda: desk.is_online("pump-1"))
    for row in unruly:
        desk.say(TOPIC, row)
    # the last frames wait for those before them until the stream's time has passed
    desk.until(lambda: len(desk.predictions("pump-1")) >= len(truth) - 3)
    found = desk.predictions("pump-1")
    assert_same(found, truth[: len(found)])
    desk.until(lambda: desk.dropped("pump-1", "duplicate") + desk.dropped("pump-1", "late") == 4 * (repeated + late))
    assert desk.dropped("pump-1", "late") >= 4 * late
    assert running.stop() == 0


def test_the_status_tells_a_newcomer_what_is_missing(bench: Bench, desk: Desk, any_broker: EmbeddedBroker) -> None:
    """Nothing at all, messages that hold nothing of use, one channel that never comes, then all is well."""

    def note() -> str:
        status = desk.status("pump-1")
        return status.note if status else ""

    running = bench.agent("pump-1", TWO)
    desk.until(lambda: note() == "no reading yet on sensors/pump-1")
    desk.say(TOPIC, {"temperature": 21.0})
    desk.until(lambda: "none holds a reading" in note())
    assert "no_known_field" in note()
    start_ms = time.time_ns() // 1_000_000 - 10_000
    for number in range(40):
        desk.say(TOPIC, {"time": start_ms + 100 * number, "flow": float(number % 5)})
    desk.until(lambda: note() == "nothing comes for dust; predicting without")
    desk.until(lambda: len(desk.predictions("pump-1")) >= 10)
    assert all(p.channels["dust"].observed is None for p in desk.predictions("pump-1"))
    for number in range(40, 60):
        desk.say(TOPIC, {"time": start_ms + 100 * number, "flow": float(number % 5), "dust": 3.0})
    desk.until(lambda: note() == "")
    assert running.stop() == 0


def test_a_flood_is_bounded_and_what_must_arrive_arrives(bench: Bench, desk: Desk, any_broker: EmbeddedBroker) -> None:
    """With the agent's disk full nothing is worked off: QoS 0 beyond the inbox is dropped and counted, QoS 1 waits."""
    running = bench.agent("pump-1", TWO)
    desk.until(lambda: desk.health("pump-1"))
    running.limit_files(0)
    start_ms = time.time_ns() // 1_000_000 - 60_000
    for number in range(100):
        desk.say(TOPIC, {"time": start_ms + 100 * number, "flow": float(number % 7), "dust": 1.0})
    desk.flush()
    desk.until(lambda: "journal" in desk.health("pump-1").note)
    assert "cannot write" in desk.status("pump-1").note
    desk.flood(TOPIC, [b'{"wind": 1}'] * 5000)
    for _ in range(100):
        if desk.dropped("pump-1", "inbox_dropped"):
            break
        desk.flood(TOPIC, [b'{"wind": 1}'] * 200)
        desk.listen(0.1)
    assert desk.dropped("pump-1", "inbox_dropped") > 0
    assert desk.health("pump-1").figures["inbox_depth"] <= 5000
    assert not desk.predictions("pump-1")
    running.limit_files(None)
    times = [start_ms + 100 * number for number in range(100)]
    # the first frame is what the agent starts from, the last is not complete before its time is over
    desk.until(lambda: [p.at_ms for p in desk.predictions("pump-1")][: len(times) - 1] == times[1:])
    desk.until(lambda: not desk.health("pump-1").note)
    assert not desk.status("pump-1").note
    assert running.stop() == 0


def test_a_program_that_is_to_stop_while_its_disk_is_full_stops(
    bench: Bench, desk: Desk, any_broker: EmbeddedBroker
) -> None:
    """It ends in time and with 0, for it did what it was asked; the reading that it could not keep comes again."""
    running = bench.agent("pump-1", TWO)
    desk.until(lambda: desk.health("pump-1"))
    running.limit_files(0)
    start_ms = time.time_ns() // 1_000_000 - 60_000
    for number in range(30):
        desk.say(TOPIC, {"time": start_ms + 100 * number, "flow": float(number % 7), "dust": 1.0})
    desk.until(lambda: desk.health("pump-1").note)
    assert running.stop() == 0
    running = bench.agent("pump-1", TWO)
    desk.until(lambda: len(desk.predictions("pump-1")) == 29)
    assert running.stop() == 0


def test_predictions_that_nobody_can_hear_wait_within_a_bound(bench: Bench, tmp_path: Path, free_port: int) -> None:
    """Without a broker the newest are kept, in order, and the memory they take is bounded; they are sent when one is there."""
    file = tmp_path / "pump-1.toml"
    file.write_text(f'[agent]\nid = "pump-1"\ntopic = "{TOPIC}"\nclock = "recording"\n{TWO}')
    config = agent_config(load(file, {}, {}))
    memory = Memory(bench.data / "agent-pump-1", agent.init(config, 1000), Log("test", level="error"))
    for number in range(BACKLOG + 600):  # what a killed agent has left in its journal
        at_ms = 1_700_000_000_000 + 100 * number
        memory.keep(Readings(at_ms, (Sample(at_ms, at_ms, (0, 1), (float(number % 9), float(number % 7))),)))
    memory.close()
    bench.url = f"mqtt://127.0.0.1:{free_port}"
    page = unused_port()
    running = bench.agent("pump-1", TWO, agent__clock="recording", metrics__port=page)
    by_s = time.monotonic() + 20
    while f"fleetgp_backlog_depth {BACKLOG}" not in look(page).splitlines():
        assert running.is_alive, running.said
        assert time.monotonic() < by_s, look(page)
        time.sleep(0.05)
    running.process.send_signal(signal.SIGSTOP)  # until somebody listens
    with EmbeddedBroker.start("auto", tmp_path / "broker", free_port), desk_at(bench.url, tmp_path) as desk:
        assert desk.session.wait_connected(10.0)
        running.process.send_signal(signal.SIGCONT)
        desk.until(lambda: len(desk.predictions("pump-1")) >= BACKLOG)
        assert [p.sequence for p in desk.predictions("pump-1")] == list(range(599, 599 + BACKLOG))
        assert running.stop() == 0


def look(port: int) -> str:
    """The metrics page; "" before there is one."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
            text: str = answer.read().decode()
            return text
    except OSError:
        return ""
