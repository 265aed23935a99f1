"""A span of a series as at most so many points: raw rows where they are few, else mean and extremes of equal steps.

Steps are multiples of round lengths from 1 ms to 4 weeks on a grid that does not move with the span, so a live chart does
not flicker. Steps of whole minutes come from the rollups, but for the first and last minute of the span and for minutes
that are not rolled up yet, which come from raw rows: a reading is exact at every moment. Where raw rows are no longer
kept, the first and last minute count whole.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from fleetgp.arrays import Array
from fleetgp.store.base import Kind, Window
from fleetgp.store.sqlite_schema import MINUTE_MS, table_of

# More raw rows than this are not put into steps below a minute: the window then has fewer points than asked for.
MAX_RAW_ROWS_READ = 300_000
_COLUMNS_A_QUERY = 200
_NEVER = -(2**63)

_HOUR_MS, _DAY_MS = 3_600_000, 86_400_000
_STEPS_MS = (
    *(1, 2, 5, 10, 20, 50, 100, 200, 500),
    *(1000 * s for s in (1, 2, 5, 10, 15, 30)),
    *(MINUTE_MS * m for m in (1, 2, 5, 10, 15, 30)),
    *(_HOUR_MS * h for h in (1, 2, 3, 6, 12)),
    *(_DAY_MS * d for d in (1, 2, 7, 14, 28)),
)

Aggregate = tuple[int, int, float | None, float | None, float | None]  # step, n, sum, min, max


@dataclass(frozen=True)
class _Source:
    """Where the values are. positions: of the wanted columns that exist, by name."""

    connection: sqlite3.Connection
    series_id: int
    floor_ms: int
    positions: dict[str, int]


@dataclass(frozen=True)
class _Grid:
    """Points of a window: point k covers origin + k * step up to the next, of it what lies within start and end."""

    start_ms: int
    end_ms: int
    origin_ms: int
    step_ms: int

    @property
    def size(self) -> int:
        return (self.end_ms - self.origin_ms) // self.step_ms + 1


class _Steps:
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


def read_window(
    connection: sqlite3.Connection,
    series: tuple[Kind, str],
    columns: Sequence[str],
    span_ms: tuple[int, int],
    max_points: int,
) -> Window:
    """The window, from one unchanging view of the store (the caller's transaction). Columns unknown are NaN."""
    found = connection.execute(
        "SELECT id, floor_ms, first_ms, last_ms FROM series WHERE kind = ? AND name = ?", series
    ).fetchone()
    if found is None:
        return _empty(columns)
    series_id, floor_ms, first_ms, last_ms = found
    known = dict(connection.execute("SELECT name, position FROM columns WHERE series_id = ?", (series_id,)).fetchall())
    positions = {name: known[name] for name in columns if name in known}
    source = _Source(connection, series_id, _NEVER if floor_ms is None else floor_ms, positions)
    start_ms, end_ms = max(span_ms[0], first_ms), min(span_ms[1], last_ms)
    if end_ms < start_ms:
        return _empty(columns)
    n_rows = _count(source, start_ms, end_ms, max(max_points, MAX_RAW_ROWS_READ) + 1)
    is_raw = start_ms >= source.floor_ms
    if is_raw and n_rows <= max_points:
        return _raw(source, columns, start_ms, end_ms)
    least_ms = 1 if is_raw and n_rows <= MAX_RAW_ROWS_READ else MINUTE_MS
    return _stepped(source, columns, choose_grid(start_ms, end_ms, max_points, least_ms))


def choose_grid(start_ms: int, end_ms: int, max_points: int, least_ms: int = 1) -> _Grid:
    """The finest round step of at least least_ms that covers the span with at most max_points points."""
    for step_ms in _STEPS_MS:
        origin_ms = start_ms - start_ms % step_ms
        if step_ms >= least_ms and (end_ms - origin_ms) // step_ms < max_points:
            return _Grid(start_ms, end_ms, origin_ms, step_ms)
    # Longer than any round step, or one point across a boundary: whole minutes from the first one on.
    origin_ms = start_ms - start_ms % MINUTE_MS
    minutes = -(-(end_ms - origin_ms + 1) // (MINUTE_MS * max_points))
    return _Grid(start_ms, end_ms, origin_ms, minutes * MINUTE_MS)


def _empty(columns: Sequence[str]) -> Window:
    nothing = {name: np.empty(0) for name in columns}
    return Window(np.empty(0), nothing, nothing, nothing)


def _count(source: _Source, start_ms: int, end_ms: int, most: int) -> int:
    sql = f"SELECT count(*) FROM (SELECT 1 FROM {table_of(source.series_id)} WHERE at_ms BETWEEN ? AND ? LIMIT ?)"
    count: int = source.connection.execute(sql, (start_ms, end_ms, most)).fetchone()[0]
    return count


def _raw(source: _Source, columns: Sequence[str], start_ms: int, end_ms: int) -> Window:
    names = "".join(f", c{position:d}" for position in source.positions.values())
    rows = source.connection.execute(
        f"SELECT at_ms{names} FROM {table_of(source.series_id)} WHERE at_ms BETWEEN ? AND ? ORDER BY at_ms, ordinal",
        (start_ms, end_ms),
    ).fetchall()
    table = np.array(rows, dtype=np.float64).reshape(-1, 1 + len(source.positions))  # None becomes NaN
    missing = np.full(len(rows), np.nan)
    values = dict.fromkeys(columns, missing) | {name: table[:, 1 + i] for i, name in enumerate(source.positions)}
    return Window(table[:, 0], values, values, values)


def _stepped(source: _Source, columns: Sequence[str], grid: _Grid) -> Window:
    steps = _Steps(source.positions, grid.size)
    if grid.step_ms < MINUTE_MS:
        _add_raw(source, steps, grid, grid.start_ms, grid.end_ms)
    else:
        _add_minutes(source, steps, grid)
    any_n = np.sum([steps.n[name] for name in source.positions], axis=0) if source.positions else np.zeros(grid.size)
    filled = np.flatnonzero(any_n)
    missing = np.full(len(filled), np.nan)
    mean, low, high = (dict.fromkeys(columns, missing) for _ in range(3))
    for name in source.positions:
        n = steps.n[name][filled]
        low[name] = np.where(n > 0, steps.low[name][filled], np.nan)
        high[name] = np.where(n > 0, steps.high[name][filled], np.nan)
        ratio = np.divide(steps.total[name][filled], n, out=np.full(len(filled), np.nan), where=n > 0)
        mean[name] = np.clip(ratio, low[name], high[name])  # a mean lies between the extremes; its rounding may not
    return Window(grid.origin_ms + filled.astype(np.float64) * grid.step_ms, mean, low, high, grid.step_ms)


def _add_minutes(source: _Source, steps: _Steps, grid: _Grid) -> None:
    first, last = grid.start_ms // MINUTE_MS, grid.end_ms // MINUTE_MS
    for minute in sorted({first, last}):  # the edges, which the span may cut
        if minute * MINUTE_MS >= source.floor_ms:
            begin_ms = max(grid.start_ms, minute * MINUTE_MS)
            _add_raw(source, steps, grid, begin_ms, min(grid.end_ms, minute * MINUTE_MS + MINUTE_MS - 1))
    inner = (first + (first * MINUTE_MS >= source.floor_ms), last - (last * MINUTE_MS >= source.floor_ms))
    if inner[0] > inner[1]:
        return
    _add_dirty(source, steps, grid, inner)
    for name, position in source.positions.items():
        steps.add(
            name,
            source.connection.execute(
                "SELECT (minute * 60000 - ?1) / ?2, sum(n), sum(sum), min(min), max(max) FROM rollup "
                "WHERE series_id = ?3 AND position = ?4 AND minute BETWEEN ?5 AND ?6 AND minute NOT IN "
                "(SELECT minute FROM dirty WHERE series_id = ?3 AND minute BETWEEN ?5 AND ?6) GROUP BY 1",
                (grid.origin_ms, grid.step_ms, source.series_id, position, *inner),
            ),
        )


def _add_raw(source: _Source, steps: _Steps, grid: _Grid, start_ms: int, end_ms: int) -> None:
    where = f"{table_of(source.series_id)} AS raw WHERE at_ms BETWEEN ? AND ?"
    _add_aggregates(source, steps, grid, where, (start_ms, end_ms))


def _add_dirty(source: _Source, steps: _Steps, grid: _Grid, minutes: tuple[int, int]) -> None:
    where = (
        f"dirty CROSS JOIN {table_of(source.series_id)} AS raw ON raw.at_ms BETWEEN minute * 60000 AND minute * 60000 + "
        "59999 WHERE series_id = ? AND minute BETWEEN ? AND ?"
    )
    _add_aggregates(source, steps, grid, where, (source.series_id, *minutes))


def _add_aggregates(source: _Source, steps: _Steps, grid: _Grid, where: str, arguments: tuple[int, ...]) -> None:
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
