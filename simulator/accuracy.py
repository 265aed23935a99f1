"""How good predictions were: errors against persistence, scores of the law, coverage; by agent, by channel and overall.

Predictions are collected in blocks and turned into sums block by block, so that a long run costs little time and no memory
but a few sums per agent. Persistence predicts the last observed value on the same frames. ``figures`` says what is reported.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from typing import Any

import numpy as np

from fleetgp.arrays import Array
from fleetgp.schema import Schema
from fleetgp.wire.messages import Prediction
from simulator.figures import Sum, deviation_of, figures, original
from simulator.terms import Block, learnt, terms

BLOCK = 1024  # frames
PARTS = 6  # mean, low, high, observed, scale, degrees
MISSING = (np.nan,) * PARTS
FIRST_DAYS = (3, 7, 30)
DAY_MS = 86_400_000


class Accuracy:
    """Collects predictions, those of each agent in the order of its frames, and reports.

    deviation: standard deviations [Q] to scale by, transformed units (None: those of all that is collected). joins: UTC epoch
    ms from which the first days of some agents are reported for themselves. Raises ValueError where deviation does not fit.
    """

    def __init__(self, schema: Schema, deviation: Array | None = None, joins: Mapping[str, int] | None = None) -> None:
        Q = len(schema.channels)
        if deviation is not None and (np.shape(deviation) != (Q,) or not np.all(np.asarray(deviation) > 0)):
            raise ValueError(f"deviation needs {Q} numbers above 0, one a channel, and is {deviation}")
        self.schema = schema
        self.joins = dict(joins or {})
        self._fixed = None if deviation is None else np.asarray(deviation, dtype=np.float64)
        self._names = schema.channel_names
        self._is_log = np.array([channel.transform == "log1p" for channel in schema.channels])
        self._agents: dict[str, int] = {}
        # one slot of sums for each agent and, of those that join, stretch of first days; whose it is
        self._slots: dict[tuple[str, int], int] = {}
        self._owners: list[int] = []
        self._sums = np.zeros((0, len(Sum), Q))
        self._last = np.full((0, Q), np.nan)  # per agent, own unit
        self._origin = np.full(Q, np.nan)
        self._numbers: list[float] = []  # of the block: PARTS for each channel of each frame
        self._block: list[int] = []  # slots of its frames
        self._densities: list[float] = []

    def add(self, prediction: Prediction) -> None:
        """One prediction, as it was published."""
        numbers, channels = self._numbers, prediction.channels
        for name in self._names:
            law = channels.get(name)
            if law is None or law.observed is None:
                numbers.extend(MISSING)
            else:
                numbers.extend((law.mean, law.low, law.high, law.observed, law.scale, law.degrees))
        density = prediction.log_density
        self._densities.append(np.nan if density is None else density)
        self._end_frame(prediction.agent, prediction.at_ms)

    def add_frame(self, agent: str, frame: Array, at_ms: int = 0) -> None:
        """One frame [Q, 4 or 6]: mean, low, high, observed in the readings' units, and the law's scale and degrees if told.

        NaN where nothing was observed that can be learnt. A channel that had no reading before counts for neither error.
        """
        whole = np.zeros((len(self._names), PARTS))
        whole[:, : frame.shape[1]] = frame
        self._numbers.extend(whole.ravel().tolist())
        self._densities.append(np.nan)
        self._end_frame(agent, at_ms)

    def deviation(self) -> Array:
        """Standard deviation per channel [Q]: the given one, or over all agents; 1 for a channel that never varied."""
        self._flush()
        return deviation_of(self._sums.sum(axis=0)) if self._fixed is None else self._fixed

    def report(self) -> dict[str, Any]:
        """``overall``, ``agents`` by id, ``channels`` by name, ``by_agent_channel``, ``joiners`` and ``deviation`` by channel.

        All are ``figures``; those of one channel also hold ``original``, the errors in the readings' own unit.
        """
        deviation = self.deviation()
        everything = self._sums.sum(axis=0)
        agents = {name: self._of(name, range(len(FIRST_DAYS) + 1)) for name in sorted(self._agents)}
        return {
            "overall": figures(everything, deviation),
            "agents": {name: figures(sums, deviation) for name, sums in agents.items()},
            "channels": self._by_channel(everything, deviation),
            "by_agent_channel": {name: self._by_channel(sums, deviation) for name, sums in agents.items()},
            "joiners": {
                name: {
                    f"first_{days}_days": figures(self._of(name, range(k + 1)), deviation)
                    for k, days in enumerate(FIRST_DAYS)
                }
                for name in sorted(self.joins)
            },
            "deviation": dict(zip(self._names, deviation.tolist(), strict=True)),
        }

    def _by_channel(self, sums: Array, deviation: Array) -> dict[str, Any]:
        return {
            channel.name: {
                **figures(sums[:, [q]], deviation[[q]]),
                "original": original(sums[:, q], channel),
            }
            for q, channel in enumerate(self.schema.channels)
        }

    def _of(self, agent: str, stretches: range) -> Array:
        """Sums [Sum, Q] of an agent over some stretches."""
        slots = [slot for stretch in stretches if (slot := self._slots.get((agent, stretch))) is not None]
        return np.asarray(self._sums[slots].sum(axis=0))

    def _end_frame(self, agent: str, at_ms: int) -> None:
        key = (agent, self._stretch(agent, at_ms))
        slot = self._slots.get(key)
        if slot is None:
            slot = self._slots[key] = len(self._slots)
            self._owners.append(self._agents.setdefault(agent, len(self._agents)))
        self._block.append(slot)
        if len(self._block) == BLOCK:
            self._flush()

    def _stretch(self, agent: str, at_ms: int) -> int:
        """Which stretch since the agent's join a time is in: up to 3 days, 7, 30, or none of these."""
        begin = self.joins.get(agent)
        if begin is None or at_ms < begin:
            return len(FIRST_DAYS)
        return bisect_right(FIRST_DAYS, (at_ms - begin) / DAY_MS)

    def _flush(self) -> None:
        """Turn the block into sums."""
        if not self._block:
            return
        frames = np.array(self._numbers).reshape(len(self._block), len(self._names), PARTS)
        slots = np.array(self._block)
        densities = np.array(self._densities)
        self._numbers.clear()
        self._densities.clear()
        self._block.clear()
        self._sums = _grown(self._sums, len(self._slots), 0.0)
        self._last = _grown(self._last, len(self._agents), np.nan)
        mean, low, high, seen, scale, degrees = np.moveaxis(frames, 2, 0)
        y = learnt(seen, self._is_log)
        seen = np.where(np.isfinite(y), seen, np.nan)
        # sums of squares about the first value seen: no cancellation where the mean is large against the spread
        first = y[np.isfinite(y).argmax(axis=0), np.arange(y.shape[1])]
        self._origin = np.where(np.isnan(self._origin), first, self._origin)
        before = self._before(seen, np.array(self._owners)[slots])
        block = Block(mean, low, high, seen, scale, degrees, before, densities)
        order = np.argsort(slots, kind="stable")
        found, starts = np.unique(slots[order], return_index=True)
        added = np.add.reduceat(terms(block, self._is_log, self._origin)[:, order], starts, axis=1)
        self._sums[found] += np.moveaxis(added, 1, 0)

    def _before(self, seen: Array, owners: Array) -> Array:
        """The last reading of the same agent before each frame [n, Q], NaN where there is none; remembers the newest."""
        order = np.argsort(owners, kind="stable")
        found, starts = np.unique(owners[order], return_index=True)
        # every agent's frames in a row, led by what was remembered of it; what is missing holds the row before
        rows = np.insert(seen[order], starts, self._last[found], axis=0)
        heads = starts + np.arange(len(found))
        is_set = np.isfinite(rows)
        is_set[heads] = True
        newest = np.maximum.accumulate(np.where(is_set, np.arange(len(rows))[:, None], 0), axis=0)
        held = np.take_along_axis(rows, newest, axis=0)
        self._last[found] = held[np.append(heads[1:], len(rows)) - 1]
        before = np.empty_like(seen)
        before[order] = np.delete(np.roll(held, 1, axis=0), heads, axis=0)
        return before


def _grown(array: Array, length: int, value: float) -> Array:
    """The array with so many rows, new ones filled with the value."""
    more = np.full((length - len(array), *array.shape[1:]), value)
    return np.concatenate((array, more)) if len(more) else array
