"""Random Fourier features of a stationary covariance: a basis that needs no inducing inputs (Rahimi and Recht 2007)."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fleetgp.arrays import Array
from fleetgp.covariances import Stationary

SMOOTHNESS = {"matern32": 3, "matern52": 5}


class Fourier(NamedTuple):
    """Random Fourier features of a stationary covariance: frequencies [count, len(columns)], in radians per unit of the inputs."""

    columns: tuple[int, ...]
    frequencies: Array
    variance: float

    def features(self, X: Array) -> Array:
        """F [n, 2 count] at X [n, D]: F F^T is k(X, X) on average over draws; |F|^2 is the variance exactly."""
        angle = X[:, list(self.columns)] @ self.frequencies.T
        scale = math.sqrt(self.variance / len(self.frequencies))
        return scale * np.concatenate((np.cos(angle), np.sin(angle)), axis=1)

    def residual_variance(self, X: Array) -> Array:
        """Nothing is left out [n]."""
        return np.zeros(len(X))


def fourier(covariance: Stationary, count: int, rng: np.random.Generator) -> Fourier:
    """Frequencies drawn from the spectral density: normal, of a Matern covariance Student's t (Rahimi and Recht 2007)."""
    drawn = rng.standard_normal((count, len(covariance.columns)))
    if covariance.kernel != "se":
        degrees = SMOOTHNESS[covariance.kernel]
        drawn *= np.sqrt(degrees / rng.chisquare(degrees, (count, 1)))
    return Fourier(covariance.columns, drawn / covariance.lengthscale, covariance.variance)
