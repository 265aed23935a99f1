"""Feature maps. Here: the linear block of bias, lags of every channel, and covariates.

Layout of a feature vector [F], F = 1 + L Q + C: the bias, then lag 1 of all Q channels, lag 2, ..., then C covariates.
"""

from __future__ import annotations

import numpy as np

from fleetgp.arrays import Array
from fleetgp.scaling import Scaling

# Prior standard deviation of each block's weights, per standard deviation of its input: weights are whitened, so the
# features carry it. A step from the last reading is mostly small and mostly shared out among few inputs.
PRIOR_SD = {"bias": 0.5, "lags": 0.25, "covariates": 0.15}


def size(channels: int, lags: int, covariates: int) -> int:
    """Number of features F."""
    return 1 + lags * channels + covariates


def linear(lags: Array, covariates: Array) -> Array:
    """Feature vector [F] from scaled lags [L, Q] (row 0 = lag 1) and scaled covariates [C]."""
    return np.concatenate(([PRIOR_SD["bias"]], PRIOR_SD["lags"] * lags.ravel(), PRIOR_SD["covariates"] * covariates))


def change(old: Scaling, new: Scaling, channels: int, lags: int) -> Array:
    """T [F, F] with features_new = T features_old, exact for the linear block.

    The bias feature is the constant p_0, a feature j is p_j times its scaled input x_j: x_new = (s x_old + c - c') / s', so T scales each feature and moves it by a multiple of the bias (models.md section 3).
    """
    order = np.concatenate((np.tile(np.arange(channels), lags), np.arange(channels, len(old.centre)))).astype(int)
    ratio = (old.scale / new.scale)[order]
    offset = ((old.centre - new.centre) / new.scale)[order]
    T = np.diag(np.concatenate(([1.0], ratio)))
    sd = np.array([PRIOR_SD["lags"]] * (lags * channels) + [PRIOR_SD["covariates"]] * (len(old.centre) - channels))
    T[1:, 0] = sd * offset / PRIOR_SD["bias"]
    return T
