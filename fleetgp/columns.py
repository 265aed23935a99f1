"""Which columns of numbers are worth predicting, where their owner did not say.

From the first readings of all devices together, in this order:
- a column without a number, and one that never changes, is left out;
- whole numbers that go up by the same step from every row to the next count rows, and are left out;
- a column that holds still in 95 % of its steps, or takes at most 3 different values, is something set: a covariate;
- all others are channels; where none is left, every column that changes is one;
- a channel that is never negative, whose skewness is above 2 and whose largest value is above 5 medians, is learnt as log1p.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fleetgp.arrays import Array
from fleetgp.errors import ConfigError
from fleetgp.schema import MAX_CHANNELS, MAX_COVARIATES, Channel, Covariate

STILL = 0.95
FEW_VALUES = 3
SKEWED = 2.0
SPREAD = 5.0
NAMED = 8  # of names in one sentence


class First(NamedTuple):
    """First readings of one device: times_ms [n] UTC epoch, in order; values [n, K], NaN where there is none."""

    times_ms: Array
    values: Array


class Sorted(NamedTuple):
    """Columns as inputs of a schema, and why."""

    channels: tuple[Channel, ...]
    covariates: tuple[Covariate, ...]
    reasons: tuple[str, ...]


class Column(NamedTuple):
    """One column of all devices. runs: its readings [n] by device, NaN left out."""

    name: str
    runs: list[Array]

    @property
    def readings(self) -> Array:
        return np.concatenate([np.empty(0), *self.runs])

    @property
    def steps(self) -> Array:
        """Changes from each reading to the device's next."""
        return np.concatenate([np.empty(0), *(np.diff(run) for run in self.runs)])


def sort_out(names: Sequence[str], devices: Sequence[First]) -> Sorted:
    """Channels and covariates among columns. Raises ConfigError where no column changes."""
    reasons: list[str] = []
    moving: list[Column] = []
    for k, name in enumerate(names):
        runs = [device.values[:, k] for device in devices]
        column = Column(name, [run[np.isfinite(run)] for run in runs])
        reason = _useless(column)
        if reason:
            reasons.append(f"left out {name}: {reason}")
        else:
            moving.append(column)
    if not moving:
        raise ConfigError("channels", f"none of {_listed(names)} changes in the first readings; name channels yourself")
    still = {column.name: why for column in moving if (why := _set(column))}
    if len(still) == len(moving):
        reasons.append("all columns that change are channels: none moves by itself more than the others")
        still = {}
    moved = [column for column in moving if column.name not in still]
    reasons += _beyond([column.name for column in moved], MAX_CHANNELS, "channels")
    reasons += _beyond(list(still), MAX_COVARIATES, "covariates")
    channels, moved = [], moved[:MAX_CHANNELS]
    reasons.append(f"channels {_listed([column.name for column in moved])}: these move by themselves")
    for column in moved:
        why = _skewed(column.readings)
        reasons += [f"channel {column.name} as log1p: {why}"] if why else []
        channels.append(Channel(name=column.name, transform="log1p" if why else "identity"))
    covariates = list(still)[:MAX_COVARIATES]
    reasons += [f"covariate {name}: {still[name]}" for name in covariates]
    return Sorted(tuple(channels), tuple(Covariate(name=name) for name in covariates), tuple(reasons))


def _useless(column: Column) -> str:
    readings = column.readings
    if not len(readings):
        return "it holds no number"
    if np.all(readings == readings[0]):
        return f"it is {readings[0]:g} in all these readings; name it yourself if it changes later"
    steps = column.steps
    is_whole = bool(np.all(readings == np.round(readings)))
    if len(steps) > 1 and is_whole and steps[0] > 0 and np.all(steps == steps[0]):
        return f"it counts rows, it goes up by {steps[0]:g} every time"
    return ""


def _set(column: Column) -> str:
    """Why a column is something set; "" where it moves by itself."""
    readings, steps = column.readings, column.steps
    if len(steps) and (share := float(np.mean(steps == 0))) >= STILL:
        return f"it holds {100 * share:.0f} % of the time, so it is taken as something set, not something that moves by itself"
    values = np.unique(readings)
    if len(values) <= FEW_VALUES:
        found = ", ".join(f"{value:g}" for value in values)
        return f"it takes the values {found} only, so it is taken as something set, not something that moves by itself"
    return ""


def _skewed(readings: Array) -> str:
    """Why a column is to be learnt as its logarithm; "" where it is not."""
    deviation = readings - np.mean(readings)
    skewness = float(np.mean(deviation**3) / np.mean(deviation**2) ** 1.5)
    median, largest = float(np.median(readings)), float(np.max(readings))
    if np.min(readings) < 0 or skewness <= SKEWED or largest <= SPREAD * median:
        return ""
    return (
        f"it is never negative and spreads by factors (skewness {skewness:.1f}, median {median:g}, largest {largest:g})"
    )


def _beyond(names: Sequence[str], most: int, word: str) -> list[str]:
    return [f"left out {_listed(names[most:])}: a schema takes {most} {word} at most"] if len(names) > most else []


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")
