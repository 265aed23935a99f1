"""Rollups are exact and retention is fair, at whatever moment upkeep comes."""

from __future__ import annotations

import math
import random
import sqlite3
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetgp.store import sqlite_rollup, sqlite_upkeep
from fleetgp.store.base import Batch, Row
from fleetgp.store.sqlite import open_reader, open_writer
from fleetgp.store.sqlite_schema import connect_writer

T0 = 1_700_000_040_000  # a whole minute
MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
ALL = (-(2**62), 2**62)

Quad = tuple[int, float, float, float]


def row(at_ms: int, value: float | None, sequence: int | None = None, series: str = "pump") -> Row:
    return Row("reading", series, at_ms, {"a": value, "b": None if value is None else -value}, at_ms, sequence)


def rollups(path: Path) -> dict[tuple[str, str, int], Quad]:
    """The rollup table of a file, minutes still dirty left out."""
    connection = sqlite3.connect(path)
    found = connection.execute(
        "SELECT series.name, columns.name, r.minute, r.n, r.sum, r.min, r.max FROM rollup r "
        "JOIN series ON series.id = r.series_id JOIN columns USING (series_id, position) "
        "WHERE NOT EXISTS (SELECT 1 FROM dirty d WHERE d.series_id = r.series_id AND d.minute = r.minute)"
    ).fetchall()
    connection.close()
    return {(name, column, minute): tuple(quad) for name, column, minute, *quad in found}


def expected_rollups(rows: list[Row]) -> dict[tuple[str, str, int], Quad]:
    """What every closed minute must hold: all but the newest of each series."""
    values: dict[tuple[str, str, int], list[float]] = {}
    newest: dict[str, int] = {}
    for r in rows:
        newest[r.series] = max(newest.get(r.series, r.at_ms), r.at_ms)
        for column, value in r.values.items():
            if value is not None:
                values.setdefault((r.series, column, r.at_ms // MINUTE), []).append(value)
    return {
        key: (len(found), math.fsum(found), min(found), max(found))
        for key, found in values.items()
        if key[2] < newest[key[0]] // MINUTE
    }


def same(found: dict[tuple[str, str, int], Quad], expected: dict[tuple[str, str, int], Quad]) -> bool:
    # 1e-9: at most a few hundred terms below 1e3, each rounded once
    return found.keys() == expected.keys() and all(np.allclose(found[k], expected[k], 0, 1e-9) for k in expected)


@settings(max_examples=40, deadline=None)
@given(
    entries=st.lists(
        st.tuples(st.integers(0, 12 * MINUTE), st.one_of(st.none(), st.floats(-1e3, 1e3)), st.sampled_from("xy")),
        min_size=1,
        max_size=120,
    ),
    size=st.integers(1, 40),
    every=st.integers(1, 4),
)
def test_rollups_equal_the_rows_after_late_and_duplicate_writes(
    tmp_path_factory: pytest.TempPathFactory, entries: list[tuple[int, float | None, str]], size: int, every: int
) -> None:
    path = tmp_path_factory.mktemp("rollup") / "h.sqlite"
    writer = open_writer(path, raw_days=90, rollup_days=1825)
    rows = [row(T0 + offset, value, i, series) for i, (offset, value, series) in enumerate(entries)]
    for i in range(0, len(rows), size):
        writer.write(Batch(rows=rows[max(0, i - 3) : i + size]))
        if i // size % every == 0:
            writer.maintain(T0 + DAY)
            seen = rows[: i + size]
            assert same(rollups(path), expected_rollups(seen))
    writer.close()


def test_a_minute_still_open_on_the_clock_waits(tmp_path: Path) -> None:
    path = tmp_path / "h.sqlite"
    writer = open_writer(path, raw_days=90, rollup_days=1825)
    writer.write(Batch(rows=[row(T0, 1.0, 0), row(T0 + 10 * DAY, 2.0, 1)]))
    writer.maintain(T0 + MINUTE - 1)
    assert rollups(path) == {}
    writer.maintain(T0 + MINUTE)
    assert rollups(path) == {("pump", "a", T0 // MINUTE): (1, 1.0, 1.0, 1.0),
                             ("pump", "b", T0 // MINUTE): (1, -1.0, -1.0, -1.0)}  # fmt: skip


def test_one_call_is_bounded_and_many_catch_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_rollup, "STEPS", 2)
    monkeypatch.setattr(sqlite_rollup, "MINUTES_A_STEP", 5)
    path = tmp_path / "h.sqlite"
    rows = [row(T0 + MINUTE * i, float(i), i) for i in range(32)]
    writer = open_writer(path, raw_days=90, rollup_days=1825)
    writer.write(Batch(rows=rows))
    sizes = []
    for _ in range(5):
        writer.maintain(T0 + DAY)
        sizes.append(len(rollups(path)) // 2)
    assert sizes == [10, 20, 30, 31, 31]
    assert same(rollups(path), expected_rollups(rows))


def test_raw_rows_go_after_their_days_and_leave_rollups(tmp_path: Path) -> None:
    path = tmp_path / "h.sqlite"
    rows = [row(T0 + 6 * 3_600_000 * i + 1000 * j, i + j / 10, 10 * i + j) for i in range(41) for j in range(3)]
    writer = open_writer(path, raw_days=2, rollup_days=6)
    writer.write(Batch(rows=rows))
    for _ in range(3):
        writer.maintain(rows[-1].at_ms)
    reader = open_reader(path)
    newest = rows[-1].at_ms
    kept = [r for r in rows if r.at_ms >= (newest - 2 * DAY) // MINUTE * MINUTE]
    assert reader.sequences("pump") == [r.sequence for r in kept]
    window = reader.window("reading", "pump", ["a"], *ALL, max_points=1000)
    rolled = [r for r in rows if r.at_ms >= (newest - 6 * DAY) // HOUR * HOUR]
    assert window.step_ms >= MINUTE
    assert len(window.at_ms) == len({r.at_ms // MINUTE for r in rolled})
    by_minute = {
        m: [r.values["a"] for r in rolled if r.at_ms // MINUTE == m] for m in {r.at_ms // MINUTE for r in rolled}
    }
    expected = [sum(v) / len(v) for _, v in sorted(by_minute.items())]  # type: ignore[arg-type]
    np.testing.assert_allclose(window.mean["a"], expected, rtol=1e-12)
    (info,) = reader.series("reading")
    assert info.rows == len(kept) == reader.info().rows
    assert rolled[0].at_ms // HOUR * HOUR == info.first_ms
    assert info.last_ms == newest
    check_span_below_the_floor(path, rolled)


def check_span_below_the_floor(path: Path, rolled: list[Row]) -> None:
    start = rolled[0].at_ms
    window = open_reader(path).window("reading", "pump", ["a"], start, start + DAY, max_points=3)
    inside = [r.values["a"] or 0.0 for r in rolled if start <= r.at_ms <= start + DAY + MINUTE]
    assert len(window.at_ms) <= 3
    assert (np.nanmin(window.low["a"]), np.nanmax(window.high["a"])) == (min(inside), max(inside))


def test_retention_takes_bounded_bites(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_upkeep, "ROWS_A_STEP", 5)
    monkeypatch.setattr(sqlite_upkeep, "ROWS_A_CALL", 10)
    path = tmp_path / "h.sqlite"
    writer = open_writer(path, raw_days=1, rollup_days=2)
    writer.write(Batch(rows=[row(T0 + 1000 * i, 1.0, i) for i in range(35)] + [row(T0 + 3 * DAY, 1.0, 99)]))
    counts = []
    for _ in range(5):
        writer.maintain(T0 + 3 * DAY)
        counts.append(open_reader(path).info().rows)
    assert counts == [26, 16, 6, 1, 1]


def test_where_one_call_of_retention_ends_the_next_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A series that always has rows to drop does not keep the others from theirs."""
    monkeypatch.setattr(sqlite_upkeep, "ROWS_A_STEP", 5)
    monkeypatch.setattr(sqlite_upkeep, "ROWS_A_CALL", 10)
    path = tmp_path / "h.sqlite"
    writer = open_writer(path, raw_days=1, rollup_days=2)
    for name, count in (("a", 1000), ("b", 8), ("c", 8)):
        old = [row(T0 + 1000 * i, 1.0, i, name) for i in range(count)]
        writer.write(Batch(rows=[*old, row(T0 + 3 * DAY, 1.0, 9999, name)]))
    for _ in range(3):
        writer.maintain(T0 + 3 * DAY)
    assert [info.rows for info in open_reader(path).series("reading")] == [991, 1, 1]


def test_upkeep_begins_no_step_after_its_time(tmp_path: Path) -> None:
    path = tmp_path / "h.sqlite"
    writer = open_writer(path, raw_days=90, rollup_days=1825)
    writer.write(Batch(rows=[row(T0 + MINUTE * i, 1.0, i) for i in range(1000)]))
    connection = connect_writer(path)
    now = iter([0.0, 0.1, 0.15, sqlite_rollup.ROLL_UP_S + 0.01])
    sqlite_rollup.roll_up(connection, T0 + DAY, lambda: next(now))
    assert len(rollups(path)) == 2 * 3 * sqlite_rollup.MINUTES_A_STEP


def test_a_replay_of_an_old_year_keeps_its_rows(tmp_path: Path) -> None:
    path = tmp_path / "h.sqlite"
    writer = open_writer(path, raw_days=1, rollup_days=2)
    writer.write(Batch(rows=[row(T0 + i, float(i), i) for i in range(10)]))
    writer.maintain(T0 + 3000 * DAY)
    assert open_reader(path).info().rows == 10


def test_one_row_from_the_future_does_not_drop_a_series(tmp_path: Path) -> None:
    path = tmp_path / "h.sqlite"
    writer = open_writer(path, raw_days=1, rollup_days=2)
    writer.write(Batch(rows=[row(T0 + MINUTE * i, float(i), i) for i in range(10)] + [row(T0 + 30_000 * DAY, 0.0, 10)]))
    writer.maintain(T0 + 10 * MINUTE)
    assert open_reader(path).info().rows == 11


def test_a_row_older_than_what_is_kept_is_refused_as_it_may_have_been_there(tmp_path: Path) -> None:
    path = tmp_path / "h.sqlite"
    writer = open_writer(path, raw_days=1, rollup_days=20)
    writer.write(Batch(rows=[row(T0, 1.0, 0), row(T0 + 5 * DAY, 2.0, 1)]))
    writer.maintain(T0 + 5 * DAY)
    before = rollups(path)
    for _ in range(2):  # by what the writer remembers, and by what is written
        report = writer.write(Batch(rows=[row(T0, 1.0, 0), row(T0 + 5 * DAY, 2.0, 1), row(T0 + 5 * DAY + 1, 3.0, 2)]))
        assert report.refused == {"older_than_kept": 1}
        writer.maintain(T0 + 5 * DAY)
        writer.close()
        writer = open_writer(path, raw_days=1, rollup_days=20)
    assert rollups(path) == before
    assert open_reader(path).sequences("pump") == [1, 2]


def test_retention_goes_round_all_series(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fleetgp.store.sqlite_write.SERIES_A_STEP", 3)
    path = tmp_path / "h.sqlite"
    writer = open_writer(path, raw_days=1, rollup_days=20)
    names = [f"s{i}" for i in range(8)]
    writer.write(Batch(rows=[row(at, 1.0, None, name) for name in names for at in (T0, T0 + 3 * DAY)]))
    for _ in range(3):
        writer.maintain(T0 + 3 * DAY)
    assert [info.rows for info in open_reader(path).series("reading")] == [1] * 8


def test_upkeep_at_any_moment_gives_the_same_windows(tmp_path: Path) -> None:
    rng = random.Random(11)
    rows = [row(T0 + rng.randrange(3 * 3_600_000), rng.gauss(0, 1), i) for i in range(2000)]
    readers = []
    for name, every in (("never", 10**9), ("often", 1), ("seldom", 7)):
        writer = open_writer(tmp_path / name, raw_days=90, rollup_days=1825)
        for i in range(0, len(rows), 100):
            writer.write(Batch(rows=rows[i : i + 100]))
            if i // 100 % every == every - 1:
                writer.maintain(T0 + DAY)
        readers.append(open_reader(tmp_path / name))
    for most in (2, 20, 100):
        one, *others = [reader.window("reading", "pump", ["a", "b"], T0 + 12_345, T0 + DAY, most) for reader in readers]
        for other in others:
            np.testing.assert_array_equal(one.at_ms, other.at_ms)
            for column in ("a", "b"):
                np.testing.assert_allclose(one.mean[column], other.mean[column], rtol=0, atol=1e-12)
                np.testing.assert_array_equal(one.low[column], other.low[column])
                np.testing.assert_array_equal(one.high[column], other.high[column])


def test_values_merged_into_a_row_reach_the_rollup(tmp_path: Path) -> None:
    path = tmp_path / "h.sqlite"
    writer = open_writer(path, raw_days=90, rollup_days=1825)
    parts = [Row("reading", "pump", T0 + 5, {name: value}, T0) for name, value in (("a", 1.0), ("b", 2.0))]
    writer.write(Batch(rows=[parts[0], row(T0 + MINUTE, 0.0)]))
    writer.maintain(T0 + DAY)
    assert writer.write(Batch(rows=[parts[1]])).written == 1
    writer.maintain(T0 + DAY)
    assert rollups(path) == {("pump", "a", T0 // MINUTE): (1, 1.0, 1.0, 1.0),
                             ("pump", "b", T0 // MINUTE): (1, 2.0, 2.0, 2.0)}  # fmt: skip


def test_raw_rows_wait_for_rollups_that_lag_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_rollup, "STEPS", 0)  # as if other series kept it busy
    monkeypatch.setattr(sqlite_upkeep, "MINUTES_A_STEP", 5)
    path = tmp_path / "h.sqlite"
    writer = open_writer(path, raw_days=1, rollup_days=20)
    rows = [row(T0 + MINUTE * i, float(i), i) for i in range(18)] + [row(T0 + 3 * DAY, 0.0, 18)]
    writer.write(Batch(rows=rows))
    counts = []
    for _ in range(5):
        writer.maintain(T0 + 3 * DAY)
        window = open_reader(path).window("reading", "pump", ["a"], T0, T0 + DAY, 2000)
        np.testing.assert_array_equal(window.mean["a"], np.arange(18.0))
        counts.append(open_reader(path).info().rows)
    assert counts == [19, 19, 19, 1, 1]
    assert same(rollups(path), expected_rollups(rows))
