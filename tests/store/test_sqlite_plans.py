"""What must not happen in a store of 100 million rows: that a whole table is read where a few rows are wanted.

SQLite is asked how it would do every statement that the store's work really runs, on tables of no size at all.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from fleetgp.store import sqlite_prune, sqlite_report
from fleetgp.store.base import Batch, Row
from fleetgp.store.sqlite_export import Part, raw_rows
from fleetgp.store.sqlite_prune import Choice, doomed, prune
from fleetgp.store.sqlite_read import SqliteReader
from fleetgp.store.sqlite_retention import Kept, Retention
from fleetgp.store.sqlite_schema import connect_reader, connect_writer
from fleetgp.store.sqlite_write import SqliteWriter

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
T0 = 1_700_000_000_000 // DAY * DAY
# tables whose size grows with the rows or the years; the others grow with the number of series or have a bound
LARGE = re.compile(r"SCAN (s\d+|raw|rollup|r|hourly)\b")
SHORT = Kept(raw_days=1, minute_days=2, hour_days=3)


def rows(first_ms: int, count: int, series: str = "pump") -> list[Row]:
    return [Row("reading", series, first_ms + MINUTE * i, {"a": float(i), "b": 1.0}, first_ms, i) for i in range(count)]


def statements(connection: sqlite3.Connection, work: Callable[[], object]) -> list[str]:
    """The statements that work runs on a connection, with its values in them."""
    seen: list[str] = []
    connection.set_trace_callback(seen.append)
    try:
        work()
    finally:
        connection.set_trace_callback(None)
    return [sql for sql in seen if re.match(r"\s*(SELECT|INSERT|DELETE|UPDATE|WITH)\b", sql)]


def scans(path: Path, seen: list[str]) -> list[str]:
    """Steps of their plans that read a large table from one end to the other."""
    with sqlite3.connect(path) as connection:
        found = []
        for sql in dict.fromkeys(seen):
            steps = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}")]
            # a statement that takes the first of a table and stops there reads no more than these
            if not re.search(r"ORDER BY at_ms LIMIT 1$", sql):
                found += [f"{step}: {sql}" for step in steps if LARGE.match(step)]
        return found


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store with rows of five days in two series, the minutes and hours of all but the last rolled up."""
    file = tmp_path / "h.sqlite"
    writer = SqliteWriter(connect_writer(file), file, Retention(*3 * (Kept(100, 100, 100),)))
    for series in ("pump", "fan"):
        writer.write(Batch(rows=rows(T0, 5 * 24 * 60, series)))
    for _ in range(4):
        writer.maintain(T0 + 100 * DAY)
    writer.write(Batch(rows=[Row("reading", "pump", T0 + DAY + 5, {"a": 0.5}, T0)]))
    writer.close()
    return file


def test_a_full_scan_is_seen(path: Path) -> None:
    assert scans(path, ["SELECT count(*) FROM s1 WHERE c0 > 1", "SELECT sum(n) FROM rollup WHERE minute = 1"])
    assert not scans(path, ["SELECT count(*) FROM s1 WHERE at_ms > 1"])


def test_writing_and_upkeep_read_no_table_whole(path: Path) -> None:
    connection = connect_writer(path)
    writer = SqliteWriter(connection, path, Retention(SHORT, SHORT, SHORT, event_days=1, round_days=1))

    def work() -> None:
        late = [
            Row("reading", "pump", T0 + DAY + i * HOUR, {"a": 9.0}, T0) for i in range(50)
        ]  # contradicts what is there
        writer.write(Batch(rows=[*rows(T0 + 5 * DAY, 200), *late]))
        for _ in range(8):
            writer.maintain(T0 + 100 * DAY)

    seen = statements(connection, work)
    assert {
        word for word in ("rollup", "hourly", "dirty_hours") if any(f"DELETE FROM {word}" in sql for sql in seen)
    } == {
        "rollup",
        "hourly",
        "dirty_hours",
    }
    assert any(re.match(r"DELETE FROM s\d", sql) for sql in seen)
    assert scans(path, seen) == []


def test_windows_read_no_table_whole(path: Path) -> None:
    connection = connect_reader(path)
    reader = SqliteReader(connection, path)

    def work() -> None:
        for span_ms in (HOUR, DAY, 5 * DAY):
            for most in (2, 60, 600):
                reader.window("reading", "pump", ["a", "b"], T0 + DAY, T0 + DAY + span_ms, most)
        reader.info()
        reader.series("reading")

    seen = statements(connection, work)
    assert any("FROM hourly" in sql for sql in seen)
    assert any("CROSS JOIN rollup" in sql for sql in seen)
    assert scans(path, seen) == []


def watch(monkeypatch: pytest.MonkeyPatch, module: object, name: str, seen: list[str]) -> None:
    """Have the statements of connections that a module opens written down."""
    opening = getattr(module, name)

    def opened(path: Path) -> sqlite3.Connection:
        connection: sqlite3.Connection = opening(path)
        connection.set_trace_callback(seen.append)
        return connection

    monkeypatch.setattr(module, name, opened)


def test_info_export_and_prune_read_no_more_than_what_they_tell_of(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    watch(monkeypatch, sqlite_report, "connect_reader", seen)
    watch(monkeypatch, sqlite_prune, "connect_reader", seen)
    watch(monkeypatch, sqlite_prune, "connect_writer", seen)
    monkeypatch.setattr("fleetgp.store.sqlite_export.connect_reader", sqlite_prune.connect_reader)
    sqlite_report.examine(path)
    assert len(list(raw_rows(path, Part(start_ms=T0 + DAY, end_ms=T0 + 2 * DAY), ["a"]))) == 2 * (24 * 60 + 1) + 1
    choice = Choice(("reading",), ("fan",), T0 + 2 * DAY)
    prune(path, choice, doomed(path, choice), lambda _: None)
    plain = [sql for sql in seen if re.match(r"\s*(SELECT|INSERT|DELETE|UPDATE)\b", sql)]
    assert len(plain) > 20
    assert scans(path, plain) == []


def test_a_series_that_is_removed_goes_by_first_rows_of_its_tables(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    watch(monkeypatch, sqlite_prune, "connect_writer", seen)
    choice = Choice(("reading",), ("fan",))
    prune(path, choice, doomed(path, choice), lambda _: None)
    deletes = [sql for sql in seen if sql.startswith("DELETE FROM") and "LIMIT" in sql]
    assert len(deletes) > 5
    with sqlite3.connect(path) as connection:
        for sql in deletes:
            if re.match(r"DELETE FROM s\d", sql):
                continue  # its table is gone by now
            plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}")]
            assert all(step.startswith(("SEARCH", "LIST SUBQUERY")) for step in plan), plan


def test_a_very_long_window_counts_no_more_rows_than_it_has_points(path: Path) -> None:
    """What the span holds matters only where steps below a minute are possible."""
    connection = sqlite3.connect(path)
    reader = SqliteReader(connect_reader(path), path)
    connection.close()
    limits = []
    for span_ms, most in ((HOUR, 600), (5 * DAY, 100)):
        seen = statements(
            reader._connection, lambda s=span_ms, m=most: reader.window("reading", "pump", ["a"], T0, T0 + s, m)
        )  # type: ignore[misc]
        limits += [int(re.search(r"LIMIT (\d+)", sql)[1]) for sql in seen if sql.startswith("SELECT count(*)")]  # type: ignore[index]
    assert limits == [300_001, 101]
