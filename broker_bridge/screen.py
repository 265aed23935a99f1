"""What a long command shows while it works: one line that is written over on a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import contextlib
import io
import shutil
import sys
from typing import TextIO

from fleetgp.runtime.clock import Clock

LIVE_S = 0.25
PLAIN_S = 10.0
_CLEAR = "\r\x1b[2K"


class Screen(io.TextIOBase):
    """The error stream. What is written to it as to a file (log lines) stands above the live line. For one thread at a time.

    stream: where to; None is stderr.
    """

    def __init__(self, clock: Clock, stream: TextIO | None = None) -> None:
        self._clock = clock
        self._stream = stream or sys.stderr
        self.is_live = self._stream.isatty()
        self._has_line = False
        self._next_s = clock.monotonic_s() + (LIVE_S if self.is_live else PLAIN_S)

    @property
    def is_due(self) -> bool:
        """Whether it is time to ``show`` how far the work is."""
        return self._clock.monotonic_s() >= self._next_s

    def show(self, text: str) -> None:
        """How far the work is now."""
        self._next_s = self._clock.monotonic_s() + (LIVE_S if self.is_live else PLAIN_S)
        if self.is_live:
            width = shutil.get_terminal_size().columns
            self._put(_CLEAR + text[: max(10, width - 1)])
            self._has_line = True
        else:
            self._put(text + "\n")

    def say(self, text: str) -> None:
        """A line that stays."""
        self.write(text + "\n")

    def clear(self) -> None:
        """No live line any more: the last words follow."""
        if self._has_line:
            self._put(_CLEAR)
            self._has_line = False

    def write(self, text: str, /) -> int:
        self._put((_CLEAR if self._has_line else "") + text)
        self._has_line = False
        return len(text)

    def _put(self, text: str) -> None:
        with contextlib.suppress(OSError, ValueError):  # nobody looks any more: the work goes on
            self._stream.write(text)
            self._stream.flush()


def size(count: float) -> str:
    """Bytes as people say them: 640 B, 12.3 kB, 4.5 MB."""
    for unit, limit in (("B", 1e3), ("kB", 1e6), ("MB", 1e9)):
        if count < limit:
            return f"{count / limit * 1e3:.3g} {unit}" if unit != "B" else f"{count:.0f} B"
    return f"{count / 1e9:.3g} GB"


def span(seconds: float) -> str:
    """A span as people say it: 3.2 s, 4:05 min, 2:03:00 h, 12 d 2:00 h."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours >= 48:
        return f"{hours // 24:,} d {hours % 24}:{minutes:02} h"
    return f"{hours}:{minutes:02}:{rest:02} h" if hours else f"{minutes}:{rest:02} min"
