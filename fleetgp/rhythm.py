"""A period that is plainly seen in the first readings: the pulse of a machine, a thermostat's or a pump's cycle.

Of a series without its straight line, the first autocorrelation peak behind a trough. It counts when it is at least 0.5,
when the period was seen 5 times and the peak keeps 70 % of its height at 2, 3 and 4 times its lag, and when it stands for a
nice number of seconds: a period that is only nearly right would be out of step within hours, and what swings without being
on a clock is foreseen by lags.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fleetgp.arrays import Array

TIMES = 5
LEAST_FRAMES = 8  # of one period
PEAK, TROUGH = 0.5, -0.2
KEPT = 0.7
SHARE = 0.5  # of the series that are long enough
MOST_MISSING = 0.2
NEAR = 0.01
NICE_S = tuple(
    sorted(
        unit * n
        for unit, counts in (
            (1.0, (5, 10, 15, 20, 30)),
            (60.0, (1, 2, 3, 4, 5, 6, 10, 12, 15, 20, 30)),
            (3600.0, (1, 2, 3, 4, 6, 8, 12, 24)),
        )
        for n in counts
    )
)


def visible(series: Sequence[Array], interval_s: float) -> float | None:
    """Seconds of the period that most of the series [T] share, frames of interval_s; None where there is none."""
    long = [x for x in series if len(x) >= TIMES * LEAST_FRAMES and np.mean(np.isfinite(x)) >= 1 - MOST_MISSING]
    found = [nice for x in long if (frames := period(x)) and (nice := _nice(frames * interval_s))]
    if not found:
        return None
    best = max(sorted(set(found)), key=found.count)
    return best if found.count(best) >= SHARE * len(long) else None


def period(x: Array) -> float:
    """Frames after which a series [T] repeats, as finely as its last clear repetition tells; 0 where it does not."""
    c = correlations(x)
    troughs = np.flatnonzero(c < TROUGH)
    if not len(troughs):
        return 0.0
    behind = np.flatnonzero(c[troughs[0] :] > PEAK)
    if not len(behind):
        return 0.0
    start = troughs[0] + behind[0]
    end = start + int(np.argmax(np.append(c[start:], -1.0) < PEAK))
    first = start + int(np.argmax(c[start:end]))
    if first < LEAST_FRAMES or TIMES * first > len(x):
        return 0.0
    result = float(first)
    # each repetition places the period more finely; a wave that only swings by itself soon forgets when it began
    for times in range(2, len(c)):
        at, reach = result * times, max(1, first // 4)
        low, high = int(at) - reach, int(at) + reach + 2
        if high > len(c):
            return result if times >= TIMES - 1 else 0.0
        peak = low + int(np.argmax(c[low:high]))
        if c[peak] < KEPT * c[first]:
            return result if times >= TIMES else 0.0
        result = peak / times
    return result


def correlations(x: Array) -> Array:
    """Autocorrelation [4 T // 5 + 1] of a series without its straight line; missing frames count for nothing."""
    is_there = np.isfinite(x)
    t = np.arange(len(x), dtype=float)
    y = np.zeros(len(x))
    y[is_there] = x[is_there] - np.polyval(np.polyfit(t[is_there], x[is_there], 1), t[is_there])
    size, lags = 2 * len(x), (TIMES - 1) * len(x) // TIMES + 1
    spectrum, mask = np.fft.rfft(y, size), np.fft.rfft(is_there.astype(float), size)
    products = np.fft.irfft(np.abs(spectrum) ** 2, size)[:lags]
    pairs = np.maximum(np.round(np.fft.irfft(np.abs(mask) ** 2, size)[:lags]), 1.0)
    variance = products[0] / pairs[0]
    scale = float(np.max(np.abs(x[is_there]))) if np.any(is_there) else 0.0
    if variance <= (1e-9 * scale) ** 2:
        return np.zeros(lags)
    return np.asarray(products / pairs / variance)


def _nice(seconds: float) -> float | None:
    near = min(NICE_S, key=lambda one: abs(seconds / one - 1))
    return near if abs(seconds / near - 1) <= NEAR else None
