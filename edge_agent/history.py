"""What stands before each of many frames: lags, ages, covariates, resolution and moments, by forward filling.

The same as ``watch`` makes of one frame after another, for frames without a gap in which no channel is read for the first
time or after a long silence. n frames, K = Q + C inputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from edge_agent.frames import Frame
from edge_agent.state import LONG_SILENCE, State
from edge_agent.watch import REACH, REACH_FRAMES, rounding
from fleetgp import features
from fleetgp.arrays import Array, Mask
from fleetgp.gp.learner import MAX_AGE, Inputs
from fleetgp.scaling import Moments
from fleetgp.schema import Schema, Transform


class Rows(NamedTuple):
    """Frames as matrices: at_ms [n]; raw [n, K] as read, values [n, K] transformed, NaN where missing.

    is_odd [n]: not to be taken with others, for a gap before it or a reading that its transform cannot take.
    """

    at_ms: Array
    raw: Array
    values: Array
    is_odd: Mask


class Before(NamedTuple):
    """What is known before each frame and after them all, hence n + 1 rows; values [n, K] of the frames themselves.

    newest [n + 1, K]: last reading, held over; past [L + n, Q]: readings of the channels, oldest first, where row L + i - l
    is lag l of frame i; age [n + 1, K]; resolution [n + 1, Q]; moments of [n + 1, K]. is_new [n]: a channel is read for the
    first time, or after so long a silence that its lags start anew: from there on nothing here holds.
    """

    values: Array
    newest: Array
    past: Array
    age: Array
    resolution: Array
    moments: Moments
    is_new: Mask


def rows(schema: Schema, frames: Sequence[Frame]) -> Rows:
    """Frames as matrices."""
    raw = np.array([frame.values for frame in frames])
    values = _transformed(raw, [item.transform for item in schema.inputs])
    is_lost = ~(np.isnan(raw) | np.isfinite(values))
    gap = np.array([frame.gap for frame in frames])
    at_ms = np.array([float(frame.at_ms) for frame in frames])
    return Rows(at_ms, raw, values, np.any(is_lost, axis=1) | (gap > 0))


def part(table: Rows, begin: int, end: int) -> Rows:
    """Some of the rows."""
    return Rows(table.at_ms[begin:end], table.raw[begin:end], table.values[begin:end], table.is_odd[begin:end])


def before(state: State, values: Array) -> Before:
    """What the state and the frames before it say of each frame, and of the one after all; values [n, K], n >= 1."""
    Q = len(state.age)
    start = np.concatenate((state.lags[0], state.covariates))
    is_read = np.isfinite(values)
    step = np.arange(len(values))[:, None]
    index = np.maximum.accumulate(np.where(is_read, step, -1), axis=0)
    filled = np.where(index >= 0, np.take_along_axis(values, np.maximum(index, 0), axis=0), start)
    newest = np.concatenate((start[None], filled))
    start_age = np.concatenate((state.age, state.covariate_age))
    silent = np.minimum(np.where(index >= 0, step - index, start_age + step + 1.0), MAX_AGE)
    age = np.concatenate((start_age[None], silent))
    moments = _moments(state.moments, values, is_read)
    is_new = (age[:-1, :Q] >= LONG_SILENCE) | (moments.n[:-1, :Q] == 0)
    return Before(
        values,
        newest,
        np.concatenate((state.lags[::-1], filled[:, :Q])),
        age,
        _resolution(state.resolution, newest[:, :Q], is_read[:, :Q] & (age[:-1, :Q] == 0)),
        moments,
        np.any(is_read[:, :Q] & is_new, axis=1),
    )


def foreseen_from(state: State, known: Before, at_ms: Array) -> Inputs:
    """What the first frames, as many as there are times [n], are foreseen from: ``watch._inputs`` of each."""
    schema, n, Q = state.config.schema, len(at_ms), len(state.age)
    seen, mean, square = (moment[:n] for moment in known.moments)
    reach = np.where(seen >= REACH_FRAMES, REACH * np.sqrt(square / np.maximum(seen, 1.0)), np.inf)
    low, high = mean - reach, mean + reach
    now = known.values[:n, Q:]
    is_ahead = np.array([c.known_ahead for c in schema.covariates], dtype=bool) & np.isfinite(now)
    covariates = np.where(is_ahead, now, known.newest[:n, Q:])
    held = known.age[:n] > 0
    held[:, Q:] &= ~is_ahead
    L = len(state.lags)
    lags = known.past[L - 1 + np.arange(n)[:, None] - np.arange(L)]  # [n, L, Q]
    lags = np.minimum(np.maximum(lags, low[:, None, :Q]), high[:, None, :Q])
    within = np.minimum(np.maximum(covariates, low[:, Q:]), high[:, Q:])
    inputs = np.concatenate((lags.reshape(n, -1), within, features.phases(at_ms, schema), held), axis=1)
    return Inputs(inputs, known.age[:n, :Q], known.newest[:n, :Q], rounding(known.resolution[:n]))


def after(state: State, known: Before, count: int) -> State:
    """The state with the first so many frames remembered."""
    Q, L = len(state.age), len(state.lags)
    return msgspec.structs.replace(
        state,
        moments=Moments(*(moment[count].copy() for moment in known.moments)),
        lags=known.past[count : count + L][::-1].copy(),
        age=known.age[count, :Q].copy(),
        resolution=known.resolution[count].copy(),
        covariates=known.newest[count, Q:].copy(),
        covariate_age=known.age[count, Q:].copy(),
    )


def _transformed(raw: Array, names: list[Transform]) -> Array:
    """Readings in the units that are learnt, as ``watch.forward`` makes them; NaN outside a transform's domain."""
    values = raw.copy()
    columns = [k for k, name in enumerate(names) if name == "log1p"]
    logged = raw[:, columns]
    values[:, columns] = np.log1p(np.where(logged > -1, logged, np.nan))
    return values


def _moments(start: Moments, values: Array, is_read: Mask) -> Moments:
    """Moments before each frame and after all [n + 1, K]: sums about the mean at the start, so that little cancels."""
    n, mean, square = start
    step = np.zeros((len(values) + 1, len(n)))
    step[1:] = np.where(is_read, values - mean, 0.0)
    count = n + np.concatenate((np.zeros((1, len(n))), np.cumsum(is_read, axis=0)))
    total = np.cumsum(step, axis=0)
    shift = total / np.maximum(count, 1.0)
    spread = square + np.maximum(np.cumsum(step * step, axis=0) - total * shift, 0.0)
    return Moments(count, mean + shift, spread)


def _resolution(start: Array, newest: Array, is_next: Mask) -> Array:
    """Smallest step [n + 1, Q] between readings of neighbouring frames so far."""
    step = np.abs(np.diff(newest, axis=0))
    step = np.where(is_next & (step > 0), step, np.inf)
    return np.asarray(np.minimum.accumulate(np.concatenate((start[None], step))))
