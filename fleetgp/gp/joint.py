"""The joint law of all channels of a frame: each channel's Student-t law, tied together by the correlation of their errors.

The correlation is learnt from standardised errors with missing channels by conditional means (expectation maximisation):
pairwise averages would not be positive definite (models.md section 10). It is shrunk towards none while frames are few.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fleetgp.arrays import Array, Mask

# an error counts as no larger than this many scales
MOST_ERROR = 3.0
LEAST_SHRINKAGE = 0.02


class Correlation(NamedTuple):
    """total [Q, Q]: decayed sum of products of standardised errors; weight: frames in it; matrix [Q, Q]: what follows."""

    total: Array
    weight: float
    matrix: Array


def init(channels: int) -> Correlation:
    """No channel tells of another."""
    return Correlation(np.zeros((channels, channels)), 0.0, np.eye(channels))


def learn(correlation: Correlation, errors: Array, factor: float) -> Correlation:
    """After frames with standardised errors [n, Q], NaN where missing; factor: what is left of what was known."""
    seen = np.isfinite(errors)
    z = np.clip(np.where(seen, errors, 0.0), -MOST_ERROR, MOST_ERROR)
    patterns, which = _patterns(seen)
    count = np.bincount(which, minlength=len(patterns)) * np.any(patterns, axis=1)
    fill, rest = _given(correlation.matrix, patterns)
    whole = (fill[which] @ z[..., None])[..., 0]
    total = factor * correlation.total + whole.T @ whole + np.tensordot(count, rest, 1)
    weight = factor * correlation.weight + float(count.sum())
    return Correlation(total, weight, _matrix(total, weight))


def covariance(matrix: Array, scale: Array) -> Array:
    """Squared-scale matrix [..., Q, Q] of the joint law, from the correlation [..., Q, Q] and the channels' scales [..., Q]."""
    return np.asarray(scale[..., :, None] * matrix * scale[..., None, :])


def log_density(matrix: Array, errors: Array, scale: Array, degrees: Array) -> Array:
    """Log density [n] of frames under their joint Student-t laws: matrix [n, Q, Q]; errors, scale, degrees [n, Q].

    Errors are NaN where a channel is missing. One number of degrees a frame: the harmonic mean of those of the channels that
    are there. 0 where none is.
    """
    seen = np.isfinite(errors)
    # a channel that is missing stands for itself alone and adds nothing
    L = np.linalg.cholesky(np.where(seen[:, :, None] & seen[:, None, :], matrix, np.eye(matrix.shape[-1])))
    z = np.where(seen, errors / scale, 0.0)
    square = np.sum(np.linalg.solve(L, z[..., None])[..., 0] ** 2, axis=1)
    size = np.sum(seen, axis=1)
    v = np.maximum(size, 1) / np.maximum(np.sum(np.where(seen, 1.0 / degrees, 0.0), axis=1), 1e-12)
    spread = np.sum(np.log(np.diagonal(L, axis1=1, axis2=2)), axis=1) + np.sum(
        np.where(seen, np.log(scale), 0.0), axis=1
    )
    kinds, which = np.unique(np.stack((v, size), axis=1), axis=0, return_inverse=True)
    norm = np.array([math.lgamma((x + k) / 2) - math.lgamma(x / 2) - 0.5 * k * math.log(x * math.pi) for x, k in kinds])
    density = norm[which.ravel()] - spread - 0.5 * (v + size) * np.log1p(square / v)
    return np.where(size > 0, density, 0.0)


def _patterns(seen: Mask) -> tuple[Mask, NDArray[np.intp]]:
    """The different rows [p, Q] of seen [n, Q], and which of them each row is [n]."""
    if np.all(seen == seen[:1]):
        return seen[:1], np.zeros(len(seen), dtype=int)
    kinds, which = np.unique(seen, axis=0, return_inverse=True)
    return kinds, which.ravel()


def _given(R: Array, there: Mask) -> tuple[Array, Array]:
    """Of frames with these patterns of channels present [p, Q]: from errors to conditional means [p, Q, Q], and their covariance."""
    gone = ~there
    one = np.eye(len(R))
    inverse = np.linalg.inv(np.where(there[:, :, None] & there[:, None, :], R, one))
    known = R * there[:, None, :]
    fill = known @ inverse
    rest = np.where(gone[:, :, None] & gone[:, None, :], R - fill @ known.mT, 0.0)
    return np.where(there[:, :, None], one, fill), rest


def _matrix(total: Array, weight: float) -> Array:
    """Correlation matrix, shrunk as if as many frames as channels had said that there is none."""
    Q = len(total)
    spread = np.sqrt(np.maximum(np.diagonal(total), 1e-12))
    R = total / spread[:, None] / spread[None, :]
    share = max(Q / (weight + Q), LEAST_SHRINKAGE)
    R = (1.0 - share) * 0.5 * (R + R.T)
    np.fill_diagonal(R, 1.0)
    return R
