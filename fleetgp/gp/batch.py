"""Many frames at once: the numbers that one frame after another would give, by block Cholesky instead of rank-one updates.

In a block of frames the one-step predictions of Bayesian linear regression are the rows of one Cholesky factor: with
S = X C X^T + diag(noise) = L L^T and e = L^-1 (y - X m), frame i is foreseen at x_i m + sum_{j<i} L_ij e_j, and its noiseless
target is known up to the variance x_i C x_i - sum_{j<i} L_ij^2.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fleetgp import features
from fleetgp.arrays import Array, Mask
from fleetgp.errors import NotFinite
from fleetgp.gp import layers, posterior, tail
from fleetgp.gp import learner as learning
from fleetgp.gp.learner import Around, Forecast, Forgetting, Inputs, Learner
from fleetgp.gp.posterior import Running
from fleetgp.gp.ring import Row
from fleetgp.gp.tail import Tail
from fleetgp.linalg import lower_inverse, symmetric

BLOCK = 32
# frames that are looked at as a whole, if no solution comes between
MOST = 512
# a noise that stands for "not observed": so large that it teaches nothing, small enough to be multiplied
NEVER, MOST_NEVER = 1e60, 1e300


def foresee_and_learn(
    learner: Learner, inputs: Inputs, observed: Array, rule: Forgetting, is_split: bool = False
) -> tuple[Learner, Forecast]:
    """Forecasts of n frames, each from those before it, and the learner after them all.

    inputs: arrays with a leading axis [n], n >= 1; observed [n, Q] in transformed units, NaN = missing or not to be
    learnt; is_split: with their layers. Equal to ``foresee`` and ``learn`` frame by frame up to rounding.
    """
    parts: list[Forecast] = []
    begin, n = 0, len(observed)
    while begin < n:
        end = begin + min(MOST, n - begin, _until_due(learner, rule))
        learner, forecast = _until_solved(learner, part(inputs, begin, end), observed[begin:end], is_split)
        if len(learner.fresh) >= learning.due(learner.frames, rule):
            learner = learning.refresh(learner, rule)
        parts.append(forecast)
        begin = end
    return learner, joined(parts)


def first(forecast: Forecast, count: int) -> Forecast:
    """The first frames of a forecast of many."""
    inputs, features, around, *rest, _, split = forecast
    head: list[Any] = [part(inputs, 0, count), features[:count], Around(*(x[:count] for x in around))]
    made = Forecast(*head, *(x[:count] for x in rest))
    return made if split is None else made._replace(layers=split[:count])


def joined(parts: list[Forecast]) -> Forecast:
    """One forecast of all frames."""
    if len(parts) == 1:
        return parts[0]
    inputs, x, around, *rest, _, split = zip(*parts, strict=True)
    head: list[Any] = [
        Inputs(*(np.concatenate(part) for part in zip(*inputs, strict=True))),
        np.concatenate(x),
        Around(*(np.concatenate(part) for part in zip(*around, strict=True))),
    ]
    made = Forecast(*head, *(np.concatenate(part) for part in rest))
    return made if split[0] is None else made._replace(layers=np.concatenate(split))


def part(inputs: Inputs, begin: int, end: int) -> Inputs:
    """Those of some of the frames."""
    return Inputs(*(column[begin:end] for column in inputs))


def _until_due(learner: Learner, rule: Forgetting) -> int:
    """Frames up to and with the one after which the next solution is due: one, where a rule of today finds it overdue."""
    if learner.frames // 4 >= rule.refresh:
        return max(1, rule.refresh - len(learner.fresh))
    count = 1
    while len(learner.fresh) + count < learning.due(learner.frames + count, rule):
        count += 1
    return count


def _until_solved(learner: Learner, inputs: Inputs, observed: Array, is_split: bool) -> tuple[Learner, Forecast]:
    """Frames between two solutions."""
    unit = learner.unit
    X = features.features(learner.basis, inputs.inputs, learner.line)
    around = learning.surroundings(learner, inputs, X)
    target = (observed - inputs.last) / unit
    # the shares need nothing of the block's own learning: they look at the last solution
    share = learning.shares(learner, X, around, target)
    base, (means, known, read) = _sequential(learner, X, target, share, is_split)
    variances = learning.track_variances(learner, known, around)
    errors = target[:, None, :] - means
    tail_after, tracks, scales, mean, squared, square = _follow(learner.tail, errors, variances, means, target)
    chosen = learner.tail.chosen.astype(int)
    factor = scales[:, chosen, np.arange(len(chosen))]
    scale = np.sqrt(np.maximum(squared * factor, around.floor_var))
    degrees = np.broadcast_to(learner.tail.degrees, scale.shape)
    matrix = np.broadcast_to(learner.correlation.matrix, (len(X), len(unit), len(unit)))
    where, scale = inputs.last + unit * mean, unit * scale
    forecast = Forecast(inputs, X, around, means, variances, squared, where, scale, degrees, matrix)
    if is_split:
        forecast = layers.told(learner, forecast, tracks, read)
    errors_in_scales = (observed - where) / scale
    columns = (inputs.inputs, X, target * unit, share, errors_in_scales, square, scales)
    # a frame with nothing in it is none
    taught = ~np.all(np.isnan(target), axis=1)
    rows = tuple(Row(*row) for row, is_taught in zip(zip(*columns, strict=True), taught, strict=True) if is_taught)
    after = learner._replace(
        base=base, tail=tail_after, fresh=(*learner.fresh, *rows), frames=learner.frames + len(rows)
    )
    return after, forecast


class _Frames(NamedTuple):
    """Frames of a block or more: features X [n, F], target [Q, n], noise and rounding [T, Q, n], readouts [P, Q, n, F].

    rounding: the variance below which what is known of a frame is all rounding; readouts: what else is asked of the weights
    before each frame, P functions that are linear in them.
    """

    X: Array
    target: Array
    noise: Array
    rounding: Array
    readouts: Array

    def part(self, s: slice) -> _Frames:
        X, target, noise, rounding, R = self
        return _Frames(X[s], target[:, s], noise[..., s], rounding[..., s], R[..., s, :])


class _Law(NamedTuple):
    """Of frames, each from those before it: means and known variances [..., T, Q, n] of their targets, readouts [..., P, T, Q, n]."""

    means: Array
    known: Array
    read: Array


def _sequential(learner: Learner, X: Array, target: Array, share: Array, is_split: bool) -> tuple[Running, _Law]:
    """Weights after the frames, and the law of each from those before it; its arrays have the frames first."""
    base = learner.base
    mean, cov = posterior.whole(base)
    cov = symmetric(cov)  # a copy, and from here on symmetric to the last bit
    noise = np.ascontiguousarray(np.moveaxis(learning.taught_noise(learner, share), 0, -1))  # [T, Q, n]
    frames = _Frames(X, target.T, noise, posterior.rounding(base, X), np.zeros((0, *target.T.shape, X.shape[1])))
    laws = []
    for begin in range(0, len(X), BLOCK):
        block = frames.part(slice(begin, begin + BLOCK))
        if is_split:
            block = block._replace(readouts=layers.readouts(learner, block.X))
        mean, law = _block(mean, cov, block)
        laws.append(law)
    after = base._replace(mean=mean, cov=cov, pending=base.pending[..., :0, :])
    return after, _Law(*(np.moveaxis(part, -1, 0) for part in _one_after_another(laws)))


def _one_after_another(laws: Sequence[_Law]) -> _Law:
    return _Law(*(np.concatenate(part, axis=-1) for part in zip(*laws, strict=True)))


def _block(mean: Array, cov: Array, frames: _Frames) -> tuple[Array, _Law]:
    """Mean weights after a block, and the law of its frames; ``cov`` becomes that after it."""
    X, target, noise, rounding, R = frames
    A = X @ cov  # [T, Q, n, F]
    S = A @ X.T
    diagonal = np.einsum("...ii->...i", S)  # a view
    known = diagonal.copy()
    is_taught = (noise < NEVER) & (known > rounding)
    never = np.minimum(NEVER * np.maximum(1.0, np.abs(known)), MOST_NEVER)
    diagonal += np.where(is_taught, noise, never)
    try:
        L: Array = np.linalg.cholesky(S).astype(float, copy=False)
    except np.linalg.LinAlgError:
        return _by_halves(mean, cov, frames)
    first = mean @ X.T  # [T, Q, n]
    L_inv = lower_inverse(L)
    e, G = L_inv @ np.where(is_taught, target - first, 0.0)[..., None], L_inv @ A
    np.einsum("...ii->...i", L)[:] = 0.0
    known = np.maximum(known - np.einsum("...ij,...ij->...i", L, L), 0.0)
    cov -= G.mT @ G
    law = _Law(first + (L @ e)[..., 0], known, _read(R[:, None], mean, G, e))
    return mean + (G.mT @ e)[..., 0], law


def _read(R: Array, mean: Array, G: Array, e: Array) -> Array:
    """Readouts [P, T, Q, n] of the weights before each frame: the frames before it moved them by G^T e."""
    if not len(R):
        return np.zeros((0, *mean.shape[:-1], R.shape[-2]))
    return np.asarray((R @ mean[..., None] + np.tril(R @ G.mT, -1) @ e)[..., 0])


def _by_halves(mean: Array, cov: Array, frames: _Frames) -> tuple[Array, _Law]:
    """A block whose noise is drowned by the rounding of inputs far out: in smaller ones, in the end frame by frame."""
    n = len(frames.X)
    if n == 1:
        raise NotFinite("what is known of a frame is no number: its inputs are beyond what doubles hold")
    laws = []
    for s in (slice(0, n // 2), slice(n // 2, n)):
        mean, law = _block(mean, cov, frames.part(s))
        laws.append(law)
    return mean, _one_after_another(laws)


def _follow(
    start: Tail, errors: Array, variances: Array, means: Array, target: Array
) -> tuple[Tail, Array, Array, Array, Array, Array]:
    """Tail after the frames; of each the memories' log densities [n, T, Q] and the scales [n, G, Q] before it, mean and
    squared scale of the mixture, squared error [n, Q]."""
    # a frame with nothing in it lets no time pass
    is_taught = ~np.all(np.isnan(target), axis=1)
    tracks = _decayed(start.tracks, tail.track_densities(start, errors, variances), is_taught)
    mean, squared = tail.mixed(tracks[:-1], means, variances)
    square = tail.squared(target - mean, squared)
    scales, follows = tail.followed(start.scales, square)
    after = start._replace(scales=follows, tracks=tracks[-1])
    return after, tracks[:-1], scales, mean, squared, square


def _decayed(start: Array, gains: Array, is_taught: Mask) -> Array:
    """Running log densities by memory before each frame and after all [n + 1, T, Q]; few enough that no power overflows."""
    time = np.concatenate(([0.0], np.cumsum(is_taught)))
    power = (tail.TRACK_MEMORY**time)[:, None, None]
    return np.asarray(power * np.concatenate((start[None], start + np.cumsum(gains / power[1:], axis=0))))
