"""The one place of this benchmark that knows how the engine is called. Frames are made ready here, outside of what is timed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from benchmarks import agent_stream as stream
from fleetgp import features as mapping
from fleetgp import placement, scaling
from fleetgp.arrays import Array
from fleetgp.features import Basis
from fleetgp.gp import batch as batching
from fleetgp.gp import learner as learning
from fleetgp.gp import moves
from fleetgp.gp.learner import Forgetting, Inputs, Learner
from fleetgp.schema import Schema

RULE = Forgetting()
LOCAL = 12  # inducing inputs of the private layer, as an agent's settings have it
LOCAL_FRAMES = 256


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
    """A learner as an agent has it in a fleet: a basis like a fleet's, and a private layer placed by its first frames.

    Scale and inducing inputs come from these values [n, Q + C]; of them it has learnt the first LOCAL_FRAMES.
    """
    moments = scaling.empty_moments(values.shape[1])
    for row in values:
        moments = scaling.observe(moments, row)
    frames, shape, unit = prepare(schema, values), mapping.shape(schema), scaling.scaling(moments)
    own, columns = placement.unit(shape, unit), list(placement.columns(shape))
    X = (np.array([frame.inputs.inputs for frame in frames])[:, columns] - own.centre) / own.scale
    shared = placement.place(schema.kernel, shape, unit, placement.fitted(schema.inducing, X).place)
    learner, _ = single(learning.alone(Basis(shape, unit, shared)), frames[:LOCAL_FRAMES])
    return moves.place_local(learner, LOCAL, schema.kernel)


def features(learner: Learner, frame: Frame) -> Array:
    """The feature vector [F + F_local] of a frame, as the engine computes it."""
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
