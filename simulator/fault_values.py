"""Sensor faults of numbers, whether they stand in arrays or come one by one. Pure."""

from __future__ import annotations

from typing import Literal

import numpy as np

from fleetgp.arrays import Array

SensorKind = Literal["spike", "offset", "drift", "stuck", "noise", "dropout"]


def progress(times: Array, begin: float, end: float) -> Array:
    """How far a fault from begin to end is at each time [n]: 0 at its beginning, towards 1 at its end, NaN outside."""
    is_inside = (times >= begin) & (times < end)
    return np.where(is_inside, (times - begin) / (end - begin), np.nan)


def disturb(
    values: Array, progress: Array, kind: SensorKind, size: float, rng: np.random.Generator, held: float = np.nan
) -> Array:
    """Values [n] of one sensor with a fault in them; untouched where progress [n] is NaN.

    spike, offset: off by size. drift: off by size times progress. noise: normal, size is its standard deviation. stuck: at
    ``held``, where that is NaN at the last value before the fault, or its first. dropout: NaN.
    """
    is_hit = ~np.isnan(progress)
    hit = values[is_hit]
    if kind in ("spike", "offset"):
        changed = hit + size
    elif kind == "drift":
        changed = hit + size * progress[is_hit]
    elif kind == "noise":
        changed = hit + size * rng.standard_normal(len(hit))
    elif kind == "stuck":
        changed = np.full(len(hit), _last_before(values, is_hit) if np.isnan(held) else held)
    else:
        changed = np.full(len(hit), np.nan)
    result = values.astype(float, copy=True)
    result[is_hit] = changed
    return result


def _last_before(values: Array, is_hit: Array) -> float:
    if not np.any(is_hit):
        return float("nan")
    first = int(np.argmax(is_hit))
    known = values[:first][np.isfinite(values[:first])]
    return float(known[-1] if len(known) else values[first])
