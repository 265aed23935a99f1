"""Streams played to a broker: each message at its own time, numbered, and nothing said to be sent that was not."""

from __future__ import annotations

import io
import json
import math
import threading
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from simulated_streams import START, TICK, records

from broker_bridge.broker import EmbeddedBroker
from fleetgp.recording.csv import Record
from fleetgp.runtime.clock import FakeClock, SystemClock
from fleetgp.runtime.logs import Log
from fleetgp.runtime.mqtt import Session, SessionConfig, parse_url
from fleetgp.runtime.outbox import Outbox
from simulator.devices import Device
from simulator.feeder import Due, Feeder, recorded, simulated


class HurriedClock(FakeClock):
    """Stands still until it is hurried: then every look takes five seconds, so that waiting in vain comes to an end."""

    is_hurried = False

    def monotonic_s(self) -> float:
        self.advance(5.0 if self.is_hurried else 0.0)
        return super().monotonic_s()


class Pacer(threading.Event):
    """An event whose waits pass a fake clock's time instead of ours."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__()
        self.clock = clock

    def wait(self, timeout: float | None = None) -> bool:
        self.clock.advance(timeout or 0.0)
        return self.is_set()


def due(number: int) -> Due:
    return Due(float(number), "pump", START + number * TICK, {"flow": float(number)})


def session_to(url: str, folder: Path, client_id: str = "feeder", **config: Any) -> tuple[Session, Outbox]:
    outbox = Outbox(folder / "outbox.sqlite", clock=SystemClock())
    chosen = SessionConfig(client_id=client_id, **config)
    return Session(
        parse_url(url), chosen, clock=SystemClock(), outbox=outbox, log=Log("t", stream=io.StringIO())
    ), outbox


@pytest.fixture
def unconnected(tmp_path: Path) -> Iterator[Session]:
    """A session that nobody started: what is sent stays in its outbox on disk."""
    session, outbox = session_to("mqtt://127.0.0.1:1", tmp_path)
    yield session
    outbox.close()


def report(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "sent.json").read_text()))


def test_each_message_is_sent_at_its_own_time_and_delays_do_not_add_up(unconnected: Session, tmp_path: Path) -> None:
    """The source takes 0.35 s for each message and once stalls for 5 s: what was held up is caught up, the rest on time."""
    clock = HurriedClock()
    sent_at: list[float] = []

    def slow() -> Iterator[Due]:
        for number in range(30):
            clock.advance(5.0 if number == 10 else 0.35)
            yield due(number)
            sent_at.append(clock.monotonic_s())
        clock.is_hurried = True

    Feeder(unconnected, clock, tmp_path / "sent.json").run(slow(), None, Pacer(clock))
    expected, ready = [], 0.0
    for number in range(30):
        ready = max(ready + (5.0 if number == 10 else 0.35), float(number))
        expected.append(ready)
    # to the rounding of sums of 0.35 and 0.1
    assert sent_at == pytest.approx(expected, abs=1e-9)
    assert sent_at[20:] == pytest.approx(list(range(20, 30)), abs=1e-9)
    assert report(tmp_path)["late_s"] == pytest.approx(4.0, abs=1e-3)  # number 10: ready at 14, due at 10


def test_what_no_broker_took_is_told_as_unsent(unconnected: Session, tmp_path: Path) -> None:
    clock = HurriedClock()

    def stream() -> Iterator[Due]:
        yield from map(due, range(4))
        clock.is_hurried = True

    Feeder(unconnected, clock, tmp_path / "sent.json").run(stream(), None, Pacer(clock))
    assert report(tmp_path)["sent"] == {"pump": 4}
    assert report(tmp_path)["unsent"] == 4


@pytest.mark.parametrize(
    ("seconds", "stop_at", "count"),
    [(3.0, None, 3), (3.5, None, 4), (None, 2, 2), (None, None, 6)],
)
def test_it_ends_with_the_stream_the_seconds_or_the_word(
    unconnected: Session, tmp_path: Path, seconds: float | None, stop_at: int | None, count: int
) -> None:
    clock = HurriedClock()
    stop = Pacer(clock)

    def stream() -> Iterator[Due]:
        for number in range(6):
            if number == stop_at:
                stop.set()
            if number == count:
                clock.is_hurried = True
            yield due(number)
        clock.is_hurried = True

    Feeder(unconnected, clock, tmp_path / "sent.json").run(stream(), seconds, stop)
    assert report(tmp_path)["sent"] == {"pump": count}


def test_simulated_devices_keep_their_beat_for_ever() -> None:
    """Each at its own phase, in the order of time, joiners when they join; no drift after many beats of 0.1 s."""
    devices = [Device("a", 1), Device("b", 2), Device("late", 3)]
    dues = list(islice(simulated(devices, [0.0, 0.03, 5.05], 0.1, START), 30_000))
    assert [d.after_s for d in dues] == sorted(d.after_s for d in dues)
    assert [d.device for d in dues[:4]] == ["a", "b", "a", "b"]
    for name, begin in (("a", 0.0), ("b", 0.03), ("late", 5.05)):
        own = [d for d in dues if d.device == name]
        # a hundredth of a millisecond after 10,000 additions of 0.1
        assert [d.after_s for d in own] == pytest.approx([begin + 0.1 * k for k in range(len(own))], abs=1e-8)
        assert all(d.at_ms == START + round(d.after_s * 1000) for d in own)
    expected = [dict(zip(dues[0].values, map(float, row), strict=True)) for row in records_of(1, 5)]
    assert [d.values for d in dues if d.device == "a"][:5] == expected


def records_of(seed: int, count: int) -> list[tuple[float, ...]]:
    return [row.values for row in records(Device("", seed), 0, count)]


def test_recordings_are_played_on_one_clock_at_any_speed() -> None:
    """The earliest row is the start; spaces between rows keep their proportion, also between files; NaN becomes null."""
    rows = {
        "east": iter([Record(START + 10_000, (1.0, math.nan)), Record(START + 70_000, (2.0, 5.0))]),
        "west": iter([Record(START, (3.0, 6.0)), Record(START + 70_000, (4.0, 7.0))]),
    }
    dues = list(recorded(rows, ["a", "b"], speed=20.0))
    assert dues == [
        Due(0.0, "west", START, {"a": 3.0, "b": 6.0}),
        Due(0.5, "east", START + 10_000, {"a": 1.0, "b": None}),
        Due(3.5, "east", START + 70_000, {"a": 2.0, "b": 5.0}),
        Due(3.5, "west", START + 70_000, {"a": 4.0, "b": 7.0}),
    ]


@pytest.mark.broker
def test_all_that_is_said_to_be_sent_arrives_in_order(
    broker: EmbeddedBroker, tmp_path: Path, eventually: Callable[..., None]
) -> None:
    """Through a real broker: own time, a running number and the values of each message, each once."""
    ear, ear_box = session_to(broker.url, tmp_path / "ear", "ear", subscriptions=(("sensors/#", 1),))
    session, outbox = session_to(broker.url, tmp_path)
    heard: list[dict[str, Any]] = []
    ear.start()
    session.start()
    try:
        assert ear.wait_connected(10.0)
        assert session.wait_connected(10.0)
        clock = FakeClock()
        rows = [Record(START + k * 3_600_000, (float(k), math.nan if k % 5 == 0 else -float(k))) for k in range(40)]
        stream = recorded({"pump": iter(rows)}, ["a", "b"], speed=36_000.0)
        Feeder(session, clock, tmp_path / "sent.json").run(stream, None, Pacer(clock))

        def hear() -> bool:
            for message in ear.receive(100, 0.1):
                assert message.topic == "sensors/pump"
                heard.append(json.loads(message.payload))
                ear.ack(message)
            return len(heard) >= 40

        eventually(hear)
    finally:
        session.stop()
        ear.stop()
        outbox.close()
        ear_box.close()
    assert report(tmp_path) == {"sent": {"pump": 40}, "unsent": 0, "late_s": 0.0}
    assert heard == [
        {"time": row.at_ms, "seq": k, "a": row.values[0], "b": None if k % 5 == 0 else row.values[1]}
        for k, row in enumerate(rows)
    ]
