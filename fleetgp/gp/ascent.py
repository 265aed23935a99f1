"""Steps uphill by Adam for values that go by names (Kingma and Ba 2015, algorithm 1)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from fleetgp.arrays import Array

BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8

Values = Mapping[str, Array]


class Momentum(NamedTuple):
    """Running means of the slope and of its square by name, and the steps taken."""

    mean: dict[str, Array]
    square: dict[str, Array]
    steps: int


def still(values: Values) -> Momentum:
    """Before the first step."""
    return Momentum(
        {name: np.zeros_like(value) for name, value in values.items()},
        {name: np.zeros_like(value) for name, value in values.items()},
        0,
    )


def step(values: Values, slope: Values, moments: Momentum, rate: float) -> tuple[dict[str, Array], Momentum]:
    """Values after one step, none of whose entries moves by much more than rate."""
    steps = moments.steps + 1
    # an array without dimensions would become a number, which a snapshot does not take for an array again
    mean = {name: np.asarray(BETA1 * m + (1 - BETA1) * slope[name]) for name, m in moments.mean.items()}
    square = {name: np.asarray(BETA2 * v + (1 - BETA2) * slope[name] ** 2) for name, v in moments.square.items()}
    first, second = 1 - BETA1**steps, 1 - BETA2**steps
    moved = {
        name: np.asarray(x + rate * (mean[name] / first) / (np.sqrt(square[name] / second) + EPSILON))
        for name, x in values.items()
    }
    return moved, Momentum(mean, square, steps)
