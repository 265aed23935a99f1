"""The few factorisations everything rests on, with one policy for jitter: none first, then grown by tens, and told.

All functions take stacks [..., F, F] and work on each matrix.
"""

from __future__ import annotations

import numpy as np

from fleetgp.arrays import Array
from fleetgp.errors import NotFinite, NotPositiveDefinite

SMALL = 8
JITTER_STEPS = (0.0, 1e-12, 1e-11, 1e-10, 1e-9, 1e-8)


def cholesky(A: Array) -> tuple[Array, float]:
    """Lower factor L with L L^T = A + jitter * diag(A), and the most jitter that any matrix needed (0 where none did).

    Jitter is a share of each diagonal entry, so that a matrix whose entries span many orders of magnitude keeps its
    small ones. Raises NotFinite where A holds NaN or infinity, NotPositiveDefinite where the most jitter is not enough.
    """
    scale, L, jitter = _factor(A)
    return scale[..., :, None] * L, jitter


def inverse(A: Array) -> Array:
    """Inverse of symmetric positive definite matrices, symmetric to the last bit. Raises as ``cholesky`` does.

    A stack of explicit inverses is what the rank-one updates of a stream start from; it is made here and nowhere else.
    """
    scale, L, _ = _factor(A)
    root_inverse = lower_inverse(L) / scale[..., None, :]
    # a product with its own transpose is symmetric by the way it is summed
    return np.asarray(root_inverse.mT @ root_inverse)


def lower_inverse(L: Array) -> Array:
    """Inverse of lower triangular matrices [..., n, n], by halves: several times as fast as a general inverse."""
    n, leaves = L.shape[-1], 1
    while SMALL * leaves < n:
        leaves *= 2
    L = _padded(L, leaves * -(-n // leaves))
    result = _substituted(_blocks(L, L.shape[-1] // leaves))
    while result.shape[-3] > 1:
        top, bottom = result[..., 0::2, :, :], result[..., 1::2, :, :]
        h = top.shape[-1]
        result = np.zeros((*top.shape[:-2], 2 * h, 2 * h))
        result[..., :h, :h], result[..., h:, h:] = top, bottom
        result[..., h:, :h] = -bottom @ (_blocks(L, 2 * h)[..., h:, :h] @ top)
    # in one piece: products of what is cut out of a larger matrix are thirty times as slow
    return np.ascontiguousarray(result[..., 0, :n, :n])


def _blocks(A: Array, size: int) -> Array:
    """The blocks of this size on the diagonals of matrices: [..., n / size, size, size], a view where A lies in one piece."""
    count = A.shape[-1] // size if size else 1
    parted = A.reshape(*A.shape[:-2], count, size, count, size)
    return np.asarray(np.einsum("...iaib->...iab", parted))


def _substituted(L: Array) -> Array:
    """Inverse of small lower triangular matrices, row by row of all of them at once."""
    result = np.zeros_like(L)
    reciprocal = 1.0 / np.diagonal(L, axis1=-2, axis2=-1)
    scaled = L * -reciprocal[..., None]
    for i in range(L.shape[-1]):
        result[..., i, i] = reciprocal[..., i]
        if i:
            result[..., i, :i] = (scaled[..., i : i + 1, :i] @ result[..., :i, :i])[..., 0, :]
    return result


def _padded(L: Array, size: int) -> Array:
    """Triangular matrices with ones further down the diagonal, up to this size."""
    n = L.shape[-1]
    if n == size:
        return L
    result = np.zeros((*L.shape[:-2], size, size))
    result[..., :n, :n] = L
    result[..., range(n, size), range(n, size)] = 1.0
    return result


def root(A: Array) -> tuple[Array, Array]:
    """R and R_inv with R^T R = A and R_inv R^T = the projection on what A sees, for A positive semidefinite.

    For Gram matrices, which are singular while frames are few or inputs repeat each other. Raises NotFinite.
    """
    _check_finite(A)
    diagonal = np.diagonal(A, axis1=-2, axis2=-1)
    scale = np.sqrt(np.maximum(diagonal, 0.0))
    part = _reciprocal(scale)
    eigenvalues, U = np.linalg.eigh(A * part[..., :, None] * part[..., None, :])
    # of a matrix with ones on its diagonal, smaller ones are rounding
    size = np.sqrt(np.where(eigenvalues > A.shape[-1] * np.finfo(float).eps, eigenvalues, 0.0))
    return size[..., :, None] * U.mT * scale[..., None, :], _reciprocal(size)[..., :, None] * U.mT * part[..., None, :]


def symmetric(A: Array) -> Array:
    """The symmetric part of A: rounding leaves an asymmetry that grows under repeated updates."""
    return 0.5 * (A + A.mT)


def _factor(A: Array) -> tuple[Array, Array, float]:
    """Scale s and factor L with s L L^T s = A (+ jitter), where s^2 is the diagonal of A."""
    _check_finite(A)
    diagonal = np.diagonal(A, axis1=-2, axis2=-1)
    if not np.all(diagonal > 0):
        raise NotPositiveDefinite(A.shape[-1], 0.0)
    scale = np.sqrt(diagonal)
    part = 1.0 / scale
    C = A * part[..., :, None] * part[..., None, :]
    try:
        return scale, _lower(C), 0.0
    except np.linalg.LinAlgError:
        parts = [_with_jitter(one) for one in C.reshape(-1, *C.shape[-2:])]
    return scale, np.stack([L for L, _ in parts]).reshape(C.shape), max(jitter for _, jitter in parts)


def _lower(C: Array) -> Array:
    return np.asarray(np.linalg.cholesky(C), dtype=np.float64)


def _with_jitter(C: Array) -> tuple[Array, float]:
    for jitter in JITTER_STEPS:
        try:
            return _lower(C + jitter * np.eye(len(C))), jitter
        except np.linalg.LinAlgError:
            continue
    raise NotPositiveDefinite(len(C), JITTER_STEPS[-1])


def _reciprocal(a: Array) -> Array:
    """1 / a, and 0 where a is 0."""
    return np.divide(1.0, a, out=np.zeros_like(a), where=a > 0)


def _check_finite(A: Array) -> None:
    if not np.all(np.isfinite(A)):
        raise NotFinite(f"a matrix of shape {A.shape} holds NaN or infinity")
