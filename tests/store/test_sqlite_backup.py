"""A backup is the store of one moment, whoever writes meanwhile, or it is not there."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from fleetgp.errors import StorageError
from fleetgp.store import sqlite_backup
from fleetgp.store.base import Batch, Row
from fleetgp.store.sqlite import open_reader, open_writer
from fleetgp.store.sqlite_backup import back_up

T0 = 1_700_000_000_000
PER_BATCH = 30

# A writing program: batch k puts PER_BATCH rows in each of two series, then says k; upkeep in between.
WRITER = textwrap.dedent("""
    import sys
    from pathlib import Path
    from fleetgp.store.base import Batch, Row
    from fleetgp.store.sqlite import open_writer
    writer = open_writer(Path(sys.argv[1]), raw_days=90, rollup_days=1825)
    for k in range(100_000):
        rows = [Row("reading", s, 1_700_000_000_000 + 1000 * n, {"a": n / 7, "b": float(n)}, 1, n)
                for n in range(30 * k, 30 * k + 30) for s in ("x", "y")]
        writer.write(Batch(rows=rows))
        print(k, flush=True)
        if k % 20 == 0:
            writer.maintain(10**15)
""")


def filled(path: Path, count: int = 3000) -> None:
    writer = open_writer(path, raw_days=90, rollup_days=1825)
    writer.write(Batch(rows=[Row("reading", "x", T0 + 1000 * i, {"a": float(i)}, T0, i) for i in range(count)]))
    for _ in range(3):
        writer.maintain(10**15)
    writer.close()


def content(path: Path) -> list[list[tuple[object, ...]]]:
    connection = sqlite3.connect(path)
    names = [
        name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")
    ]
    found = [connection.execute(f"SELECT * FROM {name}").fetchall() for name in names]
    connection.close()
    return found


def test_a_backup_holds_what_the_store_holds_and_is_one_file(tmp_path: Path) -> None:
    filled(tmp_path / "h.sqlite")
    told: list[tuple[int, int]] = []
    done = back_up(tmp_path / "h.sqlite", tmp_path / "copy", say=lambda copied, pages: told.append((copied, pages)))
    assert content(tmp_path / "copy") == content(tmp_path / "h.sqlite")
    assert (done.rows, done.bytes) == (3000, (tmp_path / "copy").stat().st_size)
    assert told[-1][0] == told[-1][1] > 0
    assert {file.name for file in tmp_path.iterdir()} == {"h.sqlite", "copy"}
    (tmp_path / "read only").mkdir()
    shutil.move(tmp_path / "copy", tmp_path / "read only" / "copy")
    (tmp_path / "read only").chmod(0o500)
    assert open_reader(tmp_path / "read only" / "copy").sequences("x") == list(range(3000))
    (tmp_path / "read only").chmod(0o700)


def test_a_backup_beside_a_writing_process_is_of_one_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The writer goes on between every two steps, which would make SQLite begin anew for ever without one view."""
    monkeypatch.setattr(sqlite_backup, "PAGES_A_STEP", 3)
    path, script = tmp_path / "h.sqlite", tmp_path / "write.py"
    script.write_text(WRITER)
    with subprocess.Popen([sys.executable, str(script), str(path)], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        for _ in range(40):
            before = int(child.stdout.readline())
        sizes: set[int] = set()

        def say(_: int, pages: int) -> None:
            assert child.stdout is not None
            child.stdout.readline()  # at least one more batch is written before the next step
            sizes.add(pages)

        done = back_up(path, tmp_path / "copy", say=say, within_s=120)
        after = int(child.stdout.readline())
        child.kill()
    assert after > before + 10
    assert len(sizes) == 1
    reader = open_reader(tmp_path / "copy")
    assert reader.sequences("x") == reader.sequences("y") == list(range(done.rows // 2))
    assert done.rows % (2 * PER_BATCH) == 0
    assert done.rows >= 2 * PER_BATCH * (before + 1)
    writer = open_writer(tmp_path / "copy", raw_days=90, rollup_days=1825)  # a backup is a store
    assert writer.write(Batch(rows=[Row("reading", "x", T0 - 1, {"a": 1.0}, T0)])).written == 1


def test_a_backup_that_takes_too_long_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_backup, "PAGES_A_STEP", 1)
    filled(tmp_path / "h.sqlite")
    ticks = iter(range(1000))
    with pytest.raises(StorageError, match="not done within 5 s"):
        back_up(tmp_path / "h.sqlite", tmp_path / "copy", within_s=5, clock_s=lambda: float(next(ticks)))
    assert list(tmp_path.glob("copy*")) == []


def test_the_check_has_the_deadline_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_backup, "CHECK_EVERY", 10)
    filled(tmp_path / "h.sqlite")
    now = [0.0]

    def say(copied: int, pages: int) -> None:
        if copied == pages:
            now[0] = 4.9

    def clock_s() -> float:
        now[0] += 0.01
        return now[0]

    with pytest.raises(StorageError, match="not done within 5 s"):
        back_up(tmp_path / "h.sqlite", tmp_path / "copy", within_s=5, say=say, clock_s=clock_s)
    assert list(tmp_path.glob("copy*")) == []


def test_a_backup_never_writes_over_a_file(tmp_path: Path) -> None:
    filled(tmp_path / "h.sqlite", 10)
    (tmp_path / "copy").write_text("mine")
    with pytest.raises(StorageError, match="is there already"):
        back_up(tmp_path / "h.sqlite", tmp_path / "copy")
    assert (tmp_path / "copy").read_text() == "mine"


def test_a_damaged_store_gives_no_backup(tmp_path: Path) -> None:
    path = tmp_path / "h.sqlite"
    filled(path, 20_000)
    raw = bytearray(path.read_bytes())
    middle = len(raw) // 2 // 4096 * 4096
    raw[middle : middle + 4096] = b"\xa5" * 4096
    path.write_bytes(raw)
    with pytest.raises(StorageError, match="damaged"):
        back_up(path, tmp_path / "copy")
    assert list(tmp_path.glob("copy*")) == []


def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    filled(tmp_path / "h.sqlite", 10)
    with pytest.raises(StorageError, match=r"backup|back up"):
        back_up(tmp_path / "h.sqlite", tmp_path / "nowhere" / "copy")
    with pytest.raises(StorageError, match="no history store"):
        back_up(tmp_path / "nothing", tmp_path / "copy")
