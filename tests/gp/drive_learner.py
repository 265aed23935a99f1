"""Feed a learner a stream as an agent does: inputs of lags held over, foresee, learn, rescale, remember."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from fleetgp import scaling
from fleetgp.arrays import Array
from fleetgp.features import Shape
from fleetgp.gp import batch, moves
from fleetgp.gp import learner as learning
from fleetgp.gp.learner import Forecast, Forgetting, Inputs, Learner

DEFAULT_RULE = Forgetting()
NEVER = 1e18  # a half-life that forgets nothing in any test


class Run(NamedTuple):
    """The learner after the last frame; mean, sd, z [n, Q] of every frame foreseen (z NaN where nothing came)."""

    learner: Learner
    mean: Array
    sd: Array
    z: Array


def none_of(frames: int) -> Array:
    return np.zeros((frames, 0))


def inputs_of(series: Array, lags: int = 2, covariates: Array | None = None, phases: Array | None = None) -> Inputs:
    """What is known before each of the frames 1, 2, ... of series [n, Q], NaN = missing: arrays with a leading axis [n - 1].

    Lags before the first frame are its own; a channel or covariate that has not come yet is held at 0.
    """
    (n, Q), known = series.shape, none_of(len(series)) if covariates is None else covariates
    turns = none_of(n) if phases is None else phases
    rows, ages, last = [], [], []
    held = np.tile(np.nan_to_num(series[0], posinf=0.0, neginf=0.0), (lags, 1))
    covariate, age, is_held = np.nan_to_num(known[0]), np.zeros(Q), np.isnan(series[0])
    for t in range(1, n):
        is_gone = np.isnan(known[t])
        covariate = np.where(is_gone, covariate, known[t])
        rows.append(np.concatenate((held.ravel(), covariate, turns[t], is_held, is_gone)))
        ages.append(age)
        last.append(held[0])
        is_held = np.isnan(series[t])
        held = np.concatenate((np.where(is_held, held[0], series[t])[None], held[:-1]))
        age = np.where(is_held, np.minimum(age + 1, learning.MAX_AGE), 0.0)
    return Inputs(np.array(rows), np.array(ages), np.array(last), np.zeros((n - 1, Q)))


def one(inputs: Inputs, t: int) -> Inputs:
    return Inputs(*(part[t] for part in inputs))


def shape_of(series: Array, lags: int, covariates: Array | None, phases: Array | None) -> Shape:
    C, P = (0 if part is None else part.shape[1] for part in (covariates, phases))
    return Shape(series.shape[1], lags, C, P)


def drive(
    series: Array,
    *,
    lags: int = 2,
    covariates: Array | None = None,
    phases: Array | None = None,
    rule: Forgetting = DEFAULT_RULE,
    between: Callable[[Learner, int], Learner] | None = None,
) -> Run:
    """A lone learner over series [n, Q] (NaN = missing), covariates [n, C] known ahead and phases [n, P], on its own scale.

    ``between`` may change the learner after each frame: it gets the learner and the number of frames so far.
    """
    n = len(series)
    known = none_of(n) if covariates is None else covariates
    readings = np.concatenate((series, known), axis=1)
    moments = scaling.observe(scaling.empty_moments(readings.shape[1]), readings[0])
    learner = learning.on_moments(moments, shape_of(series, lags, covariates, phases))
    inputs = inputs_of(series, lags, covariates, phases)
    mean, sd = [], []
    for t in range(1, n):
        forecast = learning.foresee(learner, one(inputs, t - 1))
        mean.append(forecast.mean)
        sd.append(forecast.sd)
        learner = learning.learn(learner, forecast, series[t], rule)
        moments = scaling.observe(moments, readings[t])
        learner = moves.rescale(learner, moments)
        if between is not None:
            learner = between(learner, t)
    means, sds = np.array(mean), np.array(sd)
    return Run(learner, means, sds, (series[1:] - means) / sds)


def drive_in_batches(
    learner: Learner, series: Array, *, lags: int = 2, covariates: Array | None = None, rule: Forgetting = DEFAULT_RULE
) -> tuple[Learner, Forecast]:
    """A learner that keeps its scale over a long stream: forecasts of the frames 1, 2, ..., and the learner after them."""
    return batch.foresee_and_learn(learner, inputs_of(series, lags, covariates), series[1:], rule)


def settled(series: Array, lags: int, covariates: Array | None = None) -> Learner:
    """A lone learner that has seen nothing, on the scale of the whole series."""
    known = none_of(len(series)) if covariates is None else covariates
    readings = np.concatenate((series, known), axis=1)
    moments = scaling.empty_moments(readings.shape[1])
    for row in readings[:: max(1, len(readings) // 500)]:
        moments = scaling.observe(moments, row)
    return learning.on_moments(moments, shape_of(series, lags, covariates, None))


def autoregressive(rng: np.random.Generator, frames: int, channels: int, share: float) -> Array:
    """x_t = share x_{t-1} + e_t, e ~ N(0, 1), from a stationary start."""
    x = np.empty((frames, channels))
    x[0] = rng.standard_normal(channels) / np.sqrt(max(1 - share**2, 1e-3))
    for t in range(1, frames):
        x[t] = share * x[t - 1] + rng.standard_normal(channels)
    return x
