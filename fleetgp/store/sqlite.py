"""The history store in one SQLite file: the default, from the standard library.

Write-ahead log and synchronous NORMAL: one process writes, any number read meanwhile, and what a returned write() took
survives the death of every program. One table a series with one column a channel, rollups of a minute and of an hour for long
spans (``sqlite_rollup``), retention (``sqlite_upkeep``), documents beside them (``sqlite_documents``); the tables are described in ``sqlite_schema``.
"""

from __future__ import annotations

from pathlib import Path

from fleetgp.store.base import Reader, Writer
from fleetgp.store.sqlite_read import SqliteReader
from fleetgp.store.sqlite_retention import Retention, same_for_all
from fleetgp.store.sqlite_schema import BUSY_S, connect_reader, connect_writer
from fleetgp.store.sqlite_write import SqliteWriter


def open_writer(path: Path, *, raw_days: float, rollup_days: float, busy_s: float = BUSY_S) -> Writer:
    """Open a store for writing; it and its folder are made where they do not exist.

    raw_days, rollup_days: how long raw rows and rollups are kept, of every kind of series alike. busy_s: how long to wait
    for another program's lock. Raises ConfigError for days that make no sense, StorageError when the file cannot be used.
    """
    return open_keeping(path, same_for_all(raw_days, rollup_days), busy_s=busy_s)


def open_keeping(path: Path, kept: Retention, *, busy_s: float = BUSY_S) -> Writer:
    """The same with what is kept said for each kind (``sqlite_retention.retention`` reads it from settings)."""
    return SqliteWriter(connect_writer(path, busy_s), path, kept)


def open_reader(path: Path, *, busy_s: float = BUSY_S) -> Reader:
    """Open a store for reading only. Raises StorageError when nothing was written yet or the file cannot be used."""
    return SqliteReader(connect_reader(path, busy_s), path)
