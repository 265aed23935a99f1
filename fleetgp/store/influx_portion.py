"""The next entries of the backlog's log as lines of the line protocol."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from fleetgp.store.base import SeriesInfo
from fleetgp.store.influx_late import SAME_NANOSECOND, LateRow
from fleetgp.store.influx_lines import (
    EARLIEST_MS,
    MEASUREMENTS,
    MS,
    event_line,
    field_name,
    key,
    program_line,
    round_line,
    row_line,
    series_line,
    slot,
)
from fleetgp.store.sqlite_schema import MINUTE_MS, table_of
from fleetgp.wire.codec import decode
from fleetgp.wire.messages import AnomalyEvent, Health, RoundNotice, Status

ENTRIES = 5000
ENOUGH_CHARACTERS = 4_000_000  # servers refuse bodies of 25 MB
_PIECE = 500
_HOUR_MS = 3_600_000

RECOUNTED = -5  # in the log: a series (its id as key) of which only the count of rows has changed

Line = str
Refused = tuple[Line, str]
_Entry = tuple[int, int, int, int]  # id, put_ms, source, key

# kind of document in the log -> its table, how its row is found, and by what
DOCUMENTS: Mapping[int, tuple[str, str, Callable[[Any], tuple[object, ...]]]] = {
    -1: ("events", "SELECT rowid FROM events WHERE agent = ? AND event_id = ?", lambda m: (m.agent, m.event_id)),
    -2: ("rounds", "SELECT rowid FROM rounds WHERE round = ?", lambda m: (m.round,)),
    -3: ("statuses", "SELECT rowid FROM statuses WHERE name = ? AND role = ?", lambda m: (m.name, m.role)),
    -4: ("healths", "SELECT rowid FROM healths WHERE name = ? AND role = ?", lambda m: (m.name, m.role)),
}


class Portion(NamedTuple):
    """Lines of the entries up to last_id. refused: lines that must not be sent, because they would overwrite others; late:
    rows of times that were forgotten here, which the server may know."""

    last_id: int
    lines: list[Line]
    refused: list[Refused]
    late: list[LateRow]


def take(connection: sqlite3.Connection, cursor: int, fleet: str, origin: str, now_ms: int) -> Portion | None:
    """The oldest entries after the cursor; None where there are none."""
    sql = "SELECT id, put_ms, source, key FROM log WHERE id > ? ORDER BY id LIMIT ?"
    entries: list[_Entry] = connection.execute(sql, (cursor, ENTRIES)).fetchall()
    if not entries:
        return None
    portion = Portion(0, [], [], [])
    touched: set[int] = set()
    size = 0
    for first in range(0, len(entries), _PIECE):
        piece = entries[first : first + _PIECE]
        before = len(portion.lines)
        instants: dict[int, list[int]] = defaultdict(list)
        for entry in piece:
            if entry[2] > 0:
                instants[entry[2]].append(entry[3])
            elif entry[2] == RECOUNTED:
                touched.add(entry[3])
            elif (line := _document(connection, fleet, entry)) is not None:
                portion.lines.append(line)
        for source, times in instants.items():
            _add_rows(connection, fleet, (source, times), portion)
        touched |= instants.keys()
        portion = portion._replace(last_id=piece[-1][0])
        size += sum(map(len, portion.lines[before:]))
        if size > ENOUGH_CHARACTERS:
            break
    portion.lines.extend(series_lines(connection, touched, (fleet, origin), now_ms))
    return portion


def series_lines(
    connection: sqlite3.Connection, sources: Iterable[int], whose: tuple[str, str], now_ms: int
) -> list[Line]:
    """What the series hold, a point an hour. whose: fleet and origin."""
    fleet, origin = whose
    at_ms = now_ms - now_ms % _HOUR_MS
    return [
        series_line(fleet, info, origin, (at_ms, _rolled_ms(connection, source, info.last_ms)))
        for source, info in _infos(connection, sources)
    ]


def _rolled_ms(connection: sqlite3.Connection, source: int, last_ms: int) -> int:
    """Where the first minute begins that the server has not rolled up as it stands."""
    first = connection.execute("SELECT min(minute) FROM dirty WHERE series_id = ?", (source,)).fetchone()[0]
    return (last_ms // MINUTE_MS + 1 if first is None else int(first)) * MINUTE_MS


def _add_rows(connection: sqlite3.Connection, fleet: str, wanted: tuple[int, Sequence[int]], portion: Portion) -> None:
    source, times = wanted
    kind, series = connection.execute("SELECT kind, name FROM series WHERE id = ?", (source,)).fetchone()
    columns = _columns(connection, source)
    found = connection.execute("SELECT last_ms FROM forgotten WHERE series_id = ?", (source,)).fetchone()
    forgotten_ms = EARLIEST_MS if found is None else found[0]
    series_key, names = key(MEASUREMENTS[kind], fleet=fleet, series=series), [field_name(name) for _, name in columns]
    cells = "".join(f", c{position:d}" for position, _ in columns)
    places = ", ".join("?" * len(times))
    taken: tuple[int, dict[int, int]] = (0, {})  # of the instant looked at: slot -> ordinal
    for at_ms, ordinal, *values in connection.execute(
        f"SELECT at_ms, ordinal, received_ms{cells} FROM {table_of(source)} WHERE at_ms IN ({places}) "
        "ORDER BY at_ms, ordinal",
        times,
    ):
        if at_ms <= forgotten_ms:
            names_late = [name for _, name in columns]
            portion.late.append(LateRow(source, kind, series, at_ms, ordinal, names_late, values))
            continue
        if taken[0] != at_ms:
            taken = (at_ms, {})
        line = row_line(series_key, names, at_ms, ordinal, values)
        if taken[1].setdefault(slot(ordinal), ordinal) == ordinal:
            portion.lines.append(line)
        else:
            portion.refused.append((line, SAME_NANOSECOND))


def _columns(connection: sqlite3.Connection, source: int) -> list[tuple[int, str]]:
    sql = "SELECT position, name FROM columns WHERE series_id = ? ORDER BY position"
    return connection.execute(sql, (source,)).fetchall()


def _infos(connection: sqlite3.Connection, sources: Iterable[int]) -> Iterator[tuple[int, SeriesInfo]]:
    for source in sources:
        kind, name, first_ms, last_ms, rows = connection.execute(
            "SELECT kind, name, first_ms, last_ms, rows FROM series WHERE id = ?", (source,)
        ).fetchone()
        channels = tuple(column for _, column in _columns(connection, source))
        yield source, SeriesInfo(kind, name, channels, first_ms, last_ms, rows)


def _events_beside(connection: sqlite3.Connection, event: AnomalyEvent) -> list[str]:
    """Ids of the events that this agent began in the same ms, in the order they came."""
    sql = "SELECT event_id FROM events WHERE agent = ? AND start_ms = ? ORDER BY rowid"
    return [event_id for (event_id,) in connection.execute(sql, (event.agent, event.start_ms))]


def _document(connection: sqlite3.Connection, fleet: str, entry: _Entry) -> Line | None:
    """The document as it stands now; None where a newer one has taken its place, which has an entry of its own."""
    number, put_ms, source, rowid = entry
    table = DOCUMENTS[source][0]
    found = connection.execute(f"SELECT body FROM {table} WHERE rowid = ?", (rowid,)).fetchone()
    if found is None:
        return None
    match source:
        case -1:
            event = decode(found[0], AnomalyEvent)
            return event_line(fleet, event, _events_beside(connection, event))
        case -2:
            return round_line(fleet, decode(found[0], RoundNotice))
        case -3:
            return program_line(fleet, decode(found[0], Status), put_ms * MS + number % MS)
        case _:
            return program_line(fleet, decode(found[0], Health), put_ms * MS + number % MS)
