"""The few factorisations everything rests on, with one policy for jitter: none first, then grown by tens, and told.

All functions take stacks [..., F, F] and work on each matrix.
"""

from __future__ import annotations

import numpy as np

from fleetgp.arrays import Array
from fleetgp.errors import NotFinite, NotPositiveDefinite

JITTER_STEPS = (0.0, 1e-12, 1e-11, 1e-10, 1e-9, 1e-8)


def cholesky(A: Array) -> tuple[Array, float]:
    """Lower factor L with L L^T = A + jitter * mean(diag A) * I, and the jitter that was needed (0 where none was).

    Raises NotFinite where A holds NaN or infinity, NotPositiveDefinite where the largest allowed jitter is not enough.
    """
    if not np.all(np.isfinite(A)):
        raise NotFinite(f"a matrix of shape {A.shape} holds NaN or infinity")
    size = A.shape[-1]
    level = np.mean(np.diagonal(A, axis1=-2, axis2=-1), axis=-1)[..., None, None] * np.eye(size)
    for jitter in JITTER_STEPS:
        try:
            return np.linalg.cholesky(A + jitter * level if jitter else A), jitter
        except np.linalg.LinAlgError:
            continue
    raise NotPositiveDefinite(size, JITTER_STEPS[-1])


def inverse(A: Array) -> Array:
    """Inverse of symmetric positive definite matrices, symmetric to the last bit. Raises as ``cholesky`` does.

    A stack of explicit inverses is what the rank-one updates of a stream start from; it is made here and nowhere else.
    """
    L, _ = cholesky(A)
    L_inv = np.linalg.solve(L, np.broadcast_to(np.eye(A.shape[-1]), A.shape))
    return symmetric(np.swapaxes(L_inv, -1, -2) @ L_inv)


def symmetric(A: Array) -> Array:
    """The symmetric part of A: rounding leaves an asymmetry that grows under repeated updates."""
    return 0.5 * (A + np.swapaxes(A, -1, -2))
