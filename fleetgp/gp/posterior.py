"""An agent's own weights w = v + d: prior from the fleet, posterior from its data, prediction, rank-one learning.

With one feature map for the shared and the deviation layer, w ~ N(m_cavity, S_cavity + diag(phi)) before the agent's own
data and everything is exact linear regression per channel (models.md section 4).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fleetgp.arrays import Array
from fleetgp.gp.aggregate import Belief
from fleetgp.gp.statistics import Statistics
from fleetgp.linalg import inverse, symmetric


class Weights(NamedTuple):
    """A Gaussian over an agent's weights: mean [Q, F], cov [Q, F, F]."""

    mean: Array
    cov: Array


class Law(NamedTuple):
    """Predictive law of one frame's targets, channels independent: mean [Q], variance [Q]."""

    mean: Array
    variance: Array


def prior(belief: Belief, phi: Array, own_weight: float = 1.0) -> Weights:
    """w = v + d before the agent's own data; belief: the fleet's, without this agent; phi [F].

    own_weight: 1/2 in a covariance intersection, where prior and data of the deviation count half alike.
    """
    cov = inverse(belief.precision)
    mean = (cov @ belief.shift[..., None])[..., 0]
    return Weights(mean, cov + np.diag(phi / own_weight))


def posterior(before: Weights, statistics: Statistics, noise_var: Array, own_weight: float = 1.0) -> Weights:
    """Weights after the agent's own data; noise_var [Q]; own_weight: 1/2 in a covariance intersection."""
    precision = inverse(before.cov)
    r = own_weight / noise_var
    shift = (precision @ before.mean[..., None])[..., 0] + r[:, None] * statistics.cross
    cov = inverse(precision + r[:, None, None] * statistics.gram)
    return Weights((cov @ shift[..., None])[..., 0], cov)


def predict(weights: Weights, features: Array, noise_var: Array) -> Law:
    """Law of the next targets; features [F], noise_var [Q] of this frame."""
    spread = weights.cov @ features
    # what rank-one updates lose to rounding may not make a prediction surer than its noise
    return Law(weights.mean @ features, np.maximum(spread @ features, 0.0) + noise_var)


def learn(weights: Weights, features: Array, targets: Array, noise_var: Array, present: Array) -> Weights:
    """Weights after one frame: rank-one, covariance form, O(Q F^2). targets [Q]; present [Q]: 1 = teach, 0 = leave.

    A channel whose features are known so well that the variance of their sum is all rounding is left as it is: updates
    made of rounding grow without bound. The next exact solution learns the frame all the same.
    """
    spread = weights.cov @ features  # [Q, F]
    known = spread @ features
    reach = np.sqrt(np.maximum(np.diagonal(weights.cov, axis1=1, axis2=2), 0.0)) @ np.abs(features)
    is_taught = (present > 0) & (known > len(features) * np.finfo(float).eps * reach**2)
    gain = np.where(is_taught, 1.0 / (np.maximum(known, 0.0) + noise_var), 0.0)[:, None] * spread
    error = np.where(is_taught, targets - weights.mean @ features, 0.0)
    mean = weights.mean + gain * error[:, None]
    cov = weights.cov - gain[:, :, None] * spread[:, None, :]
    return Weights(mean, symmetric(cov))


def estimate_noise(statistics: Statistics, weights: Weights, guess: Array, guess_count: float) -> Array:
    """One EM step for the noise variance [Q], with a guess [Q] worth guess_count frames.

    E|y - F w|^2 summed over frames = square - 2 cross.w + w^T G w + tr(G cov).
    """
    w = weights.mean
    fit = statistics.square - 2 * np.sum(statistics.cross * w, axis=1)
    fit = fit + np.einsum("qf,qfg,qg->q", w, statistics.gram, w) + np.einsum("qfg,qgf->q", statistics.gram, weights.cov)
    return np.asarray((np.maximum(fit, 0.0) + guess_count * guess) / (statistics.n + guess_count))
