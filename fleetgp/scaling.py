"""Moments of inputs, and the scaling made of them: one input's centre and unit of length.

Moments are an algebra (observe, merge), so that those of a fleet are exactly those of all its readings pooled.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fleetgp.arrays import Array

ROUNDING = 1e-14
SMALLEST = 1e-60


class Moments(NamedTuple):
    """n, mean and centred sum of squares per input, each [K]; NaN readings are not counted."""

    n: Array
    mean: Array
    centred_square_sum: Array


class Scaling(NamedTuple):
    """scaled = (value - centre) / scale, per input [K]; scale > 0."""

    centre: Array
    scale: Array


def empty_moments(size: int) -> Moments:
    return Moments(np.zeros(size), np.zeros(size), np.zeros(size))


def observe(moments: Moments, values: Array) -> Moments:
    """Moments after one more reading of each input; values [K], NaN where missing (Welford's update)."""
    present = np.isfinite(values)
    count = moments.n + present
    step = np.where(present, values - moments.mean, 0.0)
    mean = moments.mean + step / np.maximum(count, 1.0)
    rest = np.where(present, values - mean, 0.0)
    return Moments(count, mean, moments.centred_square_sum + step * rest)


def merge(a: Moments, b: Moments) -> Moments:
    """Moments of two sets of readings together (Chan, Golub and LeVeque 1979)."""
    count = a.n + b.n
    share = _divide(b.n, count)
    gap = b.mean - a.mean
    mean = a.mean + gap * share
    return Moments(count, mean, a.centred_square_sum + b.centred_square_sum + gap * gap * a.n * share)


def scaling(moments: Moments) -> Scaling:
    """Centre = mean, scale = standard deviation; an input that never varied gets its size, or 1 where that is 0."""
    deviation = np.sqrt(_divide(moments.centred_square_sum, moments.n))
    # a spread of a few last bits of the mean is rounding, not the input's; so is a size near the end of doubles
    floor = np.maximum(ROUNDING * np.abs(moments.mean), SMALLEST)
    size = np.where(np.abs(moments.mean) > SMALLEST, np.abs(moments.mean), 1.0)
    return Scaling(moments.mean.copy(), np.where(deviation > floor, deviation, size))


def apply(scaling: Scaling, values: Array) -> Array:
    """Scaled values; the last axis runs over the inputs."""
    return (values - scaling.centre) / scaling.scale


def _divide(a: Array, b: Array) -> Array:
    """a / b, and 0 where b is 0."""
    return np.divide(a, b, out=np.zeros_like(a), where=b > 0)
