"""How far the reading of a long file is, told on the error stream while it lasts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

from broker_bridge.screen import Screen, span
from fleetgp.recording.mcap_glance import glance
from fleetgp.recording.messages import kind_of
from fleetgp.runtime.clock import SystemClock

T = TypeVar("T")

STEP = 1024  # items between two looks at the clock
LEAST = 0.02  # of all must be read before it is told how long the rest takes


def watched(items: Iterator[T], screen: Screen, what: str, total: int = 0) -> Iterator[T]:
    """The items. total: how many there will be, 0 = not known."""
    clock = SystemClock()
    begun_s = clock.monotonic_s()
    for number, item in enumerate(items, start=1):
        if number % STEP == 0 and screen.is_due:
            of = f" of {total:,}" if total else ""
            rest = ""
            if total * LEAST < number < total:
                rest = f", {span((total - number) * (clock.monotonic_s() - begun_s) / number)} left"
            screen.show(f"{what}: {number:,}{of} read{rest}")
        yield item


def total_of(path: Path) -> int:
    """How many messages and gaps a file says it holds; 0 where only reading it would tell."""
    told = glance(path) if kind_of(path) == "mcap" else None
    return 0 if told is None else told.messages + told.gaps


def look_for_devices(items: Iterator[T], path: Path) -> Iterator[T]:
    """A first pass over a file, which nothing else is told of."""
    screen = Screen(SystemClock())
    try:
        yield from watched(items, screen, f"{path.name}, a first pass to find its devices", total_of(path))
    finally:
        screen.clear()
