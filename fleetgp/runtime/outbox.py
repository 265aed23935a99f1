"""Messages that must arrive, kept on disk until the broker has confirmed them.

The file survives a restart of the process and of the broker. It is bounded in bytes and in age: when it is full the
oldest message goes, and is counted.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fleetgp.errors import StorageError
from fleetgp.runtime.clock import Clock

# A device without a battery clock boots in the past. Messages stamped before this are from such a moment: their age is
# not known, so only the bound on bytes applies to them. 2020-01-01 UTC.
_PLAUSIBLE_FROM_MS = 1_577_836_800_000

Payload = bytes  # the class below has a property called bytes

_SCHEMA = """
CREATE TABLE IF NOT EXISTS entries (
    id INTEGER PRIMARY KEY AUTOINCREMENT, at_ms INTEGER NOT NULL, topic TEXT NOT NULL, payload BLOB NOT NULL,
    is_retained INTEGER NOT NULL, key TEXT, size INTEGER NOT NULL);
CREATE INDEX IF NOT EXISTS entries_by_time ON entries (at_ms);
CREATE INDEX IF NOT EXISTS entries_by_key ON entries (key) WHERE key IS NOT NULL;
"""


@dataclass(frozen=True)
class Entry:
    """One waiting message. id: grows with every put and is never used twice; at_ms: when it was put, UTC epoch ms."""

    id: int
    at_ms: int
    topic: str
    payload: bytes
    is_retained: bool


class Outbox:
    """The waiting messages of one program, safe between threads. All methods raise StorageError when the disk refuses.

    max_bytes: topics and payloads together. max_age_s: seconds after which a message is not worth sending any more.
    A file that is damaged is renamed to ``<name>.damaged`` and a fresh one is begun (counted as ``outbox_damaged``).
    """

    def __init__(
        self, path: Path, *, max_bytes: int = 20_000_000, max_age_s: float = 7 * 86400.0, clock: Clock
    ) -> None:
        self._path = Path(path)
        self._max_bytes = max_bytes
        self._max_age_ms = round(max_age_s * 1000)
        self._clock = clock
        self._lock = threading.RLock()
        self._counters = {"outbox_dropped": 0, "outbox_expired": 0, "outbox_coalesced": 0, "outbox_damaged": 0}
        self._depth = 0
        self._bytes = 0
        self._db = self._open()

    @property
    def depth(self) -> int:
        """Messages waiting."""
        return self._depth

    @property
    def bytes(self) -> int:
        """Bytes of topics and payloads waiting."""
        return self._bytes

    def counters(self) -> dict[str, int]:
        """Messages dropped for room, expired by age, replaced by a newer one of the same key; damaged files."""
        with self._lock:
            return dict(self._counters)

    def put(self, topic: str, payload: Payload, *, retain: bool = False, key: str | None = None) -> int:
        """Keep a message until it is done; returns its id.

        A message replaces the waiting one of the same key. Retained messages have their topic as key where none is
        given, so that an older value never overtakes a newer one.
        """
        size = len(topic.encode()) + len(payload)
        if size > self._max_bytes:
            raise StorageError(f"{self._path}: a message of {size} bytes does not fit an outbox of {self._max_bytes}")
        if key is None and retain:
            key = f"retained {topic}"
        with self._transaction() as db:
            if key is not None:
                self._remove(db, "outbox_coalesced", "key = ?", key)
            self._expire(db)
            self._make_room(db, size)
            cursor = db.execute(
                "INSERT INTO entries (at_ms, topic, payload, is_retained, key, size) VALUES (?, ?, ?, ?, ?, ?)",
                (self._clock.now_ms(), topic, payload, retain, key, size),
            )
            self._depth += 1
            self._bytes += size
            return int(cursor.lastrowid or 0)

    def head(self, most: int, *, after: int = 0, until: int | None = None) -> list[Entry]:
        """The oldest ``most`` messages with after < id <= until, whether or not they were sent already."""
        with self._transaction() as db:
            self._expire(db)
            rows = db.execute(
                "SELECT id, at_ms, topic, payload, is_retained FROM entries WHERE id > ? AND id <= ? ORDER BY id LIMIT ?",
                (after, 2**62 if until is None else until, most),
            ).fetchall()
        return [Entry(row[0], row[1], row[2], row[3], bool(row[4])) for row in rows]

    def last_id(self) -> int:
        """Id of the newest message that waits; 0 where none does."""
        with self._transaction() as db:
            return int(db.execute("SELECT COALESCE(MAX(id), 0) FROM entries").fetchone()[0])

    def done(self, entry_id: int) -> None:
        """Forget a message: the broker has it. An id that is gone already is fine."""
        with self._transaction() as db:
            self._remove(db, None, "id = ?", entry_id)

    def close(self) -> None:
        with self._lock:
            self._db.close()

    def _open(self) -> sqlite3.Connection:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            try:
                return self._connect()
            except sqlite3.OperationalError:
                raise
            except sqlite3.DatabaseError:
                self._set_aside()
                return self._connect()
        except (OSError, sqlite3.Error) as error:
            raise StorageError(
                f"{self._path}: cannot open the outbox ({error}); check the folder and its rights"
            ) from None

    def _connect(self) -> sqlite3.Connection:
        db = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False, timeout=5.0)
        try:
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = NORMAL")
            db.executescript(_SCHEMA)
            self._depth, self._bytes = db.execute("SELECT COUNT(*), COALESCE(SUM(size), 0) FROM entries").fetchone()
        except sqlite3.Error:
            db.close()
            raise
        return db

    def _set_aside(self) -> None:
        self._counters["outbox_damaged"] += 1
        self._path.replace(self._path.with_name(self._path.name + ".damaged"))
        for suffix in ("-wal", "-shm"):
            self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            before = (self._depth, self._bytes, dict(self._counters))
            is_committed = False
            try:
                self._db.execute("BEGIN")
                yield self._db
                self._db.execute("COMMIT")
                is_committed = True
            except sqlite3.Error as error:
                raise StorageError(f"{self._path}: the outbox cannot be used ({error}); is the disk full?") from error
            finally:
                if not is_committed:
                    self._depth, self._bytes, self._counters = before
                    self._roll_back()

    def _roll_back(self) -> None:
        try:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
        except sqlite3.Error:  # the error that led here is on its way to the caller already
            return

    def _remove(self, db: sqlite3.Connection, counter: str | None, where: str, value: int | str) -> None:
        count, size = db.execute(
            f"SELECT COUNT(*), COALESCE(SUM(size), 0) FROM entries WHERE {where}", (value,)
        ).fetchone()
        if not count:
            return
        db.execute(f"DELETE FROM entries WHERE {where}", (value,))
        self._depth -= count
        self._bytes -= size
        if counter:
            self._counters[counter] += count

    def _expire(self, db: sqlite3.Connection) -> None:
        oldest_ms = self._clock.now_ms() - self._max_age_ms
        if oldest_ms > _PLAUSIBLE_FROM_MS:
            self._remove(db, "outbox_expired", f"at_ms >= {_PLAUSIBLE_FROM_MS} AND at_ms < ?", oldest_ms)

    def _make_room(self, db: sqlite3.Connection, size: int) -> None:
        while self._depth and self._bytes + size > self._max_bytes:
            (oldest,) = db.execute("SELECT MIN(id) FROM entries").fetchone()
            self._remove(db, "outbox_dropped", "id = ?", oldest)
