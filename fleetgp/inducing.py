"""Whitened inducing features of a sparse Gaussian process: f(x) = F(x) v with v ~ N(0, I).

F(x) = k(x, Z) L^-T with L L^T = k(Z, Z) + jitter k(x, x) I; what they cannot express has the variance r(x) = k(x, x) - |F(x)|^2
(models.md section 2), k(x, x) being 1 of a kernel that goes by a word. Everything is in the unit of the raw inputs, so that another scaling leaves these features as they are.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fleetgp import covariances
from fleetgp.arrays import Array
from fleetgp.covariances import Covariance
from fleetgp.linalg import cholesky, lower_inverse
from fleetgp.schema import Kernel

JITTER = 1e-6


class Inducing(NamedTuple):
    """columns [D]: what of a frame's inputs, as ``picked`` reads them; Z [M, D], lengthscale [D] in their units; root_inverse
    [M, M] = L^-1.

    Of a composed covariance ``lengthscale`` is all of its parameters [P], and its inputs are counted among the columns.
    """

    kernel: Kernel | Covariance
    columns: tuple[int, ...]
    Z: Array
    lengthscale: Array
    root_inverse: Array

    @property
    def variance(self) -> float:
        """k(x, x)."""
        return covariances.total(self.kernel, self.lengthscale)


def make(
    kernel: Kernel | Covariance, columns: tuple[int, ...], Z: Array, lengthscale: Array, jitter: float = JITTER
) -> Inducing:
    """Inducing inputs Z [M, D] with their factor; jitter as a share of the kernel's variance."""
    K = covariances.covariance(kernel, Z, Z, lengthscale)
    K += jitter * covariances.total(kernel, lengthscale) * np.eye(len(Z))
    L, _ = cholesky(K)
    return Inducing(kernel, columns, Z, lengthscale, lower_inverse(L))


def features(inducing: Inducing, inputs: Array) -> Array:
    """F [n, M] at inputs [n, D_all], all of a frame's inputs; or [M] at those of one frame [D_all]."""
    K = covariances.covariance(inducing.kernel, picked(inputs, inducing.columns), inducing.Z, inducing.lengthscale)
    return np.asarray(K @ inducing.root_inverse.T)


def picked(inputs: Array, columns: tuple[int, ...]) -> Array:
    """What columns [D] stand for [..., D] at inputs [..., D_all]: one of the inputs, or what one is above another.

    Below D_all a column is the number of an input; from there on, c = D_all (1 + j) + i is input i less input j.
    """
    first, less, is_difference = _places(columns, inputs.shape[-1])
    values = inputs.take(first, axis=-1)
    if less.size:
        values[..., is_difference] -= inputs.take(less, axis=-1)
    return values


def difference(i: int, j: int, size: int) -> int:
    """The column of input i less input j, of frames with so many inputs."""
    return size * (1 + j) + i


@lru_cache(maxsize=64)
def _places(columns: tuple[int, ...], size: int) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]]:
    """Inputs of columns, those to be taken from them, and which columns these belong to; to make an index takes longer than to
    use it."""
    at = np.array(columns, dtype=np.intp)
    is_difference = np.flatnonzero(at >= size)
    return at % size, at[is_difference] // size - 1, is_difference


def residual(F: Array, variance: float = 1.0) -> Array:
    """r(x) [...] of features F [..., M] of a layer of this variance: all of it far from all inducing inputs."""
    if F.ndim == 1:
        return np.asarray(max(variance - float(F @ F), 0.0))
    return np.asarray(np.maximum(variance - np.einsum("...m,...m->...", F, F), 0.0))


def transfer(old: Inducing, new: Inducing) -> Array:
    """T [M_new, M_old] with F_new ~ T F_old: f(Z_old) under the new prior (models.md section 3, "Basis change").

    The transpose of that section's T: here features are columns. Raises ValueError where the two look at other inputs.
    """
    if old.columns != new.columns:
        raise ValueError("only inducing inputs of the same columns can be carried over")
    cross = covariances.covariance(new.kernel, new.Z, old.Z, new.lengthscale)
    return np.asarray(new.root_inverse @ cross @ old.root_inverse.T)
