"""A span of a series as at most so many points, asked of the server: raw rows where they are few, else steps of its making.

The steps are those of the SQLite store (``choose_grid``), so both draw the same chart. Steps of whole minutes come from the
rollups (``influx_roll``) as far as these are up to date.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from fleetgp.runtime.influx_answers import Cell, Table
from fleetgp.runtime.influx_names import RECEIVED, quoted, stored_name
from fleetgp.store.base import Window
from fleetgp.store.influx_lines import EARLIEST_MS, LATEST_MS, MINUTES, MS
from fleetgp.store.sqlite_schema import MINUTE_MS
from fleetgp.store.sqlite_sums import Grid, Steps
from fleetgp.store.sqlite_window import as_window, choose_grid

COLUMNS_A_QUERY = 100

Query = Callable[[str], list[Table]]


class Series(NamedTuple):
    """Which rows: measurement and the tags of the series as a WHERE clause. rolled_ms: minutes before it are rolled up."""

    measurement: str
    tags: str
    rolled_ms: int


def read_window(
    query: Query, series: Series, columns: Sequence[str], span_ms: tuple[int, int], max_points: int
) -> Window:
    """The window. Columns unknown are NaN."""
    source = f'"{series.measurement}" WHERE {series.tags}'
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
    wanted = list(dict.fromkeys(columns))
    steps = Steps(wanted, grid.size)
    for is_rolled, first_ms, last_ms in _parts(grid, series.rolled_ms):
        name = series.measurement + (MINUTES if is_rolled else "")
        every = f"GROUP BY time({grid.step_ms}ms, {grid.origin_ms % grid.step_ms}ms) fill(none)"
        part = f'"{name}" WHERE {series.tags} AND {_between(first_ms, last_ms)} {every}'
        _add(query, part, steps, grid, is_rolled=is_rolled)
    return as_window(steps, wanted, columns, grid)


def _parts(grid: Grid, rolled_ms: int) -> list[tuple[bool, int, int]]:
    """What to take from rollups (true) and from raw rows, first and last ms of each: minutes that the span cuts are raw."""
    begin_ms = -(-grid.start_ms // MINUTE_MS) * MINUTE_MS
    end_ms = min((grid.end_ms + 1) // MINUTE_MS * MINUTE_MS, rolled_ms)
    if grid.step_ms < MINUTE_MS or end_ms <= begin_ms:
        return [(False, grid.start_ms, grid.end_ms)]
    parts = [(False, grid.start_ms, begin_ms - 1), (True, begin_ms, end_ms - 1), (False, end_ms, grid.end_ms)]
    return [part for part in parts if part[1] <= part[2]]


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


def _add(query: Query, part: str, steps: Steps, grid: Grid, *, is_rolled: bool) -> None:
    """Add the server's aggregates of a part to the steps."""
    wanted = list(steps.n)
    for first in range(0, len(wanted), COLUMNS_A_QUERY):
        some = wanted[first : first + COLUMNS_A_QUERY]
        aggregates = ", ".join(_aggregates(stored_name(name), is_rolled=is_rolled) for name in some)
        rows = _rows(query(f"SELECT {aggregates} FROM {part}"))
        numbers = [(int(row[0] or 0) // MS - grid.origin_ms) // grid.step_ms for row in rows]
        for i, name in enumerate(some):
            steps.add(
                name, [(number, *_quad(row[1 + 4 * i : 5 + 4 * i])) for number, row in zip(numbers, rows, strict=True)]
            )


def _aggregates(field: str, *, is_rolled: bool) -> str:
    if not is_rolled:
        name = quoted(field)
        return f"count({name}), sum({name}), min({name}), max({name})"
    count, total, low, high = (quoted(f"{what}_{field}") for what in ("count", "sum", "min", "max"))
    return f"sum({count}), sum({total}), min({low}), max({high})"


def _quad(cells: Sequence[Cell]) -> tuple[int, float, float, float]:
    count, total, low, high = (float(cell) if isinstance(cell, (int, float)) else 0.0 for cell in cells)
    return int(count), total, low, high
