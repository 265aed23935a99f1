"""Covariance functions that can be added and multiplied, beside the kernels that go by a word, with the way back from slopes for them.

    yearly = Periodic(0, period=365.25, lengthscale=1.0) * Stationary("matern52", (1,), np.array([2.0]))
    function = yearly + Stationary("se", (0,), np.array([400.0]), variance=0.3)

A word is a kernel of variance 1 over all inputs, whose parameters are the lengthscales [D]. A composed function knows its own
inputs and variances; its parameters are those of its parts in order [P]. Parameters are positive and learnt as logarithms.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import msgspec
import numpy as np

from fleetgp import kernels
from fleetgp.arrays import Array
from fleetgp.kernels import FAR
from fleetgp.schema import Kernel

# slopes [n, m] of something for k(X, Z), to its slopes for the logarithms of the parameters [P] and for Z [m, D]
Back = Callable[[Array], tuple[Array, Array]]


class _Composed(msgspec.Struct, frozen=True, eq=False):
    """Sums and products of covariance functions are covariance functions. Every subclass is one of ``Covariance``."""

    def __add__(self, other: Covariance) -> Sum:
        return Sum(self, other)  # type: ignore[arg-type]

    def __mul__(self, other: Covariance) -> Product:
        return Product(self, other)  # type: ignore[arg-type]


class Stationary(_Composed, frozen=True, eq=False, tag="stationary"):
    """Squared exponential or Matern over some inputs (columns), one lengthscale [len(columns)] each. Values: variance, lengthscales."""

    kernel: Kernel
    columns: tuple[int, ...]
    lengthscale: Array
    variance: float = 1.0

    @property
    def total(self) -> float:
        """k(x, x), which is the same everywhere; so of every function here."""
        return self.variance

    @property
    def total_slopes(self) -> Array:
        """Slopes [P] of the total for the values."""
        return np.concatenate(([self.variance], np.zeros(len(self.columns))))

    @property
    def values(self) -> Array:
        """Logarithms of the parameters [P]."""
        return np.log(np.concatenate(([self.variance], self.lengthscale)))

    @property
    def reach(self) -> int:
        """How many inputs there must be at least."""
        return 1 + max(self.columns)

    def at(self, values: Array) -> Stationary:
        """The same function with these logarithms [P]."""
        return msgspec.structs.replace(self, variance=math.exp(values[0]), lengthscale=np.exp(values[1:]))

    def stretched(self, unit: Array) -> Stationary:
        """The same function of inputs that were divided by a unit [D]."""
        return msgspec.structs.replace(self, lengthscale=self.lengthscale / unit[list(self.columns)])

    def matrix(self, X: Array, Z: Array) -> Array:
        """k(X, Z) [n, m] of inputs X [n, D], Z [m, D]."""
        picked = list(self.columns)
        return self.variance * kernels.covariance(self.kernel, X[:, picked], Z[:, picked], self.lengthscale)

    def traced(self, X: Array, Z: Array) -> tuple[Array, Back]:
        """k(X, Z) [n, m] and its way back."""
        picked = list(self.columns)
        K, unscaled = _word(self.kernel, X[:, picked], Z[:, picked], self.lengthscale)

        def back(slope: Array) -> tuple[Array, Array]:
            for_length, for_picked = unscaled(self.variance * slope)
            for_Z = np.zeros_like(Z)
            for_Z[:, picked] = for_picked
            return np.concatenate(([self.variance * np.sum(slope * K)], for_length)), for_Z

        return self.variance * K, back


class Periodic(_Composed, frozen=True, eq=False, tag="periodic"):
    """exp(-2 sin^2(pi (x - z) / period) / lengthscale^2) of one input (MacKay 1998). Values: variance, period, lengthscale.

    The value of the period counts from the one that stands here, in parts of 1 / surety: what is off by a small share at one
    cycle is off by a whole one after many, so a period is learnt in small steps. surety: raise it where cycles are many.
    """

    column: int
    period: float
    lengthscale: float
    variance: float = 1.0
    surety: float = 20.0

    @property
    def total(self) -> float:
        return self.variance

    @property
    def total_slopes(self) -> Array:
        return np.array([self.variance, 0.0, 0.0])

    @property
    def values(self) -> Array:
        return np.array([math.log(self.variance), 0.0, math.log(self.lengthscale)])

    @property
    def reach(self) -> int:
        return 1 + self.column

    def at(self, values: Array) -> Periodic:
        period = self.period * math.exp(values[1] / self.surety)
        return Periodic(self.column, period, math.exp(values[2]), math.exp(values[0]), self.surety)

    def stretched(self, unit: Array) -> Periodic:
        return msgspec.structs.replace(self, period=self.period / float(unit[self.column]))

    def matrix(self, X: Array, Z: Array) -> Array:
        return self._matrix(self._angle(X, Z))

    def traced(self, X: Array, Z: Array) -> tuple[Array, Back]:
        angle = self._angle(X, Z)
        K = self._matrix(angle)

        def back(slope: Array) -> tuple[Array, Array]:
            pulled = slope * K
            # of log K for the angle, up to the sign
            rate = 2 * np.sin(2 * angle) / self.lengthscale**2
            for_length = 4 * np.sum(pulled * np.sin(angle) ** 2) / self.lengthscale**2
            for_Z = np.zeros_like(Z)
            for_Z[:, self.column] = np.pi / self.period * np.sum(pulled * rate, axis=0)
            for_period = np.sum(pulled * rate * angle) / self.surety
            return np.array([np.sum(pulled), for_period, for_length]), for_Z

        return K, back

    def _matrix(self, angle: Array) -> Array:
        return np.asarray(self.variance * np.exp(-2 * (np.sin(angle) / self.lengthscale) ** 2))

    def _angle(self, X: Array, Z: Array) -> Array:
        return np.asarray(np.pi * (X[:, None, self.column] - Z[None, :, self.column]) / self.period)


class _Pair(_Composed, frozen=True, eq=False):
    """Two functions with their values one after the other."""

    left: Covariance
    right: Covariance

    @property
    def values(self) -> Array:
        return np.concatenate((self.left.values, self.right.values))

    @property
    def reach(self) -> int:
        return max(self.left.reach, self.right.reach)

    def _parted(self, values: Array) -> tuple[Covariance, Covariance]:
        size = len(self.left.values)
        return self.left.at(values[:size]), self.right.at(values[size:])


class Sum(_Pair, frozen=True, eq=False, tag="sum"):
    """Two independent functions added."""

    @property
    def total(self) -> float:
        return self.left.total + self.right.total

    @property
    def total_slopes(self) -> Array:
        return np.concatenate((self.left.total_slopes, self.right.total_slopes))

    def at(self, values: Array) -> Sum:
        return Sum(*self._parted(values))

    def stretched(self, unit: Array) -> Sum:
        return Sum(self.left.stretched(unit), self.right.stretched(unit))

    def matrix(self, X: Array, Z: Array) -> Array:
        return self.left.matrix(X, Z) + self.right.matrix(X, Z)

    def traced(self, X: Array, Z: Array) -> tuple[Array, Back]:
        (left, to_left), (right, to_right) = self.left.traced(X, Z), self.right.traced(X, Z)

        def back(slope: Array) -> tuple[Array, Array]:
            (a, for_Z), (b, further) = to_left(slope), to_right(slope)
            return np.concatenate((a, b)), for_Z + further

        return left + right, back


class Product(_Pair, frozen=True, eq=False, tag="product"):
    """Covariances multiplied: near in both senses at once. Both variances are values, though only their product counts."""

    @property
    def total(self) -> float:
        return self.left.total * self.right.total

    @property
    def total_slopes(self) -> Array:
        return np.concatenate((self.left.total_slopes * self.right.total, self.left.total * self.right.total_slopes))

    def at(self, values: Array) -> Product:
        return Product(*self._parted(values))

    def stretched(self, unit: Array) -> Product:
        return Product(self.left.stretched(unit), self.right.stretched(unit))

    def matrix(self, X: Array, Z: Array) -> Array:
        return self.left.matrix(X, Z) * self.right.matrix(X, Z)

    def traced(self, X: Array, Z: Array) -> tuple[Array, Back]:
        (left, to_left), (right, to_right) = self.left.traced(X, Z), self.right.traced(X, Z)

        def back(slope: Array) -> tuple[Array, Array]:
            (a, for_Z), (b, further) = to_left(slope * right), to_right(slope * left)
            return np.concatenate((a, b)), for_Z + further

        return left * right, back


Covariance = Stationary | Periodic | Sum | Product


def covariance(kernel: Kernel | Covariance, X: Array, Z: Array, parameters: Array) -> Array:
    """k(X, Z) [n, m], or of one x [D] [m], with these parameters [P]: of a word the lengthscales."""
    if isinstance(kernel, str):
        return kernels.covariance(kernel, X, Z, parameters)
    made = kernel.at(np.log(parameters))
    return made.matrix(X, Z) if X.ndim > 1 else made.matrix(X[None], Z)[0]


def traced(kernel: Kernel | Covariance, X: Array, Z: Array, parameters: Array) -> tuple[Array, Back]:
    """``covariance`` for X [n, D], and its way back."""
    return _word(kernel, X, Z, parameters) if isinstance(kernel, str) else kernel.at(np.log(parameters)).traced(X, Z)


def total(kernel: Kernel | Covariance, parameters: Array) -> float:
    """k(x, x)."""
    return 1.0 if isinstance(kernel, str) else kernel.at(np.log(parameters)).total


def total_slopes(kernel: Kernel | Covariance, parameters: Array) -> Array:
    """Slopes [P] of k(x, x) for the logarithms of the parameters."""
    return np.zeros(len(parameters)) if isinstance(kernel, str) else kernel.at(np.log(parameters)).total_slopes


def _word(kernel: Kernel, X: Array, Z: Array, lengthscale: Array) -> tuple[Array, Back]:
    K, rate = _by_square(kernel, X, Z, lengthscale)

    def back(slope: Array) -> tuple[Array, Array]:
        for_Z, for_length, weight = np.zeros_like(Z), np.zeros(Z.shape[1]), slope * rate
        for d in range(Z.shape[1]):
            gap = X[:, d, None] - Z[None, :, d]
            pulled, scale = weight * gap, lengthscale[d] ** 2
            for_Z[:, d] = -2 * pulled.sum(axis=0) / scale
            for_length[d] = -2 * float(np.sum(pulled * gap)) / scale
        return for_length, for_Z

    return K, back


def _by_square(kernel: Kernel, X: Array, Z: Array, lengthscale: Array) -> tuple[Array, Array]:
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
