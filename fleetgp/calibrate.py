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
        state = errors[q].tolist(), int(seen[q]), float(miscoverage[q]), float(radius[q])
        before[:, q], (errors[q], seen[q], miscoverage[q], radius[q]) = _followed(*state, sizes.tolist())
    return before, Calibration(errors, seen, miscoverage, radius)


def _followed(
    errors: list[float], seen: int, miscoverage: float, radius: float, sizes: list[float]
) -> tuple[list[float], tuple[list[float], int, float, float]]:
    """One channel's radius before each |z|, and its state after all; the window kept in order: a bisection, no partition."""
    ordered = sorted(errors[: min(seen, WINDOW)])
    before, n, ceil = [], len(ordered), math.ceil
    for size in sizes:
        before.append(radius)
        if size != size:  # nothing was observed
            continue
        miscoverage += STEP * (0.1 - (size > radius))
        miscoverage = 0.001 if miscoverage < 0.001 else 0.5 if miscoverage > 0.5 else miscoverage
        place = seen % WINDOW
        if seen >= WINDOW:
            del ordered[bisect_left(ordered, errors[place])]
        else:
            n += 1
        insort(ordered, size)
        errors[place] = size
        seen += 1
        if n >= ENOUGH:
            rank = ceil((n + 1) * (1 - miscoverage))  # ``_rank``, which a call would make slower; never below 1 here
            radius = ordered[rank - 1 if rank <= n else n - 1]
            radius = radius if radius > 1e-9 else 1e-9
        else:
            radius = GAUSSIAN_90
    return before, (errors, seen, miscoverage, radius)


def _rank(n: int, miscoverage: float) -> int:
    """Finite-sample rank of split conformal prediction, clipped to what the window holds."""
    return min(n, max(1, math.ceil((n + 1) * (1 - miscoverage))))


def _radius(errors: Array, miscoverage: float) -> float:
    n = len(errors)
    if n < ENOUGH:
        return GAUSSIAN_90
    rank = _rank(n, miscoverage)
    return max(1e-9, float(np.partition(errors, rank - 1)[rank - 1]))
