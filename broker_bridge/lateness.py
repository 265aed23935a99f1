"""How late messages were sent, counted in bins: any number of them in a few kilobytes. Pure."""

from __future__ import annotations

import math

_LEAST_MS = 0.01
_PER_DECADE = 100  # bins a factor of ten: a percentile is told within 2.4 %
_DECADES = 10  # up to 28 hours


class Lateness:
    """Milliseconds from when a message was due to when it was sent."""

    def __init__(self) -> None:
        self.count = 0
        self.max_ms = 0.0
        self._bins = [0] * (_PER_DECADE * _DECADES + 1)

    def add(self, late_ms: float) -> None:
        self.count += 1
        if late_ms > self.max_ms:
            self.max_ms = late_ms
        if late_ms <= _LEAST_MS:
            self._bins[0] += 1
            return
        position = math.ceil(_PER_DECADE * math.log10(late_ms / _LEAST_MS))
        self._bins[min(position, len(self._bins) - 1)] += 1

    def percentile(self, share: float) -> float:
        """The lateness in ms that this share (0 to 1) of all messages did not exceed, at most 2.4 % above it; 0 of none."""
        wanted = share * self.count
        seen = 0
        for position, number in enumerate(self._bins):
            seen += number
            if number and seen >= wanted:
                return min(self.max_ms, _LEAST_MS * 10 ** (position / _PER_DECADE)) if position else 0.0
        return 0.0

    def figures(self) -> dict[str, float]:
        """For reports: count, p50_ms, p99_ms, max_ms."""
        return {
            "count": self.count,
            "p50_ms": round(self.percentile(0.5), 3),
            "p99_ms": round(self.percentile(0.99), 3),
            "max_ms": round(self.max_ms, 3),
        }
