"""Streams whose truth is known: when their readings come, of what order they are, what repeats."""

from __future__ import annotations

import numpy as np

from fleetgp.arrays import Array
from fleetgp.columns import First
from fleetgp.schema import Channel
from fleetgp.wanted import Wanted

START_MS = 1_700_000_000_000


def autoregression(rng: np.random.Generator, weights: tuple[float, ...], n: int) -> Array:
    x = np.zeros(n + 200)
    for t in range(len(weights), len(x)):
        x[t] = sum(w * x[t - 1 - j] for j, w in enumerate(weights)) + rng.normal()
    return x[200:]


def device(times_s: Array, *columns: Array) -> First:
    return First(START_MS + np.round(1000 * np.asarray(times_s, dtype=float)), np.column_stack(columns).astype(float))


def named(*names: str, **more: object) -> Wanted:
    return Wanted(channels=tuple(Channel(name=name) for name in names), **more)  # type: ignore[arg-type]


def told(reasons: tuple[str, ...], word: str) -> str:
    """The one reason that begins with a word."""
    found = [reason for reason in reasons if reason.startswith(word)]
    assert len(found) == 1, reasons
    return found[0]
