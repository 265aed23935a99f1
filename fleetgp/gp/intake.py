"""What a user hands to the library, made into tables of numbers, and what is wrong with it named."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import get_args

import numpy as np
from numpy.typing import ArrayLike

from fleetgp import placement
from fleetgp.arrays import Array
from fleetgp.covariances import Periodic, Product, Stationary, Sum
from fleetgp.errors import ConfigError
from fleetgp.scaling import Scaling
from fleetgp.schema import Kernel

GOLDEN = (math.sqrt(5) - 1) / 2

Data = Mapping[str, tuple[ArrayLike, ArrayLike]]
Tables = dict[str, tuple[Array, Array]]


def tables(data: Data) -> Tables:
    """Inputs X [n, D] and readings Y [n, Q] of each client, by name in order. Raises ConfigError that names the client."""
    if not isinstance(data, Mapping):
        raise ConfigError("data", "must be a dictionary from a client's name to a pair of its inputs and readings")
    result = {}
    for name, pair in sorted(data.items()):
        if not isinstance(pair, tuple | list):
            raise ConfigError(name, "must be a pair of inputs and readings")
        if len(pair) != 2:
            raise ConfigError(name, f"must be a pair of inputs and readings, and has {len(pair)} parts")
        result[name] = table(name, *pair)
    return result


def check_ranks(ranks: object) -> None:
    """Raise ConfigError where these are no numbers of latent functions of three layers."""
    is_three = isinstance(ranks, tuple | list) and len(ranks) == 3 and all(_is_whole(rank) for rank in ranks)
    if not is_three or min(ranks) < 0 or sum(ranks) == 0:  # type: ignore[call-overload]
        raise ConfigError("ranks", f"{ranks!r} must be three whole numbers, none negative, and one at least above 0")


def check_whole(name: str, value: object, low: int, high: int | None = None) -> None:
    """Raise ConfigError where an option is no whole number from low to high."""
    if not _is_whole(value) or not low <= value or (high is not None and value > high):  # type: ignore[operator]
        limits = f"at least {low}" if high is None else f"between {low} and {high}"
        raise ConfigError(name, f"{value!r} is no whole number {limits}")


def check_kernel(name: str, kernel: object) -> None:
    """Raise ConfigError where this is neither a kernel's word nor a covariance whose parameters can be."""
    words = ", ".join(get_args(Kernel))
    if isinstance(kernel, Sum | Product):
        parts: tuple[object, ...] = (kernel.left, kernel.right)
        for part in parts:
            check_kernel(name, part)
            if isinstance(part, str):
                raise ConfigError(name, f"{part!r} has no inputs; write Stationary({part!r}, ...) in sums and products")
    elif isinstance(kernel, Periodic):
        _check_positive(name, (kernel.period, kernel.lengthscale, kernel.variance, kernel.surety))
        _check_columns(name, (kernel.column,))
    elif isinstance(kernel, Stationary):
        if kernel.kernel not in get_args(Kernel):
            raise ConfigError(name, f"{kernel.kernel!r} is none of {words}")
        _check_columns(name, kernel.columns)
        if np.shape(kernel.lengthscale) != (len(kernel.columns),):
            raise ConfigError(name, f"needs a vector of {len(kernel.columns)} lengthscales, one for each of its inputs")
        _check_positive(name, (*kernel.lengthscale, kernel.variance))
    elif not (isinstance(kernel, str) and kernel in get_args(Kernel)):
        raise ConfigError(name, f"{kernel!r} is none of {words}, and no composed covariance")


def _check_positive(name: str, values: tuple[object, ...]) -> None:
    for value in values:
        if not isinstance(value, int | float | np.number) or not 0 < value < math.inf:
            raise ConfigError(name, f"has a parameter of {value!r}; all must be above 0")


def _check_columns(name: str, columns: object) -> None:
    if not isinstance(columns, tuple) or not columns or not all(_is_whole(one) and one >= 0 for one in columns):
        raise ConfigError(name, f"{columns!r} names no inputs; they are counted from 0")


def _is_whole(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def table(name: str, inputs: ArrayLike, readings: ArrayLike) -> tuple[Array, Array]:
    """Inputs X [n, D] and readings Y [n, Q], NaN where missing, of one client."""
    X, Y = columns(name, inputs), columns(name, readings)
    if len(X) != len(Y):
        raise ConfigError(name, f"has inputs of {len(X)} frames and readings of {len(Y)}")
    if np.any(np.isinf(Y)):
        raise ConfigError(name, "has an infinite reading; a missing one is NaN")
    return finite(name, X), Y


def finite(name: str, X: Array) -> Array:
    """Inputs that are all numbers."""
    if not np.all(np.isfinite(X)):
        raise ConfigError(name, "has an input that is no number")
    return X


def columns(name: str, values: ArrayLike) -> Array:
    """A table [n, D]; a vector is one column."""
    try:
        array = np.asarray(values, dtype=float)
    except (TypeError, ValueError) as error:
        raise ConfigError(name, f"is no table of numbers: {error}") from None
    if array.ndim == 1:
        array = array[:, None]
    if array.ndim != 2:
        raise ConfigError(name, f"must be a table of frames, and has {array.ndim} axes")
    return array


def scaling(values: Array) -> Scaling:
    """Mean and standard deviation of each column over what is there; 0 and 1 of a column that is missing, 1 of a constant one."""
    seen = np.isfinite(values)
    count = np.maximum(seen.sum(axis=0), 1)
    centre = np.where(seen, values, 0.0).sum(axis=0) / count
    sd = np.sqrt((np.where(seen, values - centre, 0.0) ** 2).sum(axis=0) / count)
    return Scaling(centre, np.where(sd > 1e-12 * np.maximum(np.abs(centre), 1.0), sd, 1.0))


def places(X: Array, count: int, *, is_even: bool = True) -> Array:
    """Inducing inputs [M, D]: over one input evenly, of several where inputs lie.

    Where even steps could go with a period, and all inputs be at one place of it, they are by the golden ratio instead: spread
    over the span, and over every period in it.
    """
    if X.shape[1] > 1:
        return placement.fitted(count, X, least=1).place
    low, high = float(X.min()), float(X.max())
    share = np.linspace(0, 1, count) if is_even else np.sort((0.5 + GOLDEN * np.arange(count)) % 1)
    return (low + (high - low if high > low else 1.0) * share)[:, None]
