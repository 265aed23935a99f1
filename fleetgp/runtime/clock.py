"""The only place that reads a clock. Everything else is handed one."""

from __future__ import annotations

import threading
import time
from typing import Protocol


class Clock(Protocol):
    """What a program knows of time."""

    def now_ms(self) -> int:
        """UTC milliseconds since 1970; never less than it said before in this process."""
        ...

    def now_ns(self) -> int:
        """The same in nanoseconds, as fine as the machine tells it."""
        ...

    def monotonic_s(self) -> float:
        """Seconds since some moment; untouched by changes of the wall clock. For spans and deadlines."""
        ...


class SteadyWall:
    """Turns a wall clock that may jump back into one that never does.

    While the wall is behind what was said last, time goes on at half speed until the wall has caught up: two readings a
    second apart never get one time, and a small correction is absorbed soon.
    """

    def __init__(self) -> None:
        self._last_ns = 0
        self._last_s = 0.0

    def read(self, wall_ms: float, monotonic_s: float) -> int:
        """The time to tell in ms, from what both clocks show now."""
        return self.read_ns(round(wall_ms * 1e6), monotonic_s) // 1_000_000

    def read_ns(self, wall_ns: int, monotonic_s: float) -> int:
        """The time to tell in ns, from what both clocks show now."""
        half_speed_ns = self._last_ns + int(5e8 * max(0.0, monotonic_s - self._last_s))
        self._last_ns = max(wall_ns, half_speed_ns)
        self._last_s = monotonic_s
        return self._last_ns


class SystemClock:
    """The machine's clocks. Safe to share between threads."""

    def __init__(self) -> None:
        self._steady = SteadyWall()
        self._lock = threading.Lock()

    def now_ms(self) -> int:
        return self.now_ns() // 1_000_000

    def now_ns(self) -> int:
        with self._lock:
            return self._steady.read_ns(time.time_ns(), time.monotonic())

    def monotonic_s(self) -> float:
        return time.monotonic()


class FakeClock:
    """A clock that stands still until a test advances it."""

    def __init__(self, at_ms: int = 0) -> None:
        self._start_ms = at_ms
        self._elapsed_s = 0.0

    def now_ms(self) -> int:
        return self._start_ms + round(self._elapsed_s * 1000.0)

    def now_ns(self) -> int:
        return self._start_ms * 1_000_000 + round(self._elapsed_s * 1e9)

    def monotonic_s(self) -> float:
        return self._elapsed_s

    def advance(self, seconds: float) -> None:
        """Let time pass. Raises ValueError when it would run backwards."""
        if seconds < 0:
            raise ValueError(f"time cannot go back by {-seconds} s")
        self._elapsed_s += seconds
