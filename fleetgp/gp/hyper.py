"""Scales of the blocks, learnt by expectation maximisation: how far agents deviate, how large the fleet's weights are.

One scalar for all features is wrong (models.md section 4, "Deviation scale"): a scale for each channel and block of
features. Agents tell the mean square of their own deviation, its uncertainty and that of the shared weights included; the
coordinator averages. The first guess, worth a quarter of an agent, keeps small fleets steady.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fleetgp.arrays import Array
from fleetgp.features import BLOCKS
from fleetgp.gp.aggregate import Belief
from fleetgp.gp.posterior import Before, Weights
from fleetgp.linalg import inverse

# where a scale starts, by block: devices of one kind differ in level, not in dynamics
DEVIATION = {
    "bias": 1.0,
    "lags": 0.01,
    "covariates": 0.01,
    "phases": 0.01,
    "held": 0.01,
    "inducing": 0.01,
    "local": 1.0,
}
LOCAL = 0.1
# beyond the ceiling inducing features that are too few imitate what lies between them, and run away elsewhere
FLOOR, CEILING = 1e-6, 4.0
# the deviation of an agent that has none: below what data show, and 1 / NO_DEVIATION still adds up with other precisions
NO_DEVIATION = 1e-8
GUESS_AGENTS = 0.25
GUESS_WEIGHTS = 1.0
# factor by which a scale moves at most in one round: what an agent sends was made under the scales of a round or two before
MOST_STEP = 1.5


class Scales(NamedTuple):
    """Prior variances by channel and block [Q, len(BLOCKS)], of weights in features that carry PRIOR_SD."""

    shared: Array
    deviation: Array


def start(channels: int) -> Scales:
    """The first guess: shared weights N(0, 1), deviations as in DEVIATION."""
    deviation = np.array([DEVIATION[name] for name in BLOCKS])
    return Scales(np.ones((channels, len(BLOCKS))), np.tile(deviation, (channels, 1)))


def by_feature(scale: Array, blocks: Array) -> Array:
    """[Q, len(BLOCKS)] to [Q, F]; blocks [F]."""
    return np.asarray(scale[:, blocks.astype(int)])


def by_block(values: Array, blocks: Array) -> Array:
    """Mean over the features of each block [Q, len(BLOCKS)] of values [Q, F]; 0 for a block without features."""
    membership = (blocks[:, None] == np.arange(len(BLOCKS))).astype(float)
    return np.asarray(values @ membership / np.maximum(membership.sum(axis=0), 1.0))


def deviation_square(deviation_var: Array, before: Before, after: Weights) -> Array:
    """E d^2 [Q, F] of an agent's deviation after its own data, uncertainty of the shared weights included.

    With w = v + d, v ~ N(m, V) without this agent and d ~ N(0, Phi): d | w has mean A (w - m), A = Phi (V + Phi)^-1, and
    covariance Phi - A Phi; averaged over w ~ N(after). before: of the fleet without this agent.
    """
    F = deviation_var.shape[1]
    A = deviation_var[:, :, None] * before.precision[:, :F, :F]
    mean = (A @ (after.mean - before.mean)[:, :F, None])[..., 0]
    spread = np.sum((A @ after.cov[:, :F, :F]) * A, axis=-1)
    rest = deviation_var - np.diagonal(A, axis1=1, axis2=2) * deviation_var
    return np.asarray(mean**2 + spread + np.maximum(rest, 0.0))


def shared_square(belief: Belief) -> Array:
    """E v^2 [Q, F] of the shared weights after all data."""
    cov = inverse(belief.precision)
    mean = (cov @ belief.shift[..., None])[..., 0]
    return np.asarray(mean**2 + np.diagonal(cov, axis1=1, axis2=2))


def improve(scales: Scales, squares: Sequence[tuple[float, Array]], shared: Array, blocks: Array) -> Scales:
    """One EM step, each scale moved by MOST_STEP at most. blocks [F]: those without features keep their scale.

    squares: of each agent, its weight (ageing) and E d^2 by block [Q, len(BLOCKS)]; where nobody tells any, deviations
    keep theirs. No agent's counts for more than CEILING. shared [Q, F]: E v^2.
    """
    first = start(len(shared))
    count = np.array([np.sum(blocks == b) for b in range(len(BLOCKS))], dtype=float)
    among = (GUESS_WEIGHTS * first.shared + count * by_block(shared, blocks)) / (GUESS_WEIGHTS + count)
    deviation = scales.deviation
    if squares:
        agents = sum(weight for weight, _ in squares)
        total = sum((weight * np.minimum(square, CEILING) for weight, square in squares), np.zeros_like(deviation))
        deviation = (GUESS_AGENTS * first.deviation + total) / (GUESS_AGENTS + agents)
    is_used = count > 0
    return Scales(
        np.where(is_used, _damped(scales.shared, among), scales.shared),
        np.where(is_used, _damped(scales.deviation, deviation), scales.deviation),
    )


def improve_block(scale: Array, square: Array) -> Array:
    """One EM step for the prior variance [Q] of one block of shared weights alone; square [Q, M]: E v^2 of its weights."""
    size = square.shape[1]
    return _damped(scale, (GUESS_WEIGHTS + square.sum(axis=1)) / (GUESS_WEIGHTS + size))


def _damped(old: Array, new: Array) -> Array:
    """A scale on its way from old to new, within FLOOR and CEILING."""
    return np.asarray(np.clip(np.clip(new, old / MOST_STEP, old * MOST_STEP), FLOOR, CEILING))
