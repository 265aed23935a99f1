"""How good an agent's predictions were: coverage of its bands, and error against repeating the last reading."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fleetgp.arrays import Array


@dataclass(frozen=True)
class Quality:
    """coverage: share of readings inside [low, high]; skill: 1 - RMSE / RMSE of persistence; None where not known.

    readings: readings behind the coverage, over all channels.
    """

    coverage: float | None
    skill: float | None
    readings: int


def channel_names(columns: Sequence[str]) -> list[str]:
    """Channels of prediction columns "C.mean", "C.low", ...; a channel's name may hold dots itself."""
    return [name.removesuffix(".mean") for name in columns if name.endswith(".mean")]


def quality(columns: Mapping[str, Array]) -> Quality:
    """Quality over rows in order. columns: "C.mean", "C.low", "C.high", "C.observed" per channel C, [n], NaN = missing.

    Errors are divided by the standard deviation of their channel's readings before they are pooled, so that pascals
    do not drown degrees. A channel that never changes has no such scale and counts for coverage only.
    """
    inside = readings = 0
    model: list[Array] = []
    persistence: list[Array] = []
    for channel in channel_names(list(columns)):
        mean, observed = columns[f"{channel}.mean"], columns.get(f"{channel}.observed")
        low, high = columns.get(f"{channel}.low"), columns.get(f"{channel}.high")
        if observed is None or low is None or high is None:
            continue
        known = np.isfinite(observed) & np.isfinite(low) & np.isfinite(high)
        inside += int(((observed >= low) & (observed <= high))[known].sum())
        readings += int(known.sum())
        scaled_model, scaled_persistence = _scaled_errors(observed, mean)
        model.append(scaled_model)
        persistence.append(scaled_persistence)
    return Quality(inside / readings if readings else None, _skill(model, persistence), readings)


def _scaled_errors(observed: Array, mean: Array) -> tuple[Array, Array]:
    """Errors of the model and of the last known reading, at the same frames, in standard deviations of the readings."""
    known = np.flatnonzero(np.isfinite(observed))
    if known.size < 3 or (scale := float(observed[known].std())) == 0.0:
        return np.empty(0), np.empty(0)
    now, before = known[1:], known[:-1]
    usable = np.isfinite(mean[now])
    now, before = now[usable], before[usable]
    return (observed[now] - mean[now]) / scale, (observed[now] - observed[before]) / scale


def _skill(model: Sequence[Array], persistence: Sequence[Array]) -> float | None:
    if not model or sum(errors.size for errors in model) == 0:
        return None
    own, naive = (float(np.sqrt(np.mean(np.concatenate(errors) ** 2))) for errors in (model, persistence))
    return 1.0 - own / naive if naive > 0 else None
