"""Whitened features of a client's frames and the way back: from slopes for features to slopes for inducing inputs and the kernel's parameters.

Reverse-mode differentiation written out, with that of the Cholesky factor as in Murray 2016, eq. 10.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fleetgp import covariances
from fleetgp.arrays import Array
from fleetgp.covariances import Back, Covariance
from fleetgp.inducing import JITTER
from fleetgp.linalg import cholesky, lower_inverse, symmetric
from fleetgp.schema import Kernel


class Frames(NamedTuple):
    """A client's readings: X [n, D]; Y [n, Q], 0 where missing; seen [n, Q], 0 or 1; is_whole: none is missing."""

    X: Array
    Y: Array
    seen: Array
    is_whole: bool


class Basis(NamedTuple):
    """Features F [n, M] of the frames on inducing inputs with the kernel's lengthscale [D] or parameters [P]; what the way back needs.

    gram [Qg, M, M]: products of features summed over frames, Qg = 1 where no channel misses one; residual [Q]: sums of
    k(x, x) - |F|^2. from_x, from_z: the ways back from k(X, Z) and k(Z, Z).
    """

    kernel: Kernel | Covariance
    lengthscale: Array
    F: Array
    L: Array
    root_inverse: Array
    from_x: Back
    from_z: Back
    gram: Array
    residual: Array


def frames(X: Array, Y: Array) -> Frames:
    """Frames of inputs X [n, D] and readings Y [n, Q], NaN where missing."""
    seen = np.isfinite(Y)
    return Frames(np.asarray(X, dtype=float), np.where(seen, Y, 0.0), seen.astype(float), bool(np.all(seen)))


def basis(kernel: Kernel | Covariance, Z: Array, log_lengthscale: Array, frames: Frames) -> Basis:
    """Features of the frames on inducing inputs Z [M, D]. Raises NotFinite or NotPositiveDefinite where these have no factor."""
    lengthscale = np.exp(log_lengthscale)
    total = covariances.total(kernel, lengthscale)
    Kzz, from_z = covariances.traced(kernel, Z, Z, lengthscale)
    Kxz, from_x = covariances.traced(kernel, frames.X, Z, lengthscale)
    L, _ = cholesky(Kzz + JITTER * total * np.eye(len(Z)))
    root_inverse = lower_inverse(L)
    F = Kxz @ root_inverse.T
    residual = frames.seen.T @ (total - np.einsum("nm,nm->n", F, F))
    return Basis(kernel, lengthscale, F, L, root_inverse, from_x, from_z, products(F, F, frames), residual)


def products(Fa: Array, Fb: Array, frames: Frames) -> Array:
    """sum_n Fa Fb^T [Qg, Ma, Mb], of each channel's frames where some are missing."""
    if frames.is_whole:
        return np.asarray(Fa.T @ Fb)[None]
    return np.asarray((frames.seen.T[:, :, None] * Fa).mT @ Fb)


def back(basis: Basis, slope: Array, for_total: float = 0.0) -> tuple[Array, Array]:
    """Slopes for Z [M, D] and the log lengthscale [D], or the logarithms of all parameters [P], of what has this slope [n, M]
    for the features, and for_total for k(x, x) itself."""
    for_Kxz = slope @ basis.root_inverse
    # F^T = L^-1 Kzx: a change of L takes L^-1 dL F^T away
    for_L = -np.tril(for_Kxz.T @ basis.F)
    inner = np.tril(basis.L.T @ for_L)
    inner[np.diag_indices_from(inner)] *= 0.5
    for_Kzz = symmetric(basis.root_inverse.T @ inner @ basis.root_inverse)
    for_length, for_Z = basis.from_x(for_Kxz)
    further_length, further_Z = basis.from_z(for_Kzz)
    for_total += JITTER * float(np.trace(for_Kzz))
    for_length = for_length + further_length + for_total * covariances.total_slopes(basis.kernel, basis.lengthscale)
    # both sides of Kzz move with Z
    return for_Z + 2 * further_Z, for_length
