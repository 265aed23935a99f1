"""The history store in one SQLite file: the default, from the standard library.

Write-ahead log and synchronous NORMAL: one process writes, any number read meanwhile, and what a returned write() took
survives the death of every program. One table a series with one column a channel, rollups of a minute for long spans
(``sqlite_upkeep``), documents beside them (``sqlite_documents``); the tables are described in ``sqlite_schema``.
"""

from __future__ import annotations

from pathlib import Path

from fleetgp.errors import ConfigError
from fleetgp.store.base import Reader, Writer
from fleetgp.store.sqlite_read import SqliteReader
from fleetgp.store.sqlite_schema import BUSY_S, connect_reader, connect_writer
from fleetgp.store.sqlite_upkeep import Retention
from fleetgp.store.sqlite_write import SqliteWriter


def open_writer(path: Path, *, raw_days: float, rollup_days: float, busy_s: float = BUSY_S) -> Writer:
    """Open a store for writing; it and its folder are made where they do not exist.

    raw_days, rollup_days: how long raw rows and rollups of a minute are kept. busy_s: how long to wait for another
    program's lock. Raises ConfigError for days that make no sense, StorageError when the file cannot be used.
    """
    if not raw_days > 0:
        raise ConfigError("store.raw_days", f"is {raw_days}; raw rows must be kept for more than 0 days")
    if not rollup_days >= raw_days:
        raise ConfigError(
            "store.rollup_days", f"is {rollup_days}; rollups must be kept as long as raw rows ({raw_days})"
        )
    return SqliteWriter(connect_writer(path, busy_s), path, Retention(raw_days, rollup_days))


def open_reader(path: Path, *, busy_s: float = BUSY_S) -> Reader:
    """Open a store for reading only. Raises StorageError when nothing was written yet or the file cannot be used."""
    return SqliteReader(connect_reader(path, busy_s), path)
