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


def spread(weights: Weights, features: Array) -> tuple[Array, Array, Array]:
    """Mean [..., Q] and known variance [..., Q] of a frame's noiseless targets at features [F], and cov @ features [..., Q, F]."""
    reach = weights.cov @ features
    # what rank-one updates lose to rounding may not make a prediction surer than its noise
    return weights.mean @ features, np.maximum(reach @ features, 0.0), reach


def foreseen(weights: Weights, features: Array) -> tuple[Array, Array]:
    """Mean and known variance of frames' noiseless targets: [Q] at features [F], [n, Q] at [n, F]; weights without leading axes."""
    if features.ndim == 1:
        mean, known, _ = spread(weights, features)
        return mean, known
    reach = features @ weights.cov  # [Q, n, F]
    return features @ weights.mean.T, np.maximum(np.sum(reach * features, axis=-1), 0.0).T


def learn(weights: Weights, features: Array, error: Array, noise_var: Array) -> Weights:
    """Weights after one frame: rank-one, covariance form, O(Q F^2). error, noise_var [..., Q]; an infinite noise teaches nothing.

    A channel whose features are known so well that the variance of their sum is all rounding is left as it is: updates
    made of rounding grow without bound. The next exact solution learns the frame all the same.
    """
    _, known, reach = spread(weights, features)
    is_taught = np.isfinite(noise_var) & (known > is_rounding(weights, features))
    gain = np.where(is_taught, 1.0 / (known + noise_var), 0.0)[..., None] * reach
    # asymmetric by rounding alone, until the next exact solution
    cov = weights.cov - gain[..., :, None] * reach[..., None, :]
    return Weights(weights.mean + gain * np.where(is_taught, error, 0.0)[..., None], cov)


def is_rounding(weights: Weights, features: Array) -> Array:
    """Variance [..., Q] below which that of the features' sum is no more than rounding; features [F], or [n, F] for [..., Q, n]."""
    deviation = np.sqrt(np.maximum(np.diagonal(weights.cov, axis1=-2, axis2=-1), 0.0))
    return np.asarray(features.shape[-1] * np.finfo(float).eps * (deviation @ np.abs(features).T) ** 2)


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
