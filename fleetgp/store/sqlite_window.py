"""A span of a series as at most so many points: raw rows where they are few, else mean and extremes of equal steps.

Steps are multiples of round lengths from 1 ms to 4 weeks on a grid that does not move with the span, so a live chart does
not flicker. Steps of whole minutes come from the rollups of a minute, those of whole hours from the rollups of an hour,
but for the edges of the span and for what is not rolled up yet, which come from what it will be made of
(``sqlite_sums``): a reading is exact at every moment. Where raw rows are no longer kept, the first and last minute count
whole; where rollups of a minute are no longer kept, so do the first and last hour.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

import numpy as np

from fleetgp.store.base import Kind, Window
from fleetgp.store.sqlite_schema import HOUR_MS, MINUTE_MS, table_of, version_of
from fleetgp.store.sqlite_sums import Grid, Source, Steps, add_minutes, add_raw

# More raw rows than this are not put into steps below a minute: the window then has fewer points than asked for.
MAX_RAW_ROWS_READ = 300_000
_NEVER = -(2**63)

_DAY_MS = 86_400_000
_STEPS_MS = (
    *(1, 2, 5, 10, 20, 50, 100, 200, 500),
    *(1000 * s for s in (1, 2, 5, 10, 15, 30)),
    *(MINUTE_MS * m for m in (1, 2, 5, 10, 15, 30)),
    *(HOUR_MS * h for h in (1, 2, 3, 6, 12)),
    *(_DAY_MS * d for d in (1, 2, 7, 14, 28)),
)


def read_window(
    connection: sqlite3.Connection,
    series: tuple[Kind, str],
    columns: Sequence[str],
    span_ms: tuple[int, int],
    max_points: int,
) -> Window:
    """The window, from one unchanging view of the store (the caller's transaction). Columns unknown are NaN."""
    has_hours = version_of(connection) > 1  # the bridge that makes them may not have started yet
    levels = "rollup_floor_ms, hours_from" if has_hours else "NULL, NULL"
    found = connection.execute(
        f"SELECT id, first_ms, last_ms, floor_ms, {levels} FROM series WHERE kind = ? AND name = ?", series
    ).fetchone()
    if found is None:
        return _empty(columns)
    series_id, first_ms, last_ms, floor_ms, rollup_floor_ms, hours_from = found
    known = dict(connection.execute("SELECT name, position FROM columns WHERE series_id = ?", (series_id,)).fetchall())
    positions = {name: known[name] for name in columns if name in known}
    source = Source(
        connection,
        series_id,
        _NEVER if floor_ms is None else floor_ms,
        _NEVER if rollup_floor_ms is None else rollup_floor_ms,
        (_NEVER if hours_from is None else hours_from) if has_hours else None,
        positions,
    )
    start_ms, end_ms = max(span_ms[0], first_ms), min(span_ms[1], last_ms)
    if end_ms < start_ms:
        return _empty(columns)
    is_raw = start_ms >= source.floor_ms
    grid = choose_grid(start_ms, end_ms, max_points)
    # A long span is not put into steps below a minute anyway: whether its rows are few is all there is to know.
    most = max_points if grid.step_ms >= MINUTE_MS else max(max_points, MAX_RAW_ROWS_READ)
    n_rows = _count(source, start_ms, end_ms, most + 1)
    if is_raw and n_rows <= max_points:
        return _raw(source, columns, start_ms, end_ms)
    if start_ms < source.rollup_floor_ms:
        grid = choose_grid(start_ms, end_ms, max_points, HOUR_MS)
    elif not is_raw or n_rows > most:
        grid = choose_grid(start_ms, end_ms, max_points, MINUTE_MS)
    return _stepped(source, columns, grid)


def choose_grid(start_ms: int, end_ms: int, max_points: int, least_ms: int = 1) -> Grid:
    """The finest round step of at least least_ms that covers the span with at most max_points points."""
    for step_ms in _STEPS_MS:
        origin_ms = start_ms - start_ms % step_ms
        if step_ms >= least_ms and (end_ms - origin_ms) // step_ms < max_points:
            return Grid(start_ms, end_ms, origin_ms, step_ms)
    # Longer than any round step, or one point across a boundary: whole minutes or hours from the first one on.
    unit_ms = HOUR_MS if least_ms >= HOUR_MS or end_ms - start_ms >= HOUR_MS * max_points else MINUTE_MS
    origin_ms = start_ms - start_ms % unit_ms
    units = -(-(end_ms - origin_ms + 1) // (unit_ms * max_points))
    return Grid(start_ms, end_ms, origin_ms, units * unit_ms)


def _empty(columns: Sequence[str]) -> Window:
    nothing = {name: np.empty(0) for name in columns}
    return Window(np.empty(0), nothing, nothing, nothing)


def _count(source: Source, start_ms: int, end_ms: int, most: int) -> int:
    sql = f"SELECT count(*) FROM (SELECT 1 FROM {table_of(source.series_id)} WHERE at_ms BETWEEN ? AND ? LIMIT ?)"
    count: int = source.connection.execute(sql, (start_ms, end_ms, most)).fetchone()[0]
    return count


def _raw(source: Source, columns: Sequence[str], start_ms: int, end_ms: int) -> Window:
    names = "".join(f", c{position:d}" for position in source.positions.values())
    rows = source.connection.execute(
        f"SELECT at_ms{names} FROM {table_of(source.series_id)} WHERE at_ms BETWEEN ? AND ? ORDER BY at_ms, ordinal",
        (start_ms, end_ms),
    ).fetchall()
    table = np.array(rows, dtype=np.float64).reshape(-1, 1 + len(source.positions))  # None becomes NaN
    missing = np.full(len(rows), np.nan)
    values = dict.fromkeys(columns, missing) | {name: table[:, 1 + i] for i, name in enumerate(source.positions)}
    return Window(table[:, 0], values, values, values)


def _stepped(source: Source, columns: Sequence[str], grid: Grid) -> Window:
    steps = Steps(source.positions, grid.size)
    if grid.step_ms < MINUTE_MS:
        add_raw(source, steps, grid, grid.start_ms, grid.end_ms)
    else:
        add_minutes(source, steps, grid)
    return as_window(steps, list(source.positions), columns, grid)


def as_window(steps: Steps, known: Sequence[str], columns: Sequence[str], grid: Grid) -> Window:
    """The points that have a value. known: columns that the steps speak of; all others are NaN."""
    any_n = np.sum([steps.n[name] for name in known], axis=0) if known else np.zeros(grid.size)
    filled = np.flatnonzero(any_n)
    missing = np.full(len(filled), np.nan)
    mean, low, high = (dict.fromkeys(columns, missing) for _ in range(3))
    for name in known:
        n = steps.n[name][filled]
        low[name] = np.where(n > 0, steps.low[name][filled], np.nan)
        high[name] = np.where(n > 0, steps.high[name][filled], np.nan)
        ratio = np.divide(steps.total[name][filled], n, out=np.full(len(filled), np.nan), where=n > 0)
        mean[name] = np.clip(ratio, low[name], high[name])  # a mean lies between the extremes; its rounding may not
    return Window(grid.origin_ms + filled.astype(np.float64) * grid.step_ms, mean, low, high, grid.step_ms)
