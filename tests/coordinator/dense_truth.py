"""What the coordinator must come to, worked out from raw readings with dense Gaussians and none of its code.

Letters as in the mathematics: n frames, F features, K inputs, Q channels, M inducing inputs.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import block_diag, solve_triangular
from scipy.spatial.distance import cdist

Array = NDArray[np.float64]

# prior sds of the weights, as models are documented
BIAS, LAG, COVARIATE, NONLINEAR = 0.5, 0.25, 0.15, 0.2


class Basis(NamedTuple):
    """centre, scale [K] of inputs; Z [M, D] and lengthscale [D] of a squared exponential on these columns of a frame's inputs."""

    centre: Array
    scale: Array
    Z: Array | None = None
    lengthscale: Array | None = None
    columns: tuple[int, ...] = ()


class Regression(NamedTuple):
    """One channel of one agent: X [n, F], y [n], and S [n, n], the covariance of y given the shared weights."""

    X: Array
    y: Array
    S: Array


def frames(readings: Array, channel: int, channels: int, lags: int, basis: Basis) -> tuple[Array, Array]:
    """X [n - 1, F] and y [n - 1] of readings [n, K] on a basis: what is known before each frame, and the step to it.

    Nothing is missing, so that the indicators of held inputs are 0.
    """
    centre, scale = basis.centre, basis.scale
    scaled = (readings - centre) / scale
    rows, raw, steps = [], [], []
    for t in range(1, len(readings)):
        row, inputs = [BIAS], []
        for lag in range(1, lags + 1):
            row += list(LAG * scaled[max(0, t - lag), :channels])
            inputs += list(readings[max(0, t - lag), :channels])
        row += list(COVARIATE * scaled[t - 1, channels:])
        inputs += list(readings[t - 1, channels:])
        rows.append(row + [0.0] * len(centre))
        raw.append(inputs)
        steps.append((readings[t, channel] - readings[t - 1, channel]) / scale[channel])
    return np.hstack((np.array(rows), nonlinear(np.array(raw), basis))), np.array(steps)


def nonlinear(inputs: Array, basis: Basis) -> Array:
    """k(x, Z) L^-T with L L^T = k(Z, Z) + 1e-6 I, for raw inputs [n, D_all]; no column where the basis has none."""
    if basis.Z is None:
        return np.zeros((len(inputs), 0))
    z = basis.Z / basis.lengthscale
    x = inputs[:, list(basis.columns)] / basis.lengthscale
    L = np.linalg.cholesky(np.exp(-0.5 * cdist(z, z, "sqeuclidean")) + 1e-6 * np.eye(len(z)))
    return NONLINEAR * solve_triangular(L, np.exp(-0.5 * cdist(z, x, "sqeuclidean")), lower=True).T


def own_covariance(X: Array, noise_var: float, phi: Array) -> Array:
    """S of an agent whose weights deviate from the shared ones with variances phi [F], and whose readings are noisy."""
    return (X * phi) @ X.T + noise_var * np.eye(len(X))


def term(one: Regression) -> tuple[Array, Array]:
    """The likelihood of the shared weights: precision [F, F] and shift [F]."""
    weighed = np.linalg.solve(one.S, np.column_stack([one.X, one.y]))
    return one.X.T @ weighed[:, :-1], one.X.T @ weighed[:, -1]


def posterior(agents: list[Regression], prior_var: Array) -> tuple[Array, Array]:
    """Mean [F] and covariance [F, F] of the shared weights, N(0, diag(prior_var)) before, given the readings of all agents:
    one joint Gaussian, conditioned in the space of the readings."""
    V = np.diag(prior_var)
    if not agents:
        return np.zeros(len(V)), V
    X = np.concatenate([one.X for one in agents])
    y = np.concatenate([one.y for one in agents])
    gain = np.linalg.solve(X @ V @ X.T + block_diag(*(one.S for one in agents)), X @ V).T
    return gain @ y, V - gain @ X @ V


def deviation_square(own: Regression, phi: Array, others: list[Regression], prior_var: Array) -> Array:
    """E d^2 [F] of an agent's deviation given its readings and those of the others; own.S holds the deviation."""
    X = np.concatenate([own.X, *(one.X for one in others)])
    y = np.concatenate([own.y, *(one.y for one in others)])
    cov = X @ np.diag(prior_var) @ X.T + block_diag(own.S, *(one.S for one in others))
    cross = np.zeros((len(phi), len(y)))  # of d with all readings: d is in its own alone
    cross[:, : len(own.y)] = (own.X * phi).T
    gain = np.linalg.solve(cov, cross.T).T
    return (gain @ y) ** 2 + phi - np.sum(gain * cross, axis=1)
