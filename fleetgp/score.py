"""How odd a frame was: -log10 of the probability of a frame at least this odd, whatever number of channels arrived."""

from __future__ import annotations

import math

import numpy as np

from fleetgp.arrays import Array

LARGEST_ERROR = 1e150


def log_chi_square_tail(x: float, dof: int) -> float:
    """log P(chi^2_dof >= x), in closed form and safe far out in the tail; x >= 0, dof >= 1.

    Even dof: a Poisson sum. Odd dof: erfc and the same sum at half steps (Abramowitz and Stegun 26.4.4 and 26.4.5).
    """
    if x <= 0:
        return 0.0
    half = 0.5 * x
    logs: list[float] = []
    if dof % 2:
        logs.append(_log_erfc(math.sqrt(half)))
        start = 0.5
    else:
        start = 0.0
    k = start
    while k < dof / 2:
        logs.append(k * math.log(half) - half - math.lgamma(k + 1))
        k += 1
    top = max(logs)
    return min(0.0, top + math.log(sum(math.exp(value - top) for value in logs)))


def score(z: Array) -> float:
    """Score of standardised errors z [Q], NaN where nothing was observed; 0 when nothing was."""
    seen = z[~np.isnan(z)]
    if not len(seen):
        return 0.0
    total = float(np.sum(_squares(seen)))
    return max(0.0, -log_chi_square_tail(total, len(seen)) / math.log(10))


def scores(z: Array) -> Array:
    """``score`` of many frames [n] at once; z [n, Q]."""
    is_seen = ~np.isnan(z)
    total = np.sum(_squares(np.where(is_seen, z, 0.0)), axis=1)
    seen = np.sum(is_seen, axis=1)
    result = np.zeros(len(z))
    for dof in np.unique(seen[total > 0]).tolist():
        where = (seen == dof) & (total > 0)
        result[where] = np.maximum(0.0, -_log_tails(0.5 * total[where], dof) / math.log(10))
    return result


def _log_tails(half: Array, dof: int) -> Array:
    """``log_chi_square_tail`` of many x = 2 half > 0."""
    k = np.arange(0.5 * (dof % 2), dof / 2)
    logs = k * np.log(half)[:, None] - half[:, None] - np.array([math.lgamma(one + 1) for one in k])
    if dof % 2:
        odd = np.array([_log_erfc(math.sqrt(one)) for one in half.tolist()])
        logs = np.concatenate((odd[:, None], logs), axis=1)
    top = np.max(logs, axis=1)
    return np.asarray(np.minimum(0.0, top + np.log(np.sum(np.exp(logs - top[:, None]), axis=1))))


def blame(z: Array, names: tuple[str, ...], least: float = 0.05) -> dict[str, float]:
    """Share of each channel in the score, largest first; channels below ``least`` are left out and the rest sum to 1.

    The oddest is always named, however evenly many share.
    """
    square = _squares(np.where(np.isnan(z), 0.0, z))
    total = float(square.sum())
    if total <= 0:
        return {}
    bar = min(least * total, float(square.max()))
    shares = {name: float(part) / total for name, part in zip(names, square, strict=True) if part >= bar}
    kept = sum(shares.values())
    return {name: part / kept for name, part in sorted(shares.items(), key=lambda item: -item[1])}


def _squares(z: Array) -> Array:
    """z^2, so far below the largest double that channels can be added; an infinite error is a very large one."""
    return np.minimum(np.abs(z), LARGEST_ERROR) ** 2


def _log_erfc(x: float) -> float:
    if x < 20:
        return math.log(math.erfc(x))
    # erfc(x) ~ exp(-x^2) / (x sqrt(pi)) (1 - 1/(2x^2) + 3/(4x^4)); relative error below 1e-6 from x = 20 on
    inverse_square = 1 / (x * x)
    return -x * x - math.log(x * math.sqrt(math.pi)) + math.log1p(-0.5 * inverse_square + 0.75 * inverse_square**2)
