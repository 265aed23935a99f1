"""Which series and columns there are, as the writer remembers them between batches."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, field

from fleetgp.store.base import Kind
from fleetgp.store.sqlite_schema import table_of

MAX_SERIES = 20_000
# predictions of 64 channels, each with its law and its layers, take 579
MAX_COLUMNS = 640
MAX_NAME_CHARACTERS = 1024
_MAX_LAYOUTS = 64
# A new table gets half as many columns again, for those that show up later: an empty one costs a byte a row, while ALTER
# TABLE makes SQLite read the definitions of all tables again (0.6 s in a store of 20,000 series).
_LEAST_SPARE = 4


class Refusal(Exception):
    """A row that the store does not take; its text is the reason that is counted."""


@dataclass(frozen=True, eq=False)
class Layout:
    """Statements for rows with one tuple of column names: put in, find what is there, fill what is missing there."""

    insert: str
    select: str
    fill: str


@dataclass(eq=False)
class Series:
    """One series. capacity: columns its table has; floor_ms: rows before it are no longer kept raw; positions by name."""

    id: int
    capacity: int
    floor_ms: int | None = None
    positions: dict[str, int] = field(default_factory=dict)
    layouts: dict[tuple[str, ...], Layout] = field(default_factory=dict)


class Catalog:
    """All series of a store. Valid for as long as nobody else writes and no transaction is rolled back."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._series: dict[tuple[str, str], Series] = {}
        self._by_id: dict[int, Series] = {}
        for series_id, kind, name, capacity, floor_ms in connection.execute(
            "SELECT id, kind, name, capacity, floor_ms FROM series"
        ):
            self._series[kind, name] = self._by_id[series_id] = Series(series_id, capacity, floor_ms)
        for series_id, position, name in connection.execute("SELECT series_id, position, name FROM columns"):
            self._by_id[series_id].positions[name] = position

    def set_floors(self, floors: Mapping[int, int]) -> None:
        """Remember from when on raw rows are kept, by id of the series."""
        for series_id, floor_ms in floors.items():
            self._by_id[series_id].floor_ms = floor_ms

    def place(self, kind: Kind, name: str, columns: tuple[str, ...], at_ms: int) -> tuple[Series, Layout]:
        """The series and layout for a row, made where new. Raises Refusal and leaves the store alone where it may not."""
        series = self._series.get((kind, name))
        if series is not None:
            layout = series.layouts.get(columns)
            if layout is not None:
                return series, layout
        new = [column for column in columns if series is None or column not in series.positions]
        if (len(series.positions) if series else 0) + len(new) > MAX_COLUMNS:
            raise Refusal("too_many_columns")
        for column in new:
            _check_name(column)
        if series is None:
            series = self._add_series(kind, name, at_ms, len(new))
        for position, column in enumerate(new, start=len(series.positions)):
            self._add_column(series, position, column)
        return series, _lay_out(series, columns)

    def _add_series(self, kind: Kind, name: str, at_ms: int, width: int) -> Series:
        _check_name(name)
        if len(self._series) >= MAX_SERIES:
            raise Refusal("too_many_series")
        capacity = min(width + max(_LEAST_SPARE, width // 2), MAX_COLUMNS)
        cursor = self._connection.execute(
            "INSERT INTO series (kind, name, first_ms, last_ms, capacity) VALUES (?, ?, ?, ?, ?) RETURNING id",
            (kind, name, at_ms, at_ms, capacity),
        )
        series = Series(cursor.fetchone()[0], capacity)
        values = "".join(f"c{position:d} REAL, " for position in range(capacity))
        self._connection.execute(
            f"CREATE TABLE {table_of(series.id)} (at_ms INTEGER NOT NULL, ordinal INTEGER NOT NULL, "
            f"received_ms INTEGER NOT NULL, {values}PRIMARY KEY (at_ms, ordinal)) WITHOUT ROWID"
        )
        self._series[kind, name] = self._by_id[series.id] = series
        return series

    def _add_column(self, series: Series, position: int, name: str) -> None:
        if position >= series.capacity:
            self._connection.execute(f"ALTER TABLE {table_of(series.id)} ADD COLUMN c{position:d} REAL")
            self._connection.execute("UPDATE series SET capacity = ? WHERE id = ?", (position + 1, series.id))
            series.capacity = position + 1
        self._connection.execute("INSERT INTO columns VALUES (?, ?, ?)", (series.id, position, name))
        series.positions[name] = position


def _check_name(name: str) -> None:
    if not name.strip():
        raise Refusal("empty_name")
    if len(name) > MAX_NAME_CHARACTERS or "\0" in name or any("\ud800" <= letter <= "\udfff" for letter in name):
        raise Refusal("bad_name")


def _lay_out(series: Series, columns: tuple[str, ...]) -> Layout:
    if len(series.layouts) >= _MAX_LAYOUTS:
        series.layouts.clear()
    table, names = table_of(series.id), [f"c{series.positions[column]:d}" for column in columns]
    layout = Layout(
        insert=f"INSERT OR IGNORE INTO {table} (at_ms, ordinal, received_ms, {', '.join(names)}) "
        f"VALUES (?, ?, ?{', ?' * len(names)})",
        select=f"SELECT ordinal, {', '.join(names)} FROM {table} WHERE at_ms = ?",
        fill=f"UPDATE {table} SET {', '.join(f'{name} = coalesce({name}, ?)' for name in names)} "
        "WHERE at_ms = ? AND ordinal = ?",
    )
    series.layouts[columns] = layout
    return layout
