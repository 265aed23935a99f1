"""Rollups of an hour: exact at every moment, made for stores that had none, kept after minutes are gone."""

from __future__ import annotations

import math
import signal
import sqlite3
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetgp.store import sqlite_rollup, sqlite_schema
from fleetgp.store.base import Batch, Row, Window
from fleetgp.store.sqlite import open_keeping, open_reader, open_writer
from fleetgp.store.sqlite_report import examine
from fleetgp.store.sqlite_retention import Kept, Retention

HOUR, MINUTE, DAY = 3_600_000, 60_000, 86_400_000
T0 = 1_700_000_000_000 // DAY * DAY
ALWAYS = 10**15
ALL = (-(2**62), 2**62)


def row(at_ms: int, a: float | None, sequence: int) -> Row:
    return Row("reading", "pump", at_ms, {"a": a, "b": None if a is None else 2 * a}, at_ms, sequence)


def assert_same_sums(window: Window, rows: list[Row], start_ms: int, end_ms: int) -> None:
    """Every step of the window against the rows themselves; the sum of all steps is the sum of the span."""
    origin = int(window.at_ms[0]) if len(window.at_ms) else 0
    for name in ("a", "b"):
        groups: dict[int, list[float]] = {}
        for r in rows:
            if start_ms <= r.at_ms <= end_ms and (value := r.values[name]) is not None:
                groups.setdefault(origin + (r.at_ms - origin) // window.step_ms * window.step_ms, []).append(value)
        assert [int(at) for at in window.at_ms] == sorted(groups)
        values = [groups[step] for step in sorted(groups)]
        np.testing.assert_array_equal(window.low[name], [min(group) for group in values])
        np.testing.assert_array_equal(window.high[name], [max(group) for group in values])
        np.testing.assert_allclose(window.mean[name], [math.fsum(g) / len(g) for g in values], rtol=0, atol=1e-9)


_entries = st.lists(
    st.tuples(st.integers(-2, 130), st.integers(0, HOUR - 1), st.floats(-1e3, 1e3)), min_size=1, max_size=30
)


@settings(max_examples=80, deadline=None)
@given(
    base=st.sampled_from([T0, 0, -500 * HOUR]),
    batches=st.lists(st.tuples(_entries, st.integers(0, 3)), min_size=1, max_size=5),
    spans=st.lists(
        st.tuples(st.integers(-3 * HOUR, 120 * HOUR), st.integers(0, 140 * HOUR), st.integers(1, 30)), min_size=1
    ),
    is_old=st.booleans(),
)
def test_long_windows_equal_the_rows_whatever_is_rolled_up_at_the_moment(
    tmp_path_factory: pytest.TempPathFactory,
    base: int,
    batches: list[tuple[list[tuple[int, int, float]], int]],
    spans: list[tuple[int, int, int]],
    is_old: bool,
) -> None:
    """Upkeep stops anywhere: after minutes, after hours, in the middle of making hours for a store of version 1."""
    path = tmp_path_factory.mktemp("hours") / "h.sqlite"
    if is_old:
        make_version_1(path, [])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sqlite_rollup, "HOURS_A_STEP", 3)
        patch.setattr(sqlite_rollup, "MINUTES_A_STEP", 7)
        patch.setattr(sqlite_rollup, "STEPS", 2)
        writer, rows = open_writer(path, raw_days=90, rollup_days=1825), []
        reader = open_reader(path)
        for i, (entries, upkeep) in enumerate(batches):
            new = [row(base + h * HOUR + ms, v, len(rows) + k) for k, (h, ms, v) in enumerate(entries)]
            rows += new
            writer.write(Batch(rows=new))
            for _ in range(upkeep):
                writer.maintain(ALWAYS)
            if is_old and i == 0:
                writer.close()
                downgrade(path)
                assert_windows(open_reader(path), rows, base, spans)  # before the bridge has started anew
                writer = open_writer(path, raw_days=90, rollup_days=1825)
            assert_windows(reader, rows, base, spans)
    writer.close()
    reader.close()


def assert_windows(reader: object, rows: list[Row], base: int, spans: list[tuple[int, int, int]]) -> None:
    for offset, length, most in spans:
        start, end = base + offset, base + offset + length
        window = reader.window("reading", "pump", ["a", "b"], start, end, most)  # type: ignore[attr-defined]
        assert len(window.at_ms) <= most
        if window.step_ms:
            assert_same_sums(window, rows, start, end)


def downgrade(path: Path) -> None:
    """Make a store what version 1 made of it."""
    connection = sqlite3.connect(path)
    for statement in (
        "DROP TABLE hourly",
        "DROP TABLE dirty_hours",
        "ALTER TABLE series DROP COLUMN rollup_floor_ms",
        "ALTER TABLE series DROP COLUMN hours_from",
        "PRAGMA user_version = 1",
    ):
        connection.execute(statement)
    connection.commit()
    connection.close()


def make_version_1(path: Path, rows: list[Row]) -> None:
    """A store of version 1 with all closed minutes rolled up."""
    writer = open_writer(path, raw_days=3000, rollup_days=3000)
    writer.write(Batch(rows=rows))
    writer.maintain(ALWAYS)
    writer.close()
    downgrade(path)


def hourly(path: Path) -> dict[tuple[int, int], tuple[float, ...]]:
    """Hours made so far, but for those that are dirty."""
    connection = sqlite3.connect(path)
    dirt = f"SELECT hour FROM dirty_hours UNION SELECT {sqlite_schema.HOUR_OF_MINUTE} FROM dirty"
    found = connection.execute(
        f"SELECT position, hour, n, sum, min, max FROM hourly WHERE hour NOT IN ({dirt})"
    ).fetchall()
    connection.close()
    return {(position, hour): tuple(quad) for position, hour, *quad in found}


def expected_hours(rows: list[Row]) -> dict[tuple[int, int], tuple[float, ...]]:
    groups: dict[tuple[int, int], list[float]] = {}
    for r in rows:
        for position, value in enumerate(r.values.values()):
            if value is not None and r.at_ms // HOUR < rows[-1].at_ms // HOUR:
                groups.setdefault((position, r.at_ms // HOUR), []).append(value)
    return {key: (len(v), math.fsum(v), min(v), max(v)) for key, v in groups.items()}


def test_hours_hold_what_the_rows_hold_and_late_rows_reach_them(tmp_path: Path) -> None:
    path = tmp_path / "h.sqlite"
    rows = [row(T0 + 90_000 * i, float(i % 50), i) for i in range(1000)]
    writer = open_writer(path, raw_days=90, rollup_days=1825)
    late = rows[100:140]
    writer.write(Batch(rows=[*rows[:100], *rows[140:]]))
    writer.maintain(ALWAYS)
    assert hourly(path) == expected_hours([*rows[:100], *rows[140:]])
    writer.write(Batch(rows=late))
    writer.maintain(ALWAYS)
    assert hourly(path) == expected_hours(rows)


def test_a_store_of_version_1_opens_as_it_is_and_gets_its_hours_in_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "h.sqlite"
    rows = [row(T0 + 600_000 * i, float(i), i) for i in range(40 * 6)] + [row(T0 + 900 * DAY, 0.0, 9999)]
    make_version_1(path, rows)
    old = examine(path)
    assert (old.version, old.rows, dict(old.waiting)) == (1, len(rows), {"minutes": 1})
    monkeypatch.setattr(sqlite_rollup, "HOURS_A_STEP", 10)
    monkeypatch.setattr(sqlite_rollup, "STEPS", 3)  # a look for minutes, one for hours, and one step of making hours
    writer, sizes = open_writer(path, raw_days=3000, rollup_days=3000), []
    for _ in range(6):
        sizes.append(len(hourly(path)) // 2)
        writer.maintain(ALWAYS)
    assert sizes == [0, 10, 20, 30, 40, 40]
    assert hourly(path) == expected_hours(rows)
    assert examine(path).waiting["series_without_hours"] == 0


MIGRATOR = textwrap.dedent("""
    import sqlite3, sys
    from pathlib import Path
    from fleetgp.store import sqlite_rollup
    from fleetgp.store.sqlite import open_writer
    sqlite_rollup.HOURS_A_STEP = 2
    print("ready", flush=True)
    writer = open_writer(Path(sys.argv[1]), raw_days=3000, rollup_days=3000)
    while True:
        writer.maintain(10**15)
        print("step", flush=True)
""")


def test_a_kill_while_a_store_is_brought_up_to_date_hurts_nothing(tmp_path: Path) -> None:
    path, script = tmp_path / "h.sqlite", tmp_path / "migrate.py"
    script.write_text(MIGRATOR)
    rows = [row(T0 + 600_000 * i, float(i % 37), i) for i in range(200 * 6)]
    make_version_1(path, rows)
    for patience in (1, 2, 6, 20):
        with subprocess.Popen([sys.executable, str(script), str(path)], stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            for _ in range(patience):
                child.stdout.readline()
            child.send_signal(signal.SIGKILL)
        reader = open_reader(path)
        for most in (5, 50, 150):
            assert_same_sums(reader.window("reading", "pump", ["a", "b"], *ALL, most), rows, *ALL)
        reader.close()
        made = hourly(path) if version(path) == 2 else {}
        assert made.items() <= expected_hours(rows).items()
    assert made


def version(path: Path) -> int:
    connection = sqlite3.connect(path)
    found: int = connection.execute("PRAGMA user_version").fetchone()[0]
    connection.close()
    return found


def test_a_change_of_form_that_fails_half_way_is_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "h.sqlite"
    make_version_1(path, [row(T0 + i * MINUTE, 1.0, i) for i in range(100)])
    with monkeypatch.context() as patch:
        patch.setattr(sqlite_schema, "_VERSION_1_TO_2", (*sqlite_schema._VERSION_1_TO_2, "SELECT 1 FROM nowhere"))
        with pytest.raises(Exception, match="nowhere"):
            open_writer(path, raw_days=90, rollup_days=1825)
    assert version(path) == 1
    assert len(open_reader(path).window("reading", "pump", ["a"], *ALL).at_ms) == 100
    open_writer(path, raw_days=90, rollup_days=1825).close()
    assert version(path) == 2


def test_minutes_go_before_hours_and_hours_go_last(tmp_path: Path) -> None:
    path = tmp_path / "h.sqlite"
    kept = Kept(raw_days=2, minute_days=10, hour_days=30)
    rows = [row(T0 + 20 * MINUTE * i, float(i % 91), i) for i in range(3 * 24 * 40)]
    writer = open_keeping(path, Retention(kept, kept, kept))
    for i in range(0, len(rows), 300):
        writer.write(Batch(rows=rows[i : i + 300]))
        writer.maintain(ALWAYS)
    for _ in range(20):
        writer.maintain(ALWAYS)
    newest = rows[-1].at_ms
    raw_floor, minute_floor, hour_floor = (
        (newest - days * DAY) // unit * unit for days, unit in ((2, MINUTE), (10, HOUR), (30, HOUR))
    )
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT min(at_ms), rows FROM s1, series").fetchone() == (
        raw_floor,
        sum(r.at_ms >= raw_floor for r in rows),
    )
    assert connection.execute("SELECT min(minute) FROM rollup").fetchone()[0] * MINUTE == minute_floor
    assert connection.execute("SELECT min(hour) FROM hourly").fetchone()[0] * HOUR == hour_floor
    reader = open_reader(path)
    assert reader.series("reading")[0].first_ms == hour_floor
    left = [r for r in rows if r.at_ms >= hour_floor]
    for most in (3, 40, 10_000):
        window = reader.window("reading", "pump", ["a", "b"], *ALL, most)
        assert window.step_ms >= HOUR
        assert_same_sums(window, left, *ALL)
    window = reader.window("reading", "pump", ["a", "b"], minute_floor, newest, 10_000)
    assert window.step_ms == 2 * MINUTE
    assert_same_sums(window, left, minute_floor, newest)
    # An hour of which only the hour is left counts whole.
    start = hour_floor + HOUR + 25 * MINUTE
    window = reader.window("reading", "pump", ["a", "b"], start, start + 10 * MINUTE, 10)
    assert_same_sums(window, left, hour_floor + HOUR, hour_floor + 2 * HOUR - 1)
    report = writer.write(Batch(rows=[row(hour_floor + 5, 7.0, 99_999), row(minute_floor - 1, 7.0, 99_998)]))
    assert report.refused == {"older_than_kept": 2}


def test_each_kind_is_kept_for_its_own_days(tmp_path: Path) -> None:
    path = tmp_path / "h.sqlite"
    kept = {"reading": Kept(20, 50, 50), "prediction": Kept(5, 10, 30), "health": Kept(1, 2, 3)}
    writer = open_keeping(path, Retention(**kept))
    for kind in kept:
        writer.write(
            Batch(rows=[Row(kind, "x", T0 + HOUR * i, {"v": 1.0}, T0) for i in range(24 * 40 + 1)])  # type: ignore[arg-type]
        )
    for _ in range(30):
        writer.maintain(ALWAYS)
    reader = open_reader(path)
    newest = T0 + 40 * DAY
    for kind, days in kept.items():
        (info,) = reader.series(kind)  # type: ignore[arg-type]
        assert info.rows == days.raw_days * 24 + 1
        assert info.first_ms == max(T0, newest - days.hour_days * DAY)
        assert open_reader(path).window(kind, "x", ["v"], *ALL, 10_000).at_ms[0] == info.first_ms  # type: ignore[arg-type]


def test_a_store_of_version_1_takes_the_layers_of_predictions_while_it_is_open(tmp_path: Path) -> None:
    """New columns of a series that was there before; a reader sees none of them in the old rows."""
    path, told = tmp_path / "h.sqlite", {"t.mean": 20.0, "score": 1.0}
    old = [Row("prediction", "pump", T0 + i * MINUTE, told, T0, i) for i in range(120)]
    make_version_1(path, old)
    reader, layers = open_reader(path), ("t.shared", "t.deviation", "t.local")
    writer = open_writer(path, raw_days=3000, rollup_days=3000)
    values = {**told, **dict.fromkeys(layers, 0.5)}
    new = [Row("prediction", "pump", T0 + i * MINUTE, values, T0, i) for i in range(120, 240)]
    assert writer.write(Batch(rows=new)).written == 120
    writer.maintain(ALWAYS)
    for most in (1000, 30, 4):  # rows, minutes, hours
        window = reader.window("prediction", "pump", ["t.mean", *layers], *ALL, most)
        is_new = window.at_ms >= T0 + 120 * MINUTE
        for name in layers:
            np.testing.assert_array_equal(window.mean[name], np.where(is_new, 0.5, np.nan))
        assert np.all(window.mean["t.mean"] == 20.0)
    assert set(layers) < set(reader.series("prediction")[0].channels)
