"""``fleetgp demo`` as a user runs it: what it promises machines, and that it ends in order and leaves nothing behind."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import time
from pathlib import Path

import pytest
from bench import DEMO_KEYS, Bench, Running, processes_of
from streams import write_recording, write_spec

pytestmark = pytest.mark.broker

STREAMING = "streams "


def wait_for(running: Running, words: str, timeout_s: float = 30.0) -> None:
    by_s = time.monotonic() + timeout_s
    while words not in running.said:
        assert running.is_alive, running.said
        assert time.monotonic() < by_s, running.said
        time.sleep(0.05)


def test_an_endless_demo_ends_in_order(contract_demo: object, bench: Bench) -> None:
    """Ctrl-C: all stop within 5 s, no process is left, the data are named, no reading is lost."""
    running = bench.run("demo", "--data-dir", str(bench.data))
    wait_for(running, STREAMING)
    assert re.search(r"dashboard +http://127\.0\.0\.1:\d+", running.said)
    assert len(processes_of(bench.data)) >= 10  # demo, broker, bridge, coordinator, dashboard, devices, five agents
    time.sleep(1.5)  # some readings under way
    assert running.stop(signal.SIGINT) == 0
    assert processes_of(bench.data) == []
    (folder,) = re.findall(r"data +(\S+)", running.said)
    assert (Path(folder) / "bridge" / "history.sqlite").exists()
    assert re.search(r"readings +\d+ sent, 0 lost", running.said)


def test_a_demo_that_is_stopped_at_once_ends_in_order(contract_demo: object, bench: Bench) -> None:
    """A closed terminal before a single reading was sent: no error about results that cannot be there."""
    running = bench.run("demo", "--data-dir", str(bench.data))
    wait_for(running, "programs ")
    assert running.stop(signal.SIGHUP) == 0
    assert processes_of(bench.data) == []
    assert "stopped before the streams began" in running.said
    assert "Traceback" not in running.said


def test_a_program_that_dies_ends_the_demo_with_its_last_words(contract_demo: object, bench: Bench) -> None:
    """It is named, exit status 2, and the others are not left behind."""
    running = bench.run("demo", "--data-dir", str(bench.data))
    wait_for(running, STREAMING)
    (victim,) = [pid for pid in processes_of(bench.data) if b"pump-3.toml" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    os.kill(victim, signal.SIGKILL)
    assert running.wait(15.0) == 2
    assert "pump-3 has ended (exit status -9); it said:" in running.said
    assert processes_of(bench.data) == []


def test_recordings_are_played_by_the_same_programs(contract_demo: object, bench: Bench, tmp_path: Path) -> None:
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


def test_what_cannot_run_is_said_before_anything_starts(contract_demo: object, bench: Bench, tmp_path: Path) -> None:
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
