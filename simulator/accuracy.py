"""How good predictions were: error against persistence, and coverage; per agent, per channel and overall.

Errors are taken in the unit that is learnt (after the transform) and divided by the channel's standard deviation over all
agents, so that channels can be pooled; persistence predicts the last observed value on the same frames.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from edge_agent.watch import forward
from fleetgp.schema import Schema
from fleetgp.wire.messages import Prediction


@dataclass
class Tally:
    """Sums over the observed predictions of one agent; per channel [Q], transformed units."""

    channels: int
    n: np.ndarray = field(init=False)
    square_error: np.ndarray = field(init=False)
    square_step: np.ndarray = field(init=False)
    covered: np.ndarray = field(init=False)
    total: np.ndarray = field(init=False)
    total_square: np.ndarray = field(init=False)
    last: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        for name in ("n", "square_error", "square_step", "covered", "total", "total_square"):
            setattr(self, name, np.zeros(self.channels))
        self.last = np.full(self.channels, np.nan)


class Accuracy:
    """Collects predictions in the order of their frames and reports."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.tallies: dict[str, Tally] = {}
        self._origin: np.ndarray | None = None

    def add(self, prediction: Prediction) -> None:
        """One prediction; a frame whose channel had no earlier reading counts for neither error."""
        tally = self.tallies.setdefault(prediction.agent, Tally(len(self.schema.channels)))
        for q, channel in enumerate(self.schema.channels):
            law = prediction.channels.get(channel.name)
            if law is None or law.observed is None:
                continue
            y, mean = forward(channel.transform, law.observed), forward(channel.transform, law.mean)
            last, tally.last[q] = tally.last[q], y
            if not np.isfinite(last):
                continue
            # sums of squares about the first value seen: no cancellation where the mean is large
            shift = y - self._about()[q] if np.isfinite(self._about()[q]) else 0.0
            if not np.isfinite(self._about()[q]):
                self._about()[q] = y
            tally.n[q] += 1
            tally.square_error[q] += (y - mean) ** 2
            tally.square_step[q] += (y - last) ** 2
            tally.covered[q] += law.low <= law.observed <= law.high
            tally.total[q] += shift
            tally.total_square[q] += shift**2

    def _about(self) -> np.ndarray:
        if self._origin is None:
            self._origin = np.full(len(self.schema.channels), np.nan)
        return self._origin

    def deviation(self) -> np.ndarray:
        """Standard deviation per channel [Q] over all agents; 1 for a channel that never varied."""
        n = sum((t.n for t in self.tallies.values()), np.zeros(len(self.schema.channels)))
        total = sum((t.total for t in self.tallies.values()), np.zeros_like(n))
        square = sum((t.total_square for t in self.tallies.values()), np.zeros_like(n))
        variance = square / np.maximum(n, 1) - (total / np.maximum(n, 1)) ** 2
        return np.where(variance > 0, np.sqrt(np.maximum(variance, 0)), 1.0)

    def report(self) -> dict[str, object]:
        """``overall``, ``agents`` by id and ``channels`` by name: n, rmse, rmse_persistence, coverage90 (scaled units)."""
        deviation = self.deviation()
        by_channel = {}
        for q, name in enumerate(self.schema.channel_names):
            pick = np.arange(len(deviation)) == q
            by_channel[name] = figures(list(self.tallies.values()), deviation, pick)
        everything = np.ones(len(deviation), dtype=bool)
        return {
            "overall": figures(list(self.tallies.values()), deviation, everything),
            "agents": {name: figures([tally], deviation, everything) for name, tally in sorted(self.tallies.items())},
            "channels": by_channel,
        }


def figures(tallies: list[Tally], deviation: np.ndarray, pick: np.ndarray) -> dict[str, float | int | None]:
    """Pooled figures over tallies and the picked channels; None where nothing was observed."""
    n = float(sum(t.n[pick].sum() for t in tallies))
    if n == 0:
        return {"n": 0, "rmse": None, "rmse_persistence": None, "coverage90": None}
    error = sum(float((t.square_error / deviation**2)[pick].sum()) for t in tallies)
    step = sum(float((t.square_step / deviation**2)[pick].sum()) for t in tallies)
    covered = sum(float(t.covered[pick].sum()) for t in tallies)
    return {
        "n": int(n),
        "rmse": float(np.sqrt(error / n)),
        "rmse_persistence": float(np.sqrt(step / n)),
        "coverage90": covered / n,
    }
