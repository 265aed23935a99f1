"""How good a Gaussian prediction is: error, density, CRPS, coverage and width of intervals, calibration, covariance of channels."""

from __future__ import annotations

import numpy as np
import scipy.stats

from fleetgp.arrays import Array

LEVELS = (50, 80, 90, 95)
BINS = 20


def judge(Y: Array, mean: Array, variance: Array) -> dict[str, float]:
    """Of readings [n, Q] under independent normal laws of mean and variance [n, Q].

    crps: Gneiting and Raftery 2007, eq. 21. pit: root mean square of the PIT histogram's departure from a flat one.
    """
    sd = np.sqrt(variance)
    z = (Y - mean) / sd
    told = {
        "rmse": float(np.sqrt(np.mean((Y - mean) ** 2))),
        "nll": float(np.mean(0.5 * np.log(2 * np.pi * variance) + 0.5 * z * z)),
        "crps": float(
            np.mean(sd * (z * (2 * scipy.stats.norm.cdf(z) - 1) + 2 * scipy.stats.norm.pdf(z) - np.pi**-0.5))
        ),
    }
    for level in LEVELS:
        half = float(scipy.stats.norm.ppf(0.5 + level / 200))
        told[f"coverage{level}"] = float(np.mean(np.abs(z) <= half))
        told[f"width{level}"] = float(np.mean(2 * half * sd))
    share = np.histogram(scipy.stats.norm.cdf(z), bins=BINS, range=(0, 1))[0] / z.size
    return told | {"pit": float(np.sqrt(np.mean((BINS * share - 1) ** 2)))}


def covariance_error(found: Array, true: Array) -> float:
    """Relative Frobenius error of a Q x Q covariance."""
    return float(np.linalg.norm(found - true) / np.linalg.norm(true))


def mean_and_interval(values: Array) -> tuple[float, float]:
    """Mean and half width of its 95 % interval by Student's t; NaN where one value tells of no spread."""
    if len(values) < 2:
        return float(np.mean(values)), float("nan")
    half = scipy.stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / np.sqrt(len(values))
    return float(np.mean(values)), float(half)
