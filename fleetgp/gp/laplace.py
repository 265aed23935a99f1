"""How uncertain hyperparameters are: draws from the normal law whose precision is the curvature at the top (Laplace).

A prediction with the best values alone is too sure of itself where frames are few: of 15 frames its 95 % intervals hold 87 %.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from fleetgp.arrays import Array
from fleetgp.linalg import symmetric

MEMBERS = 8
STEP = 1e-4
# Along a turn of latents among themselves nothing changes, neither evidence nor prior, and neither would predictions. All else has
# at least the precision of its prior, which is 1 or more.
LEAST_PRECISION = 0.9


def draws(
    slope: Callable[[Array], Array], x: Array, varied: NDArray[np.intp], members: int, rng: np.random.Generator
) -> Array:
    """Values [members, P] around the top x [P] of a log density with this slope; all but the varied entries stay.

    In pairs to both sides of x, so that their mean is x; members is even.
    """
    here = slope(x)[varied]
    curvature = np.empty((len(varied), len(varied)))
    for row, place in zip(curvature, varied, strict=True):
        there = x.copy()
        there[place] += STEP
        row[:] = (here - slope(there)[varied]) / STEP
    is_known = bool(np.all(np.isfinite(curvature)))
    precision, U = np.linalg.eigh(symmetric(curvature) if is_known else np.zeros_like(curvature))
    sd = np.where(precision > LEAST_PRECISION, 1 / np.sqrt(np.maximum(precision, LEAST_PRECISION)), 0.0)
    away = (rng.standard_normal((members // 2, len(varied))) * sd) @ U.T
    result = np.tile(x, (members, 1))
    result[:, varied] += np.concatenate((away, -away))
    return result
