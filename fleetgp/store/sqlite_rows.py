"""Putting rows in: what is taken, what is there already, what contradicts what is there.

A row is found again by its time and its sender's sequence. Of rows without a sequence, those of one instant that do not
contradict each other are one row; those that do are kept beside each other, up to MAX_AT_ONE_INSTANT. The same holds for
a row that repeats the time and sequence of another but not its values: it is kept among the rows without a sequence.
"""

from __future__ import annotations

import math
import sqlite3
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from fleetgp.store.base import Row, WriteReport
from fleetgp.store.sqlite_catalog import Catalog, Layout, Refusal, Series
from fleetgp.store.sqlite_schema import MINUTE_MS

# Years 1 and 9999, the range that calendars of Python and of browsers can show.
EARLIEST_MS, LATEST_MS = -62_135_596_800_000, 253_402_300_799_999
MAX_AT_ONE_INSTANT = 256
_UNNUMBERED = -1
_MAX_SEQUENCE = 2**63 - 1

# at_ms, ordinal, received_ms, then the values in the order of the layout
Record = tuple[int | float | None, ...]


@dataclass(eq=False)
class _Group:
    """Rows of one series with the same columns."""

    series: Series
    layout: Layout
    records: list[Record] = field(default_factory=list)


@dataclass
class _Tally:
    written: int = 0
    duplicates: int = 0
    refused: Counter[str] = field(default_factory=Counter)


def write_rows(connection: sqlite3.Connection, catalog: Catalog, rows: Iterable[Row]) -> WriteReport:
    """Put rows into the transaction that is open. Never raises for the content of a row: it is refused and counted."""
    tally = _Tally()
    groups: dict[Layout, _Group] = {}
    for row in rows:
        try:
            values = _check(row)
            series, layout = catalog.place(row.kind, row.series, tuple(row.values), row.at_ms)
            if series.floor_ms is not None and row.at_ms < series.floor_ms:
                raise Refusal("older_than_kept")
        except Refusal as refusal:
            tally.refused[str(refusal)] += 1
            continue
        group = groups.get(layout)
        if group is None:
            group = groups[layout] = _Group(series, layout)
        ordinal = _UNNUMBERED if row.sequence is None else row.sequence
        group.records.append((row.at_ms, ordinal, row.received_ms, *values))
    for group in groups.values():
        _insert(connection, group, tally)
    return WriteReport(tally.written, tally.duplicates, dict(tally.refused))


def _check(row: Row) -> list[float | None]:
    """The row's values as doubles. Raises Refusal."""
    if not (EARLIEST_MS <= row.at_ms <= LATEST_MS and EARLIEST_MS <= row.received_ms <= LATEST_MS):
        raise Refusal("time_out_of_range")
    if row.sequence is not None and not 0 <= row.sequence <= _MAX_SEQUENCE:
        raise Refusal("sequence_out_of_range")
    if not row.values:
        raise Refusal("no_values")
    try:
        values = [None if value is None else float(value) for value in row.values.values()]
    except OverflowError as err:
        raise Refusal("not_finite") from err
    except (TypeError, ValueError) as err:
        raise Refusal("not_a_number") from err
    # A finite sum proves finite terms; only where it is not need each be looked at.
    if not math.isfinite(sum(filter(None, values))) and not all(v is None or math.isfinite(v) for v in values):
        raise Refusal("not_finite")
    return values


def _insert(connection: sqlite3.Connection, group: _Group, tally: _Tally) -> None:
    records, series = group.records, group.series
    inserted = connection.executemany(group.layout.insert, records).rowcount
    merged = 0
    if inserted < len(records):
        ignored = len(records) - inserted
        outcomes = Counter(_settle(connection, group, record) for record in records)
        added, merged, refused = outcomes["added"], outcomes["merged"], outcomes["too_many_at_one_instant"]
        inserted += added
        tally.duplicates += ignored - added - merged - refused
        tally.refused += Counter({"too_many_at_one_instant": refused})  # adding counters leaves zeros out
    tally.written += inserted + merged
    if inserted + merged:
        _note_change(connection, series, records, inserted)


def _settle(connection: sqlite3.Connection, group: _Group, record: Record) -> str:
    """Find a place for a record that may have been ignored: there already, merged, added beside, or too many."""
    layout, (at_ms, ordinal, received_ms), values = group.layout, record[:3], record[3:]
    own = connection.execute(f"{layout.select} AND ordinal = ?", (at_ms, ordinal)).fetchone()
    if _holds(own, values):
        return "there"
    others = connection.execute(f"{layout.select} AND ordinal < 0 ORDER BY ordinal DESC", (at_ms,)).fetchall()
    if any(_holds(stored, values) for stored in others):
        return "there"
    for stored in (own, *others):
        if not _contradicts(stored, values):
            connection.execute(layout.fill, (*values, at_ms, stored[0]))
            return "merged"
    if len(others) >= MAX_AT_ONE_INSTANT:
        return "too_many_at_one_instant"
    connection.execute(layout.insert, (at_ms, _UNNUMBERED - len(others), received_ms, *values))
    return "added"


def _holds(stored: Sequence[float | None], values: Sequence[float | None]) -> bool:
    return all(new is None or new == old for new, old in zip(values, stored[1:], strict=True))


def _contradicts(stored: Sequence[float | None], values: Sequence[float | None]) -> bool:
    return any(new is not None and old is not None and new != old for new, old in zip(values, stored[1:], strict=True))


def _note_change(connection: sqlite3.Connection, series: Series, records: Sequence[Record], inserted: int) -> None:
    times = [record[0] for record in records if record[0] is not None]
    connection.executemany(
        "INSERT OR IGNORE INTO dirty VALUES (?, ?)", [(series.id, minute) for minute in {t // MINUTE_MS for t in times}]
    )
    connection.execute(
        "UPDATE series SET rows = rows + ?, first_ms = min(first_ms, ?), last_ms = max(last_ms, ?) WHERE id = ?",
        (inserted, min(times), max(times), series.id),
    )
