"""What waits to be sent to the server, in a SQLite file of the bridge's own.

The file is a store as ``sqlite_schema`` describes it, so rows are settled by the same rules as in the SQLite store: what
is there already, what contradicts what is there, what is refused and why. Beside it stands

    log         one entry an instant of a series (source = id of the series, key = at_ms), a document (source < 0, key =
                its rowid) or a count of rows (source = RECOUNTED, key = id of the series) that changed, in order;
                put_ms: when. Entries up to the cursor were sent.
    dead        lines that the server refuses for good, with its words
    forgotten   the last at_ms of each series whose rows were sent and then forgotten
    shipping    the cursor, counts that outlive the process, and origin: a random name of this file

What was sent stays for RECENT_MS, so that a message that comes twice is known. Then it goes; of a row that comes for a time
already forgotten the server is asked (``influx_late``).
"""

from __future__ import annotations

import sqlite3
import threading
import uuid
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from fleetgp.runtime.clock import Clock
from fleetgp.store.base import Batch, Kind, Row, WriteReport
from fleetgp.store.influx_late import Known
from fleetgp.store.influx_lines import EARLIEST_MS, LATEST_MS
from fleetgp.store.influx_portion import DOCUMENTS, RECOUNTED, Portion, series_lines, take
from fleetgp.store.sqlite_catalog import Catalog
from fleetgp.store.sqlite_documents import trim_documents, write_documents
from fleetgp.store.sqlite_errors import plain_words
from fleetgp.store.sqlite_rows import write_rows
from fleetgp.store.sqlite_schema import connect_writer, table_of, transaction

RECENT_MS = 3_600_000
STEP = 2000
TIDY_S = 0.5
MAX_DEAD = 10_000
# A machine without a battery clock boots in the past; how long such an entry has waited is not known. 2020-01-01 UTC.
_FOR_ROOM = "dropped_for_room"
_PLAUSIBLE_FROM_MS = 1_577_836_800_000

_TABLES = """
CREATE TABLE IF NOT EXISTS log (
    id INTEGER PRIMARY KEY AUTOINCREMENT, put_ms INTEGER NOT NULL, source INTEGER NOT NULL, key INTEGER NOT NULL);
CREATE INDEX IF NOT EXISTS log_by_key ON log (source, key);
CREATE TABLE IF NOT EXISTS dead (
    id INTEGER PRIMARY KEY AUTOINCREMENT, at_ms INTEGER NOT NULL, reason TEXT NOT NULL, line TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS forgotten (series_id INTEGER PRIMARY KEY, last_ms INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS shipping (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
"""


# A row from the future would make every later one look late: the server is not asked about such times.
AHEAD_MS = 300_000
_FORGET = """
INSERT INTO forgotten VALUES (?, ?) ON CONFLICT DO UPDATE SET last_ms = max(last_ms, excluded.last_ms)
"""


# A minute has no rows that wait.
_IS_SENT = """
NOT EXISTS (SELECT 1 FROM log WHERE log.source = dirty.series_id AND log.key BETWEEN dirty.minute * 60000
            AND dirty.minute * 60000 + 59999 AND log.id > {cursor})
"""
_UNROLLED = f"""
SELECT dirty.series_id, kind, name, minute, rows * 60000.0 / (last_ms - first_ms + 60000) FROM dirty JOIN series ON series.id = dirty.series_id
WHERE (minute + 1) * 60000 <= min(series.last_ms, ?1) AND {_IS_SENT.format(cursor="?2")} ORDER BY 1, 4 LIMIT ?3
"""
_ROLLED = f"DELETE FROM dirty WHERE series_id = ?1 AND minute = ?2 AND {_IS_SENT.format(cursor='?3')}"


_KEEP_FIRST = """
DELETE FROM dirty WHERE minute > (SELECT min(minute) FROM dirty AS other WHERE other.series_id = dirty.series_id)
"""


class Minute(NamedTuple):
    """A minute of a series. source: its number here; minute: since 1970; rows_a_minute: of the series, on average."""

    source: int
    kind: Kind
    series: str
    minute: int
    rows_a_minute: float


class _Entry(NamedTuple):
    """An entry of the log."""

    id: int
    put_ms: int
    source: int
    key: int


class Bounds(NamedTuple):
    """How much may wait: bytes of the file in use, and ms since it was put."""

    most_bytes: int
    most_ms: int


class Depth(NamedTuple):
    """waiting: entries not sent yet; oldest_ms: since when the oldest waits, None where none does; used_bytes: of the file."""

    waiting: int
    oldest_ms: int | None
    used_bytes: int


class Backlog:
    """The file, opened; safe between threads. Methods raise StorageError when the disk refuses; then nothing was changed."""

    def __init__(self, path: Path, bounds: Bounds, clock: Clock, fleet: str) -> None:
        self.path = path
        self.fleet = fleet
        self._bounds = bounds
        self._clock = clock
        self._lock = threading.Lock()
        self._connection = connect_writer(path)
        self._catalog: Catalog | None = None
        self._ids: dict[tuple[str, str], int] = {}
        with plain_words(path, "open"), transaction(self._connection):
            for statement in _TABLES.split(";"):
                self._connection.execute(statement)
            self._connection.execute("INSERT OR IGNORE INTO shipping VALUES ('origin', ?)", (uuid.uuid4().hex[:8],))
            self._connection.execute("INSERT OR IGNORE INTO shipping VALUES ('cursor', 0)")
        self.origin = str(self._told("origin"))
        self._cursor = int(self._told("cursor"))
        sql = "SELECT count(*), max(put_ms) FROM log WHERE id > ?"
        self._waiting, newest_ms = self._connection.execute(sql, (self._cursor,)).fetchone()
        self._put_ms = newest_ms or 0

    def put(self, batch: Batch) -> WriteReport:
        """Take a batch, whole or not at all. Rows and documents that no server of this kind can hold are refused."""
        refused: Counter[str] = Counter()
        rows = _in_range(batch.rows, refused)
        with self._lock, plain_words(self.path, "write to"):
            try:
                with transaction(self._connection):
                    catalog = self._catalog or Catalog(self._connection)
                    self._catalog = None
                    report = write_rows(self._connection, catalog, rows)
                    documents = _documents_in_range(batch, refused)
                    refused += write_documents(self._connection, documents)
                    added = self._log(rows if report.written else (), documents)
                self._catalog = catalog
            finally:
                if self._catalog is None:
                    self._ids.clear()
            self._waiting += added
            for _ in range(1 + added // STEP):
                self._make_room()
        return replace(report, refused=dict(Counter(report.refused) + refused)) if refused else report

    def take(self) -> Portion | None:
        """The oldest that was not sent yet, as lines; None where nothing waits."""
        if not self._waiting:
            return None
        with self._lock, plain_words(self.path, "read"):
            return take(self._connection, self._cursor, self.fleet, self.origin, self._clock.now_ms())

    def advance(self, portion: Portion, dead: Sequence[tuple[str, str]] = (), known: Sequence[Known] = ()) -> None:
        """The portion is at the server, but for the dead: lines and why it refuses them. known: rows that were there before."""
        with self._lock, plain_words(self.path, "write to"):
            with transaction(self._connection):
                self._bury(dead)
                recounted = self._recount(known)
                count = self._count_log("id > ? AND id <= ?", (self._cursor, portion.last_id))
                cursor = max(self._cursor, portion.last_id)
                self._connection.execute("UPDATE shipping SET value = ? WHERE name = 'cursor'", (cursor,))
            self._cursor = cursor
            self._waiting += recounted - count

    def tidy(self) -> None:
        """Forget what was sent a while ago, drop what waited too long or is too much; TIDY_S seconds at most."""
        now_ms = self._clock.now_ms()
        recent = range(now_ms - RECENT_MS, now_ms + RECENT_MS)
        lasting = range(_PLAUSIBLE_FROM_MS, now_ms - self._bounds.most_ms)
        by_s = self._clock.monotonic_s() + TIDY_S
        while self._clock.monotonic_s() < by_s:
            with self._lock, plain_words(self.path, "tidy"):
                sent = [entry for entry in self._oldest("id <= ?", self._cursor) if entry.put_ms not in recent]
                late = [entry for entry in self._oldest("id > ?", self._cursor) if entry.put_ms in lasting]
                self._remove(sent, "")
                self._remove(late, "dropped_for_age")
                gone = len(sent) + len(late) + self._make_room()
            if gone < STEP:
                break
        with self._lock, plain_words(self.path, "tidy"), transaction(self._connection):
            trim_documents(self._connection)

    def unrolled(self, most: int) -> list[Minute]:
        """Minutes that are over and whose rows are all at the server, but which it has not rolled up as they stand."""
        now_ms = self._clock.now_ms()
        with self._lock, plain_words(self.path, "read"):
            return [Minute(*found) for found in self._connection.execute(_UNROLLED, (now_ms, self._cursor, most))]

    def rolled(self, minutes: Sequence[Minute]) -> list[str]:
        """The server has rolled them up, but for those that changed meanwhile; returns lines that say so."""
        with self._lock, plain_words(self.path, "write to"):
            with transaction(self._connection):
                arguments = [(one.source, one.minute, self._cursor) for one in minutes]
                self._connection.executemany(_ROLLED, arguments)
            sources = dict.fromkeys(one.source for one in minutes)
            return series_lines(self._connection, sources, (self.fleet, self.origin), self._clock.now_ms())

    def keep_first_unrolled(self) -> None:
        """Remember of each series only where its first minute lies that was not rolled up."""
        with self._lock, plain_words(self.path, "tidy"), transaction(self._connection):
            self._connection.execute(_KEEP_FIRST)

    def depth(self) -> Depth:
        """How much waits, and since when."""
        with self._lock, plain_words(self.path, "read"):
            sql = "SELECT put_ms FROM log WHERE id > ? ORDER BY id LIMIT 1"
            found = self._connection.execute(sql, (self._cursor,)).fetchone()
            return Depth(self._waiting, found[0] if found else None, self._used_bytes())

    def counts(self) -> dict[str, int]:
        """What was dropped for age or room and what is dead, since the file was begun."""
        with self._lock, plain_words(self.path, "read"):
            return read_counts(self._connection)

    def close(self) -> None:
        """A second time does nothing."""
        with self._lock, suppress(sqlite3.Error):
            self._connection.close()

    def _log(self, rows: Iterable[Row], documents: Batch) -> int:
        self._put_ms = put_ms = max(self._clock.now_ms(), min(self._put_ms, self._clock.now_ms() + 1000))
        entries = [(put_ms, *entry) for entry in dict.fromkeys(self._instants(rows))]
        for source, (_, identity_sql, fields_of) in DOCUMENTS.items():
            for document in documents_of(documents, source):
                found = self._connection.execute(identity_sql, fields_of(document)).fetchone()
                if found is not None:
                    entries.append((put_ms, source, found[0]))
        self._connection.executemany("INSERT INTO log (put_ms, source, key) VALUES (?, ?, ?)", entries)
        return len(entries)

    def _instants(self, rows: Iterable[Row]) -> Iterable[tuple[int, int]]:
        for row in rows:
            source = self._ids.get((row.kind, row.series))
            if source is None:
                sql = "SELECT id FROM series WHERE kind = ? AND name = ?"
                try:
                    found = self._connection.execute(sql, (row.kind, row.series)).fetchone()
                except UnicodeEncodeError:  # a name that was refused
                    continue
                if found is None:
                    continue
                source = self._ids[row.kind, row.series] = found[0]
            yield source, row.at_ms

    def _recount(self, known: Sequence[Known]) -> int:
        """Rows that were known count no longer, and not a second time; returns how many entries this put into the log."""
        for row in known:
            sql = f"UPDATE {table_of(row.source)} SET received_ms = ? WHERE at_ms = ? AND ordinal = ?"
            self._connection.execute(sql, (row.received_ms, row.at_ms, row.ordinal))
        numbers = Counter(row.source for row in known)
        for source, number in numbers.items():
            self._connection.execute("UPDATE series SET rows = max(0, rows - ?) WHERE id = ?", (number, source))
            sql = "INSERT INTO log (put_ms, source, key) VALUES (?, ?, ?)"
            self._connection.execute(sql, (self._put_ms, RECOUNTED, source))
        return len(numbers)

    def _bury(self, dead: Sequence[tuple[str, str]]) -> None:
        if not dead:
            return
        now_ms = self._clock.now_ms()
        self._connection.executemany(
            "INSERT INTO dead (at_ms, reason, line) VALUES (?, ?, ?)", [(now_ms, why, line) for line, why in dead]
        )
        self._connection.execute("DELETE FROM dead WHERE id <= (SELECT max(id) FROM dead) - ?", (MAX_DEAD,))
        self._tell("dead", len(dead))

    def _make_room(self) -> int:
        """One step where the file is too large: what was sent goes first, then the oldest rows, then documents."""
        if self._used_bytes() <= self._bounds.most_bytes:
            return 0
        for condition, counter in (("id <= ?", ""), ("id > ? AND source > 0", _FOR_ROOM), ("id > ?", _FOR_ROOM)):
            if found := self._oldest(condition, self._cursor):
                self._remove(found, counter)
                return len(found)
        return 0

    def _oldest(self, condition: str, cursor: int) -> list[_Entry]:
        sql = f"SELECT id, put_ms, source, key FROM log WHERE {condition} ORDER BY id LIMIT {STEP}"
        return [_Entry(*found) for found in self._connection.execute(sql, (cursor,))]

    def _remove(self, entries: Sequence[_Entry], counter: str) -> None:
        """Forget entries, and the rows behind them unless another entry needs them."""
        if not entries:
            return
        lost = sum(entry.id > self._cursor for entry in entries)
        with transaction(self._connection):
            self._connection.executemany("DELETE FROM log WHERE id = ?", [(entry.id,) for entry in entries])
            instants = {(entry.source, entry.key) for entry in entries if entry.source > 0}
            for source, at_ms in instants:
                needed = self._connection.execute("SELECT 1 FROM log WHERE source = ? AND key = ?", (source, at_ms))
                if needed.fetchone() is None:
                    self._connection.execute(f"DELETE FROM {table_of(source)} WHERE at_ms = ?", (at_ms,))
            self._connection.executemany(_FORGET, {entry for entry in instants if entry[1] <= self._put_ms + AHEAD_MS})
            if lost:
                self._tell(counter, lost)
        self._waiting -= lost

    def _tell(self, name: str, number: int) -> None:
        sql = "INSERT INTO shipping VALUES (?, ?) ON CONFLICT DO UPDATE SET value = value + excluded.value"
        self._connection.execute(sql, (f"n_{name}", number))

    def _told(self, name: str) -> str | int:
        value: str | int = self._connection.execute("SELECT value FROM shipping WHERE name = ?", (name,)).fetchone()[0]
        return value

    def _count_log(self, condition: str, arguments: tuple[int, ...]) -> int:
        return int(self._connection.execute(f"SELECT count(*) FROM log WHERE {condition}", arguments).fetchone()[0])

    def _used_bytes(self) -> int:
        pragmas = ("page_count", "freelist_count", "page_size")
        pages, free, size = (self._connection.execute(f"PRAGMA {name}").fetchone()[0] for name in pragmas)
        return int((pages - free) * size)


class Dead(NamedTuple):
    """Lines refused for one reason, as far as they are kept. line: the last of them."""

    reason: str
    number: int
    line: str


def read_waiting(connection: sqlite3.Connection) -> tuple[int, int | None]:
    """How many entries of a backlog wait, and since when the oldest does (UTC epoch ms)."""
    cursor = connection.execute("SELECT value FROM shipping WHERE name = 'cursor'").fetchone()[0]
    sql = "SELECT count(*), (SELECT put_ms FROM log WHERE id > ?1 ORDER BY id LIMIT 1) FROM log WHERE id > ?1"
    number, oldest_ms = connection.execute(sql, (cursor,)).fetchone()
    return int(number), oldest_ms


def read_dead(connection: sqlite3.Connection) -> list[Dead]:
    """The dead letters of a backlog by reason, most frequent first."""
    sql = "SELECT reason, count(*), line, max(id) FROM dead GROUP BY reason ORDER BY 2 DESC LIMIT 5"
    return [Dead(reason, number, line) for reason, number, line, _ in connection.execute(sql)]


def read_counts(connection: sqlite3.Connection) -> dict[str, int]:
    """The counts of a backlog by name."""
    found = connection.execute("SELECT name, value FROM shipping WHERE name LIKE 'n\\_%' ESCAPE '\\'")
    return {name.removeprefix("n_"): int(value) for name, value in found}


def documents_of(batch: Batch, source: int) -> Sequence[object]:
    """The documents of one kind, by the number they have in the log."""
    kinds: Mapping[int, Sequence[object]] = {-1: batch.events, -2: batch.rounds, -3: batch.statuses, -4: batch.healths}
    return kinds[source]


def _fits(at_ms: int) -> bool:
    return EARLIEST_MS <= at_ms <= LATEST_MS


def _in_range(rows: Sequence[Row], refused: Counter[str]) -> Sequence[Row]:
    if all(_fits(row.at_ms) for row in rows):
        return rows
    kept = [row for row in rows if _fits(row.at_ms)]
    refused["time_out_of_range"] += len(rows) - len(kept)
    return kept


def _documents_in_range(batch: Batch, refused: Counter[str]) -> Batch:
    events = [event for event in batch.events if _fits(event.start_ms)]
    rounds = [notice for notice in batch.rounds if _fits(notice.at_ms)]
    beyond = len(batch.events) + len(batch.rounds) - len(events) - len(rounds)
    if beyond:
        refused["document_time_out_of_range"] += beyond
    return replace(batch, events=events, rounds=rounds)
