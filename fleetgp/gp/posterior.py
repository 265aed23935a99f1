"""An agent's own weights w = (v + d, local): prior from the fleet, posterior from its data, prediction, rank-one learning.

With one feature map for the shared and the deviation layer, v + d ~ N(m_cavity, S_cavity + diag(phi)) before the agent's
own data, the local layer's weights ~ N(0, local), and everything is exact linear regression per channel (models.md
section 4). Arrays may have leading axes before [Q, ...].
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fleetgp.arrays import Array
from fleetgp.gp.aggregate import Belief
from fleetgp.gp.statistics import Statistics
from fleetgp.linalg import inverse


class Weights(NamedTuple):
    """A Gaussian over an agent's weights: mean [..., Q, F], cov [..., Q, F, F]."""

    mean: Array
    cov: Array


class Before(NamedTuple):
    """An agent's weights before its own data, in the form that all is solved from: mean, shift [Q, F], precision [Q, F, F]."""

    mean: Array
    precision: Array
    shift: Array


def prior(belief: Belief, deviation_var: Array, local_var: Array, own_weight: float = 1.0) -> Before:
    """Weights before the agent's own data; belief: the fleet's, without this agent, of the F shared features.

    deviation_var [Q, F]; local_var [Q, F_local]. own_weight: 1/2 in a covariance intersection, where prior and data of the
    agent's own layers count half alike.
    """
    Q, F = belief.shift.shape
    size = F + local_var.shape[1]
    shared = inverse(belief.precision)
    precision = np.zeros((Q, size, size))
    precision[:, :F, :F] = inverse(shared + diagonal(deviation_var / own_weight))
    precision[:, F:, F:] = diagonal(own_weight / local_var)
    mean = np.zeros((Q, size))
    mean[:, :F] = (shared @ belief.shift[..., None])[..., 0]
    return Before(mean, precision, (precision @ mean[..., None])[..., 0])


def unlearnt(before: Before) -> Weights:
    """Weights before any frame."""
    return Weights(before.mean, inverse(before.precision))


def posterior(before: Before, statistics: Statistics, noise_var: Array, own_weight: float = 1.0) -> Weights:
    """Weights after the agent's own data; noise_var [..., Q]; own_weight: 1/2 in a covariance intersection."""
    r = own_weight / noise_var
    shift = before.shift + r[..., None] * statistics.cross
    cov = inverse(before.precision + r[..., None, None] * statistics.gram)
    return Weights((cov @ shift[..., None])[..., 0], cov)


class Running(NamedTuple):
    """Weights between two exact solutions: mean [..., Q, F]; cov [..., Q, F, F] less the squares of pending [..., Q, k, F].

    Rank-one updates wait in pending and are folded into the covariance many at a time, for writing it is what costs. size
    [..., Q]: trace of the covariance at the last solution.
    """

    mean: Array
    cov: Array
    pending: Array
    size: Array


MOST_PENDING = 16
EPS = float(np.finfo(float).eps)


def running(weights: Weights) -> Running:
    """The weights of an exact solution, to be updated from here on."""
    *lead, F = weights.mean.shape
    size = np.trace(weights.cov, axis1=-2, axis2=-1)
    return Running(weights.mean, weights.cov, np.zeros((*lead, 0, F)), size)


def whole(running: Running) -> Weights:
    """The weights with all updates folded in."""
    P = running.pending
    return Weights(running.mean, running.cov - P.mT @ P if P.shape[-2] else running.cov)


def spread(running: Running, features: Array) -> tuple[Array, Array, Array]:
    """Mean [..., Q] and known variance [..., Q] of a frame's noiseless targets at features [F], and cov @ features [..., Q, F]."""
    P = running.pending
    reach = _times(running.cov, features)
    if P.shape[-2]:
        reach = reach - (_times(P, features)[..., None, :] @ P)[..., 0, :]
    # what rank-one updates lose to rounding may not make a prediction surer than its noise
    return _times(running.mean, features), np.maximum(_times(reach, features), 0.0), reach


def foreseen(weights: Weights, features: Array) -> tuple[Array, Array]:
    """Mean and known variance of frames' noiseless targets: [Q] at features [F], [n, Q] at [n, F]; weights without leading axes."""
    if features.ndim == 1:
        known = _times(_times(weights.cov, features), features)
        return weights.mean @ features, np.maximum(known, 0.0)
    reach = features @ weights.cov  # [Q, n, F]
    return features @ weights.mean.T, np.maximum(np.sum(reach * features, axis=-1), 0.0).T


def learn(running: Running, known: Array, reach: Array, error: Array, noise_var: Array, floor: Array) -> Running:
    """After one frame whose ``spread`` was known and reach: rank-one, O(Q F). error, noise_var [..., Q].

    A channel of which less is known than the floor [..., Q] is left as it is: updates made of rounding grow without bound.
    The next exact solution learns the frame all the same.
    """
    scale = np.where(known > floor, 1.0 / np.sqrt(known + noise_var), 0.0)
    step = scale[..., None] * reach
    mean = running.mean + (scale * error)[..., None] * step
    pending = np.concatenate((running.pending, step[..., None, :]), axis=-2)
    if pending.shape[-2] < MOST_PENDING:
        return running._replace(mean=mean, pending=pending)
    cov = running.cov - pending.mT @ pending
    return running._replace(mean=mean, cov=cov, pending=pending[..., :0, :])


def rounding(running: Running, features: Array) -> Array:
    """Variance [..., Q] below which that of the features' sum is no more than rounding; features [F], or [n, F] for [..., Q, n]."""
    unit = features.shape[-1] * EPS
    if features.ndim == 1:
        return np.asarray(unit * running.size * (features @ features))
    return np.asarray(unit * running.size[..., None] * np.einsum("nf,nf->n", features, features))


def _times(A: Array, x: Array) -> Array:
    """A x [...] of stacked matrices [..., F] as one product, which is several times as fast as one for each."""
    return np.asarray((A.reshape(-1, A.shape[-1]) @ x).reshape(A.shape[:-1]))


def estimate_noise(statistics: Statistics, weights: Weights, guess: Array, guess_count: float) -> Array:
    """One EM step for the noise variance [..., Q], with a guess [Q] worth guess_count frames.

    E|y - F w|^2 summed over frames = square - 2 cross.w + w^T G w + tr(G cov).
    """
    w, G = weights.mean, statistics.gram
    fit = statistics.square - 2 * np.sum(statistics.cross * w, axis=-1)
    fit = fit + np.sum((G @ w[..., None])[..., 0] * w, axis=-1) + np.sum(G * weights.cov, axis=(-2, -1))
    return np.asarray((np.maximum(fit, 0.0) + guess_count * guess) / (statistics.n + guess_count))


def diagonal(variances: Array) -> Array:
    """Diagonal matrices [..., F, F] of [..., F]."""
    return np.asarray(variances[..., None] * np.eye(variances.shape[-1]))
