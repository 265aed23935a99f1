"""What an agent's recent frames say of a shared basis: their message, its constant, and the slope of the evidence.

The streaming engine's side of the slow clock (models.md section 4, "Objective"). Evidence of weights w = v + d and a local
layer is that of the regression which predicts; the frames count as much as they did when they were learnt. At the fleet's
belief the gradient of the summed evidence is a sum over agents, each under what is known of its own weights.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fleetgp import features
from fleetgp.arrays import Array
from fleetgp.features import PRIOR_SD, Basis
from fleetgp.gp import learner as learning
from fleetgp.gp import message, posterior, slopes, statistics
from fleetgp.gp.aggregate import Belief
from fleetgp.gp.learner import LONG, Learner
from fleetgp.gp.message import Term
from fleetgp.inducing import Inducing

# below so many frames their evidence is that of chance
LEAST_FRAMES = 32


class Recent(NamedTuple):
    """Recent frames that a whole tuning is judged by: inputs [n, D], scaled steps [n, Q], weights [n, Q] (0 = not learnt).

    basis: the agent's, whose linear and local part stay; noise_var [Q]; prior variances deviation_var [Q, F], local_var
    [Q, F_local].
    """

    inputs: Array
    targets: Array
    weights: Array
    basis: Basis
    noise_var: Array
    deviation_var: Array
    local_var: Array

    @property
    def readings(self) -> Array:
        """How many there are [Q]."""
        return np.asarray(np.sum(self.weights > 0, axis=0).astype(float))


class Slopes(NamedTuple):
    """Gradient of the evidence for inducing inputs [M, D] and the log lengthscale [D]."""

    inducing: Array
    log_lengthscale: Array


def recent(learner: Learner) -> Recent:
    """The frames in a learner's ring, and what it knows of noise and own layers."""
    learner = learning.folded(learner)
    ring, known = learner.ring, learner.knowledge
    local_var = np.tile(learner.local_var[:, None], (1, learner.basis.local_size))
    targets = ring.targets / learner.unit
    noise_var = learner.noise_var[LONG].copy()
    return Recent(ring.inputs, targets, ring.weights, learner.basis, noise_var, known.deviation_var, local_var)


def tell(recent: Recent, shared: Inducing) -> tuple[Term, float]:
    """Its term of the shared weights on these inducing inputs, and the constant of its evidence in nats."""
    x = features.features(recent.basis._replace(shared=shared), recent.inputs)
    sums = statistics.summed(x, recent.targets, recent.weights)
    log_weight = np.sum(np.log(np.where(recent.weights > 0, recent.weights, 1.0)), axis=0)
    term, constant = message.evidence(sums, log_weight, recent.noise_var, recent.deviation_var, recent.local_var)
    return term, float(np.sum(constant))


def slope(recent: Recent, shared: Inducing, cavity: Belief) -> Slopes:
    """Where the evidence rises; cavity: the fleet's belief on these inducing inputs without this agent."""
    basis = recent.basis._replace(shared=shared)
    x = features.features(basis, recent.inputs)
    sums = statistics.summed(x, recent.targets, recent.weights)
    before = posterior.prior(cavity, recent.deviation_var, recent.local_var)
    mean, cov = posterior.posterior(before, sums, recent.noise_var)
    part = slice(basis.shape.linear, basis.size)
    share = recent.weights / recent.noise_var
    missed = share * (recent.targets - x @ mean.T)
    pull = missed @ mean[:, part]
    for q in range(len(mean)):
        pull -= share[:, q, None] * (x @ cov[q][:, part])
    X = recent.inputs[:, list(shared.columns)]
    frames = slopes.frames(X, np.zeros((len(X), 0)))
    made = slopes.basis(shared.kernel, shared.Z, np.log(shared.lengthscale), frames)
    return Slopes(*slopes.back(made, PRIOR_SD["inducing"] * pull, frames))
