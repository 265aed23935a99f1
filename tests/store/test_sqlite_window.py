"""Windows of the SQLite store against sums over plain Python rows, whatever is rolled up at the moment of reading."""

from __future__ import annotations

import math
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetgp.store import sqlite_window
from fleetgp.store.base import Batch, Reader, Row, Window, Writer
from fleetgp.store.sqlite import open_reader, open_writer
from fleetgp.store.sqlite_catalog import MAX_COLUMNS
from fleetgp.store.sqlite_window import choose_grid

T0 = 1_700_000_000_000
MINUTE = 60_000
ALWAYS = 10**15  # a clock past every row: all minutes but the newest of a series are closed


def row(at_ms: int, values: dict[str, float | None], sequence: int | None = None) -> Row:
    return Row("reading", "pump", at_ms, values, at_ms, sequence)


def opened(path: Path) -> tuple[Writer, Reader]:
    return open_writer(path, raw_days=90, rollup_days=1825), open_reader(path)


def check(window: Window, rows: list[Row], columns: list[str], start_ms: int, end_ms: int, most: int) -> None:
    """Compare with the same steps taken over the rows themselves."""
    inside = [r for r in rows if start_ms <= r.at_ms <= end_ms]
    assert len(window.at_ms) <= most
    assert set(window.mean) == set(window.low) == set(window.high) == set(columns)
    if window.step_ms == 0:
        assert sorted(r.at_ms for r in inside) == [int(at) for at in window.at_ms]
        for name in columns:
            expected = [r.values.get(name) for r in sorted(inside, key=lambda r: (r.at_ms, r.sequence))]
            np.testing.assert_array_equal(window.mean[name], np.array(expected, dtype=float))
            np.testing.assert_array_equal(window.low[name], window.high[name])
        return
    # Steps stand on a grid through the origin of time; one through the first point would be the same up to 4 weeks.
    origin = int(window.at_ms[0]) if len(window.at_ms) else 0
    groups: dict[int, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for r in inside:
        step = origin + (r.at_ms - origin) // window.step_ms * window.step_ms
        for name in columns:
            if (value := r.values.get(name)) is not None:
                groups[step][name].append(value)
    assert [int(at) for at in window.at_ms] == sorted(groups)
    for i, step in enumerate(sorted(groups)):
        for name in columns:
            values = groups[step][name]
            found = (window.mean[name][i], window.low[name][i], window.high[name][i])
            if values:
                # One rounding a term: 1e-12 of the largest term covers the other order of adding.
                scale = max(map(abs, values))
                assert found[0] == pytest.approx(math.fsum(values) / len(values), rel=1e-12, abs=1e-12 * scale)
                assert found[1:] == (min(values), max(values))
                assert found[1] <= found[0] <= found[2]
            else:
                assert all(math.isnan(number) for number in found)


@pytest.mark.parametrize("is_rolled_up", [False, True])
@pytest.mark.parametrize("most", [1, 2, 7, 60, 600, 100_000])
def test_a_day_of_readings_at_every_resolution(tmp_path: Path, most: int, is_rolled_up: bool) -> None:
    rng = np.random.default_rng(7)
    rows = [row(T0 + 10_000 * i, {"a": float(v), "b": float(-v) if i % 3 else None}, i) for i, v in
            enumerate(rng.normal(20, 5, 8640))]  # fmt: skip
    writer, reader = opened(tmp_path / "h.sqlite")
    writer.write(Batch(rows=rows))
    if is_rolled_up:
        writer.maintain(ALWAYS)
    start, end = T0 + 3_456_789, T0 + 80_000_001
    check(reader.window("reading", "pump", ["a", "b"], start, end, most), rows, ["a", "b"], start, end, most)
    check(reader.window("reading", "pump", ["b"], 0, 2**62, most), rows, ["b"], 0, 2**62, most)


_write = st.lists(
    st.tuples(
        st.one_of(st.integers(-3, 3), st.integers(0, 400)),  # minute
        st.one_of(st.sampled_from([0, 59_999]), st.integers(0, 59_999)),
        st.dictionaries(st.sampled_from("ab"), st.one_of(st.none(), st.floats(-1e6, 1e6)), min_size=1),
    ),
    min_size=1,
    max_size=25,
)
_span = st.tuples(st.integers(-5 * MINUTE, 405 * MINUTE), st.integers(0, 410 * MINUTE), st.integers(1, 40))


@settings(max_examples=60, deadline=None)
@given(
    base=st.sampled_from([T0 // MINUTE * MINUTE, 0, -1000 * MINUTE]),
    batches=st.lists(st.tuples(_write, st.booleans()), min_size=1, max_size=6),
    spans=st.lists(_span, min_size=1, max_size=5),
)
def test_late_rows_and_open_minutes_are_in_every_window(
    tmp_path_factory: pytest.TempPathFactory,
    base: int,
    batches: list[tuple[list[tuple[int, int, dict[str, float | None]]], bool]],
    spans: list[tuple[int, int, int]],
) -> None:
    writer, reader = opened(tmp_path_factory.mktemp("window") / "h.sqlite")
    rows: list[Row] = []
    for entries, is_rolled_up in batches:
        new = [row(base + m * MINUTE + ms, values, len(rows) + i) for i, (m, ms, values) in enumerate(entries)]
        rows += new
        writer.write(Batch(rows=new))
        writer.write(Batch(rows=new[::2]))  # some of it again
        if is_rolled_up:
            writer.maintain(ALWAYS)
        for offset, length, most in spans:
            start, end = base + offset, base + offset + length
            check(reader.window("reading", "pump", ["a", "b"], start, end, most), rows, ["a", "b"], start, end, most)
    writer.close()
    reader.close()


@settings(max_examples=300, deadline=None)
@given(st.integers(-(10**13), 10**14), st.integers(0, 10**14), st.integers(1, 5000), st.sampled_from([1, MINUTE]))
def test_a_grid_covers_its_span_with_no_more_points_than_asked(start: int, length: int, most: int, least: int) -> None:
    grid = choose_grid(start, start + length, most, least)
    assert grid.step_ms >= least
    assert grid.origin_ms <= start < grid.origin_ms + grid.step_ms
    assert grid.origin_ms + grid.size * grid.step_ms > start + length
    assert grid.size <= most
    assert grid.step_ms < MINUTE or (grid.step_ms % MINUTE == 0 and grid.origin_ms % MINUTE == 0)


def test_the_grid_of_a_live_chart_does_not_move(tmp_path: Path) -> None:
    writer, reader = opened(tmp_path / "h.sqlite")
    writer.write(Batch(rows=[row(T0 + 1000 * i, {"a": float(i)}, i) for i in range(7200)]))
    one = reader.window("reading", "pump", ["a"], T0 + 1, T0 + 3_600_000, 100)
    two = reader.window("reading", "pump", ["a"], T0 + 20_001, T0 + 3_620_000, 100)
    assert one.step_ms == two.step_ms
    assert set(two.at_ms[:-1]) <= set(one.at_ms) | {one.at_ms[-1] + one.step_ms}
    shared = np.isin(one.at_ms[2:-1], two.at_ms)
    np.testing.assert_array_equal(one.mean["a"][2:-1][shared], two.mean["a"][np.isin(two.at_ms, one.at_ms[2:-1])])
    assert shared.sum() > 50


def test_very_dense_rows_are_read_from_rollups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_window, "MAX_RAW_ROWS_READ", 1000)
    writer, reader = opened(tmp_path / "h.sqlite")
    rows = [row(T0 + 100 * i, {"a": float(i % 17)}, i) for i in range(6000)]
    writer.write(Batch(rows=rows))
    writer.maintain(ALWAYS)
    window = reader.window("reading", "pump", ["a"], T0, T0 + 600_000, 300)
    assert window.step_ms == MINUTE
    check(window, rows, ["a"], T0, T0 + 600_000, 300)


def test_a_span_without_rows_an_unknown_series_and_a_backward_span_are_empty(tmp_path: Path) -> None:
    writer, reader = opened(tmp_path / "h.sqlite")
    writer.write(Batch(rows=[row(T0, {"a": 1.0}), row(T0 + 10, {"a": 1.0})]))
    for window in (
        reader.window("reading", "pump", ["a"], T0 + 1, T0 + 9),
        reader.window("reading", "nobody", ["a"], 0, 2**62),
        reader.window("prediction", "pump", ["a"], 0, 2**62),
        reader.window("reading", "pump", ["a"], T0 + 10, T0),
        reader.window("reading", "pump", ["a"], T0 + 11, 2**70),
    ):
        assert window.at_ms.shape == (0,)
        assert window.mean["a"].shape == window.low["a"].shape == window.high["a"].shape == (0,)


def test_the_widest_series_can_be_read_and_rolled_up(tmp_path: Path) -> None:
    names = [f"c{i}" for i in range(MAX_COLUMNS)]
    rows = [row(T0 + 30_000 * i, {name: float(i * j) for j, name in enumerate(names)}, i) for i in range(40)]
    writer, reader = opened(tmp_path / "h.sqlite")
    writer.write(Batch(rows=rows))
    for most in (1000, 30, 3):
        check(reader.window("reading", "pump", names, T0, T0 + 10**9, most), rows, names, T0, T0 + 10**9, most)
        writer.maintain(ALWAYS)


def test_sums_beyond_the_largest_double_stay_between_the_extremes(tmp_path: Path) -> None:
    writer, reader = opened(tmp_path / "h.sqlite")
    writer.write(Batch(rows=[row(T0 + i * 1000, {"a": 1.7e308}, i) for i in range(300)]))
    for _ in range(2):
        window = reader.window("reading", "pump", ["a"], T0, T0 + 10**6, 3)
        assert set(window.mean["a"]) == {1.7e308}
        writer.maintain(ALWAYS)


def test_asking_for_no_points_is_an_error(tmp_path: Path) -> None:
    _, reader = opened(tmp_path / "h.sqlite")
    with pytest.raises(ValueError, match="max_points"):
        reader.window("reading", "pump", ["a"], 0, 1, 0)
