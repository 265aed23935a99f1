"""What an agent of mixed channels keeps to itself, learnt on its ring: a few evaluations uphill now and then.

Loadings of deviation and local layer, the local lengthscale and the noise. When, is decided by the count of frames alone, so
that a journal replays to the same bits; how long, by how many frames and evaluations a step may take.
"""

from __future__ import annotations

import math

import msgspec
import numpy as np

from fleetgp.arrays import Array
from fleetgp.errors import NotFinite
from fleetgp.gp import mixed_solve, slopes, tune
from fleetgp.gp.climb import Curvature, climb
from fleetgp.gp.hierarchy import Own
from fleetgp.gp.mixed_state import Climbing, Mixed
from fleetgp.gp.ring import SIZE
from fleetgp.gp.tune import Cavity

# of one step: the first at the place itself
EVALUATIONS = 4
MOST_FRAMES = 160
# steps follow each other when frames have grown by a share, at the most so many apart
GROWTH, LEAST_APART, MOST_APART = 8.0, 8.0, 2048.0
# a frame that counts less is out of the ordinary
LEAST_WEIGHT = 0.5
MOST_THIN = 8.0


def is_due(learner: Mixed) -> bool:
    return learner.frames >= learner.climbing.at


def improved(learner: Mixed) -> Mixed:
    """The learner with own values that its recent frames find likelier, to be solved next; the next step is put on its way."""
    learner = mixed_solve.folded(learner)
    at = learner.frames + min(max(LEAST_APART, learner.frames / GROWTH), MOST_APART)
    frames = slopes.frames(*thinned(learner))
    known, is_free = learner.known, is_length_free(learner)
    start = learner.start._replace(noise_var=known.noise_guess)
    marginal = learner.own._replace(log_noise_var=np.log(learner.noise_var))
    evidence = tune.OwnEvidence(known.shared, marginal, frames, cavity(learner), start)

    def evaluate(flat: Array) -> tuple[float, Array]:
        value, slope = evidence(tune.packed(_own(flat, marginal, is_free=is_free)))
        return value, _packed(tune.unpacked(slope, marginal), is_free=is_free)

    first = _packed(marginal, is_free=is_free, is_value=True)
    climbing = learner.climbing
    is_known = climbing.steps.shape[1] == len(first)
    curvature = Curvature(list(climbing.steps), list(climbing.slopes)) if is_known else Curvature()
    try:
        best, _ = climb(evaluate, first, curvature, EVALUATIONS)
    except NotFinite:
        return msgspec.structs.replace(learner, climbing=learner.climbing._replace(at=at))
    own = _own(best, marginal, is_free=is_free)
    own = own._replace(log_noise_var=own.log_noise_var + np.log1p(-(learner.rho**2)))
    width = (len(curvature.steps), len(first))
    kept = Climbing(at, np.array(curvature.steps).reshape(width), np.array(curvature.slopes).reshape(width))
    return msgspec.structs.replace(mixed_solve.moved(learner, known.shared, own), climbing=kept)


def thinned(learner: Mixed) -> tuple[Array, Array]:
    """Positions [n, D] and readings [n, Q] of the ring, oldest first, so far apart that what they err by hardly goes on."""
    ring, rho = learner.ring, float(np.max(learner.rho, initial=0.0))
    thin = max(1, round(min((1 + rho) / (1 - rho), MOST_THIN)), math.ceil(len(ring.x) / MOST_FRAMES))
    picked = np.arange(len(ring.x) - 1, -1, -thin)[::-1]
    Y = np.where(ring.weights >= LEAST_WEIGHT, ring.y, np.nan)
    return ring.x[picked], Y[picked]


def cavity(learner: Mixed) -> Cavity:
    return tune.cavity(learner.known.belief)


def is_length_free(learner: Mixed) -> bool:
    """Whether the local lengthscale may still change: while all frames are at hand, or would be without a stride."""
    return learner.frames <= SIZE * learner.plan.stride


def _packed(own: Own, *, is_free: bool, is_value: bool = False) -> Array:
    """What is climbed, of values or of slopes: one lengthscale for all columns; inducing inputs stay on their grid."""
    length = own.log_lengthscale[:1] if is_value else np.sum(own.log_lengthscale, keepdims=True)
    parts = [own.Bd.ravel(), own.Bl.ravel(), own.log_noise_var]
    return np.concatenate([*parts, length] if is_free else parts)


def _own(flat: Array, like: Own, *, is_free: bool) -> Own:
    a, b, c = np.cumsum([like.Bd.size, like.Bl.size, like.log_noise_var.size])
    length = like.log_lengthscale
    if is_free:
        length = length + (flat[c] - length[0])
    return like._replace(
        Bd=flat[:a].reshape(like.Bd.shape), Bl=flat[a:b].reshape(like.Bl.shape), log_noise_var=flat[b:c],
        log_lengthscale=length,
    )  # fmt: skip
