"""The one place of this benchmark that knows how the engine is called. Frames are made ready here, outside of what is timed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from benchmarks import agent_stream as stream
from fleetgp import features as mapping
from fleetgp import inducing, placement, scaling
from fleetgp.arrays import Array
from fleetgp.features import Basis
from fleetgp.gp import batch as batching
from fleetgp.gp import learner as learning
from fleetgp.gp.learner import Forgetting, Inputs, Learner
from fleetgp.schema import Schema

RULE = Forgetting()
PLACE_STEPS = 10


class Frame(NamedTuple):
    """What is known before a frame, and what it turns out to be: observed [Q]."""

    inputs: Inputs
    observed: Array


def prepare(schema: Schema, values: Array) -> list[Frame]:
    """A frame for every row of values [n, Q + C] that has as many rows before it as there are lags; nothing is held over."""
    Q, L = len(schema.channels), schema.lags
    is_ahead = np.array([c.known_ahead for c in schema.covariates], dtype=bool)
    at_ms = stream.START_MS + schema.interval_ms * np.arange(len(values), dtype=float)
    phases = mapping.phases(at_ms, schema)
    none = np.zeros(Q)
    made = []
    for t in range(L, len(values)):
        lags = values[t - L : t, :Q][::-1]
        covariates = np.where(is_ahead, values[t, Q:], values[t - 1, Q:])
        held = np.zeros(values.shape[1])
        inputs = np.concatenate((lags.ravel(), covariates, phases[t], held))
        made.append(Frame(Inputs(inputs, none, lags[0].copy(), none), values[t, :Q].copy()))
    return made


def begin(schema: Schema, values: Array) -> Learner:
    """A learner that has learnt nothing yet, on a basis like a fleet's: scale and inducing inputs by these values [n, Q + C]."""
    moments = scaling.empty_moments(values.shape[1])
    for row in values:
        moments = scaling.observe(moments, row)
    shape = mapping.shape(schema)
    columns = placement.columns(shape)
    X = np.array([frame.inputs.inputs for frame in prepare(schema, values)])[:, list(columns)]
    centre, sd = X.mean(axis=0), X.std(axis=0)
    sd = np.where(sd > 0, sd, 1.0)
    centres = placement.start(schema.inducing, len(columns))
    for _ in range(PLACE_STEPS):
        centres = placement.step(centres, placement.assign(centres.place, (X - centre) / sd))
    reach = sd * placement.lengthscale(len(columns))
    shared = inducing.make(schema.kernel, columns, centre + sd * centres.place, reach)
    return learning.alone(Basis(shape, scaling.scaling(moments), shared))


def features(learner: Learner, frame: Frame) -> Array:
    """The feature vector [F] of a frame, as the engine computes it."""
    return learning.foresee(learner, frame.inputs).features


def target(learner: Learner, frame: Frame) -> Array:
    """What the engine learns of a frame: scaled steps [Q] from lag 1."""
    unit = learner.basis.scaling.scale[: len(frame.observed)]
    return np.asarray((frame.observed - frame.inputs.last) / unit)


def single(learner: Learner, frames: Sequence[Frame]) -> tuple[Learner, list[Array]]:
    """Predict and learn frame by frame, as an agent does: the learner, and the means [Q] of all scaled steps."""
    unit = learner.basis.scaling.scale[: learner.basis.shape.channels]
    means = []
    for frame in frames:
        forecast = learning.foresee(learner, frame.inputs)
        learner = learning.learn(learner, forecast, frame.observed, RULE)
        means.append((forecast.mean - frame.inputs.last) / unit)
    return learner, means


def stacked(frames: Sequence[Frame]) -> tuple[Inputs, Array]:
    """Frames as ``batch`` takes them: inputs and observed [n, Q], arrays with a leading axis of frames."""
    inputs = Inputs(*(np.array(part) for part in zip(*(frame.inputs for frame in frames), strict=True)))
    return inputs, np.array([frame.observed for frame in frames])


def batch(learner: Learner, frames: tuple[Inputs, Array]) -> tuple[Learner, Array]:
    """The same as ``single``, all frames at once: the learner, and the means [n, Q]."""
    unit = learner.basis.scaling.scale[: learner.basis.shape.channels]
    inputs, observed = frames
    learner, forecast = batching.foresee_and_learn(learner, inputs, observed, RULE)
    return learner, (forecast.mean - inputs.last) / unit
