"""The Student-t law of a stream: heavy tails whose weight is learnt, and a scale that follows quiet and restless times.

For each number of degrees the scale of a channel follows z^2 (nu + 1) / (nu + z^2 / scale), the expectation of which is the
scale where the law is right and which no outlier can move far (score-driven as in Harvey 2013, Beta-t-GARCH). Running log
densities choose the degrees, and mix the posteriors of a long and a short memory.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fleetgp.arrays import Array

DEGREES = np.array([3.0, 4.0, 5.0, 7.0, 10.0, 15.0, 30.0])
FIRST = 1
FIRST_LEAD = 2.0
RATE = 0.03
MEMORY = 0.995
TRACK_MEMORY = 0.99
LONG_LEAD = 1.0
MOST_LEAD = 100.0
MOST_ERROR = 1e150
# standard deviations up to which a frame teaches whole
WHOLE = 6.0
TINY = 1e-300
LEAST_SCALE, MOST_SCALE = 1e-4, 1e4
# z^2 from which a frame counts as no odder: an infinite one would leave no number in any running sum
MOST_SQUARE = 1e100
# a law wider than that counts as so wide, for the same reason
MOST_VARIANCE = 1e300
# log of the normalising constant of the standard Student-t density
LOG_NORM = np.array([math.lgamma((v + 1) / 2) - math.lgamma(v / 2) - 0.5 * math.log(v * math.pi) for v in DEGREES])
# DEGREES [G, 1], and how far the scale of each is drawn by an error
COLUMN = DEGREES[:, None]
PULL = RATE * (COLUMN + 1.0)


class Tail(NamedTuple):
    """scales [G, Q] by degrees; tracks [T, Q] running log density by memory; densities [G, Q] running log density by degrees,
    up to the last choice; chosen [Q] index, degrees [Q] and log norm [Q] of the law in use."""

    scales: Array
    tracks: Array
    densities: Array
    chosen: Array
    degrees: Array
    norm: Array


def init(channels: int, tracks: int) -> Tail:
    densities = np.zeros((len(DEGREES), channels))
    densities[FIRST] = FIRST_LEAD
    lead = np.zeros((tracks, channels))
    lead[0] = LONG_LEAD
    # the noise is learnt as a variance
    scales = np.tile(((DEGREES - 2) / DEGREES)[:, None], (1, channels))
    return _chosen(scales, lead, densities)


def scale(tail: Tail) -> Array:
    """Factor [Q] of the law's squared scale in use."""
    return np.asarray(tail.scales[tail.chosen.astype(int), np.arange(tail.scales.shape[1])])


def share_of_long(tracks: Array) -> Array:
    """Share [..., Q] of the long memory in the mixture; the short one has the rest; tracks [..., T = 2, Q]."""
    lead = np.minimum(tracks[..., 1, :] - tracks[..., 0, :], MOST_LEAD)
    return np.asarray(1.0 / (1.0 + np.exp(lead)))


def mixed(tracks: Array, means: Array, variances: Array) -> tuple[Array, Array]:
    """Mean and variance [..., Q] of the mixture of the two memories; tracks, means, variances [..., T = 2, Q]."""
    share = share_of_long(tracks)
    long, short = means[..., 0, :], means[..., 1, :]
    other, apart = 1.0 - share, long - short
    with np.errstate(over="ignore", invalid="ignore"):
        between = share * other * apart * apart
        second = other * variances[..., 1, :]
    # a memory that is not believed at all has no part, not even where its law is endlessly wide
    within = share * variances[..., 0, :] + np.where(other > 0, second, 0.0)
    return share * long + other * short, within + between


def log_norm(degrees: Array) -> Array:
    """Log of the normalising constant of the standard Student-t density with these degrees, of those in DEGREES."""
    return np.asarray(LOG_NORM[np.searchsorted(DEGREES, degrees)])


def squared(errors: Array, variances: Array) -> Array:
    """z^2 of errors, which count no larger than 1e150."""
    size = np.minimum(np.abs(errors), MOST_ERROR)
    return np.asarray(size * size / variances)


def log_density(square: Array, degrees: Array, log_norm: Array) -> Array:
    """Log of the standard Student-t density at z^2."""
    return np.asarray(log_norm - 0.5 * (degrees + 1) * np.log1p(np.minimum(square, MOST_SQUARE) / degrees))


def track_densities(tail: Tail, errors: Array, variances: Array) -> Array:
    """Log density [..., T, Q] of errors under each memory's law, by the degrees in use; 0 where an error is NaN."""
    density = log_density(squared(errors, variances), tail.degrees, tail.norm) - 0.5 * np.log(
        np.minimum(variances, MOST_VARIANCE)
    )
    return np.where(np.isnan(errors), 0.0, density)


def weight(square: Array) -> Array:
    """How much a frame teaches by its z^2: whole up to WHOLE standard deviations, beyond them less by the square.

    Its influence falls off beyond (Hampel's kind of estimator). The weight of the Student-t law itself would fall off from
    zero on: it makes medians of means, and with errors as skewed as those of concentrations predictions lose two per cent.
    """
    return np.asarray(np.minimum(1.0, WHOLE**2 / np.maximum(square, TINY)))


def follow(scales: Array, square: Array) -> Array:
    """Scales [G, Q] after errors of this square [Q] over the law's variance; NaN where nothing was observed."""
    square = np.minimum(square, MOST_SQUARE)
    new = scales * (1.0 - RATE + PULL * square / (COLUMN * scales + square))
    # half the time of ``clip``
    return np.where(np.isnan(square), scales, np.minimum(np.maximum(new, LEAST_SCALE), MOST_SCALE))


def followed(scales: Array, squares: Array) -> tuple[Array, Array]:
    """Scales before each of n frames [n, G, Q] and after them all [G, Q]; squares [n, Q]. ``follow``, one after another."""
    squares = np.minimum(squares, MOST_SQUARE)
    is_missing = np.isnan(squares)
    squares = np.where(is_missing, 1.0, squares)[:, None, :]
    stays = np.where(is_missing, 1.0, 1.0 - RATE)[:, None, :]
    pulls = np.where(is_missing[:, None, :], 0.0, PULL * squares)
    # of v times the scale, which takes one operation less a frame
    path = np.empty((len(squares) + 1, *scales.shape))
    path[0] = COLUMN * scales
    is_clipped = not _stays_within(scales, squares)
    factor = np.empty_like(scales)
    add, multiply, divide = np.add, np.multiply, np.divide
    for before, after, pull, square, stay in zip(path[:-1], path[1:], pulls, squares, stays, strict=True):
        add(before, square, factor)
        divide(pull, factor, factor)
        add(factor, stay, factor)
        multiply(before, factor, after)
        if is_clipped:
            np.clip(after, COLUMN * LEAST_SCALE, COLUMN * MOST_SCALE, out=after)
    path /= COLUMN
    return path[:-1], path[-1]


def _stays_within(scales: Array, squares: Array) -> bool:
    """Whether no scale can reach its bounds: one falls by RATE a frame at most, and rises by RATE (v + 1) / v squares."""
    least = np.min(scales) * (1.0 - RATE) ** len(squares)
    most = np.max(scales) + 2.0 * RATE * np.sum(np.max(squares, axis=(1, 2)))
    return bool(least > LEAST_SCALE and most < MOST_SCALE)


def all_densities(scales: Array, square: Array) -> Array:
    """Log density [..., G, Q] by degrees up to what all share; 0 where nothing was observed. square [..., Q]."""
    z2 = np.minimum(square[..., None, :], MOST_SQUARE) / scales
    density = log_density(z2, COLUMN, LOG_NORM[:, None]) - 0.5 * np.log(scales)
    return np.where(np.isnan(z2), 0.0, density)


def choose(tail: Tail, scales: Array, squares: Array) -> Tail:
    """The degrees whose running density is best, from now on.

    squares [n, Q] of the frames since the last choice, scales [n, G, Q] before each.
    """
    told = ~np.all(np.isnan(squares), axis=1)
    n = int(np.sum(told))
    left = MEMORY ** np.arange(n - 1, -1, -1.0)
    gained = np.tensordot(left, all_densities(scales[told], squares[told]), 1)
    return _chosen(tail.scales, tail.tracks, MEMORY**n * tail.densities + gained)


def step(tail: Tail, errors: Array, variances: Array, square: Array) -> Tail:
    """After one frame: errors, variances [T, Q] by memory; square [Q] of the mixture's error over its variance."""
    tracks = TRACK_MEMORY * tail.tracks + track_densities(tail, errors, variances)
    return tail._replace(scales=follow(tail.scales, square), tracks=tracks)


def _chosen(scales: Array, tracks: Array, densities: Array) -> Tail:
    chosen = np.argmax(densities, axis=0)
    return Tail(scales, tracks, densities, chosen.astype(float), DEGREES[chosen], LOG_NORM[chosen])
