"""The door to the store: how often it looks, what it keeps, and what it does when the store is gone or refuses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from synthetic_fleet import NOW_MS, MemoryStore, Plan, Watch, history

from dashboard import recent
from dashboard.source import Source, StoreFile
from fleetgp.runtime.clock import FakeClock
from fleetgp.store.base import Batch, Row
from fleetgp.store.sqlite import open_writer


def test_many_sessions_cost_one_look(watch: Watch, small_fleet: Batch):
    store = MemoryStore(small_fleet)
    source, clock = watch(store)
    first = source.look()
    read = len(store.windows_read)
    assert source.look() is first
    clock.advance(5)
    second = source.look()
    assert second.looked_ms == first.looked_ms + 5000
    assert second.version == first.version, "nothing new, so cached frames stay good"
    assert len(store.windows_read) == read, "no new rows, so none are read again"


def grown(batch: Batch, agent: str, frames: int) -> Batch:
    newest = max((row for row in batch.rows if row.kind == "prediction" and row.series == agent), key=lambda r: r.at_ms)
    more = [replace(newest, at_ms=newest.at_ms + 1000 * (i + 1), sequence=None) for i in range(frames)]
    return replace(batch, rows=[*batch.rows, *more])


def test_only_new_rows_are_read_and_the_ring_is_bounded(watch: Watch, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(recent, "MAX_ROWS", 150)
    store = MemoryStore(history(Plan(agents=2, frames=140, rounds=1)))
    source, clock = watch(store)
    version = source.look().version
    store.windows_read.clear()
    store.batch = grown(store.batch, "press-1", 40)
    clock.advance(5)
    view = source.look()
    assert view.version == version + 1
    assert store.windows_read == [("press-1", NOW_MS + 1, NOW_MS + 40_000)]
    ring = view.recent["press-1"]
    assert ring.at_ms.size == 150
    assert (np.diff(ring.at_ms) == 1000).all()
    assert ring.at_ms[-1] == NOW_MS + 40_000
    assert view.noticed_ms == {"press-1": NOW_MS + 5000}


def test_the_ring_is_filled_from_a_long_history(watch: Watch, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(recent, "MAX_ROWS", 200)
    source, _ = watch(MemoryStore(history(Plan(agents=1, frames=900, rounds=1, faulty=""))))
    ring = source.look().recent["press-1"]
    assert (ring.at_ms.size, ring.at_ms[0], ring.at_ms[-1]) == (200, NOW_MS - 199_000, NOW_MS)


def test_more_new_rows_than_the_ring_holds_are_read_raw(watch: Watch, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(recent, "MAX_ROWS", 120)
    store = MemoryStore(history(Plan(agents=1, frames=110, rounds=1)))
    source, clock = watch(store)
    source.look()
    store.batch = grown(store.batch, "press-1", 700)
    clock.advance(5)
    ring = source.look().recent["press-1"]
    assert 60 <= ring.at_ms.size <= 120, "the span is halved until the store gives raw rows"
    assert ring.at_ms[-1] == NOW_MS + 700_000
    raw = {row.at_ms: row.values["score"] for row in store.batch.rows if row.kind == "prediction"}
    assert ring.mean["score"].tolist() == [raw[int(at)] for at in ring.at_ms]


def test_a_column_that_comes_later_is_missing_before(watch: Watch, small_fleet: Batch):
    store = MemoryStore(small_fleet)
    source, clock = watch(store)
    source.look()
    values = {"humidity.mean": 1.0, "humidity.low": 0.0, "humidity.high": 2.0, "humidity.observed": 1.5}
    more = Row("prediction", "press-1", NOW_MS + 1000, values, NOW_MS)
    store.batch = replace(small_fleet, rows=[*small_fleet.rows, more])
    clock.advance(5)
    ring = source.look().recent["press-1"]
    assert np.isnan(ring.mean["humidity.observed"][:-1]).all()
    assert ring.mean["humidity.observed"][-1] == 1.5
    assert np.isnan(ring.mean["temperature.observed"][-1])


def test_a_store_that_is_not_there_yet_then_comes_then_goes(watch: Watch, small_fleet: Batch):
    store = MemoryStore(None)
    source, clock = watch(store)
    view = source.look()
    assert view.problem is not None
    assert view.problem.kind == "missing"
    assert source.window("press-1", ["score"], 0, NOW_MS, 10) is None
    store.batch = small_fleet
    clock.advance(5)
    assert source.look().problem is None
    store.batch = None
    clock.advance(5)
    gone = source.look()
    assert gone.problem is not None
    assert gone.agents == ()


def test_a_refusal_is_a_view_with_its_reason_and_passes(watch: Watch, small_fleet: Batch):
    store = MemoryStore(small_fleet)
    source, clock = watch(store)
    source.look()
    store.refuse = "the disk is on fire"
    assert source.window("press-1", ["score"], 0, NOW_MS, 10) is None
    clock.advance(5)
    view = source.look()
    assert view.problem is not None
    assert (view.problem.kind, view.problem.detail) == ("unreadable", "the disk is on fire")
    store.refuse = ""
    clock.advance(5)
    assert len(source.look().recent) == 6


def test_a_file_that_is_replaced_is_read_anew(tmp_path: Path):
    path = tmp_path / "history.sqlite"
    clock = FakeClock(NOW_MS)
    source = Source(StoreFile(path), clock=clock)
    assert source.look().problem is not None
    for agents in (3, 2):
        for leftover in tmp_path.iterdir():
            leftover.unlink()
        fresh = tmp_path / "fresh.sqlite"
        writer = open_writer(fresh, raw_days=90, rollup_days=900)
        writer.write(history(Plan(agents=agents, frames=30)))
        writer.close()
        fresh.rename(path)
        clock.advance(5)
        view = source.look()
        assert view.problem is None
        assert len(view.agents) == len(view.recent) == agents
    source.close()


@pytest.mark.parametrize("content", [b"", b"this is not a history", bytes(8192)], ids=["empty", "text", "zeros"])
def test_a_file_that_is_no_history_is_said_so(tmp_path: Path, content: bytes):
    path = tmp_path / "history.sqlite"
    path.write_bytes(content)
    view = Source(StoreFile(path), clock=FakeClock(NOW_MS)).look()
    assert view.problem is not None
    assert path.read_bytes() == content, "a viewer does not write"


def test_sqlite_gives_the_same_view_as_memory(tmp_path: Path, watch: Watch, small_fleet: Batch):
    writer = open_writer(tmp_path / "history.sqlite", raw_days=90, rollup_days=900)
    writer.write(small_fleet)
    source = Source(StoreFile(tmp_path / "history.sqlite"), clock=FakeClock(NOW_MS))
    real, made_up = source.look(), watch(MemoryStore(small_fleet))[0].look()
    assert real.agents == made_up.agents
    assert real.events == made_up.events
    assert real.rounds == made_up.rounds
    for agent in real.agents:
        assert real.recent[agent].at_ms.tolist() == made_up.recent[agent].at_ms.tolist()
        for name, column in made_up.recent[agent].mean.items():
            np.testing.assert_array_equal(real.recent[agent].mean[name], column)
    source.close()
    writer.close()
