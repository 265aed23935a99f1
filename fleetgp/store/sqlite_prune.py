"""Dropping what somebody no longer wants: what is older than a moment, or whole series, while the bridge goes on writing.

Every step is a transaction of its own and leaves a store that is exact. A series that is removed whole is set aside at
once, under a kind that nobody reads; its rows then go a step at a time, here or, after a kill, in the bridge's upkeep.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from fleetgp.errors import StorageError
from fleetgp.store.base import Kind
from fleetgp.store.sqlite_errors import plain_words
from fleetgp.store.sqlite_rollup import build_hours
from fleetgp.store.sqlite_schema import HOUR_MS, MINUTE_MS, connect_reader, connect_writer, table_of, transaction
from fleetgp.store.sqlite_upkeep import (
    DOCUMENTS_A_STEP,
    REMOVED,
    ROWS_A_STEP,
    Budget,
    Floors,
    drop_before,
    remove_step,
)

NEVER = -(2**62)
SERIES_KINDS: tuple[Kind, ...] = ("reading", "prediction", "health")
DOCUMENTS = {"event": ("events", "start_ms"), "round": ("rounds", "at_ms")}


@dataclass(frozen=True)
class Choice:
    """What is to go. before_ms: only what is older, None: whole series. kinds: of series, or ``event``, ``round``.

    names: series, none: all of the kinds. keeps_rollups: minutes and hours stay, raw rows go.
    """

    kinds: tuple[str, ...]
    names: tuple[str, ...] = ()
    before_ms: int | None = None
    keeps_rollups: bool = False


@dataclass(frozen=True)
class Doomed:
    """What goes of one series, or of the events or rounds (name ``""``). rows: raw rows or documents; spans in epoch ms."""

    kind: str
    name: str
    rows: int
    first_ms: int
    until_ms: int
    is_whole: bool
    id: int = 0


def doomed(path: Path, choice: Choice) -> list[Doomed]:
    """What a choice means, and changes nothing. Raises StorageError, also for a series that is not there."""
    with closing(connect_reader(path)) as connection, plain_words(path, "read"), transaction(connection, "DEFERRED"):
        found = [one for kind in choice.kinds if kind not in DOCUMENTS for one in _of_series(connection, kind, choice)]
        missing = set(choice.names) - {one.name for one in found}
        known = {name for (name,) in connection.execute("SELECT name FROM series WHERE kind != ?", (REMOVED,))}
        if missing - known:
            raise StorageError(
                f"the history store {path} has no series {sorted(missing - known)[0]!r}; fleetgp store info lists them"
            )
        found += [one for kind in choice.kinds if kind in DOCUMENTS for one in _of_documents(connection, kind, choice)]
    return found


def _of_series(connection: sqlite3.Connection, kind: str, choice: Choice) -> list[Doomed]:
    result = []
    for series_id, name, first_ms, last_ms, rows in connection.execute(
        "SELECT id, name, first_ms, last_ms, rows FROM series WHERE kind = ? ORDER BY name", (kind,)
    ).fetchall():
        if choice.names and name not in choice.names:
            continue
        if choice.before_ms is None:
            result.append(Doomed(kind, name, rows, first_ms, last_ms, True, series_id))
        elif first_ms < choice.before_ms:
            sql = f"SELECT count(*) FROM {table_of(series_id)} WHERE at_ms < ?"
            count = connection.execute(sql, (choice.before_ms // MINUTE_MS * MINUTE_MS,)).fetchone()[0]
            has_old_rollups = not choice.keeps_rollups and first_ms < choice.before_ms // HOUR_MS * HOUR_MS
            if count or has_old_rollups:
                until_ms = min(choice.before_ms, last_ms)
                result.append(Doomed(kind, name, count, first_ms, until_ms, False, series_id))
    return result


def _of_documents(connection: sqlite3.Connection, kind: str, choice: Choice) -> list[Doomed]:
    table, age = DOCUMENTS[kind]
    before_ms = 2**62 if choice.before_ms is None else choice.before_ms
    count, first_ms, last_ms = connection.execute(
        f"SELECT count(*), min({age}), max({age}) FROM {table} WHERE {age} < ?", (before_ms,)
    ).fetchone()
    return [Doomed(kind, "", count, first_ms, last_ms, choice.before_ms is None)] if count else []


def prune(
    path: Path, choice: Choice, victims: Sequence[Doomed], rest: Callable[[float], None] = time.sleep
) -> dict[str, int]:
    """Drop it. rest: waits so many seconds between steps, so that the bridge gets its turns.

    Returns rows dropped by kind. Raises StorageError, then what went has gone and the rest is whole.
    """
    gone: dict[str, int] = {}
    with closing(connect_writer(path)) as connection, plain_words(path, "prune"):
        for one in victims:
            if one.is_whole and one.kind not in DOCUMENTS:
                with transaction(connection):
                    connection.execute(
                        "UPDATE series SET kind = ?, name = ? WHERE id = ?", (REMOVED, f"{one.id}", one.id)
                    )
        for one in victims:
            step = _step(connection, choice, one)
            begin_s = time.monotonic()
            while step():
                rest(time.monotonic() - begin_s)
                begin_s = time.monotonic()
            gone[one.kind] = gone.get(one.kind, 0) + one.rows
        connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
    return gone


def _step(connection: sqlite3.Connection, choice: Choice, one: Doomed) -> Callable[[], bool]:
    """A function that does one bounded step and says whether more is to do."""
    if one.kind in DOCUMENTS:
        return lambda: _drop_documents(connection, one, choice.before_ms)
    if one.is_whole:
        return lambda: not remove_step(connection, one.id)
    before_ms = choice.before_ms or 0
    whole_ms = NEVER if choice.keeps_rollups else before_ms // HOUR_MS * HOUR_MS
    to = Floors(before_ms // MINUTE_MS * MINUTE_MS, whole_ms, whole_ms)

    def step() -> bool:
        budget = Budget(ROWS_A_STEP)
        drop_before(connection, one.id, to, budget)
        return budget.left < ROWS_A_STEP or _has_more(connection, one.id, to)

    return step


def _has_more(connection: sqlite3.Connection, series_id: int, to: Floors) -> bool:
    """Whether a step that dropped nothing has rolled up instead, and more is to come."""
    row = connection.execute(
        "SELECT first_ms, rollup_floor_ms, hours_from FROM series WHERE id = ?", (series_id,)
    ).fetchone()
    if row is None:
        return False
    first_ms, minutes_ms, hours_from = row
    if hours_from is not None:
        build_hours(connection)
        return True
    if first_ms < to.minute_ms and (minutes_ms is None or minutes_ms < to.minute_ms):
        return True
    sql = f"SELECT EXISTS (SELECT 1 FROM {table_of(series_id)} WHERE at_ms < ?)"
    return bool(connection.execute(sql, (to.raw_ms,)).fetchone()[0])


def _drop_documents(connection: sqlite3.Connection, one: Doomed, before_ms: int | None) -> bool:
    table, age = DOCUMENTS[one.kind]
    with transaction(connection):
        gone = connection.execute(
            f"DELETE FROM {table} WHERE rowid IN (SELECT rowid FROM {table} WHERE {age} < ? ORDER BY {age} LIMIT ?)",
            (2**62 if before_ms is None else before_ms, DOCUMENTS_A_STEP),
        ).rowcount
    return gone == DOCUMENTS_A_STEP


def compact(path: Path) -> tuple[int, int]:
    """Write the file anew without its free pages; bytes before and after. Nobody can write meanwhile.

    Raises StorageError, e.g. where the disk has no room for a second copy and its log: then the file is as it was.
    """
    with closing(connect_writer(path)) as connection, plain_words(path, "compact"):
        before = path.stat().st_size
        free = shutil.disk_usage(path.parent).free
        if free < 2 * before:
            raise StorageError(
                f"compacting {path} needs up to {2 * before / 1e6:.0f} MB of free disk, there are {free / 1e6:.0f}; its "
                "free room is used again without"
            )
        os.environ.setdefault("SQLITE_TMPDIR", str(path.parent.absolute()))  # the usual place is often small, or memory
        connection.execute("VACUUM")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return before, path.stat().st_size
