"""Rollups of a minute from raw rows and of an hour from these, a bounded step at a time.

A minute is rolled up once its series, or the clock, is past it; until then, and whenever a late row comes, it stands in
``dirty`` and readers take its raw rows. Rows and their dirty minutes are committed together, so are a rollup, the end of
its dirt and the dirt of its hour: wherever a program dies, what is not dirty is exact. Hours follow in the same way.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby

from fleetgp.store.sqlite_schema import table_of, transaction

MINUTES_A_STEP, HOURS_A_STEP = 50, 50
STEPS = 200
ROLL_UP_S = 0.2  # no further step is begun after that: writes wait meanwhile
_COLUMNS_A_QUERY = 200

_CLOSED = """
SELECT dirty.series_id, dirty.minute FROM dirty JOIN series ON series.id = dirty.series_id
WHERE (dirty.minute + 1) * 60000 <= min(series.last_ms, ?) LIMIT ?
"""
_CLOSED_HOURS = """
SELECT h.series_id, h.hour FROM dirty_hours h JOIN series ON series.id = h.series_id
WHERE (h.hour + 1) * 3600000 <= min(series.last_ms, ?) AND NOT EXISTS
(SELECT 1 FROM dirty d WHERE d.series_id = h.series_id AND d.minute BETWEEN h.hour * 60 AND h.hour * 60 + 59) LIMIT ?
"""
_PUT_HOUR = """
INSERT OR REPLACE INTO hourly
SELECT c.series_id, c.position, ?1, sum(r.n), sum(r.sum), min(r.min), max(r.max) FROM columns c CROSS JOIN rollup r
ON r.series_id = c.series_id AND r.position = c.position AND r.minute BETWEEN ?1 * 60 AND ?1 * 60 + 59
WHERE c.series_id = ?2 GROUP BY c.position
"""
_NEWEST_BEFORE = """
SELECT max((SELECT max(r.minute) FROM rollup r
            WHERE r.series_id = c.series_id AND r.position = c.position AND r.minute < ?1 * 60))
FROM columns c WHERE c.series_id = ?2
"""


def roll_up(connection: sqlite3.Connection, now_ms: int, clock_s: Callable[[], float] = time.monotonic) -> None:
    """Bring the rollups of closed minutes up to date, then those of hours, then make hours of a store that was made before
    there were hours: at most STEPS transactions, begun within ROLL_UP_S."""
    end_s = clock_s() + ROLL_UP_S
    tasks: list[Callable[[sqlite3.Connection, int], bool]] = [_minutes_step, _hours_step, _build_step]
    for _ in range(STEPS):
        if not tasks[0](connection, now_ms):
            tasks.pop(0)
        if not tasks or clock_s() > end_s:
            return


def _minutes_step(connection: sqlite3.Connection, now_ms: int) -> bool:
    """Roll up so many closed minutes; whether there may be more."""
    with transaction(connection):
        closed = connection.execute(_CLOSED, (now_ms, MINUTES_A_STEP)).fetchall()
        for series_id, pairs in groupby(sorted(closed), key=lambda pair: pair[0]):
            roll_up_minutes(connection, series_id, [minute for _, minute in pairs])
    return len(closed) == MINUTES_A_STEP


def _hours_step(connection: sqlite3.Connection, now_ms: int) -> bool:
    """Roll up so many closed hours; whether there may be more."""
    with transaction(connection):
        closed = connection.execute(_CLOSED_HOURS, (now_ms, HOURS_A_STEP)).fetchall()
        roll_up_hours(connection, closed)
    return len(closed) == HOURS_A_STEP


def roll_up_minutes(connection: sqlite3.Connection, series_id: int, minutes: Sequence[int]) -> None:
    """Roll up dirty minutes of a series, in the open transaction."""
    if not minutes:
        return
    width = connection.execute("SELECT count(*) FROM columns WHERE series_id = ?", (series_id,)).fetchone()[0]
    span = (minutes[0], minutes[-1])
    wanted = set(minutes)
    for first in range(0, width, _COLUMNS_A_QUERY):
        positions = range(first, min(first + _COLUMNS_A_QUERY, width))
        aggregates = ", ".join(f"count(c{p}), sum(c{p}), min(c{p}), max(c{p})" for p in positions)
        found = connection.execute(
            f"SELECT minute, {aggregates} FROM dirty CROSS JOIN {table_of(series_id)} AS raw ON raw.at_ms BETWEEN "
            "minute * 60000 AND minute * 60000 + 59999 WHERE series_id = ? AND minute BETWEEN ? AND ? GROUP BY minute",
            (series_id, *span),
        )
        quads = [
            (series_id, p, row[0], *row[1 + 4 * i : 5 + 4 * i])
            for row in found
            if row[0] in wanted
            for i, p in enumerate(positions)
            if row[1 + 4 * i]
        ]
        quads.sort()  # in the order of the table
        connection.executemany("INSERT OR REPLACE INTO rollup VALUES (?, ?, ?, ?, ?, ?, ?)", quads)
    connection.executemany("DELETE FROM dirty WHERE series_id = ? AND minute = ?", [(series_id, m) for m in minutes])
    connection.executemany(
        "INSERT OR IGNORE INTO dirty_hours VALUES (?, ?)", [(series_id, hour) for hour in {m // 60 for m in minutes}]
    )


def roll_up_hours(connection: sqlite3.Connection, hours: Iterable[tuple[int, int]]) -> None:
    """Roll up hours, each with its series before it, whose minutes are all rolled up; in the open transaction."""
    for series_id, hour in hours:
        connection.execute(_PUT_HOUR, (hour, series_id))
        connection.execute("DELETE FROM dirty_hours WHERE series_id = ? AND hour = ?", (series_id, hour))


def _build_step(connection: sqlite3.Connection, _: int) -> bool:
    return build_hours(connection)


def build_hours(connection: sqlite3.Connection) -> bool:
    """Make hours of rollups that were there before there were hours, the newest first, at most HOURS_A_STEP; whether
    there may be more."""
    left = HOURS_A_STEP
    with transaction(connection):
        waiting = connection.execute(
            "SELECT id, hours_from FROM series WHERE hours_from IS NOT NULL LIMIT ?", (HOURS_A_STEP,)
        ).fetchall()
        for series_id, hours_from in waiting:
            hour: int | None = hours_from
            while hour is not None and left > 0:
                newest = connection.execute(_NEWEST_BEFORE, (hour, series_id)).fetchone()[0]
                hour = None if newest is None else newest // 60
                if hour is not None:
                    connection.execute(_PUT_HOUR, (hour, series_id))
                left -= 1
            connection.execute("UPDATE series SET hours_from = ? WHERE id = ?", (hour, series_id))
            if left <= 0:
                return True
    return False
