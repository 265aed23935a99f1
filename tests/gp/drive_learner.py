"""Feed a learner a stream frame by frame, as an agent does: foresee, learn, rescale, remember."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from fleetgp import scaling
from fleetgp.arrays import Array
from fleetgp.gp import learner as learning
from fleetgp.gp.learner import Forgetting, Learner

DEFAULT_RULE = Forgetting()


class Run(NamedTuple):
    """The learner after the last frame; mean, sd, z [n, Q] of every frame foreseen (z NaN where nothing came)."""

    learner: Learner
    mean: Array
    sd: Array
    z: Array


def drive(
    series: Array,
    *,
    lags: int = 2,
    covariates: Array | None = None,
    rule: Forgetting = DEFAULT_RULE,
    between: Callable[[Learner, int], Learner] | None = None,
) -> Run:
    """A lone learner over series [n, Q] (NaN = missing) and covariates [n, C] known ahead.

    The first reading of each channel is the first row's, which must be complete unless the channel never comes.
    ``between`` may change the learner after each frame: it gets the learner and the number of frames so far.
    """
    n, Q = series.shape
    known = np.zeros((n, 0)) if covariates is None else covariates
    moments = scaling.observe(scaling.empty_moments(Q + known.shape[1]), np.concatenate((series[0], known[0])))
    learner = learning.alone(moments, Q, lags)
    held = np.tile(np.where(np.isfinite(series[0]), series[0], learner.scaling.centre[:Q]), (lags, 1))
    age = np.zeros(Q)
    mean, sd, z = [], [], []
    for t in range(1, n):
        forecast = learning.foresee(learner, learning.Inputs(held, known[t], age))
        y = series[t]
        mean.append(forecast.mean)
        sd.append(forecast.sd)
        z.append((y - forecast.mean) / forecast.sd)
        learner = learning.learn(learner, forecast, held[0], y, rule)
        moments = scaling.observe(moments, np.concatenate((y, known[t])))
        learner = learning.rescale(learner, moments)
        if between is not None:
            learner = between(learner, t)
        present = np.isfinite(y)
        held = np.concatenate((np.where(present, y, held[0])[None], held[:-1]))
        age = np.where(present, 0.0, np.minimum(age + 1, learning.MAX_AGE))
    return Run(learner, np.array(mean), np.array(sd), np.array(z))
