"""What can happen to a file: killed writers, full disks, locks, other people's files, readers beside the writer."""

from __future__ import annotations

import os
import resource
import signal
import sqlite3
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from fleetgp.errors import StorageError
from fleetgp.store.base import Batch, Reader, Row
from fleetgp.store.sqlite import open_reader, open_writer
from fleetgp.store.sqlite_read import SqliteReader
from fleetgp.store.sqlite_retention import same_for_all
from fleetgp.store.sqlite_schema import connect_reader, connect_writer
from fleetgp.store.sqlite_write import SqliteWriter
from fleetgp.wire.messages import Health

T0 = 1_700_000_000_000
MINUTE = 60_000
PER_BATCH = 30

# A writing program: batch k puts PER_BATCH rows in each of three series, some late, then says k; upkeep in between.
WRITER = textwrap.dedent("""
    import sys
    from pathlib import Path
    from fleetgp.store.base import Batch, Row
    from fleetgp.store.sqlite import open_writer
    T0, PER_BATCH = 1_700_000_000_000, 30

    def batch(k):
        spots = [k * PER_BATCH + i for i in range(PER_BATCH)]
        times = [T0 + 2000 * n - (300_000 if n % 11 == 0 else 0) for n in spots]
        return Batch(rows=[Row("reading", s, at, {"a": float(n % 97), "b": n / 7}, at, n)
                           for n, at in zip(spots, times) for s in ("x", "y", "z")])

    if __name__ == "__main__":
        writer = open_writer(Path(sys.argv[1]), raw_days=90, rollup_days=1825)
        for k in range(int(sys.argv[2]), int(sys.argv[3])):
            writer.write(batch(k))
            print(k, flush=True)
            if k % 3 == 0:
                writer.maintain(T0 + 10**12)
""")


def row(at_ms: int, sequence: int, **values: float) -> Row:
    return Row("reading", "pump", at_ms, values, at_ms, sequence)


def batch(first: int, n: int = 100) -> Batch:
    rows = [row(T0 + i, i, **{f"c{j}": float(i * j) for j in range(8)}) for i in range(first, first + n)]
    return Batch(rows=rows, healths=[Health(name=f"p{first}", role="bridge", at_ms=T0)])


def assert_rollups_equal_rows(path: Path) -> None:
    """Every rollup of a minute that is not dirty equals the sums over its raw rows, and no closed minute lacks one."""
    connection = sqlite3.connect(path)
    for series_id, last_ms in connection.execute("SELECT id, last_ms FROM series").fetchall():
        dirty = {m for (m,) in connection.execute("SELECT minute FROM dirty WHERE series_id = ?", (series_id,))}
        values: dict[tuple[int, int], list[float]] = {}
        for at_ms, a, b in connection.execute(f"SELECT at_ms, c0, c1 FROM s{series_id}"):
            for position, value in enumerate((a, b)):
                values.setdefault((position, at_ms // MINUTE), []).append(value)
        found = {
            (position, minute): quad
            for position, minute, *quad in connection.execute(
                "SELECT position, minute, n, sum, min, max FROM rollup WHERE series_id = ?", (series_id,)
            )
            if minute not in dirty
        }
        assert found.keys() == {key for key in values if key[1] not in dirty}
        assert last_ms // MINUTE in dirty
        for key, quad in found.items():
            assert quad == [len(values[key]), pytest.approx(sum(values[key])), min(values[key]), max(values[key])]
    connection.close()


def test_kill_at_any_moment_loses_no_returned_write_and_no_rollup(tmp_path: Path) -> None:
    script, path = tmp_path / "write.py", tmp_path / "h.sqlite"
    script.write_text(WRITER)
    told = 0
    for patience in (1, 4, 23, 60):
        command = [sys.executable, str(script), str(path), str(told), "100000"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            for _ in range(patience):
                told = int(child.stdout.readline()) + 1
            child.send_signal(signal.SIGKILL)
            told = max([told, *(int(line) + 1 for line in child.stdout if line.endswith("\n"))])
        reader = open_reader(path)
        for name in "xyz":
            assert set(range(told * PER_BATCH)) <= set(reader.sequences(name))
        assert len(reader.sequences("x")) % PER_BATCH == 0  # batches are whole
        assert reader.sequences("x") == reader.sequences("y") == reader.sequences("z")
        reader.close()
        assert_rollups_equal_rows(path)
    writer = open_writer(path, raw_days=90, rollup_days=1825)
    for _ in range(3):
        writer.maintain(T0 + 10**12)
    writer.close()
    assert_rollups_equal_rows(path)


def test_a_reader_beside_a_writing_process_sees_whole_batches_only(tmp_path: Path) -> None:
    script, path = tmp_path / "write.py", tmp_path / "h.sqlite"
    script.write_text(WRITER)
    sizes = []
    command = [sys.executable, str(script), str(path), "0", "150"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "0\n"
        reader = open_reader(path)
        while child.poll() is None:
            infos = reader.series("reading")
            assert len({info.rows for info in infos}) == 1
            assert infos[0].rows % PER_BATCH == 0
            sizes.append(infos[0].rows)
            window = reader.window("reading", "y", ["a"], 0, 2**62, 10**6)
            assert len(window.at_ms) % PER_BATCH == 0
            assert len(window.at_ms) >= sizes[-1]
            assert reader.window("reading", "y", ["a", "b"], 0, 2**62, 20).at_ms.size <= 20
        assert child.returncode == 0
    assert sizes == sorted(sizes)
    assert len(set(sizes)) > 3
    assert len(reader.sequences("z")) == 150 * PER_BATCH


def held_writer(path: Path, busy_s: float = 5.0) -> tuple[SqliteWriter, sqlite3.Connection, Reader]:
    connection = connect_writer(path, busy_s)
    return SqliteWriter(connection, path, same_for_all(90, 1825)), connection, open_reader(path)


def assert_holds_exactly(reader: Reader, upto: int, healths: int) -> None:
    assert reader.sequences("pump") == list(range(upto))
    assert next(info.rows for info in reader.series("reading") if info.name == "pump") == upto
    assert len(reader.healths()) == healths
    window = reader.window("reading", "pump", ["c7"], 0, 2**62, 10**6)
    assert [float(v) for v in window.mean["c7"]] == [7.0 * i for i in range(upto)]


def test_a_full_disk_keeps_nothing_of_the_batch_which_can_be_tried_again(tmp_path: Path) -> None:
    writer, connection, reader = held_writer(tmp_path / "h.sqlite")
    writer.write(batch(0))
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    connection.execute(f"PRAGMA max_page_count = {pages + 2}")
    # New series and columns too: what the writer remembers must not run ahead of what was kept.
    large = Batch(
        rows=[*batch(100, 2000).rows, *(Row("reading", f"new{i}", T0, {"v": 1.0}, T0) for i in range(50))],
        healths=batch(100).healths,
    )
    for _ in range(2):
        with pytest.raises(StorageError, match="disk is full"):
            writer.write(large)
        assert_holds_exactly(reader, 100, 1)
        assert len(reader.series("reading")) == 1
    assert writer.write(Batch(rows=[row(T0, 0, c0=0.0)])).duplicates == 1  # what needs no room still goes
    connection.execute("PRAGMA max_page_count = 1000000")
    assert writer.write(large).written == 2050
    assert_holds_exactly(reader, 2100, 2)
    assert len(reader.series("reading")) == 51


def test_a_disk_that_refuses_to_grow_a_file_is_told_in_plain_words(tmp_path: Path) -> None:
    writer, _, reader = held_writer(tmp_path / "h.sqlite")
    writer.write(batch(0))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    size = max(file.stat().st_size for file in tmp_path.iterdir())
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 20_000, hard))
        with pytest.raises(StorageError, match=r"cannot write to the history store .*disk"):
            writer.write(batch(100, 5000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert_holds_exactly(reader, 100, 1)
    assert writer.write(batch(100, 5000)).written == 5000
    assert_holds_exactly(reader, 5100, 2)


def test_upkeep_on_a_full_disk_is_made_up_for_later(tmp_path: Path) -> None:
    writer, connection, _ = held_writer(tmp_path / "h.sqlite")
    writer.write(Batch(rows=[row(T0 + MINUTE * i, i, a=1.0, b=2.0) for i in range(3000)]))
    connection.execute(f"PRAGMA max_page_count = {connection.execute('PRAGMA page_count').fetchone()[0] + 3}")
    with pytest.raises(StorageError, match=r"cannot tidy .* disk is full"):
        writer.maintain(T0 + 10**12)
    assert_rollups_equal_rows(tmp_path / "h.sqlite")
    connection.execute("PRAGMA max_page_count = 1000000")
    writer.maintain(T0 + 10**12)
    assert_rollups_equal_rows(tmp_path / "h.sqlite")
    dirty = connection.execute("SELECT count(*) FROM dirty").fetchone()[0]
    assert dirty == 1


def test_a_store_locked_by_another_says_so_and_goes_on_when_it_is_free(tmp_path: Path) -> None:
    writer, _, reader = held_writer(tmp_path / "h.sqlite", busy_s=0.05)
    other = sqlite3.connect(tmp_path / "h.sqlite", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StorageError, match="locked by another program"):
        writer.write(batch(0))
    assert reader.info().rows == 0
    other.execute("ROLLBACK")
    assert writer.write(batch(0)).written == 100


def test_a_read_only_store_says_so(tmp_path: Path) -> None:
    writer, connection, _ = held_writer(tmp_path / "h.sqlite")
    connection.execute("PRAGMA query_only = ON")
    with pytest.raises(StorageError, match="read-only"):
        writer.write(batch(0))
    connection.execute("PRAGMA query_only = OFF")
    assert writer.write(batch(0)).written == 100


def test_a_reader_cannot_write(tmp_path: Path) -> None:
    open_writer(tmp_path / "h.sqlite", raw_days=1, rollup_days=1)
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        connect_reader(tmp_path / "h.sqlite").execute("DELETE FROM series")


def foreign_database(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE notes (text)")
    connection.commit()
    connection.close()


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda path: path.mkdir(), "is not a file"),
        (os.mkfifo, "is not a file"),
        (lambda path: path.write_bytes(b"time,value\n1,2\n" * 500), "not a FleetGP store"),
        (lambda path: path.write_bytes(b"short"), "not a FleetGP store"),
        (foreign_database, "another program"),
    ],
    ids=["folder", "pipe", "text", "short text", "other database"],
)
def test_a_path_that_is_no_store_is_refused_and_left_alone(
    tmp_path: Path, make: Callable[[Path], object], problem: str
) -> None:
    path = tmp_path / "h.sqlite"
    make(path)
    before = path.read_bytes() if path.is_file() else None
    with pytest.raises(StorageError, match=problem):
        open_writer(path, raw_days=1, rollup_days=1)
    with pytest.raises(StorageError, match=problem):
        open_reader(path)
    assert (path.read_bytes() if path.is_file() else None) == before
    assert [file.name for file in tmp_path.iterdir()] == ["h.sqlite"]


def test_a_damaged_store_is_told(tmp_path: Path) -> None:
    path = tmp_path / "h.sqlite"
    writer = open_writer(path, raw_days=1, rollup_days=1)
    writer.write(batch(0, 2000))
    writer.close()
    content = bytearray(path.read_bytes())
    content[8192:-4096] = b"\xa5" * (len(content) - 12288)
    path.write_bytes(content)
    with pytest.raises(StorageError, match="damaged"):
        open_writer(path, raw_days=1, rollup_days=1).write(batch(5000))
    with pytest.raises(StorageError, match="damaged"):
        open_reader(path).sequences("pump")


def test_a_store_of_a_newer_program_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "h.sqlite"
    open_writer(path, raw_days=1, rollup_days=1).close()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(StorageError, match="newer FleetGP"):
        open_writer(path, raw_days=1, rollup_days=1)
    with pytest.raises(StorageError, match="newer FleetGP"):
        open_reader(path)


def test_before_the_first_write_a_reader_is_told_to_wait(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="bridge has not written"):
        open_reader(tmp_path / "h.sqlite")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "h.sqlite").touch()
    with pytest.raises(StorageError, match="bridge has not written"):
        open_reader(tmp_path / "h.sqlite")


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="cannot make the folder"):
        open_writer(tmp_path / "file" / "sub" / "h.sqlite", raw_days=1, rollup_days=1)


@pytest.mark.parametrize("name", ["a b?mode=memory#x%20.sqlite", "ä'\";:&.sqlite", "%41"])
def test_special_characters_in_a_path(tmp_path: Path, name: str) -> None:
    path = tmp_path / "new folder" / name
    writer = open_writer(path, raw_days=1, rollup_days=1)
    writer.write(batch(0))
    info = open_reader(path).info()
    writer.close()
    assert path.is_file()
    assert (info.location, info.rows, info.series, info.first_ms, info.last_ms) == (str(path), 100, 1, T0, T0 + 99)
    assert 0.01 < info.megabytes < 1


def test_after_closing_there_is_a_plain_error(tmp_path: Path) -> None:
    writer = open_writer(tmp_path / "h.sqlite", raw_days=1, rollup_days=1)
    reader = open_reader(tmp_path / "h.sqlite")
    for side in (writer, reader):
        side.close()
        side.close()
    with pytest.raises(StorageError, match="closed"):
        writer.write(batch(0))
    with pytest.raises(StorageError, match="closed"):
        reader.info()


def test_an_empty_store_reads_as_empty(tmp_path: Path) -> None:
    writer = open_writer(tmp_path / "h.sqlite", raw_days=1, rollup_days=1)
    writer.write(Batch())
    writer.maintain(T0)
    reader = open_reader(tmp_path / "h.sqlite")
    assert isinstance(reader, SqliteReader)
    assert reader.series("reading") == reader.statuses() == reader.healths() == reader.events() == reader.rounds() == []
    assert reader.sequences("pump") == []
    info = reader.info()
    assert (info.series, info.rows, info.first_ms, info.last_ms) == (0, 0, None, None)
