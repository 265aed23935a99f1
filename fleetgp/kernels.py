"""Stationary covariance functions of variance 1 with one lengthscale an input (ARD)."""

from __future__ import annotations

import math

import numpy as np

from fleetgp.arrays import Array
from fleetgp.schema import Kernel

# square of the lengthscales from which every covariance is 0 in doubles; beyond, infinity times 0 would be no number
FAR = 1e6

FARTHEST = 1e150


def covariance(kernel: Kernel, X: Array, Z: Array, lengthscale: Array) -> Array:
    """k(X, Z) [n, m] for X [n, D], Z [m, D] in one unit, lengthscale [D] in the same; k(x, x) = 1. Of one x [D]: [m].

    Squared exponential, and Matern of smoothness 3/2 and 5/2 (Rasmussen and Williams 2006, eqs. 4.9, 4.17).
    """
    r2 = _square_distance(X, Z, lengthscale)
    if kernel == "se":
        return np.asarray(np.exp(-0.5 * r2))
    r = np.sqrt(r2)
    if kernel == "matern32":
        return np.asarray((1 + math.sqrt(3) * r) * np.exp(-math.sqrt(3) * r))
    return np.asarray((1 + math.sqrt(5) * r + 5 / 3 * r2) * np.exp(-math.sqrt(5) * r))


def _square_distance(X: Array, Z: Array, lengthscale: Array) -> Array:
    """|x - z|^2 [..., m] in lengthscales, at most FAR: of differences, for the expanded square would lose points that are
    near each other and far out."""
    if X.ndim == 1:
        gap = np.minimum(np.abs(X - Z), FARTHEST) / lengthscale
        return np.asarray(np.minimum(np.einsum("md,md->m", gap, gap), FAR))
    with np.errstate(over="ignore"):  # an input beyond all reason is infinitely far
        total = np.zeros((len(X), len(Z)))
        for d in range(X.shape[1]):
            column = (X[:, d, None] - Z[None, :, d]) / lengthscale[d]
            total += column * column
    return np.minimum(total, FAR)
