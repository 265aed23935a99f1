"""What an agent tells the fleet: its likelihood of the shared weights, its own layers marginalised out.

P = H_g^T S^-1 H_g, h = H_g^T S^-1 y with S = s2 I + H_c H_c^T over deviation and local layer, by Woodbury from the
statistics, never an n x n matrix (models.md section 4, "Message").
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fleetgp.arrays import Array
from fleetgp.gp.statistics import Statistics
from fleetgp.linalg import cholesky, root, symmetric


class Term(NamedTuple):
    """A Gaussian likelihood term: precision [Q, F, F], shift [Q, F]."""

    precision: Array
    shift: Array


def summarise(statistics: Statistics, noise_var: Array, deviation_var: Array, local_var: Array) -> Term:
    """An agent's term of the F shared weights; noise_var [Q]; prior variances deviation_var [Q, F], local_var [Q, F_local]."""
    return _factors(statistics, noise_var, deviation_var, local_var).term


def evidence(
    statistics: Statistics, log_weight: Array, noise_var: Array, deviation_var: Array, local_var: Array
) -> tuple[Term, Array]:
    """The term, and the constant [Q] in log p(y | v) = constant - v^T P v / 2 + h^T v.

    log_weight [Q]: sum over frames of the log of what each counts. For frames that nothing was forgotten of.
    """
    n, square, *_ = statistics
    found = _factors(statistics, noise_var, deviation_var, local_var)
    log_det = n * np.log(2 * np.pi * noise_var) - log_weight + found.log_det
    return found.term, -0.5 * (log_det + square / noise_var - found.explained)


class _Factors(NamedTuple):
    """log_det [Q] of I + R diag(own) R^T; explained [Q]: y^T D^-1 y less y^T S^-1 y, where no shared weight has a part."""

    term: Term
    log_det: Array
    explained: Array


def _factors(statistics: Statistics, noise_var: Array, deviation_var: Array, local_var: Array) -> _Factors:
    F = deviation_var.shape[1]
    R, R_inv = root(statistics.gram)
    sd = np.sqrt(noise_var)[:, None]
    R, u = R / sd[..., None], (R_inv @ statistics.cross[..., None]) / sd[..., None]
    own_var = np.concatenate((deviation_var, local_var), axis=1)
    # with H^T H / s2 = R^T R: P = R^T (I + R diag(own) R^T)^-1 R, in which nothing large is subtracted from its like
    L, _ = cholesky(np.eye(own_var.shape[1]) + symmetric((R * own_var[:, None, :]) @ R.mT))
    A, a = np.linalg.solve(L, R[:, :, :F]), np.linalg.solve(L, u)
    log_det = 2.0 * np.sum(np.log(np.diagonal(L, axis1=1, axis2=2)), axis=1)
    explained = np.sum(u * u, axis=(1, 2)) - np.sum(a * a, axis=(1, 2))
    return _Factors(Term(symmetric(A.mT @ A), (A.mT @ a)[..., 0]), log_det, explained)


def rebase(term: Term, T: Array, ratio: Array) -> Term:
    """The same term on another basis: v_old = T^T v_new / ratio, ratio [Q] of targets (models.md section 3)."""
    r = ratio[:, None]
    return Term(symmetric(T @ term.precision @ T.T) / r[..., None] ** 2, (term.shift @ T.T) / r)


def scaled(term: Term, factor: float) -> Term:
    """A term aged by a factor: precision and shift together, so that its mean stays and its weight fades."""
    return Term(factor * term.precision, factor * term.shift)
