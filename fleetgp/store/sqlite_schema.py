"""Tables of the SQLite store, and connections to it.

    series    one row a series: id, kind, name, range of its times, count of its raw rows, and floor_ms: raw rows before
              it have been dropped for their age (NULL: none yet); always a whole minute. capacity: columns its table has.
              rollup_floor_ms: the same of rollups of a minute; always a whole hour and never after floor_ms. hours_from:
              hours before it are not in ``hourly`` yet (NULL: all are), in stores that were made before it was there
    columns   name of each column of a series by position
    s<id>     raw rows of one series, at_ms and ordinal first, then received_ms and one REAL column c<position> a channel
    dirty     minutes of a series whose raw rows changed since they were rolled up; written with the rows
    rollup    n, sum, min, max of one column of a series in one minute (minute = at_ms divided by 60,000, rounded down)
    hourly    the same of one hour (at_ms divided by 3,600,000, rounded down), made of rollups
    dirty_hours     hours of a series whose rollups of a minute changed since; written with these. An hour counts as long
              as neither it nor one of its minutes is dirty
    events, rounds, statuses, healths     documents as JSON, with the columns they are found by

ordinal is the sender's sequence where it sends one, else -1, -2, ... for rows of one instant that contradict each other.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fleetgp.errors import StorageError
from fleetgp.store.sqlite_errors import plain_words

APPLICATION_ID = 0x464C5447  # "FLTG"
SCHEMA_VERSION = 2
MINUTE_MS, HOUR_MS = 60_000, 3_600_000
# Rounded down, which SQLite's division of what is before 1970 is not: from the first hour of the year 1 on.
HOUR_OF_MINUTE = "((minute + 1035593280) / 60 - 17259888)"
BUSY_S = 5.0

_TABLES = """
CREATE TABLE series (
    id INTEGER PRIMARY KEY, kind TEXT NOT NULL, name TEXT NOT NULL,
    first_ms INTEGER NOT NULL, last_ms INTEGER NOT NULL, rows INTEGER NOT NULL DEFAULT 0, floor_ms INTEGER,
    capacity INTEGER NOT NULL, rollup_floor_ms INTEGER, hours_from INTEGER,
    UNIQUE (kind, name)
);
CREATE TABLE columns (
    series_id INTEGER NOT NULL, position INTEGER NOT NULL, name TEXT NOT NULL, PRIMARY KEY (series_id, position)
) WITHOUT ROWID;
CREATE TABLE dirty (
    series_id INTEGER NOT NULL, minute INTEGER NOT NULL, PRIMARY KEY (series_id, minute)
) WITHOUT ROWID;
CREATE TABLE rollup (
    series_id INTEGER NOT NULL, position INTEGER NOT NULL, minute INTEGER NOT NULL,
    n INTEGER NOT NULL, sum REAL, min REAL NOT NULL, max REAL NOT NULL, PRIMARY KEY (series_id, position, minute)
) WITHOUT ROWID;
CREATE TABLE hourly (
    series_id INTEGER NOT NULL, position INTEGER NOT NULL, hour INTEGER NOT NULL,
    n INTEGER NOT NULL, sum REAL, min REAL NOT NULL, max REAL NOT NULL, PRIMARY KEY (series_id, position, hour)
) WITHOUT ROWID;
CREATE TABLE dirty_hours (
    series_id INTEGER NOT NULL, hour INTEGER NOT NULL, PRIMARY KEY (series_id, hour)
) WITHOUT ROWID;
CREATE TABLE events (
    agent TEXT NOT NULL, event_id TEXT NOT NULL, rank INTEGER NOT NULL, at_ms INTEGER NOT NULL,
    start_ms INTEGER NOT NULL, body BLOB NOT NULL, PRIMARY KEY (agent, event_id)
);
CREATE INDEX events_by_start ON events (start_ms);
CREATE INDEX events_by_agent ON events (agent, start_ms);
CREATE TABLE rounds (round INTEGER PRIMARY KEY, rank INTEGER NOT NULL, at_ms INTEGER NOT NULL, body BLOB NOT NULL);
CREATE INDEX rounds_by_time ON rounds (at_ms);
CREATE TABLE statuses (name TEXT NOT NULL, role TEXT NOT NULL, at_ms INTEGER, body BLOB, PRIMARY KEY (name, role));
CREATE TABLE healths (name TEXT NOT NULL, role TEXT NOT NULL, at_ms INTEGER, body BLOB, PRIMARY KEY (name, role));
"""

# Instantly, whatever the size: the hours of what is there already are made by upkeep, a bounded step at a time.
_VERSION_1_TO_2 = (
    *(part for part in _TABLES.split(";") if "TABLE hourly" in part or "TABLE dirty_hours" in part),
    "ALTER TABLE series ADD COLUMN rollup_floor_ms INTEGER",
    "ALTER TABLE series ADD COLUMN hours_from INTEGER",
    "UPDATE series SET hours_from = last_ms / 3600000 + 1",
)


def table_of(series_id: int) -> str:
    """Name of the table that holds the raw rows of a series."""
    return f"s{series_id:d}"


@contextmanager
def transaction(connection: sqlite3.Connection, mode: str = "IMMEDIATE") -> Iterator[None]:
    """All or nothing: commits at the end, rolls back on any exception. mode DEFERRED: one unchanging view for readers."""
    connection.execute(f"BEGIN {mode}")
    try:
        yield
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def connect_writer(path: Path, busy_s: float = BUSY_S) -> sqlite3.Connection:
    """A connection that may write; the store and its folder are made where they do not exist.

    busy_s: how long to wait for another program's lock. Raises StorageError when the file is of another program, of a
    newer FleetGP, or cannot be opened; such a file is left as it was.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as err:
        raise StorageError(f"cannot make the folder of the history store {path}: {err.strerror}") from err
    _is_file(path)
    with plain_words(path, "open"):
        connection = _connect(path, "rwc", busy_s)
        try:
            is_new = _is_unwritten(connection, path)
            _tune(connection, path)
            if is_new:
                _create(connection, path)
            _migrate(connection)
        except BaseException:
            connection.close()
            raise
    return connection


def connect_reader(path: Path, busy_s: float = BUSY_S) -> sqlite3.Connection:
    """A read-only connection. Raises StorageError when the bridge has not written yet or the file is no store of ours."""
    if not _is_file(path):
        raise StorageError(f"there is no history store {path} yet: the bridge has not written to it; is it running?")
    with plain_words(path, "read"):
        connection = _connect(path, "ro", busy_s)
        try:
            if _is_unwritten(connection, path):
                raise StorageError(f"the history store {path} is empty: the bridge has not written to it yet")
        except BaseException:
            connection.close()
            raise
    return connection


def _is_file(path: Path) -> bool:
    """False where nothing is; raises StorageError for a folder, a pipe and what else cannot be a database."""
    try:
        if path.exists() and not path.is_file():
            raise StorageError(f"the history store {path} is not a file: choose another store.path")
        return path.exists()
    except OSError as err:
        raise StorageError(f"cannot look for the history store {path}: {err.strerror}") from err


def _connect(path: Path, mode: str, busy_s: float) -> sqlite3.Connection:
    # A URI percent-encodes what is special in a path (?, #, %); absolute, because file: knows no relative paths.
    return sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={mode}",
        uri=True,
        timeout=busy_s,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=512,
    )


def _is_unwritten(connection: sqlite3.Connection, path: Path) -> bool:
    """True for an empty database, False for a store of ours; raises StorageError for anything else."""
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    version = version_of(connection)
    if application == APPLICATION_ID:
        if version > SCHEMA_VERSION:
            raise StorageError(
                f"the history store {path} was written by a newer FleetGP (version {version} of its form, this program "
                f"knows {SCHEMA_VERSION}): update this program or choose another store.path"
            )
        return False
    has_tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] > 0
    if application or version or has_tables:
        raise StorageError(f"{path} is a database of another program, not a FleetGP store: choose another store.path")
    return True


def _tune(connection: sqlite3.Connection, path: Path) -> None:
    mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
    if mode != "wal":
        raise StorageError(f"the disk of the history store {path} does not support a write-ahead log; use a local disk")
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("PRAGMA cache_size = -8000")  # 8 MB
    connection.execute("PRAGMA journal_size_limit = 67108864")  # give back what the log grew beyond 64 MB


def _create(connection: sqlite3.Connection, path: Path) -> None:
    with transaction(connection):
        if not _is_unwritten(connection, path):
            return  # another program was quicker
        for statement in _TABLES.split(";"):
            connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")


def version_of(connection: sqlite3.Connection) -> int:
    """Version of a store's form: 0 where nothing was written."""
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    return version


def _migrate(connection: sqlite3.Connection) -> None:
    if version_of(connection) >= SCHEMA_VERSION:
        return
    with transaction(connection):
        if version_of(connection) >= SCHEMA_VERSION:
            return  # another program was quicker
        for statement in _VERSION_1_TO_2:
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
