"""Raw rows of a store one after another, for writing them elsewhere: in bounded memory, and without holding up the bridge.

Every page of rows is a view of its own: a long export would else keep the write-ahead log from being given back. Rows that
are written meanwhile are in it where they come after the place it has reached.
"""

from __future__ import annotations

import heapq
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from fleetgp.errors import StorageError
from fleetgp.store.sqlite_errors import plain_words
from fleetgp.store.sqlite_schema import connect_reader, table_of, transaction

ROWS_AT_ONCE, LEAST_A_PAGE = 20_000, 20  # of all series that are read together; of one of them
_LEAST = -(2**63)


class RawRow(NamedTuple):
    """A row of a series: its time and that it was received at (UTC epoch ms), the sender's count (None where it sent none)
    and the values of the wanted columns in their order, None where missing."""

    at_ms: int
    series: str
    received_ms: int
    sequence: int | None
    values: tuple[float | None, ...]


@dataclass(frozen=True)
class Part:
    """What to export: series of one kind (names: none = all) with start_ms <= at_ms <= end_ms."""

    kind: str = "reading"
    names: tuple[str, ...] = ()
    start_ms: int = _LEAST
    end_ms: int = 2**63 - 1


def columns(path: Path, part: Part) -> list[str]:
    """Names of all columns of the series, each once, in order of arrival. Raises StorageError, also for an unknown series."""
    with closing(connect_reader(path)) as connection, plain_words(path, "read"):
        found = _series(connection, path, part)
        return list(dict.fromkeys(name for _, _, positions in found for name in positions))


def raw_rows(path: Path, part: Part, wanted: Sequence[str]) -> Iterator[RawRow]:
    """Rows of the wanted columns of all series in order of time, those of one time by series. Raises StorageError."""
    with closing(connect_reader(path)) as connection, plain_words(path, "read"):
        found = _series(connection, path, part)
        page = max(LEAST_A_PAGE, ROWS_AT_ONCE // max(1, len(found)))
        streams = [
            _rows_of(connection, (series_id, name), [positions.get(one) for one in wanted], part, page)
            for series_id, name, positions in found
        ]
        yield from heapq.merge(*streams, key=lambda row: row[:2])


def _series(connection: sqlite3.Connection, path: Path, part: Part) -> list[tuple[int, str, dict[str, int]]]:
    with transaction(connection, "DEFERRED"):
        found = connection.execute("SELECT id, name FROM series WHERE kind = ? ORDER BY name", (part.kind,)).fetchall()
        missing = set(part.names) - {name for _, name in found}
        if missing:
            raise StorageError(
                f"the history store {path} has no {part.kind} series {sorted(missing)[0]!r}; fleetgp store info lists them"
            )
        sql = "SELECT name, position FROM columns WHERE series_id = ? ORDER BY position"
        return [
            (series_id, name, dict(connection.execute(sql, (series_id,)).fetchall()))
            for series_id, name in found
            if not part.names or name in part.names
        ]


def _rows_of(
    connection: sqlite3.Connection, series: tuple[int, str], positions: Sequence[int | None], part: Part, most: int
) -> Iterator[RawRow]:
    series_id, name = series
    cells = "".join(", NULL" if position is None else f", c{position:d}" for position in positions)
    # Below the floor rows may be left that are on their way out: no window shows them, so neither does an export.
    sql = (
        f"SELECT at_ms, ordinal, received_ms{cells} FROM {table_of(series_id)} WHERE (at_ms, ordinal) > (?, ?) "
        "AND at_ms <= ? ORDER BY at_ms, ordinal LIMIT ?"
    )
    place = (part.start_ms, _LEAST)
    while True:
        with transaction(connection, "DEFERRED"):
            floor = connection.execute(
                "SELECT floor_ms FROM series WHERE id = ? AND kind = ? AND name = ?", (series_id, part.kind, name)
            ).fetchone()
            if floor is None:
                return  # removed meanwhile
            place = max(place, (_LEAST if floor[0] is None else floor[0], _LEAST))
            page = connection.execute(sql, (*place, part.end_ms, most)).fetchall()
        for at_ms, ordinal, received_ms, *values in page:
            yield RawRow(at_ms, name, received_ms, ordinal if ordinal >= 0 else None, tuple(values))
        if len(page) < most:
            return
        place = (page[-1][0], page[-1][1])
