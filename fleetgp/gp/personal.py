"""pFedGP in the streaming engine: a private layer alone, whose lengthscale each agent climbs from where the fleet's average is.

Federated averaging (McMahan et al. 2017) of a kernel's parameters, of personal Gaussian processes (Achituve et al. 2021): the
fleet's value, a few steps of Adam up an agent's own evidence, and back to the average.
"""

from __future__ import annotations

import numpy as np

from fleetgp import features, inducing, placement
from fleetgp.arrays import Array
from fleetgp.features import PRIOR_SD
from fleetgp.gp import ascent, moves, posterior, statistics
from fleetgp.gp import learner as learning
from fleetgp.gp.aggregate import Belief
from fleetgp.gp.learner import Learner
from fleetgp.gp.recent import Recent, Taught, layer_slopes, recent
from fleetgp.inducing import Inducing

NAME = "own_log_lengthscale"
STEPS, RATE = 5, 0.03
# no steps by Adam go further than about so
FURTHEST = 2.0 * STEPS * RATE
# standard deviation of the prior of a log lengthscale about the rule of thumb: without it, evidence of few weeks stretches a
# lengthscale without end, until the layer repeats what is linear already
PRIOR_SPREAD = 0.5
# a layer is moved for a change of its log lengthscale by so much; less is not worth what moving loses
WORTH_MOVING = 0.4


def layer(old: Inducing, log_lengthscale: Array) -> Inducing:
    """The same places under another lengthscale [D]. Raises NumericalError where no features come of it."""
    return inducing.make(old.kernel, old.columns, old.Z, np.exp(log_lengthscale))


def moved(learner: Learner, log_lengthscale: Array) -> Learner:
    """The learner with the fleet's lengthscale [D] in its private layer. Raises BasisRefused, NumericalError."""
    local = learner.basis.local
    assert local is not None
    if np.max(np.abs(np.log(local.lengthscale) - log_lengthscale)) < WORTH_MOVING:
        return learner
    basis = learner.basis._replace(local=layer(local, log_lengthscale))
    return learning.inform(moves.move(learner, basis), learner.knowledge)


def climbed(learner: Learner, log_lengthscale: Array) -> tuple[Array, Array]:
    """How far [D] an agent's own steps go from the fleet's value, on the frames in its ring; and how many readings [Q] these are."""
    frames = recent(learner)
    middle = _rule(frames)
    values, momentum = {NAME: log_lengthscale}, ascent.still({NAME: log_lengthscale})
    for _ in range(STEPS):
        slope = own_slope(frames, learner.knowledge.belief, values[NAME]) - (values[NAME] - middle) / PRIOR_SPREAD**2
        values, momentum = ascent.step(values, {NAME: slope}, momentum, RATE)
    # nothing is held out: all of them teach
    return values[NAME] - log_lengthscale, np.sum(frames.weights > 0, axis=0).astype(float)


def _rule(recent: Recent) -> Array:
    """Log of the rule of thumb [D] in the scale of an agent's own frames."""
    assert recent.basis.local is not None
    columns = recent.basis.local.columns
    sd = np.std(inducing.picked(recent.inputs, columns), axis=0)
    return np.asarray(np.log(np.where(sd > 0, sd, 1.0) * placement.lengthscale(len(columns))))


def own_slope(recent: Recent, belief: Belief, log_lengthscale: Array) -> Array:
    """Slope [D] of the evidence of recent frames for the log lengthscale of the local layer; belief: of the other weights."""
    assert recent.basis.local is not None
    basis = recent.basis._replace(local=layer(recent.basis.local, log_lengthscale))
    local = basis.local
    assert local is not None
    x = features.features(basis, recent.inputs)
    sums = statistics.summed(x, recent.targets, recent.weights)
    before = posterior.prior(belief, recent.deviation_var, recent.local_var)
    weights = posterior.posterior(before, sums, recent.noise_var)
    taught = Taught(recent.inputs, x, recent.targets, recent.weights / recent.noise_var)
    return layer_slopes(taught, weights, local, slice(basis.size, None), PRIOR_SD["local"])[1]
