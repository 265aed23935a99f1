"""What the coordinator heard, in SQLite: a snapshot of its state and every event since, in order.

Killed anywhere it comes back to the same model, bit for bit: an event is in the journal before it is acted on or
acknowledged, and the brain is a pure function of its events.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

from coordinator.state import Event, State
from fleetgp.errors import PeerError, StorageError
from fleetgp.wire.freeze import freeze, thaw

VERSION = 1
SNAPSHOT_EVERY = 500

_SCHEMA = """
CREATE TABLE IF NOT EXISTS snapshot (id INTEGER PRIMARY KEY CHECK (id = 1), state BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS events (id INTEGER PRIMARY KEY AUTOINCREMENT, event BLOB NOT NULL);
"""


class Journal:
    """All methods raise StorageError, in plain words, where the disk refuses or the file is not ours."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._since = 0
        try:
            self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=5.0)
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")
            version = int(self._db.execute("PRAGMA user_version").fetchone()[0])
            if version not in (0, VERSION):
                raise StorageError(f"{path} is version {version}; this program reads version {VERSION}")
            self._db.executescript(_SCHEMA + f"PRAGMA user_version = {VERSION};")
        except sqlite3.Error as err:
            raise StorageError(f"the coordinator's journal {path} cannot be opened: {err}") from err

    def load(self, fresh: State, step: Callable[[State, Event], object]) -> State:
        """The state after all that was journalled; ``fresh`` where nothing was. step: the brain."""
        try:
            row = self._db.execute("SELECT state FROM snapshot").fetchone()
            state = thaw(row[0], State) if row else fresh
            for (payload,) in self._db.execute("SELECT event FROM events ORDER BY id"):
                state = step(state, thaw(payload, Event))[0]  # type: ignore[index, arg-type]
                self._since += 1
            if not row:
                self._snapshot(fresh)
        except (sqlite3.Error, PeerError) as err:
            raise StorageError(f"the coordinator's journal {self._path} cannot be read: {err}") from err
        return state

    def append(self, events: list[Event], before: State) -> None:
        """Journal events, all or none. before: the state they are applied to, snapshotted now and then."""
        try:
            if self._since >= SNAPSHOT_EVERY:
                self._snapshot(before)
            with self._db:
                self._db.execute("BEGIN IMMEDIATE")
                self._db.executemany("INSERT INTO events (event) VALUES (?)", [(freeze(event),) for event in events])
            self._since += len(events)
        except sqlite3.Error as err:
            raise StorageError(f"the coordinator's journal {self._path} cannot be written: {err}") from err

    def _snapshot(self, state: State) -> None:
        with self._db:
            self._db.execute("BEGIN IMMEDIATE")
            self._db.execute("INSERT OR REPLACE INTO snapshot (id, state) VALUES (1, ?)", (freeze(state),))
            self._db.execute("DELETE FROM events")
        self._since = 0

    def close(self) -> None:
        self._db.close()
