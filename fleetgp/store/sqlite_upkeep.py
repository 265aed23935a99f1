"""Rollups of a minute and retention, a bounded step at a time.

A minute is rolled up from its raw rows once its series, or the clock, is past it; until then, and whenever a late row
comes, it stands in ``dirty`` and readers take its raw rows. Rows and their dirty minutes are committed together, so are a
rollup and the end of its dirt: wherever a program dies, what is not dirty is exact.

Age is measured against the newest row of the same series, or the clock where that row is ahead of it. So a replay of last
year keeps its rows, and one row from the year 2100 does not drop a series. Raw rows go in whole minutes and only after
they are rolled up; a row that comes later than that is refused, because nobody could tell whether it was there.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

from fleetgp.store.sqlite_schema import MINUTE_MS, table_of, transaction

DAY_MS = 86_400_000
MINUTES_A_STEP = 250
STEPS = 20
SERIES_A_STEP = 250
ROWS_A_STEP = 5_000
_COLUMNS_A_QUERY = 200

_CLOSED = """
SELECT dirty.series_id, dirty.minute FROM dirty JOIN series ON series.id = dirty.series_id
WHERE (dirty.minute + 1) * 60000 <= min(series.last_ms, ?) LIMIT ?
"""


@dataclass(frozen=True)
class Retention:
    """How long raw rows and rollups are kept, in days of each series' own time."""

    raw_days: float
    rollup_days: float


def roll_up(connection: sqlite3.Connection, now_ms: int) -> None:
    """Bring the rollups of closed minutes up to date: at most STEPS transactions of MINUTES_A_STEP minutes."""
    for _ in range(STEPS):
        with transaction(connection):
            closed = connection.execute(_CLOSED, (now_ms, MINUTES_A_STEP)).fetchall()
            for series_id, minute in closed:
                _roll_up_minute(connection, series_id, minute)
        if len(closed) < MINUTES_A_STEP:
            return


def _roll_up_minute(connection: sqlite3.Connection, series_id: int, minute: int) -> None:
    width = connection.execute("SELECT count(*) FROM columns WHERE series_id = ?", (series_id,)).fetchone()[0]
    for first in range(0, width, _COLUMNS_A_QUERY):
        positions = range(first, min(first + _COLUMNS_A_QUERY, width))
        aggregates = ", ".join(f"count(c{p}), sum(c{p}), min(c{p}), max(c{p})" for p in positions)
        found = connection.execute(
            f"SELECT {aggregates} FROM {table_of(series_id)} WHERE at_ms BETWEEN ? AND ?",
            (minute * MINUTE_MS, minute * MINUTE_MS + MINUTE_MS - 1),
        ).fetchone()
        quads = [(series_id, p, minute, *found[4 * i : 4 * i + 4]) for i, p in enumerate(positions) if found[4 * i]]
        connection.executemany("INSERT OR REPLACE INTO rollup VALUES (?, ?, ?, ?, ?, ?, ?)", quads)
    connection.execute("DELETE FROM dirty WHERE series_id = ? AND minute = ?", (series_id, minute))


def drop_old(
    connection: sqlite3.Connection, retention: Retention, now_ms: int, series_ids: Sequence[int]
) -> dict[int, int]:
    """Apply retention to some series, each step in a transaction of its own. Returns new floors by id of the series."""
    floors = {}
    for series_id in series_ids:
        first_ms, last_ms = connection.execute(
            "SELECT first_ms, last_ms FROM series WHERE id = ?", (series_id,)
        ).fetchone()
        newest_ms = min(last_ms, now_ms)
        raw_floor_ms = _whole_minute(newest_ms - retention.raw_days * DAY_MS)
        if _first_raw(connection, series_id, default=raw_floor_ms) < raw_floor_ms and _drop_raw(
            connection, series_id, raw_floor_ms
        ):
            floors[series_id] = raw_floor_ms
        rollup_floor_ms = _whole_minute(newest_ms - retention.rollup_days * DAY_MS)
        if first_ms < rollup_floor_ms:
            _drop_rollups(connection, series_id, rollup_floor_ms)
    return floors


def _whole_minute(at_ms: float) -> int:
    return int(at_ms // MINUTE_MS) * MINUTE_MS


def _first_raw(connection: sqlite3.Connection, series_id: int, default: int) -> int:
    found = connection.execute(f"SELECT at_ms FROM {table_of(series_id)} ORDER BY at_ms LIMIT 1").fetchone()
    return default if found is None else int(found[0])


def _drop_raw(connection: sqlite3.Connection, series_id: int, floor_ms: int) -> bool:
    """Roll up what is older than the floor and still dirty; when all is, raise the floor and drop raw rows below it."""
    table = table_of(series_id)
    with transaction(connection):
        dirt = connection.execute(
            "SELECT minute FROM dirty WHERE series_id = ? AND minute < ? LIMIT ?",
            (series_id, floor_ms // MINUTE_MS, MINUTES_A_STEP),
        ).fetchall()
        for (minute,) in dirt:
            _roll_up_minute(connection, series_id, minute)
        if len(dirt) == MINUTES_A_STEP:
            return False
        gone = connection.execute(
            f"DELETE FROM {table} WHERE (at_ms, ordinal) IN "
            f"(SELECT at_ms, ordinal FROM {table} WHERE at_ms < ? ORDER BY at_ms, ordinal LIMIT ?)",
            (floor_ms, ROWS_A_STEP),
        ).rowcount
        connection.execute("UPDATE series SET floor_ms = ?, rows = rows - ? WHERE id = ?", (floor_ms, gone, series_id))
    return True


def _drop_rollups(connection: sqlite3.Connection, series_id: int, floor_ms: int) -> None:
    with transaction(connection):
        left, first_minutes = ROWS_A_STEP, []
        positions = connection.execute("SELECT position FROM columns WHERE series_id = ?", (series_id,)).fetchall()
        for (position,) in positions:
            where = "series_id = ? AND position = ?"
            left -= connection.execute(
                f"DELETE FROM rollup WHERE {where} AND minute IN "
                f"(SELECT minute FROM rollup WHERE {where} AND minute < ? ORDER BY minute LIMIT ?)",
                (series_id, position, series_id, position, floor_ms // MINUTE_MS, max(left, 0)),
            ).rowcount
            first_minutes += connection.execute(
                f"SELECT minute FROM rollup WHERE {where} ORDER BY minute LIMIT 1", (series_id, position)
            ).fetchall()
        starts = [minute * MINUTE_MS for (minute,) in first_minutes]
        starts.append(_first_raw(connection, series_id, default=floor_ms))
        connection.execute("UPDATE series SET first_ms = max(first_ms, ?) WHERE id = ?", (min(starts), series_id))
