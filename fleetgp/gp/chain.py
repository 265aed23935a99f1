"""Frames of mixed channels as sums, where what a channel errs by goes on from frame to frame.

y_t = m(x_t) + e_t with e_t = rho e_{t-1} + innovation, each channel its own rho. Given rho that is regression again, of
y_t - rho y_{t-1} on F(x_t) - rho F(x_{t-1}) (Cochrane and Orcutt 1949): the same sums, of features that differ by channel. Where
a channel was last read k ticks before, rho^k stands for rho, and the innovation is 1 - rho^2k of what the channel errs by.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fleetgp.arrays import Array
from fleetgp.gp import mixing, statistics
from fleetgp.gp.mixing import Mixing, Sums
from fleetgp.gp.statistics import Statistics
from fleetgp.linalg import symmetric

MOST_RHO = 0.98
# ticks after which a reading is not linked to the one before: each number of them takes the features of as many places
MOST_TICKS = 16
# the guess before anything is learnt: what a channel is off by, it is off by still; and its worth in frames
GUESS_RHO, GUESS_FRAMES = 0.9, 10.0


TINY = 1e-300


class Chain(NamedTuple):
    """Frames, oldest first: positions x [n, D], those one tick earlier [n, D]; scaled readings y [n, Q] and the ones before
    them [n, Q]; ticks [n, Q]: since those, 0 where they tell nothing; weights [n, Q], 0 = not learnt; kept [n]: not forgotten.

    More than one tick only on a circle, on which every tick is the same turn."""

    x: Array
    earlier: Array
    y: Array
    before: Array
    ticks: Array
    weights: Array
    kept: Array


class Past(NamedTuple):
    """Sums of frames, and what a shift of the scale needs beside them: sums of features [Q, K] and of targets [Q], each times
    1 - link, and of its square [Q]."""

    sums: Sums
    ones: Array
    total: Array
    mass: Array


def no_frames(columns: int, channels: int) -> Chain:
    wide = np.zeros((0, channels))
    return Chain(np.zeros((0, columns)), np.zeros((0, columns)), wide, wide, wide, wide, np.zeros(0))


def joined(a: Chain, b: Chain) -> Chain:
    return Chain(*(np.concatenate(parts) for parts in zip(a, b, strict=True)))


def part(chain: Chain, begin: int, end: int) -> Chain:
    """Copies: a view would keep the others in memory."""
    return Chain(*(column[begin:end].copy() for column in chain))


def rescaled(chain: Chain, ratio: Array, shift: Array) -> Chain:
    """The same readings in another unit: y_new = ratio y + shift, both [Q]."""
    return chain._replace(y=ratio * chain.y + shift, before=ratio * chain.before + shift)


def empty(channels: int, size: int) -> Past:
    """Sums of no frames."""
    nothing = Sums(statistics.empty(channels, size), np.zeros((channels, 2)))
    return Past(nothing, np.zeros((channels, size)), np.zeros(channels), np.zeros(channels))


def summed(mix: Mixing, rho: Array, chain: Chain) -> Past:
    """Sums over frames; rho [Q]."""
    F, r = mixing.features(mix, chain.x)
    earlier = _features_before(mix, chain)
    parts = [_channel(F, r, earlier, chain, float(rho[q]), q) for q in range(len(rho))]
    n, square, cross, gram, residual, ones, total, mass = (np.array(column) for column in zip(*parts, strict=True))
    return Past(Sums(Statistics(n, square, cross, gram), residual), ones, total, mass)


def _features_before(mix: Mixing, chain: Chain) -> dict[int, Array]:
    """Features [n, K] where frames stood so many ticks earlier, for every number of ticks that there is."""
    return {k: mixing.features(mix, _place(chain, k))[0] for k in sorted({*chain.ticks.astype(int).flat} - {0})}


def _place(chain: Chain, ticks: int) -> Array:
    """Positions [n, D] so many ticks before those of the frames; as complex numbers of length 1, turns are products."""
    if ticks == 1:
        return chain.earlier
    x, earlier = (one[:, 0] + 1j * one[:, 1] for one in (chain.x, chain.earlier))
    place = x * (earlier / x) ** ticks
    return np.stack((place.real, place.imag), axis=1)


def _before(found: dict[int, Array], ticks: Array) -> Array:
    """Of one channel, the rows [n, ...] at its own ticks [n]; zeros where these are 0."""
    if len(found) == 1:
        ((k, rows),) = found.items()
        return np.asarray(rows * (ticks == k)[:, None])
    return sum((rows * (ticks == k)[:, None] for k, rows in found.items()), np.zeros((len(ticks), 1)))


def _channel(
    F: Array, r: Array, earlier: dict[int, Array], chain: Chain, rho: float, q: int
) -> tuple[Array | float, ...]:
    """n, square, cross [K], gram [K, K], residual [2], ones [K], total and mass of channel q."""
    ticks = chain.ticks[:, q]
    link = np.where(ticks > 0, rho**ticks, 0.0)
    is_seen = chain.weights[:, q] > 0
    w = chain.weights[:, q] * chain.kept * (1 - rho * rho) / (1 - link * link)
    g = F - link[:, None] * _before(earlier, ticks)
    z = np.where(is_seen, chain.y[:, q] - link * chain.before[:, q], 0.0)
    rest = w * (1 - link)
    weighted = w[:, None] * g
    return (
        float(chain.kept @ is_seen), float(w @ (z * z)), z @ weighted, symmetric(g.T @ weighted),
        (rest * (1 - link)) @ r, rest @ g, float(rest @ z), float(rest @ (1 - link)),
    )  # fmt: skip


def merge(a: Past, b: Past) -> Past:
    return Past(mixing.merge(a.sums, b.sums), a.ones + b.ones, a.total + b.total, a.mass + b.mass)


def decay(past: Past, factor: float) -> Past:
    sums = Sums(statistics.decay(past.sums.statistics, factor), factor * past.sums.residual)
    return Past(sums, factor * past.ones, factor * past.total, factor * past.mass)


def carried(past: Past, T: Array, ratio: Array, shift: Array) -> Past:
    """The same frames on other features, F_new ~ T F_old, and in another unit: y_new = ratio y + shift, both [Q]."""
    told, a, c = past.sums.statistics, ratio, shift
    square = a**2 * told.square + 2 * a * c * past.total + c**2 * past.mass
    cross = a[:, None] * told.cross + c[:, None] * past.ones
    moved = statistics.rebase(Statistics(told.n, np.maximum(square, 0.0), cross, told.gram), T, np.ones_like(a))
    total = a * past.total + c * past.mass
    return Past(Sums(moved, past.sums.residual), past.ones @ T.T, total, past.mass)


def persistence(mix: Mixing, effects: Array, chain: Chain) -> Array:
    """rho [Q] by how errors of recent frames go on; effects [Q, K]: each channel's weights of the features of both bases.

    Of pairs k ticks apart the share that goes on is rho^k; channels that are read at several distances take the mean, by pairs.
    """
    if not len(chain.x):
        return np.full(len(effects), GUESS_RHO)
    now = chain.y - mixing.features(mix, chain.x)[0] @ effects.T
    found, pairs = np.zeros(len(effects)), np.zeros(len(effects))
    for k, features in _features_before(mix, chain).items():
        w = chain.weights * (chain.ticks == k) * chain.kept[:, None]
        before = chain.before - features @ effects.T
        a, b = np.where(w > 0, now, 0.0), np.where(w > 0, before, 0.0)
        count, square = np.sum(w, axis=0), np.sum(w * b * b, axis=0)
        guess = GUESS_FRAMES * square / np.maximum(count, 1.0)
        left = (np.sum(w * a * b, axis=0) + GUESS_RHO**k * guess) / np.maximum(square + guess, TINY)
        found += count * np.maximum(left, 0.0) ** (1.0 / k)
        pairs += count
    return np.asarray(np.clip(np.where(pairs > 0, found / np.maximum(pairs, TINY), GUESS_RHO), 0.0, MOST_RHO))


def effects(mix: Mixing, mean: Array) -> Array:
    """Weights [Q, M + Mi] of the features of both bases in each channel, by the weights of all latents [W]."""
    (a, b, _), M = mix.sizes, len(mix.shared.Z)
    on_shared = np.concatenate((mix.Bg, np.sqrt(mix.phi) * mix.Bd), axis=1)
    shared = on_shared @ mean[: a + b].reshape(on_shared.shape[1], M)
    return np.concatenate((shared, mix.Bl @ mean[a + b :].reshape(mix.Bl.shape[1], len(mix.local.Z))), axis=1)


def rows(mix: Mixing, g: Array) -> Array:
    """H [Q, W] of one frame whose features g [Q, M + Mi] differ by channel."""
    M = len(mix.shared.Z)
    on_shared = np.concatenate((mix.Bg, np.sqrt(mix.phi) * mix.Bd), axis=1)
    Q = len(g)
    shared = (on_shared[:, :, None] * g[:, None, :M]).reshape(Q, -1)
    return np.concatenate((shared, (mix.Bl[:, :, None] * g[:, None, M:]).reshape(Q, -1)), axis=1)
