"""The one place of this benchmark that knows how the engine is called. Frames are made ready here, outside of what is timed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fleetgp import scaling
from fleetgp.arrays import Array
from fleetgp.gp import learner as learning
from fleetgp.schema import Schema

RULE = learning.Forgetting()


class Frame(NamedTuple):
    """What is known before a frame, and what it turns out to be: observed [Q]."""

    inputs: learning.Inputs
    observed: Array


def prepare(schema: Schema, values: Array) -> list[Frame]:
    """A frame for every row of values [n, Q + C] that has as many rows before it as there are lags."""
    Q, L = len(schema.channels), schema.lags
    is_ahead = np.array([c.known_ahead for c in schema.covariates], dtype=bool)
    made = []
    for t in range(L, len(values)):
        lags = values[t - L : t, :Q][::-1].copy()
        covariates = np.where(is_ahead, values[t, Q:], values[t - 1, Q:])
        made.append(Frame(learning.Inputs(lags, covariates, np.zeros(Q), lags[0]), values[t, :Q].copy()))
    return made


def begin(schema: Schema, values: Array) -> learning.Learner:
    """A learner scaled by these values [n, Q + C] that has learnt nothing yet."""
    moments = scaling.empty_moments(values.shape[1])
    for row in values:
        moments = scaling.observe(moments, row)
    return learning.alone(moments, len(schema.channels), schema.lags)


def features(learner: learning.Learner, frame: Frame) -> Array:
    """The feature vector [F] of a frame, as the engine computes it."""
    return learning.foresee(learner, frame.inputs).features


def target(learner: learning.Learner, frame: Frame) -> Array:
    """What the engine learns of a frame: scaled steps [Q] from lag 1."""
    return np.asarray((frame.observed - frame.inputs.lags[0]) / learner.scaling.scale[: learner.channels])


def single(learner: learning.Learner, frames: Sequence[Frame]) -> tuple[learning.Learner, list[Array]]:
    """Predict and learn frame by frame, as an agent does: the learner, and the means [Q] of all scaled steps."""
    means = []
    for frame in frames:
        forecast = learning.foresee(learner, frame.inputs)
        learner = learning.learn(learner, forecast, frame.inputs.lags[0], frame.observed, RULE)
        means.append(forecast.law.mean)
    return learner, means


def stacked(frames: Sequence[Frame]) -> Sequence[Frame]:
    """Frames as ``batch`` takes them."""
    return frames


def batch(learner: learning.Learner, frames: Sequence[Frame]) -> tuple[learning.Learner, list[Array]] | None:
    """The same as ``single``, all frames at once. None: this engine cannot."""
    return None
