"""Retention: what is older than it should be kept goes, a bounded step at a time.

Age is measured against the newest row of the same series, or the clock where that row is ahead of it. So a replay of last
year keeps its rows, and one row from the year 2100 does not drop a series. Raw rows go in whole minutes and only after
they are rolled up, rollups of a minute in whole hours and only after these are made; a row that comes later than that is
refused, because nobody could tell whether it was there.
"""

from __future__ import annotations

import math
import sqlite3
import time
from collections.abc import Sequence
from dataclasses import dataclass

from fleetgp.store.sqlite_retention import Kept, Retention
from fleetgp.store.sqlite_rollup import HOURS_A_STEP, MINUTES_A_STEP, roll_up_hours, roll_up_minutes
from fleetgp.store.sqlite_schema import HOUR_MS, MINUTE_MS, table_of, transaction

DAY_MS = 86_400_000
SERIES_A_STEP = 250
ROWS_A_STEP = 5_000  # in one transaction
ROWS_A_CALL = 60_000  # of all series: more than what the fastest bridge writes between two calls
DROP_S = 0.15  # no further step is begun after that: writes wait meanwhile
DOCUMENTS_A_STEP = 1_000
REMOVED = "removed"  # kind of a series that somebody removed and whose rows are still going


@dataclass(frozen=True)
class Floors:
    """From when on a series is kept, UTC epoch ms: raw rows, rollups of a minute and of an hour."""

    raw_ms: int
    minute_ms: int
    hour_ms: int


@dataclass
class Budget:
    """Rows that may still be dropped in this call, and until when (of the monotonic clock)."""

    left: int
    until_s: float = math.inf

    @property
    def is_left(self) -> bool:
        return self.left > 0 and time.monotonic() < self.until_s


def drop_old(
    connection: sqlite3.Connection, retention: Retention, now_ms: int, series_ids: Sequence[int]
) -> tuple[dict[int, int], int]:
    """Apply retention to some series, each step in a transaction of its own, as long as the budget of one call goes.

    Returns new floors of raw rows by id of the series, and how many of the series it has come to.
    """
    floors: dict[int, int] = {}
    budget = Budget(ROWS_A_CALL, time.monotonic() + DROP_S)
    for number, series_id in enumerate(series_ids):
        if not budget.is_left:
            return floors, number
        found = connection.execute("SELECT kind, last_ms FROM series WHERE id = ?", (series_id,)).fetchone()
        if found is None:
            continue  # removed by another program meanwhile
        kind, last_ms = found
        if kind == REMOVED:
            remove_step(connection, series_id)
            continue
        floor_ms = drop_before(connection, series_id, _floors(retention.of(kind), min(last_ms, now_ms)), budget)
        if floor_ms is not None:
            floors[series_id] = floor_ms
    return floors, len(series_ids)


def _floors(kept: Kept, newest_ms: int) -> Floors:
    raw_ms = int((newest_ms - kept.raw_days * DAY_MS) // MINUTE_MS) * MINUTE_MS
    minute_ms, hour_ms = (
        int((newest_ms - d * DAY_MS) // HOUR_MS) * HOUR_MS for d in (kept.minute_days, kept.hour_days)
    )
    return Floors(raw_ms, min(minute_ms, raw_ms // HOUR_MS * HOUR_MS), hour_ms)


def drop_before(connection: sqlite3.Connection, series_id: int, to: Floors, budget: Budget) -> int | None:
    """Take a series towards its floors as far as the budget goes. Returns the floor of raw rows where it was raised."""
    floor_ms, minutes_ms, first_ms = connection.execute(
        "SELECT floor_ms, rollup_floor_ms, first_ms FROM series WHERE id = ?", (series_id,)
    ).fetchone()
    raised = None
    while budget.is_left and _first_raw(connection, series_id, default=to.raw_ms) < to.raw_ms:
        gone = _drop_raw(connection, series_id, to.raw_ms)
        if gone is None:
            break
        raised, floor_ms = to.raw_ms, to.raw_ms
        budget.left -= max(gone, 1)
    while budget.is_left and first_ms < to.minute_ms and (minutes_ms is None or minutes_ms < to.minute_ms):
        gone, minutes_ms = _drop_minutes(connection, series_id, to.minute_ms)
        if gone is None:
            break
        raised = max(minutes_ms, floor_ms if floor_ms is not None else minutes_ms)
        budget.left -= max(gone, 1)
    if budget.is_left and first_ms < to.hour_ms and minutes_ms is not None and minutes_ms >= to.hour_ms:
        budget.left -= _drop_hours(connection, series_id, to.hour_ms)
    return raised


def _first_raw(connection: sqlite3.Connection, series_id: int, default: int) -> int:
    found = connection.execute(f"SELECT at_ms FROM {table_of(series_id)} ORDER BY at_ms LIMIT 1").fetchone()
    return default if found is None else int(found[0])


def _drop_raw(connection: sqlite3.Connection, series_id: int, floor_ms: int) -> int | None:
    """Roll up what is older than the floor and still dirty; when all is, raise the floor and drop raw rows below it.

    Returns how many went, None where there was too much to roll up first.
    """
    table = table_of(series_id)
    with transaction(connection):
        if not _is_rolled_up(connection, series_id, floor_ms):
            return None
        bound = connection.execute(
            f"SELECT at_ms, ordinal FROM {table} WHERE at_ms < ? ORDER BY at_ms, ordinal LIMIT 1 OFFSET ?",
            (floor_ms, ROWS_A_STEP),
        ).fetchone() or (floor_ms, -(2**63))
        gone = connection.execute(f"DELETE FROM {table} WHERE (at_ms, ordinal) < (?, ?)", bound).rowcount
        connection.execute("UPDATE series SET floor_ms = ?, rows = rows - ? WHERE id = ?", (floor_ms, gone, series_id))
    return gone


def _is_rolled_up(connection: sqlite3.Connection, series_id: int, floor_ms: int) -> bool:
    """Roll up dirty minutes before the floor, as many as a step may; whether that was all."""
    dirt = connection.execute(
        "SELECT minute FROM dirty WHERE series_id = ? AND minute < ? ORDER BY minute LIMIT ?",
        (series_id, floor_ms // MINUTE_MS, MINUTES_A_STEP),
    ).fetchall()
    roll_up_minutes(connection, series_id, [minute for (minute,) in dirt])
    return len(dirt) < MINUTES_A_STEP


def _are_hours_made(connection: sqlite3.Connection, series_id: int, floor_ms: int) -> bool:
    """Make dirty hours before the floor, as many as a step may; whether that was all."""
    if connection.execute("SELECT hours_from FROM series WHERE id = ?", (series_id,)).fetchone()[0] is not None:
        return False
    dirt = connection.execute(
        "SELECT series_id, hour FROM dirty_hours WHERE series_id = ? AND hour < ? LIMIT ?",
        (series_id, floor_ms // HOUR_MS, HOURS_A_STEP),
    ).fetchall()
    roll_up_hours(connection, dirt)
    return len(dirt) < HOURS_A_STEP


def _drop_minutes(connection: sqlite3.Connection, series_id: int, floor_ms: int) -> tuple[int | None, int]:
    """Drop the oldest rollups of a minute before the floor, in whole hours that are made; raise the series' floors.

    Returns how many went (None where there was too much to make first) and the floor that was reached.
    """
    with transaction(connection):
        positions = _positions(connection, series_id)
        first = _first(connection, "rollup", "minute", series_id, positions)
        hours = max(1, ROWS_A_STEP // (60 * len(positions)))
        reached = floor_ms if first is None else min(floor_ms, (first // 60 + hours) * HOUR_MS)
        if not (_is_rolled_up(connection, series_id, reached) and _are_hours_made(connection, series_id, reached)):
            return None, reached
        gone = sum(
            connection.execute(
                "DELETE FROM rollup WHERE series_id = ? AND position = ? AND minute < ?",
                (series_id, position, reached // MINUTE_MS),
            ).rowcount
            for position in positions
        )
        connection.execute(
            "UPDATE series SET rollup_floor_ms = ?1, floor_ms = max(coalesce(floor_ms, ?1), ?1) WHERE id = ?2",
            (reached, series_id),
        )
    return gone, reached


def _drop_hours(connection: sqlite3.Connection, series_id: int, floor_ms: int) -> int:
    """Drop rollups of an hour before the floor, so many a step; returns how many."""
    with transaction(connection):
        left, positions = ROWS_A_STEP, _positions(connection, series_id)
        for position in positions:
            where = "series_id = ? AND position = ?"
            left -= connection.execute(
                f"DELETE FROM hourly WHERE {where} AND hour IN "
                f"(SELECT hour FROM hourly WHERE {where} AND hour < ? ORDER BY hour LIMIT ?)",
                (series_id, position, series_id, position, floor_ms // HOUR_MS, max(left, 0)),
            ).rowcount
        starts = [_first_raw(connection, series_id, default=floor_ms)]
        for table, unit, span_ms in (("hourly", "hour", HOUR_MS), ("rollup", "minute", MINUTE_MS)):
            first = _first(connection, table, unit, series_id, positions)
            starts += [] if first is None else [first * span_ms]
        connection.execute("UPDATE series SET first_ms = max(first_ms, ?) WHERE id = ?", (min(starts), series_id))
    return ROWS_A_STEP - left


def remove_step(connection: sqlite3.Connection, series_id: int) -> bool:
    """Drop so many rows of a series that was set aside as REMOVED; True when nothing is left of it."""
    with transaction(connection):
        kind = connection.execute("SELECT kind FROM series WHERE id = ?", (series_id,)).fetchone()
        if kind != (REMOVED,):
            return True  # another program was quicker, and the number may be that of a new series by now
        table = table_of(series_id)
        tables = [(table, "at_ms, ordinal", "", ())] + [
            (name, f"series_id, {key}", "WHERE series_id = ?", (series_id,))
            for name, key in (
                ("rollup", "position, minute"),
                ("hourly", "position, hour"),
                ("dirty", "minute"),
                ("dirty_hours", "hour"),
            )
        ]
        for name, key, where, arguments in tables:
            gone = connection.execute(
                f"DELETE FROM {name} WHERE ({key}) IN (SELECT {key} FROM {name} {where} LIMIT ?)",
                (*arguments, ROWS_A_STEP),
            ).rowcount
            if gone == ROWS_A_STEP:
                return False
        connection.execute(f"DROP TABLE {table}")
        connection.execute("DELETE FROM columns WHERE series_id = ?", (series_id,))
        connection.execute("DELETE FROM series WHERE id = ?", (series_id,))
    return True


def _positions(connection: sqlite3.Connection, series_id: int) -> list[int]:
    found = connection.execute("SELECT position FROM columns WHERE series_id = ?", (series_id,))
    return [position for (position,) in found]


def _first(
    connection: sqlite3.Connection, table: str, unit: str, series_id: int, positions: Sequence[int]
) -> int | None:
    """The first minute or hour that any column of a series has a rollup of."""
    sql = f"SELECT min({unit}) FROM {table} WHERE series_id = ? AND position = ?"
    firsts = [connection.execute(sql, (series_id, position)).fetchone()[0] for position in positions]
    return min((first for first in firsts if first is not None), default=None)


def drop_old_documents(connection: sqlite3.Connection, retention: Retention, now_ms: int) -> None:
    """Drop events and rounds beyond their days, so many a step, in the open transaction."""
    for table, age, days in (("events", "start_ms", retention.event_days), ("rounds", "at_ms", retention.round_days)):
        newest = connection.execute(f"SELECT max({age}) FROM {table}").fetchone()[0] if days else None
        if newest is not None:
            connection.execute(
                f"DELETE FROM {table} WHERE rowid IN (SELECT rowid FROM {table} WHERE {age} < ? ORDER BY {age} LIMIT ?)",
                (int(min(newest, now_ms) - days * DAY_MS), DOCUMENTS_A_STEP),
            )
