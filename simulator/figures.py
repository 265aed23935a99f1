"""Figures of accuracy from sums over predictions: what a report says of any set of agents, channels and frames.

Errors are in the unit that is learnt (after the transform), divided by a standard deviation for each channel so that channels
can be pooled. ``nll`` and ``crps`` score the whole law that a prediction told, in the same scaled unit (Gneiting and Raftery
2007); a prediction that told none counts for the errors only.
"""

from __future__ import annotations

import math
from enum import IntEnum
from typing import Any

import numpy as np

from fleetgp.arrays import Array
from fleetgp.schema import Channel

NO_CRPS = "infinite: a Student-t law in logarithms has no mean in the reading's own unit; the errors are of its median"


class Sum(IntEnum):
    """Rows of an array of sums [Sum, Q]. TOLD and what follows: of predictions that told their law; OWN: in the own unit.

    JOINT: minus the joint log density of a frame, shared out evenly among its readings.
    """

    N = 0
    SQUARE_ERROR = 1
    SQUARE_STEP = 2
    IN_BAND = 3
    OFFSET = 4
    SQUARE_OFFSET = 5
    TOLD = 6
    NLL = 7
    CRPS = 8
    IN_50 = 9
    IN_80 = 10
    IN_95 = 11
    OWN_ERROR = 12
    OWN_SQUARE_ERROR = 13
    OWN_SQUARE_STEP = 14
    JOINT = 15
    JOINT_TOLD = 16


def deviation_of(sums: Array) -> Array:
    """Standard deviation [Q] of what was observed, transformed units; 1 for a channel that never varied. sums: [Sum, Q]."""
    n = np.maximum(sums[Sum.N], 1)
    variance = sums[Sum.SQUARE_OFFSET] / n - (sums[Sum.OFFSET] / n) ** 2
    return np.where(variance > 0, np.sqrt(np.maximum(variance, 0)), 1.0)


def figures(sums: Array, deviation: Array) -> dict[str, Any]:
    """Pooled over the channels of sums [Sum, Q], scaled by deviation [Q]; None where there is nothing to say.

    n: readings that were predicted; n_law: those whose prediction told its law, which nll, crps and the coverage of 50, 80
    and 95 % are of. coverage90 is that of the published band. nll_joint: of whole frames, whose channels know of each other,
    per reading.
    """
    n, told = float(sums[Sum.N].sum()), float(sums[Sum.TOLD].sum())
    square = sums[[Sum.SQUARE_ERROR, Sum.SQUARE_STEP]] / deviation**2
    # the density of y / deviation is deviation times that of y
    nll = sums[Sum.NLL] - sums[Sum.TOLD] * np.log(deviation)
    joint = sums[Sum.JOINT] - sums[Sum.JOINT_TOLD] * np.log(deviation)
    return {
        "n": int(n),
        "rmse": _root(square[0], n),
        "rmse_persistence": _root(square[1], n),
        "coverage90": _mean(sums[Sum.IN_BAND], n),
        "n_law": int(told),
        "nll": _mean(nll, told),
        "nll_joint": _mean(joint, float(sums[Sum.JOINT_TOLD].sum())),
        "crps": _mean(sums[Sum.CRPS] / deviation, told),
        "coverage50": _mean(sums[Sum.IN_50], told),
        "coverage80": _mean(sums[Sum.IN_80], told),
        "coverage95": _mean(sums[Sum.IN_95], told),
    }


def original(sums: Array, channel: Channel) -> dict[str, Any]:
    """One channel in the readings' own unit; sums [Sum]. Of the published mean, the law's median where there is a transform."""
    n, told = float(sums[Sum.N]), float(sums[Sum.TOLD])
    found = {
        "unit": channel.unit,
        "rmse": _root(sums[Sum.OWN_SQUARE_ERROR], n),
        "rmse_persistence": _root(sums[Sum.OWN_SQUARE_STEP], n),
        "mae": _mean(sums[Sum.OWN_ERROR], n),
        "crps": _mean(sums[Sum.CRPS], told) if channel.transform == "identity" else None,
    }
    return found if channel.transform == "identity" else {**found, "crps_left_out": NO_CRPS}


def _mean(total: Array, n: float) -> float | None:
    return float(total.sum()) / n if n else None


def _root(total: Array, n: float) -> float | None:
    return math.sqrt(float(total.sum()) / n) if n else None
