"""The writing side of the SQLite store."""

from __future__ import annotations

import sqlite3
import threading
from collections import Counter
from dataclasses import replace
from pathlib import Path

from fleetgp.store.base import Batch, WriteReport
from fleetgp.store.sqlite_catalog import Catalog
from fleetgp.store.sqlite_documents import trim_documents, write_documents
from fleetgp.store.sqlite_errors import plain_words
from fleetgp.store.sqlite_retention import Retention
from fleetgp.store.sqlite_rollup import roll_up
from fleetgp.store.sqlite_rows import write_rows
from fleetgp.store.sqlite_schema import transaction
from fleetgp.store.sqlite_upkeep import SERIES_A_STEP, drop_old, drop_old_documents


class SqliteWriter:
    """Writes batches, each whole or not at all; may be called from any thread, one call at a time goes through.

    A returned write survives the death of the program; of a power cut the last moments may not (synchronous NORMAL),
    the store itself does. After a StorageError the writer can be used on and the same batch be tried again.
    """

    def __init__(self, connection: sqlite3.Connection, path: Path, retention: Retention) -> None:
        """connection: from connect_writer, owned by the writer from now on. path: for messages."""
        self._connection = connection
        self._path = path
        self._retention = retention
        self._lock = threading.Lock()
        self._catalog: Catalog | None = None  # None: to be read anew, after a failure or a change by others
        self._version = -1
        self._last_series = 0  # retention goes round: the last series it looked at

    def write(self, batch: Batch) -> WriteReport:
        """Commit a batch. Rows refused by the rules are counted, never raised for; raises StorageError."""
        with self._lock, plain_words(self._path, "write to"):
            with transaction(self._connection):
                catalog, self._catalog = self._current_catalog(), None
                report = write_rows(self._connection, catalog, batch.rows)
                refused = write_documents(self._connection, batch)
            self._catalog = catalog
        return replace(report, refused=dict(Counter(report.refused) + refused)) if refused else report

    def maintain(self, now_ms: int) -> None:
        """One bounded step of upkeep: rollups, then retention of some series, then age and bounds of documents."""
        with self._lock, plain_words(self._path, "tidy"):
            roll_up(self._connection, now_ms)
            catalog, self._catalog = self._catalog, None
            floors = self._drop_old(now_ms)
            if catalog is not None:
                catalog.set_floors(floors)
            self._catalog = catalog
            with transaction(self._connection):
                drop_old_documents(self._connection, self._retention, now_ms)
                trim_documents(self._connection)

    def close(self) -> None:
        """Close the store; a second time does nothing."""
        with self._lock, plain_words(self._path, "close"):
            self._connection.close()

    def _drop_old(self, now_ms: int) -> dict[int, int]:
        found = self._connection.execute(
            "SELECT id FROM series WHERE id > ? ORDER BY id LIMIT ?", (self._last_series, SERIES_A_STEP)
        ).fetchall()
        ids = [series_id for (series_id,) in found]
        floors, count = drop_old(self._connection, self._retention, now_ms, ids)
        # where the budget ended the next call goes on, so that no series waits for ever for those before it
        self._last_series = ids[count - 1] if count and (count < len(ids) or count == SERIES_A_STEP) else 0
        return floors

    def _current_catalog(self) -> Catalog:
        # data_version changes when another connection has committed, never by ourselves
        version = self._connection.execute("PRAGMA data_version").fetchone()[0]
        if self._catalog is None or version != self._version:
            self._version = version
            return Catalog(self._connection)
        return self._catalog
