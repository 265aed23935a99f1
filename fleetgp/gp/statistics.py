"""Sufficient statistics of Bayesian linear regression: a commutative monoid (models.md section 3).

Q channels, F features. Everything an agent knows of its past is here; a prior is never mixed in, so that forgetting and
merging touch data alone.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fleetgp.arrays import Array


class Statistics(NamedTuple):
    """Sums over frames, per channel.

    n [Q] frames; square [Q] sum y^2; cross [Q, F] sum F y; gram [Q, F, F] sum F F^T, where a frame whose noise variance
    is k times the channel's counts in n once and in the others with weight 1 / k.
    """

    n: Array
    square: Array
    cross: Array
    gram: Array


def empty(channels: int, features: int) -> Statistics:
    """Statistics of no frames."""
    return Statistics(
        np.zeros(channels),
        np.zeros(channels),
        np.zeros((channels, features)),
        np.zeros((channels, features, features)),
    )


def observe(statistics: Statistics, features: Array, targets: Array, weights: Array) -> Statistics:
    """Statistics with one frame more; features [F], targets [Q], weights [Q] (0 = the channel is missing)."""
    is_seen = weights > 0
    y = np.where(is_seen, targets, 0.0)
    outer = features[:, None] * features[None, :]
    return Statistics(
        statistics.n + is_seen,
        statistics.square + weights * y * y,
        statistics.cross + (weights * y)[:, None] * features,
        statistics.gram + weights[:, None, None] * outer,
    )


def merge(a: Statistics, b: Statistics) -> Statistics:
    """Statistics of both sets of frames together."""
    return Statistics(*(x + y for x, y in zip(a, b, strict=True)))


def decay(statistics: Statistics, factor: float) -> Statistics:
    """Forget: every sum times factor, 0 < factor <= 1."""
    return Statistics(*(factor * x for x in statistics))


def rebase(statistics: Statistics, T: Array, ratio: Array) -> Statistics:
    """The same frames on another basis: features_new = T features_old, targets_new = ratio * targets_old; ratio [Q]."""
    return Statistics(
        statistics.n,
        ratio**2 * statistics.square,
        ratio[:, None] * (statistics.cross @ T.T),
        T @ statistics.gram @ T.T,
    )
