"""A span of a series as at most so many points, asked of the server: raw rows where they are few, else steps of its making.

The steps are those of the SQLite store (``choose_grid``), so both draw the same chart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from fleetgp.arrays import Array
from fleetgp.runtime.influx_answers import Cell, Table
from fleetgp.runtime.influx_names import RECEIVED, quoted, stored_name
from fleetgp.store.base import Window
from fleetgp.store.influx_lines import EARLIEST_MS, LATEST_MS, MS
from fleetgp.store.sqlite_window import choose_grid

COLUMNS_A_QUERY = 100

Query = Callable[[str], list[Table]]


def read_window(query: Query, source: str, columns: Sequence[str], span_ms: tuple[int, int], max_points: int) -> Window:
    """The window. source: measurement and the tags of the series, as after FROM. Columns unknown are NaN."""
    ends = _ends(query, source)
    if ends is None:
        return _empty(columns)
    start_ms, end_ms = max(span_ms[0], ends[0]), min(span_ms[1], ends[1])
    if end_ms < start_ms:
        return _empty(columns)
    where = f"{source} AND {_between(start_ms, end_ms)}"
    few = _rows(query(f'SELECT "{RECEIVED}" FROM {where} LIMIT {max_points + 1}'))
    if not few:
        return _empty(columns)
    if len(few) <= max_points:
        return _raw(query, where, columns, len(few))
    grid = choose_grid(start_ms, end_ms, max_points)
    every = f"GROUP BY time({grid.step_ms}ms, {grid.origin_ms % grid.step_ms}ms) fill(none)"
    return _stepped(query, f"{where} {every}", columns, grid.step_ms)


def _ends(query: Query, source: str) -> tuple[int, int] | None:
    """at_ms of the first and the last row; None where there is none."""
    times = [
        int(row[0] or 0) // MS
        for table in query(f'SELECT first("{RECEIVED}") FROM {source}; SELECT last("{RECEIVED}") FROM {source}')
        for row in table.values
    ]
    return (times[0], times[-1]) if times else None


def _between(start_ms: int, end_ms: int) -> str:
    first, last = max(start_ms, EARLIEST_MS), min(end_ms, LATEST_MS)
    return f"time >= {first * MS} AND time < {(last + 1) * MS}"


def _rows(tables: list[Table]) -> list[list[Cell]]:
    return [row for table in tables for row in table.values]


def _empty(columns: Sequence[str]) -> Window:
    nothing = {name: np.empty(0) for name in columns}
    return Window(np.empty(0), nothing, nothing, nothing)


def _raw(query: Query, where: str, columns: Sequence[str], n_rows: int) -> Window:
    wanted = list(dict.fromkeys(columns))
    names = "".join(f", {quoted(stored_name(name))}" for name in wanted)
    rows = _rows(query(f'SELECT "{RECEIVED}"{names} FROM {where} LIMIT {n_rows}'))
    cells = np.array([row[2:] for row in rows], dtype=np.float64).reshape(-1, len(wanted))
    values = {name: cells[:, i] for i, name in enumerate(wanted)}
    return Window(np.array([int(row[0] or 0) // MS for row in rows], dtype=np.float64), values, values, values)


def _stepped(query: Query, where: str, columns: Sequence[str], step_ms: int) -> Window:
    wanted = list(dict.fromkeys(columns))
    parts: list[tuple[list[str], Array, Array]] = []
    for first in range(0, len(wanted), COLUMNS_A_QUERY):
        some = wanted[first : first + COLUMNS_A_QUERY]
        fields = [quoted(stored_name(name)) for name in some]
        aggregates = ", ".join(f"mean({field}), min({field}), max({field})" for field in fields)
        rows = _rows(query(f"SELECT {aggregates} FROM {where}"))
        cells = np.array([row[1:] for row in rows], dtype=np.float64).reshape(-1, 3 * len(some))
        parts.append((some, np.array([int(row[0] or 0) // MS for row in rows], dtype=np.float64), cells))
    at_ms = np.unique(np.concatenate([times for _, times, _ in parts])) if parts else np.empty(0)
    mean, low, high = ({name: np.full(len(at_ms), np.nan) for name in wanted} for _ in range(3))
    for some, times, cells in parts:
        where_to = np.searchsorted(at_ms, times)
        for i, name in enumerate(some):
            mean[name][where_to], low[name][where_to], high[name][where_to] = cells[:, 3 * i : 3 * i + 3].T
    for name in wanted:  # a mean lies between the extremes; its rounding may not
        mean[name] = np.clip(mean[name], low[name], high[name])
    return Window(at_ms, mean, low, high, step_ms)
