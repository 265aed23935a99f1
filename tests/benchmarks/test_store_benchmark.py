"""The store that the benchmark fills is one that its own rules would make, and its figures are told by name."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import numpy as np
import pytest

from benchmarks import store
from benchmarks.report import Report
from fleetgp.store.sqlite import open_reader

ROWS = store.SERIES * 4000  # a bit more than an hour each
PAST = 4 * store.DAY


def test_the_filled_store_has_exact_rollups_and_the_past_that_was_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "h.sqlite"
    store.fill(path, ROWS, PAST)
    reader = open_reader(path)
    assert reader.info().rows == ROWS
    assert [info.rows for info in reader.series("reading")] == [4000] * store.SERIES
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT count(*) FROM dirty").fetchone() == (store.SERIES,)
    rolled = connection.execute(
        "SELECT r.n, r.sum, r.min, r.max, count(c3), sum(c3), min(c3), max(c3) FROM rollup r JOIN s4 "
        "ON at_ms / 60000 = minute WHERE series_id = 4 AND position = 3 GROUP BY minute"
    ).fetchall()
    assert len(rolled) > 60
    for row in rolled:
        assert row[:4] == pytest.approx(row[4:], rel=1e-12)
    # hours of the past are those of its minutes
    years = reader.window("reading", store.name(0), store.COLUMNS, store.NOW - PAST, store.NOW - store.DAY, 80)
    assert years.step_ms == store.HOUR
    quads = connection.execute(
        "SELECT sum(sum) / sum(n), min(min), max(max) FROM rollup WHERE series_id = 1 AND position = 2 "
        "AND minute BETWEEN ? AND ? GROUP BY minute / 60",
        ((store.NOW - PAST) // store.MINUTE, (store.NOW - store.DAY) // store.MINUTE - 1),
    ).fetchall()
    mean, low, high = np.array(quads).T
    for found, expected in ((years.mean, mean), (years.low, low), (years.high, high)):
        np.testing.assert_allclose(found["c2"][: len(expected)], expected, rtol=1e-12)


def test_every_bar_is_evaluated(tmp_path: Path) -> None:
    report = Report("store", store.BARS)
    store.measure(report, ROWS, PAST, tmp_path)
    bars = {bar["name"]: bar for bar in report.as_dict()["bars"]}
    assert set(bars) == {bar.name for bar in store.BARS}
    assert all(bar["holds"] is not None for bar in bars.values())
    # 16,600 live and 5,000 late rows came on top of those filled in
    assert report.figures["store.rows"] == ROWS
    assert report.figures["store.write_rows_per_s"] > 0
