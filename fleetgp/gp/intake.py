"""What a user hands to the library, made into tables of numbers, and what is wrong with it named."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike

from fleetgp import placement
from fleetgp.arrays import Array
from fleetgp.errors import ConfigError
from fleetgp.scaling import Scaling

GOLDEN = (math.sqrt(5) - 1) / 2

Data = Mapping[str, tuple[ArrayLike, ArrayLike]]
Tables = dict[str, tuple[Array, Array]]


def tables(data: Data) -> Tables:
    """Inputs X [n, D] and readings Y [n, Q] of each client, by name in order. Raises ConfigError that names the client."""
    result = {}
    for name, pair in sorted(data.items()):
        if len(pair) != 2:
            raise ConfigError(name, f"must be a pair of inputs and readings, and has {len(pair)} parts")
        result[name] = table(name, *pair)
    return result


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
