"""``fleetgp demo`` as a user runs it: what it promises machines, and that it ends in order and leaves nothing behind."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from bench import DEMO_KEYS, Bench, Running, processes_of
from streams import write_recording, write_spec

from fleetgp.store.sqlite import open_reader

pytestmark = pytest.mark.broker

STREAMING = "streams "


@pytest.fixture(scope="module", autouse=True)
def contract_demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Bench, Running]]:
    """The demo of the contract takes half a minute: begun with the first test here, looked at by the last."""
    bench = Bench(tmp_path_factory.mktemp("contract"))
    flags = ["--headless", "--seconds", "30", "--json", "out.json", "--data-dir", str(bench.data)]
    yield bench, bench.run("demo", *flags)
    bench.end()


def wait_for(running: Running, words: str, timeout_s: float = 30.0) -> None:
    by_s = time.monotonic() + timeout_s
    while words not in running.said:
        assert running.is_alive, running.said
        assert time.monotonic() < by_s, running.said
        time.sleep(0.05)


def has_readings(data: Path) -> bool:
    """Whether the store of the demo that runs there holds some."""
    for path in data.glob("*/bridge/history.sqlite"):
        with closing(open_reader(path)) as reader:
            return bool(reader.series("reading"))
    return False


def test_an_endless_demo_ends_in_order(bench: Bench, eventually: Callable[..., None]) -> None:
    """Ctrl-C: all stop within 5 s, no process is left, the data are named, no reading is lost."""
    running = bench.run("demo", "--data-dir", str(bench.data))
    wait_for(running, STREAMING)
    assert re.search(r"dashboard +http://127\.0\.0\.1:\d+", running.said)
    assert len(processes_of(bench.data)) >= 10  # demo, broker, bridge, coordinator, dashboard, devices, five agents
    eventually(lambda: has_readings(bench.data), 20.0)
    assert running.stop(signal.SIGINT) == 0
    assert processes_of(bench.data) == []
    (folder,) = re.findall(r"data +(\S+)", running.said)
    assert (Path(folder) / "bridge" / "history.sqlite").exists()
    assert re.search(r"readings +\d+ sent, 0 lost", running.said)


def test_a_demo_that_is_stopped_at_once_ends_in_order(bench: Bench) -> None:
    """A closed terminal before a single reading was sent: no error about results that cannot be there."""
    running = bench.run("demo", "--data-dir", str(bench.data))
    wait_for(running, "programs ")
    assert running.stop(signal.SIGHUP) == 0
    assert processes_of(bench.data) == []
    assert "stopped before the streams began" in running.said
    assert "Traceback" not in running.said


def test_a_program_that_dies_ends_the_demo_with_its_last_words(bench: Bench) -> None:
    """It is named, exit status 2, and the others are not left behind."""
    running = bench.run("demo", "--data-dir", str(bench.data))
    wait_for(running, STREAMING)
    (victim,) = [pid for pid in processes_of(bench.data) if b"pump-3.toml" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    os.kill(victim, signal.SIGKILL)
    assert running.wait(15.0) == 2
    assert "pump-3 has ended (exit status -9); it said:" in running.said
    assert processes_of(bench.data) == []


def test_recordings_are_played_by_the_same_programs(bench: Bench, tmp_path: Path) -> None:
    """Two files, one an agent: all rows arrive and are predicted; it ends when they do, before its time is over."""
    files = [
        str(write_recording(tmp_path / f"site_{name}.csv", 250, seed=n)) for n, name in enumerate(("east", "west"))
    ]
    spec = str(write_spec(tmp_path / "spec.toml"))
    flags = ["--headless", "--seconds", "60", "--speed", "100", "--recording", *files, "--spec", spec]
    running = bench.run("demo", *flags, "--json", "-", "--data-dir", str(bench.data), "--broker", "nats")
    assert running.wait(40.0) == 0
    report = json.loads(running.said[running.said.index("{") :])
    assert set(report) == DEMO_KEYS
    sent = sum(len(Path(file).read_text().splitlines()) - 1 for file in files)
    assert (report["frames"], report["frames_lost"], report["agents"]) == (sent, 0, 2)
    assert report["predictions_stored"] >= sent - 2 * 3
    assert report["broker"] == "nats"


def test_what_cannot_run_is_said_before_anything_starts(bench: Bench, tmp_path: Path) -> None:
    """One line and exit status 2 each; nothing is left running."""
    (tmp_path / "file").write_text("not a folder")
    spec = str(write_spec(tmp_path / "spec.toml"))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        tries = {
            ("--port", port): f"127.0.0.1:{port}",
            ("--recording", "nowhere.csv", "--spec", spec): "no file nowhere.csv",
            ("--recording", spec, "--spec", "nowhere.toml"): "no file nowhere.toml",
            ("--json", "no/such/folder/out.json"): "no/such/folder",
            ("--data-dir", "file"): "--data-dir",
            ("--spec", spec): "name them with --recording",
        }
        for flags, words in tries.items():
            running = bench.run("demo", "--headless", "--seconds", "5", "--data-dir", str(bench.data), *flags)
            assert running.wait(20.0) == 2, running.said
            assert words in running.said
            assert "Traceback" not in running.said
    assert processes_of(bench.data) == []


def test_the_contract_for_machines(contract_demo: tuple[Bench, Running]) -> None:
    """Ends by itself with 0 and every figure of the contract, each what it must be after half a minute."""
    bench, running = contract_demo
    assert running.wait(60.0) == 0, running.said
    report = json.loads((bench.folder / "out.json").read_text())
    assert set(report) == DEMO_KEYS
    # five devices for 30 s; the sixth joins later
    assert 140 <= report["frames"] <= 160
    assert report["frames_lost"] == 0
    assert report["agents"] == 5
    assert report["frames"] - 3 * 5 <= report["predictions_stored"] <= report["frames"]
    assert report["rounds_closed"] >= 2
    assert report["dashboard_ok"] is True
    assert report["broker"] in ("mosquitto", "nats")
    assert 0.5 < report["coverage90"] <= 1.0
    assert 0 < report["rmse"] < 2 * report["rmse_persistence"]
    assert 10 < report["agent_rss_mb"] < 100
    assert report["bytes_per_round"] > 100
    assert report["events"] == len(report["event_agents"]) == 0, "the fault comes after 30 s"
    assert processes_of(bench.data) == []
