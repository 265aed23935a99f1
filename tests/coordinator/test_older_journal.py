"""A journal of an older version is put aside whole, and a new one begun."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from journal_files import FRESH, STORY, killed, rows
from synthetic_agents import (
    run,
)

from coordinator import rounds
from coordinator.journal import Journal
from fleetgp.errors import StorageError
from fleetgp.wire.freeze import freeze


def older_journal(path: Path) -> bytes:
    """One that version 1 left, with what it held: an event in its write-ahead log and a state that nobody can read now."""
    db = sqlite3.connect(path, isolation_level=None)
    for line in (
        "CREATE TABLE snapshot (id INTEGER PRIMARY KEY CHECK (id = 1), last INTEGER NOT NULL, crc INTEGER NOT NULL, "
        "state BLOB NOT NULL)",
        "CREATE TABLE events (id INTEGER PRIMARY KEY AUTOINCREMENT, crc INTEGER NOT NULL, event BLOB NOT NULL)",
        "INSERT INTO snapshot VALUES (1, 0, 0, x'93')",
        "PRAGMA application_id = 0x464C5443",
        "PRAGMA user_version = 1",
        "PRAGMA journal_mode = WAL",
        "INSERT INTO events (crc, event) VALUES (1, x'91')",
    ):
        db.execute(line)
    db.close()
    return path.read_bytes()


def test_journal_of_an_older_version_is_put_aside_whole_and_a_new_one_begun(path: Path) -> None:
    """Agents tell again what they know; what is lost is the age of the basis. Nothing is deleted."""
    before = older_journal(path)
    journal = Journal(path)
    assert journal.aside == path.with_name("journal.sqlite.version-1")
    assert journal.aside.read_bytes() == before
    state = journal.load(FRESH, rounds.step)
    assert freeze(state) == freeze(FRESH)
    journal.append(STORY, state)
    journal.close()
    assert {file.name for file in path.parent.iterdir()} == {path.name, journal.aside.name}
    again = Journal(path)
    assert again.aside is None
    assert freeze(again.load(FRESH, rounds.step)) == freeze(run(FRESH, STORY)[0])
    again.close()


def test_older_journal_that_was_killed_keeps_its_log(path: Path, tmp_path: Path) -> None:
    """What stood in SQLite's own log only is not taken for the new journal's, nor lost."""
    older_journal(path)
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA wal_autocheckpoint = 0")
    db.execute("INSERT INTO events (crc, event) VALUES (2, x'92')")
    copy = killed(path, tmp_path / "copy")
    db.close()
    assert copy.with_name(copy.name + "-wal").stat().st_size > 0
    journal = Journal(copy)
    assert freeze(journal.load(FRESH, rounds.step)) == freeze(FRESH)
    journal.close()
    assert journal.aside is not None
    assert rows(journal.aside, "SELECT count(*) FROM events") == 2


def test_older_journal_in_use_by_its_program_is_left_alone(path: Path) -> None:
    before = older_journal(path)
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA locking_mode = EXCLUSIVE")
    db.execute("BEGIN EXCLUSIVE")
    with pytest.raises(StorageError, match="another program has it open"):
        Journal(path)
    db.close()
    assert path.read_bytes() == before
    assert not path.with_name("journal.sqlite.version-1").exists()
