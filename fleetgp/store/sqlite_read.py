"""The reading side of the SQLite store."""

from __future__ import annotations

import sqlite3
import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from fleetgp.store.base import Kind, SeriesInfo, StoreInfo, Window
from fleetgp.store.sqlite_documents import read_events, read_healths, read_rounds, read_statuses
from fleetgp.store.sqlite_errors import plain_words
from fleetgp.store.sqlite_schema import table_of, transaction
from fleetgp.store.sqlite_window import read_window
from fleetgp.wire.messages import AnomalyEvent, Health, RoundNotice, Status


class SqliteReader:
    """Reads while another process writes; every answer is of one moment. May be called from any thread."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        """connection: from connect_reader, owned by the reader from now on. path: for messages and sizes."""
        self._connection = connection
        self._path = path
        self._lock = threading.Lock()

    def series(self, kind: Kind) -> list[SeriesInfo]:
        """All series of a kind by name. first_ms also covers minutes of which only the rollup is left; rows are raw."""
        with self._view() as connection:
            columns: dict[int, list[str]] = defaultdict(list)
            for series_id, name in connection.execute(
                "SELECT series_id, columns.name FROM columns JOIN series ON series.id = series_id "
                "WHERE kind = ? ORDER BY series_id, position",
                (kind,),
            ):
                columns[series_id].append(name)
            found = connection.execute(
                "SELECT id, name, first_ms, last_ms, rows FROM series WHERE kind = ? ORDER BY name", (kind,)
            )
            return [SeriesInfo(kind, name, tuple(columns[key]), *numbers) for key, name, *numbers in found]

    def window(
        self, kind: Kind, name: str, columns: Sequence[str], start_ms: int, end_ms: int, max_points: int = 600
    ) -> Window:
        """See Reader.window; an unknown series gives an empty window. Raises ValueError when max_points is below 1."""
        if max_points < 1:
            raise ValueError(f"max_points is {max_points}; a window needs at least 1")
        with self._view() as connection:
            return read_window(connection, (kind, name), columns, (start_ms, end_ms), max_points)

    def sequences(self, name: str) -> list[int]:
        """Sequence numbers of the raw rows of a reading series, sorted; none for rows that came without."""
        with self._view() as connection:
            found = connection.execute("SELECT id FROM series WHERE kind = 'reading' AND name = ?", (name,)).fetchone()
            if found is None:
                return []
            sql = f"SELECT ordinal FROM {table_of(found[0])} WHERE ordinal >= 0 ORDER BY ordinal"
            return [ordinal for (ordinal,) in connection.execute(sql)]

    def statuses(self) -> list[Status]:
        """The last presence of every program."""
        with self._view() as connection:
            return read_statuses(connection)

    def healths(self) -> list[Health]:
        """The last health of every program."""
        with self._view() as connection:
            return read_healths(connection)

    def events(self, agent: str | None = None, limit: int = 1000) -> list[AnomalyEvent]:
        """The newest state of each event, latest start first."""
        with self._view() as connection:
            return read_events(connection, agent, limit)

    def rounds(self, limit: int = 1000) -> list[RoundNotice]:
        """Rounds, latest first; the closed notice where a round is closed, else the opened one."""
        with self._view() as connection:
            return read_rounds(connection, limit)

    def info(self) -> StoreInfo:
        """Size (file and write-ahead log) and content."""
        with self._view() as connection:
            counts = connection.execute(
                "SELECT count(*), coalesce(sum(rows), 0), min(first_ms), max(last_ms) FROM series WHERE kind != 'removed'"
            ).fetchone()
        files = (self._path, Path(f"{self._path}-wal"))
        return StoreInfo(str(self._path), sum(_size(file) for file in files) / 1e6, *counts)

    def close(self) -> None:
        """Close the store; a second time does nothing."""
        with self._lock, plain_words(self._path, "close"):
            self._connection.close()

    @contextmanager
    def _view(self) -> Iterator[sqlite3.Connection]:
        with self._lock, plain_words(self._path, "read"), transaction(self._connection, "DEFERRED"):
            yield self._connection


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except FileNotFoundError:
        return 0
