"""A running fleet is recorded, and its brains, run again from the recording, say exactly what the fleet said."""

from __future__ import annotations

import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from bench import FLEET, Bench, Desk, Running, desk_at

from broker_bridge.broker import EmbeddedBroker
from fleetgp.recording import mcap
from fleetgp.recording.message import Message, Recorded
from fleetgp.runtime.settings import load
from fleetgp.wire import topics
from simulator import demo
from simulator.demo import Demo, DemoPlan
from simulator.faults import inject, parse
from simulator.recorded_fleet import Outcome, run_again
from simulator.run_recorded import totals

pytestmark = pytest.mark.broker

STREAM = """\
[stream]
interval = 0.1
lags = 2
phases = []
inducing = 8
[channels]
temperature = {}
pressure = {}
vibration = {}
current = {}
"""
# two channels in messages of their own, one of which is silent now and then: its frames are closed by the wall clock
SPLIT = """\
[stream]
interval = 0.2
lags = 1
phases = []
inducing = 0
[channels]
warm = { topic = "split/warm" }
damp = { topic = "split/damp" }
"""
QUICK = {"coordinator__round_s": 1, "coordinator__answer_s": 0.4}


def recorded(file: Path) -> list[Recorded]:
    return list(mcap.read(file))


def again(messages: list[Recorded]) -> Outcome:
    return run_again(lambda: iter(messages), load(None, {}, {}))


def spoken(messages: list[Recorded]) -> Counter[str]:
    """How many messages of each kind the fleet sent."""
    kinds = [topics.parse(one.topic) for one in messages if isinstance(one, Message) and not one.is_retained]
    return Counter(address.kind for address in kinds if address is not None)


def start_recorder(bench: Bench, url: str, file: Path) -> Running:
    return bench.run("record", "--broker", url, "--topics", "#", "-o", str(file))


def assert_as_recorded(messages: list[Recorded]) -> Outcome:
    """Everything, to the last bit."""
    outcome, said = again(messages), spoken(messages)
    assert not [one.trouble for one in (*outcome.agents.values(), *outcome.coordinators.values()) if one.trouble]
    total = totals(outcome)
    for kind, topic in (("predictions", "predictions"), ("models", "model"), ("notices", "round")):
        assert dict(total[kind].counts) == {"same": said[topic] - total[kind].repeated}, total[kind].first
        assert not total[kind].missing
    assert set(total["events"].counts) <= {"same"}, total["events"].first
    assert total["events"].recorded == total["events"].counts["same"] <= said["events"]
    assert dict(total["answers"].counts) == {"same": said["summary"] + said["bootstrap"]}, total["answers"].first
    return outcome


@pytest.mark.slow
def test_the_demo_run_again_from_its_recording_says_what_it_said(
    tmp_path: Path, bench: Bench, monkeypatch: pytest.MonkeyPatch, eventually: Callable[..., None]
) -> None:
    """The whole demo, its late joiner and its fault; all a little earlier than a user sees them."""
    for name, value in (("JOIN_AFTER_S", 8.0), ("FAULT_AFTER_S", 22.0), ("ROUND_S", 4.0)):
        monkeypatch.setattr(demo, name, value)
    file, recorders = tmp_path / "demo.mcap", []

    def say(line: str) -> None:
        if line.startswith("broker"):
            recorders.append(start_recorder(bench, line.split()[-1], file))
            eventually(file.exists, 15.0)

    result = Demo(DemoPlan(tmp_path / "demo", seconds=29.0, say=say), threading.Event()).run()
    recorders[0].stop(signal.SIGINT)
    messages = recorded(file)
    outcome = assert_as_recorded(messages)
    total = totals(outcome)
    assert {name for _, name in outcome.agents} == {f"pump-{number}" for number in range(1, 7)}
    assert total["predictions"].recorded == result.predictions_stored
    assert outcome.agents[(demo.FLEET, "pump-6")].predictions.recorded >= 20
    assert outcome.agents[(demo.FLEET, "pump-3")].events.recorded >= 1
    assert total["models"].recorded >= 3
    # and it is no matter of course: one reading of one pump a little otherwise, and that pump says something else
    changed, _ = inject(iter(messages), parse("offset:sensors/pump-1:temperature@+20s+2s=0.5"), 0)
    other = again(list(changed))
    assert other.agents[(demo.FLEET, "pump-1")].predictions.counts["different"]
    assert dict(other.agents[(demo.FLEET, "pump-2")].predictions.counts) == {
        "same": outcome.agents[(demo.FLEET, "pump-2")].predictions.recorded
    }


@pytest.mark.slow
def test_a_fleet_through_kills_silences_and_late_joiners_is_run_again_exactly(
    broker: EmbeddedBroker, bench: Bench, tmp_path: Path
) -> None:
    file = tmp_path / "fleet.mcap"
    recorder = start_recorder(bench, broker.url, file)
    with desk_at(bench.url, tmp_path) as desk:
        desk.until(lambda: file.exists(), 15.0)
        bench.start("coordinator", **QUICK)
        names = ["pump-1", "pump-2"]
        agents = {name: bench.agent(name, STREAM, agent__alarm_score=6) for name in names}
        bench.run(
            "agent", "--broker", bench.url, "--data-dir", str(bench.data), "--config", str(split_file(bench)),
            "--set", "fleet=split",
        )  # fmt: skip
        desk.until(lambda: all(desk.is_online(name) for name in names), 20.0)
        report = tmp_path / "sent.json"
        devices = bench.run(
            "devices", "--broker", bench.url, "--data-dir", str(bench.data), "--names", "pump-1", "pump-2", "pump-3",
            "--interval", "0.1", "--seconds", "10", "--fault", "1@6", "--join", "2@5", "--report", str(report),
        )  # fmt: skip
        talk(desk, 3.0)
        agents["pump-1"].kill()
        talk(desk, 0.7)
        agents["pump-1"] = bench.agent("pump-1", STREAM, agent__alarm_score=6)
        bench.agent("pump-3", STREAM)
        desk.until(lambda: devices.process.poll() is not None, 30.0)
        desk.until(lambda: len(desk.predictions("pump-3")) > 40, 20.0)
        talk(desk, 1.5)
        others = [running for running in bench.programs if running is not recorder and running.is_alive]
        for running in others:
            running.process.terminate()
        for running in others:
            running.wait()
    recorder.stop(signal.SIGINT)
    outcome = assert_as_recorded(recorded(file))
    assert set(outcome.agents) == {(FLEET, "pump-1"), (FLEET, "pump-2"), (FLEET, "pump-3"), ("split", "split")}
    assert totals(outcome)["events"].recorded >= 2
    assert outcome.agents[("split", "split")].predictions.recorded > 10


def split_file(bench: Bench) -> Path:
    file = bench.folder / "split.toml"
    file.write_text(f'[agent]\nid = "split"\n{SPLIT}')
    return file


def talk(desk: Desk, seconds: float) -> None:
    """Readings on topics of their own for a while; every fifth of the second channel is missing."""
    begin_s = time.monotonic()
    for number in range(int(seconds / 0.2)):
        while time.monotonic() < begin_s + number * 0.2:
            desk.listen(0.02)
        at_ms = round(time.time() * 1000)
        desk.say("split/warm", {"value": 20 + (number * 7 % 5) / 10, "time": at_ms})
        if number % 5 != 4:
            desk.say("split/damp", {"value": 50 + (number * 3 % 7) / 10, "time": at_ms})
