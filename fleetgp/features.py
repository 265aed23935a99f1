"""Feature maps. Here: the linear block of bias, lags of every channel, and covariates.

Layout of a feature vector [F], F = 1 + L Q + C: the bias, then lag 1 of all Q channels, lag 2, ..., then C covariates.
"""

from __future__ import annotations

import numpy as np

from fleetgp.arrays import Array
from fleetgp.scaling import Scaling


def size(channels: int, lags: int, covariates: int) -> int:
    """Number of features F."""
    return 1 + lags * channels + covariates


def linear(lags: Array, covariates: Array) -> Array:
    """Feature vector [F] from scaled lags [L, Q] (row 0 = lag 1) and scaled covariates [C]."""
    return np.concatenate(([1.0], lags.ravel(), covariates))


def change(old: Scaling, new: Scaling, channels: int, lags: int) -> Array:
    """T [F, F] with features_new = T features_old, exact for the linear block.

    x_new = (s x_old + c - c') / s', so T scales each feature and moves it by a multiple of the bias (models.md section 3).
    """
    order = np.concatenate((np.tile(np.arange(channels), lags), np.arange(channels, len(old.centre)))).astype(int)
    ratio = (old.scale / new.scale)[order]
    offset = ((old.centre - new.centre) / new.scale)[order]
    T = np.diag(np.concatenate(([1.0], ratio)))
    T[1:, 0] = offset
    return T
