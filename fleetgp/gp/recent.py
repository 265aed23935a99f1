"""What an agent's recent frames say of a shared basis: their message, its constant, and the slope of the evidence.

The streaming engine's side of the slow clock (models.md section 4, "Objective"). Evidence of weights w = v + d and a local
layer is that of the regression which predicts; the frames count as much as they did when they were learnt. At the fleet's
belief the gradient of the summed evidence is a sum over agents, each under what is known of its own weights.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fleetgp import features, inducing
from fleetgp.arrays import Array
from fleetgp.features import PRIOR_SD, Basis
from fleetgp.gp import learner as learning
from fleetgp.gp import message, posterior, slopes, statistics, tail
from fleetgp.gp.aggregate import Belief
from fleetgp.gp.learner import LONG, Learner
from fleetgp.gp.message import Term
from fleetgp.gp.posterior import Weights
from fleetgp.gp.statistics import Statistics
from fleetgp.inducing import Inducing
from fleetgp.linalg import cholesky, symmetric

# below so many frames their evidence is that of chance
LEAST_FRAMES = 256
# share of the frames, the newest, that a basis is judged by: the others teach. Evidence of the frames that a basis was fitted to
# takes agents for independent that one weather, or one supply, moves alike, and rises whether the basis is better or not.
HELD_OUT = 1 / 3


class Recent(NamedTuple):
    """Recent frames that a whole tuning is judged by, oldest first: inputs [n, D], scaled steps [n, Q], weights [n, Q]
    (0 = not learnt).

    basis: the agent's, whose linear and local part stay; noise_var [Q]; prior variances deviation_var [Q, F], local_var
    [Q, F_local]; degrees [Q] of the law's tail.
    """

    inputs: Array
    targets: Array
    weights: Array
    basis: Basis
    noise_var: Array
    deviation_var: Array
    local_var: Array
    degrees: Array

    @property
    def taught(self) -> int:
        """How many frames teach; the rest are held out."""
        return len(self.inputs) - int(HELD_OUT * len(self.inputs))

    @property
    def readings(self) -> Array:
        """How many readings teach [Q]."""
        return np.asarray(np.sum(self.weights[: self.taught] > 0, axis=0).astype(float))


class Taught(NamedTuple):
    """Frames that an evidence is of: inputs [n, D], features [n, F + F_local], scaled steps and their precisions [n, Q]."""

    inputs: Array
    features: Array
    targets: Array
    precisions: Array


class Judgement(NamedTuple):
    """What frames say under what is known of an agent's weights without them.

    inducing [M, D], log_lengthscale [D]: gradient of the evidence of those that teach. held_out: log density of the others
    from these, in nats, by reading [n, Q]; NaN where nothing was learnt.
    """

    inducing: Array
    log_lengthscale: Array
    held_out: Array


def recent(learner: Learner) -> Recent:
    """The frames in a learner's ring, and what it knows of noise and own layers."""
    learner = learning.folded(learner)
    ring, known = learner.ring, learner.knowledge
    local_var = np.tile(learner.local_var[:, None], (1, learner.basis.local_size))
    own = (learner.noise_var[LONG].copy(), known.deviation_var, local_var, learner.tail.degrees)
    return Recent(ring.inputs, ring.targets / learner.unit, ring.weights, learner.basis, *own)


def tell(recent: Recent, shared: Inducing) -> tuple[Term, float]:
    """Its term of the shared weights on these inducing inputs, and the constant of its evidence in nats."""
    _, sums = _summed(recent, recent.basis._replace(shared=shared))
    weights = recent.weights[: recent.taught]
    log_weight = np.sum(np.log(np.where(weights > 0, weights, 1.0)), axis=0)
    term, constant = message.evidence(sums, log_weight, recent.noise_var, recent.deviation_var, recent.local_var)
    return term, float(np.sum(constant))


def judge(recent: Recent, shared: Inducing, cavity: Belief) -> Judgement:
    """Where the evidence rises, and how well the held-out frames are foreseen; cavity: the fleet's belief on these inducing
    inputs without this agent."""
    basis, n = recent.basis._replace(shared=shared), recent.taught
    x, sums = _summed(recent, basis)
    before = posterior.prior(cavity, recent.deviation_var, recent.local_var)
    weights = posterior.posterior(before, sums, recent.noise_var)
    taught = Taught(recent.inputs[:n], x[:n], recent.targets[:n], recent.weights[:n] / recent.noise_var)
    rises = layer_slopes(taught, weights, shared, slice(basis.shape.linear, basis.size), PRIOR_SD["inducing"])
    return Judgement(*rises, _held_out(recent, x[n:], weights))


def layer_slopes(taught: Taught, weights: Weights, layer: Inducing, part: slice, sd: float) -> tuple[Array, Array]:
    """Slopes of the evidence for a layer's inducing inputs [M, D] and log lengthscale [D].

    weights: after these frames; part: the layer's among all features, which carry sd. The slope for features X of
    log p(y | X w) is, expected over the weights, D (y - X m) m^T - D X C (Fisher's identity).
    """
    x = taught.features
    pull = (taught.precisions * (taught.targets - x @ weights.mean.T)) @ weights.mean[:, part]
    for q, cov in enumerate(weights.cov):
        pull -= taught.precisions[:, q, None] * (x @ cov[:, part])
    X = inducing.picked(taught.inputs, layer.columns)
    frames = slopes.frames(X, np.zeros((len(X), 0)))
    made = slopes.basis(layer.kernel, layer.Z, np.log(layer.lengthscale), frames)
    return slopes.back(made, sd * pull)


def _summed(recent: Recent, basis: Basis) -> tuple[Array, Statistics]:
    """Features of all frames, and statistics of those that teach."""
    x, n = features.features(basis, recent.inputs), recent.taught
    return x, statistics.summed(x[:n], recent.targets[:n], recent.weights[:n])


def _held_out(recent: Recent, x: Array, weights: Weights) -> Array:
    """Log density of the newest frames, each foreseen from those before it, under the Student-t law that is published.

    As in ``batch``: with S = X C X^T + noise = L L^T and e = L^-1 (y - X m), frame i is missed by L_ii e_i, and its variance
    is L_ii^2.
    """
    share, targets = recent.weights[recent.taught :], recent.targets[recent.taught :]
    result = np.full_like(targets, np.nan)
    for q, degrees in enumerate(recent.degrees):
        seen = share[:, q] > 0
        X = x[seen]
        S = (X @ weights.cov[q]) @ X.T + np.diag(recent.noise_var[q] / share[seen, q])
        L, _ = cholesky(symmetric(S))
        errors = np.linalg.solve(L, targets[seen, q] - X @ weights.mean[q])
        # the noise is learnt as a variance
        factor = (degrees - 2.0) / degrees
        log_norm = tail.log_norm(np.array(degrees))
        density = tail.log_density(errors**2 / factor, np.array(degrees), log_norm)
        result[seen, q] = density - np.log(np.diagonal(L)) - 0.5 * np.log(factor)
    return result
