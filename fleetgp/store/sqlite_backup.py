"""A copy of the store as it was at one moment, while the bridge goes on writing.

SQLite's own backup, so many pages a step, from one unchanging view: what is written meanwhile is not in it, and waits in
the write-ahead log until it is done. The copy is checked whole before it gets its name.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from fleetgp.errors import StorageError
from fleetgp.store.sqlite_errors import plain_words
from fleetgp.store.sqlite_schema import connect_reader, transaction

PAGES_A_STEP = 2_000
CHECK_EVERY = 100_000  # instructions of SQLite between two looks at the clock


@dataclass(frozen=True)
class Backup:
    """A finished copy. rows: raw rows in it."""

    path: Path
    bytes: int
    rows: int
    seconds: float


class _Late(Exception):
    """The deadline has come."""


def back_up(
    path: Path,
    target: Path,
    *,
    within_s: float = 3600.0,
    say: Callable[[int, int], None] = lambda done, pages: None,
    clock_s: Callable[[], float] = time.monotonic,
) -> Backup:
    """Copy a store to a file that is not there yet. say: is told pages copied and pages in all, now and then.

    Raises StorageError when the store cannot be read, the target is there or has no room, the copy is damaged or it is not
    done within so many seconds; then nothing is left of it.
    """
    if target.exists():
        raise StorageError(f"{target} is there already: choose another name, or move it away")
    part = target.with_name(f"{target.name}.part")
    begin_s = clock_s()
    try:
        part.unlink(missing_ok=True)
        rows = _copy(path, part, lambda: clock_s() - begin_s > within_s, say)
        _sync(part)
        part.rename(target)
        _sync(target.parent)
    except _Late:
        raise StorageError(f"the backup of {path} was not done within {within_s:g} s; nothing is left of it") from None
    except OSError as err:
        raise StorageError(f"cannot write the backup {target}: {err.strerror or err}") from err
    finally:
        for ending in ("", "-wal", "-shm", "-journal"):
            Path(f"{part}{ending}").unlink(missing_ok=True)
    return Backup(target, target.stat().st_size, rows, clock_s() - begin_s)


def _copy(path: Path, part: Path, is_late: Callable[[], bool], say: Callable[[int, int], None]) -> int:
    with (
        closing(connect_reader(path)) as source,
        plain_words(path, "back up"),
        closing(sqlite3.connect(part, isolation_level=None)) as copy,
    ):

        def told(_: int, remaining: int, pages: int) -> None:
            say(pages - remaining, pages)
            if is_late():
                raise _Late

        # One view held from before the first step to after the last: else SQLite begins anew whenever the bridge writes.
        with transaction(source, "DEFERRED"):
            rows: int = source.execute("SELECT coalesce(sum(rows), 0) FROM series").fetchone()[0]
            source.backup(copy, pages=PAGES_A_STEP, progress=told)
        copy.execute("PRAGMA journal_mode = DELETE")  # one file, readable from where nothing can be written
        _check(copy, is_late)
    return rows


def _check(copy: sqlite3.Connection, is_late: Callable[[], bool]) -> None:
    copy.set_progress_handler(is_late, CHECK_EVERY)
    try:
        found = copy.execute("PRAGMA quick_check(1)").fetchone()[0]
    except sqlite3.OperationalError as err:
        if is_late():
            raise _Late from err
        raise
    finally:
        copy.set_progress_handler(None, 0)
    if found != "ok":
        raise StorageError(f"the store is damaged, and so would be its backup: {found}")


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
