"""What the coordinator heard, in SQLite: a snapshot of its state and every event since, in order.

Killed anywhere it comes back to the same model, bit for bit: an event is in the journal before it is acted on or
acknowledged, and the brain is a pure function of its events. Bounded: now and then a new snapshot takes the place of the
events before it.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from coordinator.state import Event, State
from fleetgp.errors import PeerError, StorageError
from fleetgp.runtime.snapshot import set_aside
from fleetgp.wire.freeze import freeze, thaw

APPLICATION_ID = 0x464C5443  # "FLTC"
VERSION = 4
# of journals that are taken up as they are: made before bases were learnt by gradients, and by a coordinator that did not
UNTUNED_VERSION = 3
# A snapshot is due after so many events, once they are as large as the last snapshot (a large state is not written again
# and again); at the latest after so many bytes more than that; and after so many rounds, which are slow to take up again.
SNAPSHOT_EVERY = 500
SNAPSHOT_BYTES = 16_000_000
SNAPSHOT_ROUNDS = 100
BUSY_S = 1.0

_TABLES = (
    "CREATE TABLE snapshot (id INTEGER PRIMARY KEY CHECK (id = 1), last INTEGER NOT NULL, crc INTEGER NOT NULL, "
    "state BLOB NOT NULL)",
    "CREATE TABLE events (id INTEGER PRIMARY KEY AUTOINCREMENT, crc INTEGER NOT NULL, event BLOB NOT NULL)",
    f"PRAGMA application_id = {APPLICATION_ID}",
    f"PRAGMA user_version = {VERSION}",
)

# Beginning of SQLite's error name -> what it means here. The first that fits counts.
_MEANINGS = (
    ("SQLITE_FULL", "the disk is full: free some space"),
    ("SQLITE_BUSY", "another program has it open: stop that one, or give this one another data.dir"),
    ("SQLITE_READONLY", "it is read-only for this user: check the permissions of the file and its folder"),
    ("SQLITE_CANTOPEN", "check that it is a file and that this user may write in its folder"),
    ("SQLITE_NOTADB", "it is not a coordinator's journal: move it away, and a new one is begun"),
    ("SQLITE_CORRUPT", "it is damaged: move it away, and a new one is begun"),
    ("SQLITE_IOERR", "the disk cannot be read or written: check its free space and its health"),
)


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """An event as it is kept."""

    event: Event


class Journal:
    """The one journal of one coordinator; nobody else can have it open meanwhile.

    All methods raise StorageError, in plain words, where the disk refuses or the file is damaged or not ours; after that
    the journal can be used on, and the same events be tried again. aside: where a journal of an older version went, whose
    numbers mean nothing to this one; a new one is begun then, and agents tell what they know again. None where none was.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._events = 0
        self._bytes = 0
        self._snapshot_bytes = 0
        self._snapshot_round = 0
        self.aside: Path | None = None
        self._is_untuned = False
        self._open()
        try:
            with self._plain_words("opened"):
                older = self._prepare()
                if older:
                    self._db.close()
                    self.aside = _put_aside(path, older)
                    self._open()
                    self._prepare()
        except BaseException:
            self._db.close()
            raise

    def _open(self) -> None:
        with self._plain_words("opened"):
            self._db = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False, timeout=BUSY_S)

    def load(self, fresh: State, step: Callable[[State, Event], tuple[State, object]]) -> State:
        """The state after all that was journalled, with the settings of ``fresh``; ``fresh`` where nothing was.

        step: the brain. What was journalled under other settings is taken up under those, so that it comes out the same.
        """
        with self._plain_words("read"):
            snapshot = self._db.execute("SELECT last, crc, state FROM snapshot").fetchone()
            state, last = fresh, 0
            if snapshot is not None:
                last, crc, payload = snapshot
                state = self._as_it_was(thaw(_sound(crc, payload), State))
                self._snapshot_bytes, self._snapshot_round = len(payload), state.round
            for crc, payload in self._db.execute("SELECT crc, event FROM events ORDER BY id"):
                last += 1
                state, _ = step(state, thaw(_sound(crc, payload), Entry).event)
                self._events += 1
                self._bytes += len(payload)
            if last != self._last():
                raise PeerError("gap", f"{self._last() - last} events are missing")
        if snapshot is None or state.config != fresh.config or self._is_untuned:
            state = msgspec.structs.replace(state, config=fresh.config)
            with self._plain_words("written"):
                self._snapshot(state)
        return state

    def _as_it_was(self, state: State) -> State:
        """The state with what its journal says nothing of as it was then: events must come out the same, and the same numbers
        of bases with them."""
        if not self._is_untuned:
            return state
        return msgspec.structs.replace(state, config=msgspec.structs.replace(state.config, tuning=False))

    def append(self, events: list[Event], before: State) -> None:
        """Journal events, all or none. before: the state they are applied to, snapshotted now and then."""
        payloads = [freeze(Entry(event)) for event in events]
        with self._plain_words("written"):
            if self._is_due(before):
                self._snapshot(before)
            with self._db:
                self._db.execute("BEGIN IMMEDIATE")
                self._db.executemany(
                    "INSERT INTO events (crc, event) VALUES (?, ?)", [(zlib.crc32(p), p) for p in payloads]
                )
        self._events += len(payloads)
        self._bytes += sum(map(len, payloads))

    def close(self) -> None:
        self._db.close()

    def _prepare(self) -> int:
        """Look first, write then: a file that is not ours is left as it was. The version of an older journal, else 0."""
        self._db.execute("PRAGMA locking_mode = EXCLUSIVE")
        application, version = (
            self._db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")
        )
        is_new = not application and not self._db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if not is_new and application != APPLICATION_ID:
            raise StorageError(f"{self._path} is not a coordinator's journal: move it away, and a new one is begun")
        self._is_untuned = not is_new and version == UNTUNED_VERSION
        if not is_new and 0 < version < UNTUNED_VERSION:
            return int(version)
        if not is_new and version not in (UNTUNED_VERSION, VERSION):
            raise StorageError(
                f"the coordinator's journal {self._path} is of version {version}, this program reads version {VERSION}: "
                "move it away, and a new one is begun"
            )
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        if is_new:
            with self._db:
                self._db.execute("BEGIN IMMEDIATE")
                for statement in _TABLES:
                    self._db.execute(statement)
        return 0

    def _is_due(self, state: State) -> bool:
        excess = self._bytes - self._snapshot_bytes
        is_many = self._events >= SNAPSHOT_EVERY and excess >= 0
        return is_many or excess >= SNAPSHOT_BYTES or state.round - self._snapshot_round >= SNAPSHOT_ROUNDS

    def _snapshot(self, state: State) -> None:
        payload = freeze(state)
        with self._db:
            self._db.execute("BEGIN IMMEDIATE")
            row = (self._last(), zlib.crc32(payload), payload)
            self._db.execute("INSERT OR REPLACE INTO snapshot VALUES (1, ?, ?, ?)", row)
            self._db.execute("DELETE FROM events")
            self._db.execute(f"PRAGMA user_version = {VERSION}")
        self._events, self._bytes, self._is_untuned = 0, 0, False
        self._snapshot_bytes, self._snapshot_round = len(payload), state.round

    def _last(self) -> int:
        """Number of the last event ever journalled, as SQLite keeps it apart from the events: they are counted by it."""
        found = self._db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'events'").fetchone()
        return int(found[0]) if found else 0

    @contextmanager
    def _plain_words(self, what: str) -> Iterator[None]:
        """Turn what went wrong into StorageError. what: that could not be done, as in 'read'."""
        try:
            yield
        except (sqlite3.Error, PeerError, UnicodeDecodeError, OSError) as err:
            # text that is no UTF-8 comes of a damaged file only, in the names of its tables
            name = getattr(err, "sqlite_errorname", "SQLITE_CORRUPT")
            meaning = next((f"; {text}" for beginning, text in _MEANINGS if name.startswith(beginning)), "")
            raise StorageError(f"the coordinator's journal {self._path} cannot be {what}: {err}{meaning}") from err


def _put_aside(path: Path, version: int) -> Path:
    """Rename a journal, and what SQLite may have left beside it, which it would take for the new one's."""
    word = f"version-{version}"
    aside = set_aside(path, word)
    for ending in ("-wal", "-shm"):
        beside = path.with_name(path.name + ending)
        if beside.exists():
            beside.replace(aside.with_name(aside.name + ending))
    return aside


def _sound(crc: int, payload: bytes) -> bytes:
    """The payload, whose checksum must be right: SQLite does not notice a flipped bit. Raises PeerError."""
    if not isinstance(payload, bytes) or zlib.crc32(payload) != crc:
        raise PeerError("checksum", "a record is not what was written")
    return payload
