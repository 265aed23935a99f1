"""What the SQLite store takes, what it knows already, what it refuses; against plain dictionaries."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetgp.errors import ConfigError
from fleetgp.store import sqlite_catalog
from fleetgp.store.base import Batch, Row, Writer
from fleetgp.store.sqlite import open_reader, open_writer
from fleetgp.store.sqlite_catalog import MAX_COLUMNS
from fleetgp.store.sqlite_rows import MAX_AT_ONE_INSTANT

T0 = 1_700_000_000_000
ALL = (-(2**62), 2**62)
Cell = tuple[str, int, str, float]


def row(at_ms: int = T0, sequence: int | None = None, series: str = "hall/1", **values: float | None) -> Row:
    return Row("reading", series, at_ms, values, received_ms=at_ms + 5, sequence=sequence)


def writer_at(path: Path) -> Writer:
    return open_writer(path, raw_days=90, rollup_days=1825)


def stored_cells(path: Path) -> Counter[Cell]:
    """Every value in the store with its series, time and column, as often as it is there."""
    reader = open_reader(path)
    cells: Counter[Cell] = Counter()
    for info in reader.series("reading"):
        window = reader.window("reading", info.name, info.channels, *ALL, max_points=1_000_000)
        assert window.step_ms == 0
        for column, values in window.mean.items():
            cells.update(
                (info.name, int(at), column, float(v))
                for at, v in zip(window.at_ms, values, strict=True)
                if not np.isnan(v)
            )
    reader.close()
    return cells


def given_cells(rows: list[Row]) -> set[Cell]:
    return {(r.series, r.at_ms, name, v) for r in rows for name, v in r.values.items() if v is not None}


def test_values_come_back_as_doubles_with_missing_ones_missing(tmp_path: Path) -> None:
    writer = writer_at(tmp_path / "h.sqlite")
    writer.write(Batch(rows=[row(T0, a=1, b=None), row(T0 + 1, a=2**53 + 2, b=0.1), row(T0 + 2, b=-0.5)]))
    window = open_reader(tmp_path / "h.sqlite").window("reading", "hall/1", ["b", "a", "never"], *ALL)
    np.testing.assert_array_equal(window.at_ms, [T0, T0 + 1, T0 + 2])
    np.testing.assert_array_equal(window.mean["a"], [1.0, float(2**53 + 2), np.nan])
    np.testing.assert_array_equal(window.mean["b"], [np.nan, 0.1, -0.5])
    np.testing.assert_array_equal(window.mean["never"], [np.nan] * 3)


def test_a_row_of_the_same_time_and_sequence_is_a_duplicate(tmp_path: Path) -> None:
    writer = writer_at(tmp_path / "h.sqlite")
    rows = [row(T0 + i, sequence=i, a=float(i)) for i in range(10)]
    assert writer.write(Batch(rows=rows)).written == 10
    report = writer.write(Batch(rows=[*rows, row(T0 + 10, sequence=10, a=0.0)]))
    assert (report.written, report.duplicates, report.refused) == (1, 10, {})
    assert open_reader(tmp_path / "h.sqlite").sequences("hall/1") == list(range(11))


def test_duplicates_within_one_batch_are_counted(tmp_path: Path) -> None:
    report = writer_at(tmp_path / "h.sqlite").write(Batch(rows=[row(a=1.0), row(a=1.0), row(T0 + 1, a=1.0)]))
    assert (report.written, report.duplicates) == (2, 1)


def test_unnumbered_rows_of_one_instant_merge_where_they_do_not_contradict(tmp_path: Path) -> None:
    writer = writer_at(tmp_path / "h.sqlite")
    assert writer.write(Batch(rows=[row(a=1.0)])).written == 1
    assert writer.write(Batch(rows=[row(b=2.0, a=1.0), row(c=3.0)])).written == 2
    assert writer.write(Batch(rows=[row(a=1.0, c=3.0), row(b=2.0)])).duplicates == 2
    reader = open_reader(tmp_path / "h.sqlite")
    assert reader.info().rows == 1
    window = reader.window("reading", "hall/1", ["a", "b", "c"], *ALL)
    assert [float(window.mean[name][0]) for name in "abc"] == [1.0, 2.0, 3.0]


def test_unnumbered_rows_that_contradict_are_kept_beside_each_other(tmp_path: Path) -> None:
    writer = writer_at(tmp_path / "h.sqlite")
    report = writer.write(Batch(rows=[row(a=1.0), row(a=2.0), row(a=3.0, b=1.0), row(a=2.0)]))
    assert (report.written, report.duplicates) == (3, 1)
    assert stored_cells(tmp_path / "h.sqlite") == Counter(
        [("hall/1", T0, "a", 1.0), ("hall/1", T0, "a", 2.0), ("hall/1", T0, "a", 3.0), ("hall/1", T0, "b", 1.0)]
    )


def test_a_sequence_used_twice_for_different_values_loses_neither(tmp_path: Path) -> None:
    writer = writer_at(tmp_path / "h.sqlite")
    writer.write(Batch(rows=[row(sequence=7, a=1.0)]))
    assert writer.write(Batch(rows=[row(sequence=7, a=2.0)])).written == 1
    assert writer.write(Batch(rows=[row(sequence=7, a=2.0), row(sequence=7, a=1.0)])).duplicates == 2
    assert {cell[3] for cell in stored_cells(tmp_path / "h.sqlite")} == {1.0, 2.0}
    assert open_reader(tmp_path / "h.sqlite").sequences("hall/1") == [7]


def test_sequence_zero_and_no_sequence_are_not_confused(tmp_path: Path) -> None:
    writer = writer_at(tmp_path / "h.sqlite")
    report = writer.write(Batch(rows=[row(a=1.0), row(sequence=0, a=1.0)]))
    assert (report.written, report.duplicates) == (2, 0)
    assert open_reader(tmp_path / "h.sqlite").sequences("hall/1") == [0]


def test_rows_beyond_the_bound_of_one_instant_are_refused_and_counted(tmp_path: Path) -> None:
    writer = writer_at(tmp_path / "h.sqlite")
    report = writer.write(Batch(rows=[row(a=float(i)) for i in range(MAX_AT_ONE_INSTANT + 3)]))
    assert report.written == MAX_AT_ONE_INSTANT
    assert report.refused == {"too_many_at_one_instant": 3}


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (row(a=float("nan")), "not_finite"),
        (row(a=1.0, b=float("inf")), "not_finite"),
        (row(a=10**400), "not_finite"),
        (row(), "no_values"),
        (row(at_ms=2**63, a=1.0), "time_out_of_range"),
        (row(at_ms=-(2**70), a=1.0), "time_out_of_range"),
        (row(sequence=-1, a=1.0), "sequence_out_of_range"),
        (row(sequence=2**63, a=1.0), "sequence_out_of_range"),
        (row(series="", a=1.0), "empty_name"),
        (row(**{" ": 1.0}), "empty_name"),
        (row(series="x" * 2000, a=1.0), "bad_name"),
        (row(**{"\ud800": 1.0}), "bad_name"),
        (row(**{"a\0": 1.0}), "bad_name"),
        (row(**{f"c{i}": 1.0 for i in range(MAX_COLUMNS + 1)}), "too_many_columns"),
    ],
)
def test_a_bad_row_is_refused_with_its_reason_and_the_rest_is_stored(tmp_path: Path, bad: Row, reason: str) -> None:
    good = [row(T0 - 1, a=1.0), row(T0 + 1, a=2.0)]
    report = writer_at(tmp_path / "h.sqlite").write(Batch(rows=[good[0], bad, good[1]]))
    assert (report.written, report.refused) == (2, {reason: 1})
    assert set(stored_cells(tmp_path / "h.sqlite")) == given_cells(good)


def test_a_refused_row_leaves_no_trace(tmp_path: Path) -> None:
    writer_at(tmp_path / "h.sqlite").write(Batch(rows=[row(series="ghost", a=float("nan")), row(a=1.0)]))
    assert [info.name for info in open_reader(tmp_path / "h.sqlite").series("reading")] == ["hall/1"]


def test_columns_come_one_by_one_up_to_the_bound(tmp_path: Path) -> None:
    writer = writer_at(tmp_path / "h.sqlite")
    rows = [row(T0 + i, **{f"c{i}": float(i)}) for i in range(MAX_COLUMNS + 2)]
    report = writer.write(Batch(rows=rows))
    assert (report.written, report.refused) == (MAX_COLUMNS, {"too_many_columns": 2})
    (info,) = open_reader(tmp_path / "h.sqlite").series("reading")
    assert info.channels == tuple(f"c{i}" for i in range(MAX_COLUMNS))
    assert set(stored_cells(tmp_path / "h.sqlite")) == given_cells(rows[:MAX_COLUMNS])


def test_more_series_than_the_bound_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_catalog, "MAX_SERIES", 3)
    report = writer_at(tmp_path / "h.sqlite").write(Batch(rows=[row(series=f"s{i % 5}", a=1.0) for i in range(10)]))
    assert (report.written, report.duplicates, report.refused) == (3, 3, {"too_many_series": 4})


def test_series_of_one_name_and_different_kinds_are_apart(tmp_path: Path) -> None:
    writer = writer_at(tmp_path / "h.sqlite")
    writer.write(Batch(rows=[row(a=1.0), Row("health", "hall/1", T0 + 1, {"b": 2.0}, T0)]))
    reader = open_reader(tmp_path / "h.sqlite")
    (reading,), (health,) = reader.series("reading"), reader.series("health")
    assert (reading.channels, reading.first_ms, reading.last_ms, reading.rows) == (("a",), T0, T0, 1)
    assert (health.channels, health.first_ms, health.rows) == (("b",), T0 + 1, 1)
    assert reader.series("prediction") == []


def test_reopening_goes_on_where_it_was(tmp_path: Path) -> None:
    writer = writer_at(tmp_path / "h.sqlite")
    writer.write(Batch(rows=[row(a=1.0)]))
    writer.close()
    writer = writer_at(tmp_path / "h.sqlite")
    report = writer.write(Batch(rows=[row(a=1.0), row(T0 + 1, a=2.0, b=1.0)]))
    assert (report.written, report.duplicates) == (1, 1)
    assert open_reader(tmp_path / "h.sqlite").series("reading")[0].channels == ("a", "b")


def test_two_writers_in_turn_do_not_confuse_each_other(tmp_path: Path) -> None:
    one, two = writer_at(tmp_path / "h.sqlite"), writer_at(tmp_path / "h.sqlite")
    rows = [row(T0 + i, series=f"s{i % 3}", **{f"c{i % 7}": float(i)}) for i in range(60)]
    for i in range(0, 60, 2):
        one.write(Batch(rows=rows[i : i + 1]))
        two.write(Batch(rows=rows[i + 1 : i + 2]))
    assert set(stored_cells(tmp_path / "h.sqlite")) == given_cells(rows)


@pytest.mark.parametrize(("raw", "rollup"), [(0, 10), (-1, 10), (float("nan"), 10), (10, 9)])
def test_days_that_make_no_sense_are_refused(tmp_path: Path, raw: float, rollup: float) -> None:
    with pytest.raises(ConfigError, match=r"store\.(raw|rollup)_days"):
        open_writer(tmp_path / "h.sqlite", raw_days=raw, rollup_days=rollup)
    assert not (tmp_path / "h.sqlite").exists()


_values = st.dictionaries(st.sampled_from("abc"), st.sampled_from([None, 0.0, 1.0, 2.5]), min_size=1)
_rows = st.lists(
    st.builds(
        row,
        at_ms=st.integers(T0, T0 + 3),
        sequence=st.one_of(st.none(), st.integers(0, 2)),
        series=st.sampled_from(["x", "y"]),
    ).flatmap(lambda r: _values.map(lambda v: Row("reading", r.series, r.at_ms, v, r.received_ms, r.sequence))),
    max_size=30,
)


@settings(max_examples=60, deadline=None)
@given(rows=_rows, seed=st.integers(0, 2**32), size=st.integers(1, 7))
def test_no_value_is_lost_or_invented_in_whatever_order_it_comes(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Row], seed: int, size: int
) -> None:
    path = tmp_path_factory.mktemp("order") / "h.sqlite"
    writer = writer_at(path)
    random.Random(seed).shuffle(rows)
    reports = [writer.write(Batch(rows=rows[i : i + size])) for i in range(0, len(rows), size)]
    assert sum(report.written + report.duplicates for report in reports) == len(rows)
    again = writer.write(Batch(rows=rows))
    assert (again.written, again.duplicates) == (0, len(rows))
    if rows:
        assert set(stored_cells(path)) == given_cells(rows)
        reader = open_reader(path)
        counts = [len(reader.window("reading", i.name, [], *ALL, 10**6).at_ms) for i in reader.series("reading")]
        assert reader.info().rows == sum(counts)


@settings(max_examples=30, deadline=None)
@given(data=st.data(), n=st.integers(1, 25))
def test_order_of_batches_does_not_matter(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, n: int
) -> None:
    folder = tmp_path_factory.mktemp("timeless")
    # Numbered rows and parts of unnumbered ones that agree with each other, each twice.
    rows = [row(T0 + i % 5, sequence=i, a=float(i)) for i in range(n)]
    rows += [row(T0 + i % 5, series="parts", **{"abcd"[i % 4]: float(i % 5)}) for i in range(n)]
    contents = []
    for name in ("one", "two"):
        writer = writer_at(folder / name)
        for part in data.draw(st.permutations(rows + rows)):
            writer.write(Batch(rows=[part]))
        contents.append(stored_cells(folder / name))
    assert contents[0] == contents[1]
