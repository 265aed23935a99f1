"""What each predicted frame adds to the sums that figures are made of; a whole block of frames at once, n frames, Q channels."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fleetgp import student
from fleetgp.arrays import Array, Mask
from simulator.figures import Sum

LARGEST = 1e150  # errors beyond it count as this large, so that sums of squares stay finite
MOST_DEGREES = 1000  # the closed forms take as many steps; a law of more is taken for one that was not told


class Block(NamedTuple):
    """Predictions and what came, each [n, Q].

    mean, low, high, seen (NaN: nothing that can be learnt) and before, the reading before it, are in the readings' own unit;
    scale and degrees of the law in the transformed unit, 0 where not told. density [n]: joint log density, NaN where not told.
    """

    mean: Array
    low: Array
    high: Array
    seen: Array
    scale: Array
    degrees: Array
    before: Array
    density: Array


def learnt(values: Array, is_log: Mask) -> Array:
    """Readings [n, Q] in the unit that is learnt, is_log [Q] those in log1p; NaN outside the transform's domain."""
    inside = np.where(is_log & ~(values > -1), np.nan, values)
    return np.where(is_log, np.log1p(np.where(is_log, inside, 0.0)), inside)


def terms(block: Block, is_log: Mask, origin: Array) -> Array:
    """[Sum, n, Q], 0 where nothing was predicted or there is nothing before. origin [Q]: what OFFSET is from."""
    y, last = learnt(block.seen, is_log), learnt(block.before, is_log)
    # a mean of -1 is one that rounding made of a logarithm far below 0
    centre = learnt(np.where(is_log, np.maximum(block.mean, np.nextafter(-1.0, 0.0)), block.mean), is_log)
    pick = np.isfinite(y) & np.isfinite(last) & np.isfinite(centre)
    result = np.zeros((len(Sum), *y.shape))
    with np.errstate(over="ignore"):  # what overflows is then bounded
        error = _bounded(y - centre)
        result[Sum.N] = 1.0
        result[Sum.SQUARE_ERROR] = error**2
        result[Sum.SQUARE_STEP] = _bounded(y - last) ** 2
        result[Sum.IN_BAND] = (block.low <= block.seen) & (block.seen <= block.high)
        result[Sum.OFFSET] = _bounded(y - origin)
        result[Sum.SQUARE_OFFSET] = result[Sum.OFFSET] ** 2
        result[Sum.OWN_ERROR] = np.abs(_bounded(block.seen - block.mean))
        result[Sum.OWN_SQUARE_ERROR] = result[Sum.OWN_ERROR] ** 2
        result[Sum.OWN_SQUARE_STEP] = _bounded(block.seen - block.before) ** 2
    result[:, ~pick] = 0.0
    is_whole = (block.degrees >= 2) & (block.degrees <= MOST_DEGREES) & (block.degrees == np.floor(block.degrees))
    told = pick & is_whole & (block.scale > 0) & np.isfinite(block.scale)
    _score(result, told, error[told], block.scale[told], block.degrees[told])
    # of frames all of whose readings count: the density is of all of them
    whole = np.isfinite(block.density) & np.all(told | ~np.isfinite(block.seen), axis=1)
    shared = told & whole[:, None]
    size = np.maximum(np.sum(shared, axis=1, keepdims=True), 1)
    result[Sum.JOINT] = np.where(shared, -block.density[:, None] / size, 0.0)
    result[Sum.JOINT_TOLD] = shared
    return result


def _score(result: Array, told: Mask, error: Array, scale: Array, degrees: Array) -> None:
    """Scores and coverage of the laws that were told, written into result [Sum, n, Q]; error, scale, degrees [told]."""
    scale = np.maximum(scale, np.abs(error) / LARGEST)
    z = error / scale
    tail = student.cdf(-np.abs(z), degrees)
    result[Sum.TOLD, told] = 1.0
    result[Sum.NLL, told] = np.log(scale) - student.log_density(z, degrees)
    result[Sum.CRPS, told] = scale * student.crps(z, degrees)
    # z lies within the quantiles of a central share where the tail beyond it is at least half of the rest
    for row, share in ((Sum.IN_50, 0.50), (Sum.IN_80, 0.80), (Sum.IN_95, 0.95)):
        result[row, told] = tail >= (1 - share) / 2


def _bounded(values: Array) -> Array:
    return np.clip(values, -LARGEST, LARGEST)
