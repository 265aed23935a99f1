"""Sufficient statistics of Bayesian linear regression: a commutative monoid (models.md section 3).

Q channels, F features. Everything an agent knows of its past is here; a prior is never mixed in, so that forgetting and
merging touch data alone. Arrays may have leading axes: two paces of forgetting are two statistics in one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fleetgp.arrays import Array
from fleetgp.linalg import root, symmetric


class Statistics(NamedTuple):
    """Sums over frames, per channel.

    n [..., Q] frames; square [..., Q] sum y^2; cross [..., Q, F] sum F y; gram [..., Q, F, F] sum F F^T, symmetric to
    the last bit, where a frame whose noise variance is k times the channel's counts in n once and in the others with weight 1 / k.
    """

    n: Array
    square: Array
    cross: Array
    gram: Array


def empty(*shape: int) -> Statistics:
    """Statistics of no frames; shape: leading axes, then channels and features."""
    channels, features = shape[:-1], shape[-1]
    return Statistics(
        np.zeros(channels),
        np.zeros(channels),
        np.zeros((*channels, features)),
        np.zeros((*channels, features, features)),
    )


def summed(features: Array, targets: Array, weights: Array, kept: Array | None = None) -> Statistics:
    """Statistics of frames: features [n, F], targets [n, Q], weights [n, Q] (0 = the channel is missing, whatever its target).

    kept [n]: what forgetting has left of each frame.
    """
    is_seen = weights > 0
    y = np.where(is_seen, targets, 0.0)
    left = np.ones(len(features)) if kept is None else kept
    weights = weights * left[:, None]
    return Statistics(
        left @ is_seen,
        np.sum(weights * y * y, axis=0),
        (weights * y).T @ features,
        symmetric(_gram(features, weights)),
    )


def _gram(features: Array, weights: Array) -> Array:
    """Sum [Q, F, F] of weighted F F^T. Most frames count alike for all channels: of them one matrix does for all."""
    is_alike = np.all(weights == weights[:, :1], axis=1)
    alike, other = features[is_alike], features[~is_alike]
    shared = (weights[is_alike, :1] * alike).T @ alike
    if not len(other):
        return np.repeat(shared[None], weights.shape[1], axis=0)
    weighted = weights[~is_alike].T[:, :, None] * other  # [Q, n, F]
    return np.asarray(shared + weighted.mT @ other)


def merge(a: Statistics, b: Statistics) -> Statistics:
    """Statistics of both sets of frames together; one without leading axes joins each of the other's."""
    return Statistics(*(x + y for x, y in zip(a, b, strict=True)))


def decay(statistics: Statistics, factor: float | Array) -> Statistics:
    """Forget: every sum times factor, 0 < factor <= 1; one number, or one for each entry of the leading axes [...]."""
    return weighted(statistics, np.asarray(factor, dtype=float)[..., None])


def weighted(statistics: Statistics, factor: Array) -> Statistics:
    """Statistics with each channel's frames weighted by a factor [..., Q]; [..., 1] = one for all channels."""
    n, square, cross, gram = statistics
    return Statistics(factor * n, factor * square, factor[..., None] * cross, factor[..., None, None] * gram)


def rebase(statistics: Statistics, T: Array, ratio: Array) -> Statistics:
    """The same frames on another basis: features_new = T features_old, targets_new = ratio * targets_old; ratio [Q].

    By a root of the Gram matrix: where features far from their old centre come near the new one, T G T^T would leave
    rounding that is no Gram matrix of anything.
    """
    R, _ = root(statistics.gram)
    R = R @ T.T
    cross = ratio[:, None] * (statistics.cross @ T.T)
    return Statistics(statistics.n, ratio**2 * statistics.square, cross, symmetric(R.mT @ R))


def without(whole: Statistics, part: Statistics) -> Statistics:
    """The frames of the whole that are not in a part of it, as far as rounding lets them be told."""
    n, square, cross, gram = (x - y for x, y in zip(whole, part, strict=True))
    R, R_inv = root(gram)
    cross = (R.mT @ (R_inv @ cross[..., None]))[..., 0]
    return Statistics(np.maximum(n, 0.0), np.maximum(square, 0.0), cross, symmetric(R.mT @ R))
