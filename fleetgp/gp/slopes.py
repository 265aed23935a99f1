"""Whitened features of a client's frames and the way back: from slopes for features to slopes for inducing inputs and lengthscales.

Reverse-mode differentiation written out, with that of the Cholesky factor as in Murray 2016, eq. 10.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fleetgp.arrays import Array
from fleetgp.inducing import JITTER
from fleetgp.kernels import FAR
from fleetgp.linalg import cholesky, lower_inverse, symmetric
from fleetgp.schema import Kernel


class Frames(NamedTuple):
    """A client's readings: X [n, D]; Y [n, Q], 0 where missing; seen [n, Q], 0 or 1; is_whole: none is missing."""

    X: Array
    Y: Array
    seen: Array
    is_whole: bool


class Basis(NamedTuple):
    """Features F [n, M] of the frames on inducing inputs Z [M, D] with lengthscale [D]; what the way back needs.

    gram [Qg, M, M]: products of features summed over frames, Qg = 1 where no channel misses one; residual [Q]: sums of 1 - |F|^2.
    slope_x [n, M], slope_z [M, M]: of the covariances for the squared distance in lengthscales.
    """

    kernel: Kernel
    Z: Array
    lengthscale: Array
    F: Array
    L: Array
    root_inverse: Array
    slope_x: Array
    slope_z: Array
    gram: Array
    residual: Array


def frames(X: Array, Y: Array) -> Frames:
    """Frames of inputs X [n, D] and readings Y [n, Q], NaN where missing."""
    seen = np.isfinite(Y)
    return Frames(np.asarray(X, dtype=float), np.where(seen, Y, 0.0), seen.astype(float), bool(np.all(seen)))


def basis(kernel: Kernel, Z: Array, log_lengthscale: Array, frames: Frames) -> Basis:
    """Features of the frames. Raises NotFinite or NotPositiveDefinite where the inducing inputs have no factor."""
    lengthscale = np.exp(log_lengthscale)
    Kzz, slope_z = _covariance(kernel, Z, Z, lengthscale)
    Kxz, slope_x = _covariance(kernel, frames.X, Z, lengthscale)
    L, _ = cholesky(Kzz + JITTER * np.eye(len(Z)))
    root_inverse = lower_inverse(L)
    F = Kxz @ root_inverse.T
    residual = frames.seen.T @ (1.0 - np.einsum("nm,nm->n", F, F))
    return Basis(kernel, Z, lengthscale, F, L, root_inverse, slope_x, slope_z, products(F, F, frames), residual)


def products(Fa: Array, Fb: Array, frames: Frames) -> Array:
    """sum_n Fa Fb^T [Qg, Ma, Mb], of each channel's frames where some are missing."""
    if frames.is_whole:
        return np.asarray(Fa.T @ Fb)[None]
    return np.asarray((frames.seen.T[:, :, None] * Fa).mT @ Fb)


def back(basis: Basis, slope: Array, frames: Frames) -> tuple[Array, Array]:
    """Slopes for Z [M, D] and the log lengthscale [D] of what has this slope [n, M] for the features."""
    for_Kxz = slope @ basis.root_inverse
    # F^T = L^-1 Kzx: a change of L takes L^-1 dL F^T away
    for_L = -np.tril(for_Kxz.T @ basis.F)
    inner = np.tril(basis.L.T @ for_L)
    inner[np.diag_indices_from(inner)] *= 0.5
    for_Kzz = symmetric(basis.root_inverse.T @ inner @ basis.root_inverse)
    Z, scale = basis.Z, basis.lengthscale**2
    for_Z, for_length = np.zeros_like(Z), np.zeros(Z.shape[1])
    # both sides of Kzz move with Z
    for X, weight, sides in ((frames.X, for_Kxz * basis.slope_x, 1.0), (Z, for_Kzz * basis.slope_z, 2.0)):
        for d in range(Z.shape[1]):
            gap = X[:, d, None] - Z[None, :, d]
            pulled = weight * gap
            for_Z[:, d] -= 2 * sides * pulled.sum(axis=0) / scale[d]
            for_length[d] -= 2 * float(np.sum(pulled * gap)) / scale[d]
    return for_Z, for_length


def _covariance(kernel: Kernel, X: Array, Z: Array, lengthscale: Array) -> tuple[Array, Array]:
    """k(X, Z) [n, m] as ``kernels.covariance`` has it, and its slope for the squared distance in lengthscales."""
    r2 = np.zeros((len(X), len(Z)))
    for d in range(X.shape[1]):
        gap = (X[:, d, None] - Z[None, :, d]) / lengthscale[d]
        r2 += gap * gap
    r2 = np.minimum(r2, FAR)
    if kernel == "se":
        K = np.exp(-0.5 * r2)
        return K, -0.5 * K
    r = np.sqrt(r2)
    if kernel == "matern32":
        E = np.exp(-math.sqrt(3) * r)
        return (1 + math.sqrt(3) * r) * E, -1.5 * E
    E = np.exp(-math.sqrt(5) * r)
    return (1 + math.sqrt(5) * r + 5 / 3 * r2) * E, -5 / 6 * (1 + math.sqrt(5) * r) * E
