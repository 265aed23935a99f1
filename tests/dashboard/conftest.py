"""Sources over made-up fleets."""

from __future__ import annotations

import pytest
from synthetic_fleet import NOW_MS, MemoryStore, Plan, Watch, history

from dashboard.source import Source
from fleetgp.runtime.clock import FakeClock
from fleetgp.store.base import Batch


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
