"""Learners with every layer switched on, and frames as hostile as a sensor can make them."""

from __future__ import annotations

import numpy as np

from fleetgp import inducing
from fleetgp.arrays import Array
from fleetgp.features import Basis, Shape
from fleetgp.gp import learner as learning
from fleetgp.gp.aggregate import Belief
from fleetgp.gp.learner import Inputs, Knowledge, Learner
from fleetgp.scaling import Scaling
from fleetgp.schema import Kernel

CENTRE, SPREAD = 10.0, 3.0


def random_basis(
    rng: np.random.Generator, shape: Shape, shared: int = 0, local: int = 0, kernel: Kernel = "se"
) -> Basis:
    """Scaled about 10 with a spread of about 3; inducing inputs among the frames, on at most two columns."""
    inputs = shape.channels + shape.covariates
    scaling = Scaling(CENTRE + rng.standard_normal(inputs), SPREAD * 10 ** rng.uniform(-0.3, 0.3, inputs))

    def layer(size: int) -> inducing.Inducing | None:
        D = min(2, shape.lags * shape.channels)
        Z = CENTRE + SPREAD * rng.standard_normal((size, D))
        return inducing.make(kernel, tuple(range(D)), Z, np.full(D, 2 * SPREAD)) if size else None

    return Basis(shape, scaling, layer(shared), layer(local))


def random_knowledge(rng: np.random.Generator, basis: Basis, own_weight: float = 1.0) -> Knowledge:
    """A belief as a fleet of a few might hold it."""
    Q, F = basis.shape.channels, basis.size
    prior_var, deviation_var = 10 ** rng.uniform(-1, 0.5, (Q, F)), 10 ** rng.uniform(-2, 0, (Q, F))
    A = rng.standard_normal((Q, F, F))
    belief = Belief((1 / prior_var)[..., None] * np.eye(F) + A @ A.mT, rng.standard_normal((Q, F)))
    return Knowledge(belief, prior_var, deviation_var, 10 ** rng.uniform(-1, 0, Q), 20.0, own_weight)


def random_learner(
    rng: np.random.Generator, shape: Shape, shared: int = 0, local: int = 0, own_weight: float = 1.0
) -> Learner:
    """In a fleet; without any data of its own."""
    basis = random_basis(rng, shape, shared, local)
    return learning.knowing(basis, random_knowledge(rng, basis, own_weight))


def lone_learner(rng: np.random.Generator, shape: Shape, shared: int = 0) -> Learner:
    return learning.alone(random_basis(rng, shape, shared))


def random_inputs(rng: np.random.Generator, shape: Shape, frames: int) -> Inputs:
    """n frames' inputs about the centre, some held; ages 0 to 3 and now and then endless; floors mostly 0."""
    Q, L, C, P = shape
    values = CENTRE + SPREAD * rng.standard_normal((frames, L * Q + C))
    turn = rng.uniform(0, 2 * np.pi, (frames, P))
    held = (rng.random((frames, Q + C)) < 0.2).astype(float)
    age = rng.integers(0, 4, (frames, Q)).astype(float)
    age[rng.random(age.shape) < 0.02] = np.inf
    floor = np.where(rng.random((frames, Q)) < 0.1, 5.0, 0.0)
    return Inputs(np.concatenate((values, np.cos(turn), held), axis=1), age, values[:, :Q], floor)


def random_readings(
    rng: np.random.Generator, inputs: Inputs, missing: float = 0.2, outliers: float = 0.0, size: float = 1e6
) -> Array:
    """Readings [n, Q] that depend on the inputs, some missing, some ``size`` spreads away."""
    n, Q = inputs.last.shape
    y = CENTRE + 0.7 * (inputs.last - CENTRE) + rng.standard_normal((n, Q))
    y += np.sin(inputs.inputs[:, :1])
    y = np.where(rng.random((n, Q)) < outliers, size * SPREAD * rng.choice([-1.0, 1.0], (n, Q)), y)
    return np.where(rng.random((n, Q)) < missing, np.nan, y)
