"""Online conformal intervals: whatever the law says, the stated share of readings falls inside, channel by channel.

The law's standardised errors |z| of a recent window are ranked; the radius of the interval is the rank that the stated
coverage needs, and the miss rate itself steers that rank (adaptive conformal inference, Gibbs and Candes 2021). The
guarantee needs infinite intervals now and then; the rank is clipped to the window instead, so it is approximate there.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from typing import NamedTuple

import numpy as np

from fleetgp.arrays import Array

WINDOW = 250
ENOUGH = 20
STEP = 0.01
GAUSSIAN_90 = 1.6448536269514722


class Calibration(NamedTuple):
    """errors [Q, WINDOW] of |z|, oldest overwritten; seen [Q] frames; miscoverage [Q] steered; radius [Q] in law sds."""

    errors: Array
    seen: Array
    miscoverage: Array
    radius: Array


def init(channels: int) -> Calibration:
    """Nothing seen: the radius of a Gaussian law at 90 %."""
    return Calibration(
        np.zeros((channels, WINDOW)), np.zeros(channels), np.full(channels, 0.1), np.full(channels, GAUSSIAN_90)
    )


def step(calibration: Calibration, z: Array) -> Calibration:
    """After one frame; z [Q] standardised errors, NaN where nothing was observed. Alarmed frames count too."""
    errors = calibration.errors.copy()
    seen, miscoverage, radius = (x.copy() for x in calibration[1:])
    for q in np.flatnonzero(~np.isnan(z)):
        size = abs(float(z[q]))
        missed = size > radius[q]
        miscoverage[q] = min(0.5, max(0.001, miscoverage[q] + STEP * (0.1 - missed)))
        errors[q, int(seen[q]) % WINDOW] = size
        seen[q] += 1
        radius[q] = _radius(errors[q, : int(min(seen[q], WINDOW))], float(miscoverage[q]))
    return Calibration(errors, seen, miscoverage, radius)


def steps(calibration: Calibration, z: Array) -> tuple[Array, Calibration]:
    """Radius before each of n frames [n, Q] and the state after them all, as ``step`` gives them; z [n, Q]."""
    errors = calibration.errors.copy()
    seen, miscoverage, radius = (x.copy() for x in calibration[1:])
    before = np.empty(z.shape)
    for q, sizes in enumerate(np.abs(z).T):
        track = _Track(errors[q], int(seen[q]), float(miscoverage[q]), float(radius[q]))
        before[:, q] = track.follow(sizes.tolist())
        errors[q], seen[q], miscoverage[q], radius[q] = track.errors, track.seen, track.miscoverage, track.radius
    return before, Calibration(errors, seen, miscoverage, radius)


class _Track:
    """One channel under way, its window kept in order so that a frame costs a bisection and not a partition."""

    def __init__(self, errors: Array, seen: int, miscoverage: float, radius: float) -> None:
        self.errors, self.seen, self.miscoverage, self.radius = errors.tolist(), seen, miscoverage, radius
        self._ordered = sorted(self.errors[: min(seen, WINDOW)])

    def follow(self, sizes: list[float]) -> list[float]:
        """Step through |z|, NaN where nothing was observed: the radius before each."""
        before = []
        for size in sizes:
            before.append(self.radius)
            if size == size:
                self._step(size)
        return before

    def _step(self, size: float) -> None:
        self.miscoverage = min(0.5, max(0.001, self.miscoverage + STEP * (0.1 - (size > self.radius))))
        place, ordered = self.seen % WINDOW, self._ordered
        if self.seen >= WINDOW:
            del ordered[bisect_left(ordered, self.errors[place])]
        insort(ordered, size)
        self.errors[place] = size
        self.seen += 1
        n = len(ordered)
        self.radius = GAUSSIAN_90 if n < ENOUGH else max(1e-9, ordered[_rank(n, self.miscoverage) - 1])


def _rank(n: int, miscoverage: float) -> int:
    """Finite-sample rank of split conformal prediction, clipped to what the window holds."""
    return min(n, max(1, math.ceil((n + 1) * (1 - miscoverage))))


def _radius(errors: Array, miscoverage: float) -> float:
    n = len(errors)
    if n < ENOUGH:
        return GAUSSIAN_90
    rank = _rank(n, miscoverage)
    return max(1e-9, float(np.partition(errors, rank - 1)[rank - 1]))
