"""How good predictions were: error against persistence, and coverage; per agent, per channel and overall.

Errors are taken in the unit that is learnt (after the transform) and divided by the channel's standard deviation over all
agents, so that channels can be pooled; persistence predicts the last observed value on the same frames.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from edge_agent.watch import forward
from fleetgp.arrays import Array, Mask
from fleetgp.schema import Schema
from fleetgp.wire.messages import Prediction


@dataclass
class Tally:
    """Sums over the observed predictions of one agent; per channel [Q], transformed units."""

    channels: int
    n: Array = field(init=False)
    square_error: Array = field(init=False)
    square_step: Array = field(init=False)
    covered: Array = field(init=False)
    total: Array = field(init=False)
    total_square: Array = field(init=False)
    last: Array = field(init=False)

    def __post_init__(self) -> None:
        for name in ("n", "square_error", "square_step", "covered", "total", "total_square"):
            setattr(self, name, np.zeros(self.channels))
        self.last = np.full(self.channels, np.nan)


class Accuracy:
    """Collects predictions in the order of their frames and reports."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.tallies: dict[str, Tally] = {}
        self._origin = np.full(len(schema.channels), np.nan)

    def add(self, prediction: Prediction) -> None:
        """One prediction, as it was published."""
        laws = [prediction.channels.get(name) for name in self.schema.channel_names]
        frame = [
            (np.nan,) * 4 if law is None or law.observed is None else (law.mean, law.low, law.high, law.observed)
            for law in laws
        ]
        self.add_frame(prediction.agent, np.array(frame))

    def add_frame(self, agent: str, frame: Array) -> None:
        """One frame [Q, 4]: mean, low, high, observed in the readings' units, NaN where nothing was observed that can be learnt.

        A channel that had no reading before counts for neither error.
        """
        Q = len(self.schema.channels)
        tally = self.tallies.setdefault(agent, Tally(Q))
        y, mean = self._learnt(frame[:, 3]), self._learnt(frame[:, 0])
        seen = np.isfinite(y)
        last, tally.last = tally.last, np.where(seen, y, tally.last)
        # sums of squares about the first value seen: no cancellation where the mean is large against the spread
        self._origin = np.where(seen & np.isnan(self._origin), y, self._origin)
        pick = seen & np.isfinite(last)
        tally.n += pick
        tally.covered += pick & (frame[:, 1] <= frame[:, 3]) & (frame[:, 3] <= frame[:, 2])
        tally.square_error += np.where(pick, (y - mean) ** 2, 0.0)
        tally.square_step += np.where(pick, (y - last) ** 2, 0.0)
        tally.total += np.where(pick, y - self._origin, 0.0)
        tally.total_square += np.where(pick, (y - self._origin) ** 2, 0.0)

    def _learnt(self, values: Array) -> Array:
        return np.array([forward(c.transform, float(v)) for c, v in zip(self.schema.channels, values, strict=True)])

    def deviation(self) -> Array:
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


def figures(tallies: list[Tally], deviation: Array, pick: Mask) -> dict[str, float | int | None]:
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
