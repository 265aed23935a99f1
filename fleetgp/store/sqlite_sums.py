"""Where the sums of a window come from: raw rows, rollups of a minute, rollups of an hour, each where it is exact."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from fleetgp.arrays import Array
from fleetgp.store.sqlite_schema import HOUR_MS, HOUR_OF_MINUTE, MINUTE_MS, table_of

_COLUMNS_A_QUERY = 200

# Hours that are not exact in ``hourly`` at this moment. ?3: series, ?7, ?8: first and last hour.
_STALE = f"""
SELECT hour FROM dirty_hours WHERE series_id = ?3 AND hour BETWEEN ?7 AND ?8
UNION SELECT {HOUR_OF_MINUTE} FROM dirty WHERE series_id = ?3 AND minute BETWEEN ?7 * 60 AND ?8 * 60 + 59
"""
_CLEAN = "minute NOT IN (SELECT minute FROM dirty WHERE series_id = ?3 AND minute BETWEEN ?5 AND ?6)"
_OF_MINUTES = f"""
SELECT (minute * 60000 - ?1) / ?2, sum(n), sum(sum), min(min), max(max) FROM rollup
WHERE series_id = ?3 AND position = ?4 AND minute BETWEEN ?5 AND ?6 AND {_CLEAN} GROUP BY 1
"""
_OF_HOURS = f"""
SELECT (hour * 3600000 - ?1) / ?2, sum(n), sum(sum), min(min), max(max) FROM hourly
WHERE series_id = ?3 AND position = ?4 AND hour BETWEEN ?7 AND ?8 AND hour NOT IN ({_STALE}) GROUP BY 1
"""
_OF_STALE_HOURS = f"""
SELECT (minute * 60000 - ?1) / ?2, sum(n), sum(sum), min(min), max(max) FROM ({_STALE}) CROSS JOIN rollup
ON minute BETWEEN hour * 60 AND hour * 60 + 59
WHERE series_id = ?3 AND position = ?4 AND {_CLEAN} GROUP BY 1
"""

Aggregate = tuple[int, int, float | None, float | None, float | None]  # step, n, sum, min, max


@dataclass(frozen=True)
class Source:
    """A series and how far back its raw rows (floor_ms) and rollups of a minute (rollup_floor_ms) go.

    hours_from: hours before it are not in ``hourly``; None: there are none at all, the store is of version 1.
    positions: of the wanted columns that exist, by name.
    """

    connection: sqlite3.Connection
    series_id: int
    floor_ms: int
    rollup_floor_ms: int
    hours_from: int | None
    positions: dict[str, int]


@dataclass(frozen=True)
class Grid:
    """Points of a window: point k covers origin + k * step up to the next, of it what lies within start and end."""

    start_ms: int
    end_ms: int
    origin_ms: int
    step_ms: int

    @property
    def size(self) -> int:
        return (self.end_ms - self.origin_ms) // self.step_ms + 1


class Steps:
    """Aggregates of columns by step, added up from any number of parts."""

    def __init__(self, columns: Iterable[str], size: int) -> None:
        names = list(columns)
        self.n: dict[str, Array] = {name: np.zeros(size) for name in names}
        self.total: dict[str, Array] = {name: np.zeros(size) for name in names}
        self.low: dict[str, Array] = {name: np.full(size, np.inf) for name in names}
        self.high: dict[str, Array] = {name: np.full(size, -np.inf) for name in names}

    def add(self, column: str, parts: Iterable[Aggregate]) -> None:
        """parts: at most one entry a step."""
        table = np.array([part for part in parts if part[1]], dtype=np.float64).reshape(-1, 5)
        step = table[:, 0].astype(np.intp)
        self.n[column][step] += table[:, 1]
        self.total[column][step] += table[:, 2]
        self.low[column][step] = np.minimum(self.low[column][step], table[:, 3])
        self.high[column][step] = np.maximum(self.high[column][step], table[:, 4])


def add_minutes(source: Source, steps: Steps, grid: Grid) -> None:
    """Everything a grid of whole minutes covers: hours, the minutes before and after these, and the raw rows of the first
    and last minute, which the span may cut. Where the smaller is no longer kept, the larger counts whole."""
    first, last = grid.start_ms // MINUTE_MS, grid.end_ms // MINUTE_MS
    for minute in sorted({first, last}):
        if minute * MINUTE_MS >= source.floor_ms:
            begin_ms = max(grid.start_ms, minute * MINUTE_MS)
            add_raw(source, steps, grid, begin_ms, min(grid.end_ms, minute * MINUTE_MS + MINUTE_MS - 1))
    first, last = first + (first * MINUTE_MS >= source.floor_ms), last - (last * MINUTE_MS >= source.floor_ms)
    if first > last:
        return
    begin, end = _hours_between(source, grid, first, last)
    if begin > end:
        _add_rollups(source, steps, grid, first, last)
        return
    _add_rollups(source, steps, grid, first, begin * 60 - 1)
    _add_hours(source, steps, grid, begin, end)
    _add_rollups(source, steps, grid, end * 60 + 60, last)


def _hours_between(source: Source, grid: Grid, first: int, last: int) -> tuple[int, int]:
    """First and last hour to take whole of minutes first to last; none where the first is after the last."""
    if source.hours_from is None or grid.step_ms % HOUR_MS or grid.origin_ms % HOUR_MS:
        return 0, -1
    begin = first // 60 if first * MINUTE_MS < source.rollup_floor_ms else -(-first // 60)
    end = last // 60 if last * MINUTE_MS < source.rollup_floor_ms else (last + 1) // 60 - 1
    return max(begin, source.hours_from), end


def _add_rollups(source: Source, steps: Steps, grid: Grid, first: int, last: int) -> None:
    if first > last:
        return
    _add_dirty(source, steps, grid, first, last)
    for name, position in source.positions.items():
        arguments = (grid.origin_ms, grid.step_ms, source.series_id, position, first, last)
        steps.add(name, source.connection.execute(_OF_MINUTES, arguments))


def _add_hours(source: Source, steps: Steps, grid: Grid, begin: int, end: int) -> None:
    first, last = begin * 60, end * 60 + 59
    _add_dirty(source, steps, grid, first, last)
    for name, position in source.positions.items():
        arguments = (grid.origin_ms, grid.step_ms, source.series_id, position, first, last, begin, end)
        steps.add(name, source.connection.execute(_OF_HOURS, arguments))
        steps.add(name, source.connection.execute(_OF_STALE_HOURS, arguments))


def add_raw(source: Source, steps: Steps, grid: Grid, start_ms: int, end_ms: int) -> None:
    """Raw rows with start_ms <= at_ms <= end_ms."""
    where = f"{table_of(source.series_id)} AS raw WHERE at_ms BETWEEN ? AND ?"
    _add_aggregates(source, steps, grid, where, (start_ms, end_ms))


def _add_dirty(source: Source, steps: Steps, grid: Grid, first: int, last: int) -> None:
    where = (
        f"dirty CROSS JOIN {table_of(source.series_id)} AS raw ON raw.at_ms BETWEEN minute * 60000 AND minute * 60000 + "
        "59999 WHERE series_id = ? AND minute BETWEEN ? AND ?"
    )
    _add_aggregates(source, steps, grid, where, (source.series_id, first, last))


def _add_aggregates(source: Source, steps: Steps, grid: Grid, where: str, arguments: tuple[int, ...]) -> None:
    names = list(source.positions)
    for first in range(0, len(names), _COLUMNS_A_QUERY):
        some = names[first : first + _COLUMNS_A_QUERY]
        cells = [f"raw.c{source.positions[name]:d}" for name in some]
        aggregates = ", ".join(f"count({c}), sum({c}), min({c}), max({c})" for c in cells)
        rows = source.connection.execute(
            f"SELECT (raw.at_ms - ?) / ?, {aggregates} FROM {where} GROUP BY 1",
            (grid.origin_ms, grid.step_ms, *arguments),
        ).fetchall()
        for i, name in enumerate(some):
            steps.add(name, [(row[0], *row[1 + 4 * i : 5 + 4 * i]) for row in rows])
