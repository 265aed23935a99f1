"""What a demo came to, read from a real store: the same figures as from the predictions themselves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from simulated_streams import START, TICK, plan, predicted, records

from broker_bridge.batcher import sort
from fleetgp.store.base import Batch, Reader, Row
from fleetgp.store.sqlite import open_reader, open_writer
from fleetgp.wire import codec, topics
from fleetgp.wire.messages import Health, Message, Prediction, RoundNotice, Status
from simulator.accuracy import Accuracy
from simulator.devices import Device, Fault, schema
from simulator.fleet import Outcome
from simulator.results import results

NAMES = ("pump-1", "pump-2")
COUNT = 240
LOST = (3, 7, 100)


@dataclass(frozen=True)
class Arrived:
    topic: str
    payload: bytes
    received_ms: int = START
    is_retained: bool = False


def said(agent: str, kind: str, message: Message) -> Arrived:
    return Arrived(topics.agent("home", agent, kind), codec.encode(message))


@pytest.fixture(scope="module")
def run() -> tuple[list[Prediction], Outcome]:
    devices = {name: Device(name, 60 + k, Fault(tick=150) if k else None) for k, name in enumerate(NAMES)}
    return predicted({name: records(device, 0, COUNT) for name, device in devices.items()}, plan())


@pytest.fixture
def reader(tmp_path: Path, run: tuple[list[Prediction], Outcome]) -> Iterator[Reader]:
    """A store filled as the bridge fills it, with three readings of pump-1 missing."""
    made, outcome = run
    messages = [said(p.agent, "predictions", p) for p in made]
    messages += [said(e.agent, "events", e) for e in outcome.events]
    for name, rss in (("pump-1", 31.04), ("pump-2", 33.06)):
        messages.append(said(name, "status", Status(at_ms=START, name=name, role="agent", is_online=True)))
        messages.append(said(name, "health", Health(at_ms=START, name=name, role="agent", figures={"rss_mb": rss})))
    other = Health(at_ms=START, name="bridge", role="bridge", figures={"rss_mb": 400.0})
    batch = sort(messages, "live").batch()
    readings = [
        Row("reading", f"sensors/{name}", START + k * TICK, {"temperature": 1.0}, START, k)
        for name in NAMES
        for k in range(COUNT)
        if name != "pump-1" or k not in LOST
    ]
    rounds = [
        RoundNotice(at_ms=START, round=1, state="closed", basis=0, answered=(), bytes_sent=0),
        RoundNotice(
            at_ms=START, round=2, state="closed", basis=1, answered=("pump-1",), bytes_received=100, bytes_sent=50
        ),
        RoundNotice(
            at_ms=START, round=3, state="closed", basis=1, answered=("pump-1",), bytes_received=200, bytes_sent=50
        ),
        RoundNotice(at_ms=START, round=4, state="opened", basis=1),
    ]
    writer = open_writer(tmp_path / "history.sqlite", raw_days=90, rollup_days=100)
    writer.write(batch)
    writer.write(Batch(rows=readings, rounds=rounds, healths=[other]))
    writer.close()
    opened = open_reader(tmp_path / "history.sqlite")
    yield opened
    opened.close()


def test_figures_of_a_store_are_those_of_its_predictions(reader: Reader, run: tuple[list[Prediction], Outcome]) -> None:
    made, _ = run
    accuracy = Accuracy(schema())
    for prediction in made:
        accuracy.add(prediction)
    expected = accuracy.report()["overall"]
    found = results(reader, schema(), dict.fromkeys(NAMES, COUNT))
    assert expected["n"] == 2 * 4 * (COUNT - 2)
    for name in ("rmse", "rmse_persistence", "coverage90"):
        # the same sums, agent after agent instead of interleaved
        assert getattr(found, name) == pytest.approx(expected[name], rel=1e-12)
    assert found.predictions_stored == len(made)


def test_what_was_sent_and_is_not_stored_is_lost(reader: Reader) -> None:
    found = results(reader, schema(), dict.fromkeys(NAMES, COUNT))
    assert (found.frames, found.frames_lost) == (2 * COUNT, len(LOST))
    # a device of which nothing at all was stored
    assert results(reader, schema(), {"ghost": 5, "pump-2": COUNT}).frames_lost == 5
    # what came in beside was not sent by these devices
    assert results(reader, schema(), {"pump-2": 10}).frames_lost == 0


def test_agents_events_rounds_and_memory_are_counted(reader: Reader, run: tuple[list[Prediction], Outcome]) -> None:
    _, outcome = run
    found = results(reader, schema(), dict.fromkeys(NAMES, COUNT))
    assert found.agents == 2
    assert found.event_agents == ["pump-2"]
    assert found.events == len({event.event_id for event in outcome.events})
    assert found.rounds_closed == 3
    assert found.bytes_per_round == 200.0  # of the rounds that anybody answered
    assert found.agent_rss_mb == 33.1  # the largest agent; the bridge is none


def test_an_empty_store_has_no_figures(tmp_path: Path) -> None:
    open_writer(tmp_path / "empty.sqlite", raw_days=90, rollup_days=100).close()
    opened = open_reader(tmp_path / "empty.sqlite")
    found = results(opened, schema(), {"pump-1": 3})
    opened.close()
    assert (found.frames, found.frames_lost, found.predictions_stored) == (3, 3, 0)
    assert (found.rmse, found.coverage90, found.agent_rss_mb, found.bytes_per_round) == (None,) * 4
