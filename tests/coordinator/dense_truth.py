"""What the coordinator must come to, worked out from raw readings with dense Gaussians and none of its code.

Letters as in the mathematics: n frames, F features, K inputs, Q channels.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import block_diag

Array = NDArray[np.float64]

BIAS, LAG, COVARIATE = 0.5, 0.25, 0.15  # prior sds of the linear block's weights, as models are documented
LEVEL, DYNAMICS = 1.0, 0.01  # prior variances of an agent's deviation: bias, everything else

Basis = tuple[Array, Array]  # centre and scale [K]


class Regression(NamedTuple):
    """One channel of one agent: X [n, F], y [n], and S [n, n], the covariance of y given the shared weights."""

    X: Array
    y: Array
    S: Array


def frames(readings: Array, channel: int, channels: int, lags: int, basis: Basis) -> tuple[Array, Array]:
    """X [n - 1, F] and y [n - 1] of readings [n, K] on a basis: what is known before each frame, and the step to it."""
    centre, scale = basis
    scaled = (readings - centre) / scale
    rows, steps = [], []
    for t in range(1, len(readings)):
        row = [BIAS]
        for lag in range(1, lags + 1):
            row += list(LAG * scaled[max(0, t - lag), :channels])
        row += list(COVARIATE * scaled[t - 1, channels:])
        rows.append(row)
        steps.append((readings[t, channel] - readings[t - 1, channel]) / scale[channel])
    return np.array(rows), np.array(steps)


def own_covariance(X: Array, noise_var: float) -> Array:
    """S of an agent whose weights deviate from the shared ones, and whose readings are noisy."""
    phi = np.array([LEVEL] + [DYNAMICS] * (X.shape[1] - 1))
    return (X * phi) @ X.T + noise_var * np.eye(len(X))


def term(one: Regression) -> tuple[Array, Array]:
    """The likelihood of the shared weights: precision [F, F] and shift [F]."""
    weighed = np.linalg.solve(one.S, np.column_stack([one.X, one.y]))
    return one.X.T @ weighed[:, :-1], one.X.T @ weighed[:, -1]


def posterior(agents: list[Regression]) -> tuple[Array, Array]:
    """Mean [F] and covariance [F, F] of the shared weights, N(0, I) before, given the readings of all agents: one joint
    Gaussian, conditioned in the space of the readings."""
    X = np.concatenate([one.X for one in agents])
    y = np.concatenate([one.y for one in agents])
    gain = np.linalg.solve(X @ X.T + block_diag(*(one.S for one in agents)), X).T
    return gain @ y, np.eye(X.shape[1]) - gain @ X
