"""What SQLite reports, said in plain words with what to do about it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fleetgp.errors import StorageError

# Beginning of SQLite's error name -> what it means here. The first that fits counts.
_MEANINGS: tuple[tuple[str, str], ...] = (
    ("SQLITE_FULL", "the disk is full: free some space or lower store.raw_days; nothing of this step was kept"),
    ("SQLITE_BUSY", "it is locked by another program: only one may write to it at a time"),
    ("SQLITE_LOCKED", "it is locked by another program: only one may write to it at a time"),
    ("SQLITE_READONLY", "it is read-only for this user: check the permissions of the file and its folder"),
    ("SQLITE_PERM", "this user may not use it: check the permissions of the file and its folder"),
    ("SQLITE_CANTOPEN", "it cannot be opened: check that it is a file and that this user may write in its folder"),
    ("SQLITE_NOTADB", "it is not a FleetGP store: choose another store.path or move that file away"),
    ("SQLITE_CORRUPT", "it is damaged: move it away and a new one will be started, or restore a backup"),
    ("SQLITE_IOERR", "the disk cannot be read or written: check its free space and its health"),
)


def describe(err: sqlite3.Error) -> str:
    """One sentence about an error of SQLite, its own words at the end."""
    name = getattr(err, "sqlite_errorname", "")
    for beginning, meaning in _MEANINGS:
        if name.startswith(beginning):
            return f"{meaning} ({name})"
    if isinstance(err, sqlite3.ProgrammingError) and "closed" in str(err):
        return "it was closed already"
    return f"SQLite says: {err}" + (f" ({name})" if name else "")


@contextmanager
def plain_words(path: Path, task: str) -> Iterator[None]:
    """Turn errors of SQLite into StorageError. task: what could not be done, as in 'write to'."""
    try:
        yield
    except sqlite3.Error as err:
        raise StorageError(f"cannot {task} the history store {path}: {describe(err)}") from err
