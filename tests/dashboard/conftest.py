"""Sources over made-up fleets."""

from __future__ import annotations

import sys

import pytest
from synthetic_fleet import NOW_MS, MemoryStore, Plan, Watch, history

from dashboard.source import Source
from fleetgp.runtime.clock import FakeClock
from fleetgp.store.base import Batch


@pytest.fixture(autouse=True)
def same_main_module(monkeypatch: pytest.MonkeyPatch) -> None:
    """Streamlit's AppTest leaves its script as ``__main__``, which any process that is spawned later would run first."""
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])


@pytest.fixture
def watch() -> Watch:
    """A source on a store, at the moment the made-up fleets end, and its clock."""

    def make(store: MemoryStore) -> tuple[Source, FakeClock]:
        clock = FakeClock(NOW_MS)
        return Source(store, clock=clock), clock

    return make


@pytest.fixture
def small_fleet() -> Batch:
    return history(Plan(frames=120, rounds=6))
