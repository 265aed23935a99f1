"""A whole fleet of processes through what a fleet must live with: no broker, a killed one, a killed coordinator."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from pathlib import Path
from typing import Literal

import pytest
from bench import FLEET, Bench, Desk, Running, desk_at

from broker_bridge.broker import EmbeddedBroker
from coordinator import rounds
from coordinator.config import coordinator_config
from coordinator.journal import Journal as CoordinatorJournal
from coordinator.state import Event, PublishModel, PublishRound, State, SummaryArrived, Tick
from edge_agent import agent
from edge_agent.memory import SNAPSHOT_VERSION, Entry, Saved
from edge_agent.state import ModelArrived, Publish
from fleetgp.runtime import snapshot
from fleetgp.runtime.journal import Journal
from fleetgp.runtime.settings import load
from fleetgp.store.sqlite import open_reader
from fleetgp.wire import codec, topics
from fleetgp.wire.freeze import freeze, thaw
from fleetgp.wire.messages import FleetModel, RoundNotice

pytestmark = pytest.mark.broker

NAMES = ("pump-1", "pump-2")
STREAM = """\
[stream]
interval = 0.1
lags = 2
phases = []
inducing = 0
[channels]
temperature = {}
pressure = {}
vibration = {}
current = {}
"""
# rounds as short as they may be, and a memory that keeps every event
QUICK = {"coordinator__round_s": 1, "coordinator__answer_s": 0.3}


def start_agent(bench: Bench, name: str) -> Running:
    """It waits for late readings: after an outage the devices send what is new first, and what waited beside it."""
    return bench.agent(name, STREAM, agent__snapshot_s=86400, agent__lateness_s=10)


def start_devices(bench: Bench, seconds: float, report: Path) -> Running:
    """One reading every 0.1 s of every device, numbered."""
    return bench.run(
        "devices", "--broker", bench.url, "--data-dir", str(bench.data), "--names", *NAMES,
        "--interval", "0.1", "--seconds", str(seconds), "--report", str(report),
    )  # fmt: skip


def read_report(file: Path) -> dict[str, int]:
    """Messages that the devices have sent, by device; all of them reached the broker."""
    report = json.loads(file.read_text())
    assert report["unsent"] == 0
    sent: dict[str, int] = report["sent"]
    return sent


def closed_rounds(desk: Desk) -> list[int]:
    return sorted({notice.round for notice in desk.rounds("closed")})


def test_a_fleet_outlives_its_broker(
    bench: Bench, broker_kind: Literal["mosquitto", "nats"], free_port: int, tmp_path: Path
) -> None:
    """Absent at the start, started later, killed and started again under load: no reading is lost, all learn and rounds go on."""
    bench.url = f"mqtt://127.0.0.1:{free_port}"
    programs = [bench.start("bridge"), bench.start("coordinator", **QUICK), *(start_agent(bench, n) for n in NAMES)]
    with desk_at(bench.url, tmp_path) as desk:
        for program in programs:
            while "nothing listens" not in program.said:
                assert program.is_alive
                desk.listen(0.05)
        broker = EmbeddedBroker.start(broker_kind, tmp_path / "broker", free_port)
        try:
            desk.until(lambda: all(desk.is_online(name) for name in ("bridge", "coordinator", *NAMES)))
            # mosquitto writes to its disk once a second whose messages it has to keep
            safe_s = time.monotonic() + 2.5
            devices = start_devices(bench, 5.0, tmp_path / "sent.json")
            desk.until(lambda: all(len(desk.predictions(name)) > 5 for name in NAMES))
            desk.until(lambda: closed_rounds(desk) and time.monotonic() > safe_s)
            os.kill(broker.pid, signal.SIGKILL)
            desk.until(lambda: not desk.session.is_connected and not broker.is_alive)
            assert all(program.is_alive for program in programs)
            broker = EmbeddedBroker.start(broker_kind, tmp_path / "broker", free_port)
            before = closed_rounds(desk)[-1]
            assert devices.wait(20.0) == 0
            sent = read_report(tmp_path / "sent.json")
            # every reading but the first, which an agent starts from, was predicted and learnt
            desk.until(lambda: all(desk.health(n).figures["predictions"] == sent[n] - 1 for n in NAMES), 20.0)
            desk.until(lambda: closed_rounds(desk)[-1] >= before + 2, 20.0)
            desk.until(lambda: desk.status("coordinator").basis >= 1)
            assert [program.stop() for program in programs] == [0] * len(programs)
        finally:
            broker.stop()
    reader = open_reader(bench.store)
    assert all(reader.sequences(f"sensors/{name}") == list(range(sent[name])) for name in NAMES)
    for program in programs:
        assert program.said.count("nothing listens") <= 2, "said once for each outage, not once for each attempt"


class CoordinatorTruth:
    """What the coordinator's brain makes of what its journal holds."""

    def __init__(self, bench: Bench) -> None:
        shutil.copytree(bench.data / "coordinator", bench.folder / "copy", dirs_exist_ok=True)
        self.models: list[bytes] = []
        self.closed: list[RoundNotice] = []
        self.summaries: dict[str, list[bytes]] = {name: [] for name in NAMES}
        settings = load(None, {}, {name.replace("__", "."): str(value) for name, value in QUICK.items()})
        journal = CoordinatorJournal(bench.folder / "copy" / "journal.sqlite")
        self.state = journal.load(rounds.init(coordinator_config(settings), 0), self._step)
        journal.close()

    def _step(self, state: State, event: Event) -> tuple[State, object]:
        if isinstance(event, SummaryArrived):
            self.summaries[event.agent_id].append(event.payload)
        state, effects = rounds.step(state, event)
        for effect in effects:
            if isinstance(effect, PublishModel):
                self.models.append(effect.payload)
            elif isinstance(effect, PublishRound) and effect.notice.state == "closed":
                self.closed.append(effect.notice)
        return state, effects


class AgentTruth:
    """What an agent's brain makes of what its journal holds: all payloads by kind, and the models it took."""

    def __init__(self, folder: Path) -> None:
        payload = snapshot.load(folder / "snapshot.bin", version=SNAPSHOT_VERSION)
        assert payload is not None
        self.state = thaw(payload, Saved).state
        self.said: dict[str, list[bytes]] = {"predictions": [], "events": [], "bootstrap": [], "summary": []}
        self.models: list[bytes] = []
        journal = Journal(folder / "journal.bin")
        for record in journal.read():
            event = thaw(record, Entry).event
            if isinstance(event, ModelArrived):
                self.models.append(event.payload)
            self.state, effects = agent.step(self.state, event)
            for effect in effects:
                if isinstance(effect, Publish):
                    self.said[effect.kind].append(codec.encode(effect.message))
        journal.close()


def unique(payloads: list[bytes]) -> list[bytes]:
    """Each once, in the order of their first coming: what follows a kill may be said twice."""
    return list(dict.fromkeys(payloads))


def test_a_fleet_is_what_its_brains_make_of_its_journals(bench: Bench, desk: Desk, any_broker: EmbeddedBroker) -> None:
    """Agents first learn alone; the coordinator comes, is killed in the middle of a round and comes again, and so is an agent.

    Whatever travelled (predictions, summaries, models) is to the last bit what the brains compute from the events in the
    journals: the processes add nothing, lose nothing and take nothing twice. The simulated fleet runs the same brains.
    """
    agents = {name: start_agent(bench, name) for name in NAMES}
    desk.until(lambda: all(desk.is_online(name) for name in NAMES))
    devices = start_devices(bench, 6.0, bench.folder / "sent.json")
    desk.until(lambda: all(len(desk.predictions(name)) > 10 for name in NAMES))
    assert {prediction.basis for name in NAMES for prediction in desk.predictions(name)} == {0}
    coordinator = bench.start("coordinator", **QUICK)
    desk.until(lambda: desk.status("coordinator") and desk.status("coordinator").basis >= 1)
    desk.until(lambda: all(desk.predictions(name)[-1].basis >= 1 for name in NAMES))
    opened = len(desk.rounds("opened"))
    desk.until(lambda: len(desk.rounds("opened")) > opened)
    coordinator.kill()  # in the middle of a round
    at_kill = CoordinatorTruth(bench)
    coordinator = bench.start("coordinator", **QUICK)
    agents["pump-1"].kill()
    agents["pump-1"] = start_agent(bench, "pump-1")
    desk.until(lambda: closed_rounds(desk) and closed_rounds(desk)[-1] >= at_kill.state.round + 2)
    assert devices.wait() == 0
    sent = read_report(bench.folder / "sent.json")
    for name in NAMES:
        desk.until(lambda name=name: desk.predictions(name)[-1].sequence == sent[name] - 2)
    coordinator.kill()
    for running in agents.values():
        running.kill()
    desk.listen(0.5)
    truth = CoordinatorTruth(bench)
    assert truth.state.origin == at_kill.state.origin
    assert truth.models[: len(at_kill.models)] == at_kill.models, "what was journalled is journalled for good"
    heard = [m.payload for m in desk.heard if m.topic == topics.fleet_wide(FLEET, "model")]
    assert unique(heard) == truth.models
    numbers = [notice.round for notice in truth.closed]
    assert numbers == list(range(1, len(numbers) + 1))
    assert closed_rounds(desk) == numbers, "a round that was closed is said to be, even where a kill came between"
    for name in NAMES:
        mine = AgentTruth(bench.data / f"agent-{name}")
        heard = {
            kind: unique([m.payload for m in desk.heard if m.topic == topics.agent(FLEET, name, kind)])
            for kind in mine.said
        }
        assert heard["predictions"] == mine.said["predictions"]
        # of summaries and moments a newer one may have taken the place of one that was still to be sent
        assert [
            p for p in heard["summary"] + heard["bootstrap"] if p not in mine.said["summary"] + mine.said["bootstrap"]
        ] == []
        assert [p for p in mine.models if p not in truth.models] == []
        assert len(mine.models) >= 3
        # a summary is journalled by the coordinator as it was sent, and none that was not
        assert [p for p in truth.summaries[name] if p not in mine.said["summary"]] == []
        assert len(truth.summaries[name]) >= 3
    last = codec.decode(truth.models[-1], FleetModel)
    assert set(last.included) == set(NAMES)
    assert_comes_back(bench, truth.state)


def assert_comes_back(bench: Bench, state: State) -> None:
    """Started again where no broker can be reached, so that nothing more happens, it is the coordinator that was killed."""
    bench.url = "mqtt://127.0.0.1:1"
    again = bench.start("coordinator", **QUICK)
    while "took up where it was left" not in again.said:
        assert again.is_alive
    assert again.stop() == 0
    assert freeze(CoordinatorTruth(bench).state) == freeze(state)
    assert f"round={state.round} agents=2" in again.said


def test_what_followed_from_the_last_event_is_said_after_a_kill(
    bench: Bench, desk: Desk, any_broker: EmbeddedBroker
) -> None:
    """A round that was journalled as closed when the kill came, before it was said to be, is said to be closed."""
    folder = bench.data / "coordinator"
    folder.mkdir(parents=True)
    settings = load(None, {}, {name.replace("__", "."): str(value) for name, value in QUICK.items()})
    journal = CoordinatorJournal(folder / "journal.sqlite")
    state = journal.load(rounds.init(coordinator_config(settings), 1000), rounds.step)
    for at_ms in (1000, 1400):
        journal.append([Tick(at_ms)], state)
        state, _ = rounds.step(state, Tick(at_ms))
    journal.close()
    bench.start("coordinator", **QUICK)
    desk.until(lambda: desk.rounds("closed"))
    assert (desk.rounds("closed")[0].round, desk.rounds("closed")[0].at_ms) == (1, 1400)
