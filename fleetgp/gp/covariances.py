"""Covariance functions that can be added and multiplied, each with the slopes of its parameters, and features of any of them.

    yearly = Periodic(0, period=365.25, lengthscale=1.0) * Stationary("matern52", (1,), np.array([2.0]))
    F = Inducing(yearly + Stationary("se", (0,), np.array([400.0]), variance=0.3), Z).features(X)

Parameters are kept as they are and learnt as logarithms: ``values`` are these, and ``at`` is the same function with others.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

import numpy as np

from fleetgp import kernels
from fleetgp.arrays import Array
from fleetgp.inducing import JITTER, residual
from fleetgp.linalg import cholesky, lower_inverse
from fleetgp.schema import Kernel

SMOOTHNESS = {"matern32": 3, "matern52": 5}


class Covariance(Protocol):
    """k(X, Z) of inputs X [n, D], Z [m, D]; P parameters. Constant on the diagonal."""

    @property
    def total(self) -> float:
        """k(x, x)."""

    @property
    def values(self) -> Array:
        """Logarithms of the parameters [P]."""

    def at(self, values: Array) -> Covariance:
        """The same function with these logarithms [P]."""

    def matrix(self, X: Array, Z: Array) -> Array:
        """k(X, Z) [n, m]."""

    def slopes(self, X: Array, Z: Array) -> Array:
        """Slopes [P, n, m] of k(X, Z) for the values."""


class _Algebra:
    """Sums and products of covariance functions are covariance functions."""

    def __add__(self: Covariance, other: Covariance) -> Sum:
        return Sum(self, other)

    def __mul__(self: Covariance, other: Covariance) -> Product:
        return Product(self, other)


@dataclass(frozen=True, eq=False)
class Stationary(_Algebra):
    """Squared exponential or Matern over some inputs (columns), one lengthscale [len(columns)] each. Values: variance, lengthscales."""

    kernel: Kernel
    columns: tuple[int, ...]
    lengthscale: Array
    variance: float = 1.0

    @property
    def total(self) -> float:
        return self.variance

    @property
    def values(self) -> Array:
        return np.log(np.concatenate(([self.variance], self.lengthscale)))

    def at(self, values: Array) -> Stationary:
        return replace(self, variance=math.exp(values[0]), lengthscale=np.exp(values[1:]))

    def matrix(self, X: Array, Z: Array) -> Array:
        picked = list(self.columns)
        return self.variance * kernels.covariance(self.kernel, X[:, picked], Z[:, picked], self.lengthscale)

    def slopes(self, X: Array, Z: Array) -> Array:
        picked = list(self.columns)
        square = ((X[:, None, picked] - Z[None, :, picked]) / self.lengthscale) ** 2
        r = np.sqrt(square.sum(axis=2))
        # of k for the log lengthscale of an input: this times its squared distance
        if self.kernel == "se":
            rate = np.exp(-0.5 * r * r)
        elif self.kernel == "matern32":
            rate = 3 * np.exp(-math.sqrt(3) * r)
        else:
            rate = 5 / 3 * (1 + math.sqrt(5) * r) * np.exp(-math.sqrt(5) * r)
        return np.concatenate((self.matrix(X, Z)[None], self.variance * rate * np.moveaxis(square, 2, 0)))


@dataclass(frozen=True, eq=False)
class Periodic(_Algebra):
    """exp(-2 sin^2(pi (x - z) / period) / lengthscale^2) of one input (MacKay 1998). Values: variance, period, lengthscale."""

    column: int
    period: float
    lengthscale: float
    variance: float = 1.0

    @property
    def total(self) -> float:
        return self.variance

    @property
    def values(self) -> Array:
        return np.asarray(np.log([self.variance, self.period, self.lengthscale]))

    def at(self, values: Array) -> Periodic:
        variance, period, lengthscale = (math.exp(value) for value in values)
        return replace(self, variance=variance, period=period, lengthscale=lengthscale)

    def matrix(self, X: Array, Z: Array) -> Array:
        return np.asarray(self.variance * np.exp(-2 * (np.sin(self._angle(X, Z)) / self.lengthscale) ** 2))

    def slopes(self, X: Array, Z: Array) -> Array:
        K, angle, square = self.matrix(X, Z), self._angle(X, Z), self.lengthscale**2
        return np.stack((K, K * 2 * np.sin(2 * angle) * angle / square, K * 4 * np.sin(angle) ** 2 / square))

    def _angle(self, X: Array, Z: Array) -> Array:
        return np.asarray(np.pi * (X[:, None, self.column] - Z[None, :, self.column]) / self.period)


@dataclass(frozen=True, eq=False)
class Sum(_Algebra):
    """Two independent functions added."""

    left: Covariance
    right: Covariance

    @property
    def total(self) -> float:
        return self.left.total + self.right.total

    @property
    def values(self) -> Array:
        return np.concatenate((self.left.values, self.right.values))

    def at(self, values: Array) -> Sum:
        size = len(self.left.values)
        return Sum(self.left.at(values[:size]), self.right.at(values[size:]))

    def matrix(self, X: Array, Z: Array) -> Array:
        return self.left.matrix(X, Z) + self.right.matrix(X, Z)

    def slopes(self, X: Array, Z: Array) -> Array:
        return np.concatenate((self.left.slopes(X, Z), self.right.slopes(X, Z)))


@dataclass(frozen=True, eq=False)
class Product(_Algebra):
    """Covariances multiplied: near in both senses at once. Both variances are values, though only their product counts."""

    left: Covariance
    right: Covariance

    @property
    def total(self) -> float:
        return self.left.total * self.right.total

    @property
    def values(self) -> Array:
        return np.concatenate((self.left.values, self.right.values))

    def at(self, values: Array) -> Product:
        size = len(self.left.values)
        return Product(self.left.at(values[:size]), self.right.at(values[size:]))

    def matrix(self, X: Array, Z: Array) -> Array:
        return self.left.matrix(X, Z) * self.right.matrix(X, Z)

    def slopes(self, X: Array, Z: Array) -> Array:
        left, right = self.left.matrix(X, Z), self.right.matrix(X, Z)
        return np.concatenate((self.left.slopes(X, Z) * right, left * self.right.slopes(X, Z)))


class Inducing:
    """Whitened inducing features of any covariance: F(x) = k(x, Z) L^-T, L L^T = k(Z, Z) + jitter k(x, x) I; Z [M, D]."""

    def __init__(self, covariance: Covariance, Z: Array, jitter: float = JITTER) -> None:
        self.covariance, self.Z = covariance, Z
        K = covariance.matrix(Z, Z) + jitter * covariance.total * np.eye(len(Z))
        self._root_inverse = lower_inverse(cholesky(K)[0])

    def features(self, X: Array) -> Array:
        """F [n, M] at X [n, D]."""
        return np.asarray(self.covariance.matrix(X, self.Z) @ self._root_inverse.T)

    def residual_variance(self, X: Array) -> Array:
        """k(x, x) - |F(x)|^2 [n], not below 0."""
        return residual(self.features(X), self.covariance.total)


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
