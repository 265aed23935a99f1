"""What is in a store, in figures: for ``fleetgp store info``."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from fleetgp.store.sqlite_errors import plain_words
from fleetgp.store.sqlite_prune import DOCUMENTS, SERIES_KINDS
from fleetgp.store.sqlite_schema import connect_reader, transaction, version_of

MOST_SERIES = 20


@dataclass(frozen=True)
class KindReport:
    """All series of a kind, or the events or rounds. rows: raw rows or documents; spans in UTC epoch ms."""

    kind: str
    series: int
    rows: int
    first_ms: int | None
    last_ms: int | None


@dataclass(frozen=True)
class SeriesReport:
    """One series. raw_from_ms: raw rows before it are no longer kept; minutes_from_ms: the same of rollups of a minute."""

    kind: str
    name: str
    channels: int
    rows: int
    first_ms: int
    last_ms: int
    raw_from_ms: int | None
    minutes_from_ms: int | None


@dataclass(frozen=True)
class Report:
    """A store. free_mb: of pages that hold nothing and are used again before the file grows.

    waiting: minutes and hours that upkeep has still to roll up, series whose hours are still to be made, series that were
    removed and whose rows are still going. largest: the series with the most rows, at most as many as were asked for.
    """

    location: str
    version: int
    file_mb: float
    log_mb: float
    free_mb: float
    kinds: tuple[KindReport, ...]
    waiting: Mapping[str, int]
    largest: tuple[SeriesReport, ...]

    @property
    def rows(self) -> int:
        return sum(one.rows for one in self.kinds if one.kind in SERIES_KINDS)


def examine(path: Path, most_series: int = MOST_SERIES) -> Report:
    """Look at a store, as of one moment, whoever writes to it. Raises StorageError."""
    with closing(connect_reader(path)) as connection, plain_words(path, "read"), transaction(connection, "DEFERRED"):
        page_bytes = _one(connection, "PRAGMA page_size")
        version = version_of(connection)
        return Report(
            str(path),
            version,
            page_bytes * _one(connection, "PRAGMA page_count") / 1e6,
            _megabytes(Path(f"{path}-wal")),
            page_bytes * _one(connection, "PRAGMA freelist_count") / 1e6,
            (*_kinds(connection), *_documents(connection)),
            _waiting(connection, version),
            _largest(connection, version, most_series),
        )


def _kinds(connection: sqlite3.Connection) -> list[KindReport]:
    sql = "SELECT count(*), coalesce(sum(rows), 0), min(first_ms), max(last_ms) FROM series WHERE kind = ?"
    return [KindReport(kind, *connection.execute(sql, (kind,)).fetchone()) for kind in SERIES_KINDS]


def _documents(connection: sqlite3.Connection) -> list[KindReport]:
    return [
        KindReport(kind, 0, *connection.execute(f"SELECT count(*), min({age}), max({age}) FROM {table}").fetchone())
        for kind, (table, age) in DOCUMENTS.items()
    ]


def _waiting(connection: sqlite3.Connection, version: int) -> dict[str, int]:
    result = {"minutes": _one(connection, "SELECT count(*) FROM dirty")}
    if version > 1:
        result["hours"] = _one(connection, "SELECT count(*) FROM dirty_hours")
        result["series_without_hours"] = _one(
            connection, "SELECT count(*) FROM series WHERE hours_from IS NOT NULL AND kind != 'removed'"
        )
        result["series_being_removed"] = _one(connection, "SELECT count(*) FROM series WHERE kind = 'removed'")
    return result


def _largest(connection: sqlite3.Connection, version: int, most: int) -> tuple[SeriesReport, ...]:
    minutes_from = "rollup_floor_ms" if version > 1 else "NULL"
    rows = connection.execute(
        "SELECT kind, name, (SELECT count(*) FROM columns WHERE series_id = id), rows, first_ms, last_ms, floor_ms, "
        f"{minutes_from} FROM series WHERE kind != 'removed' ORDER BY rows DESC, kind, name LIMIT ?",
        (most,),
    )
    return tuple(SeriesReport(*row) for row in rows)


def _one(connection: sqlite3.Connection, sql: str) -> int:
    number: int = connection.execute(sql).fetchone()[0]
    return number


def _megabytes(file: Path) -> float:
    try:
        return file.stat().st_size / 1e6
    except FileNotFoundError:
        return 0.0
