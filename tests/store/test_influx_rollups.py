"""Rollups of a minute that a real InfluxDB makes: used where they are right, made again where rows come late."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from fake_influx import fake_influx
from influx_servers import InfluxServer
from influx_store import HandStore

from fleetgp.runtime.influx_answers import InfluxError
from fleetgp.store.base import Batch, Row, Window
from fleetgp.store.influx_portion import series_lines
from fleetgp.store.influx_roll import roll

T0 = 1_700_000_040_000  # a whole minute
MINUTE_MS = 60_000
N = 3600


def row(i: int, at_ms: int | None = None) -> Row:
    values = {"a b": float(i % 17), "c": None if i % 5 else float(i)}
    return Row("reading", "hall/1", T0 + 1000 * i if at_ms is None else at_ms, values, T0, i)


def window(store: HandStore, first_ms: int = T0, last_ms: int = T0 + 1000 * N) -> Window:
    found = store.reader.window("reading", "hall/1", ["a b", "c"], first_ms, last_ms, 20)
    assert found.step_ms >= MINUTE_MS
    return found


def total(found: Window) -> float:
    """Highest of the highs, lowest of the lows: what a late extreme changes."""
    return float(np.nanmax(found.high["a b"]) - np.nanmin(found.low["a b"]))


@pytest.fixture
def store(influxd: InfluxServer, tmp_path: Path) -> Iterator[HandStore]:
    """An hour of one series, sent and rolled up."""
    store = HandStore(influxd.url, tmp_path)
    store.write(Batch(rows=[row(i) for i in range(N)]))
    yield store
    store.close()


def minutes(store: HandStore) -> list[list[object]]:
    sql = f"SELECT * FROM \"fleetgp_reading_1m\" WHERE fleet = '{store.fleet}'"
    return [list(row) for table in store.client.query(sql) for row in table.values]


@pytest.mark.influx
def test_every_minute_that_is_over_is_rolled_up_once_and_long_spans_are_read_from_there(store: HandStore) -> None:
    assert len(minutes(store)) == N // 60 - 1  # the last may go on
    assert store.backlog.unrolled(100) == []
    before = window(store)
    at_ns = (T0 + 20 * MINUTE_MS) * 10**6  # a rollup that is not true shows: so it is rollups that are read
    store.client.write(
        [f"fleetgp_reading_1m,fleet={store.fleet.replace(' ', chr(92) + ' ')},series=hall/1 max_a\\ b=99 {at_ns}"]
    )
    assert (total(before), total(window(store))) == (16.0, 99.0)
    short = store.reader.window("reading", "hall/1", ["a b"], T0 + 20 * MINUTE_MS, T0 + 21 * MINUTE_MS, 20)
    assert short.step_ms < MINUTE_MS
    assert short.high["a b"].max() == 16.0


@pytest.mark.influx
def test_a_late_row_counts_before_its_minute_is_rolled_up_anew_and_after(store: HandStore) -> None:
    late = row(90_000, T0 + 7 * MINUTE_MS + 500)
    store.backlog.put(Batch(rows=[Row(late.kind, late.series, late.at_ms, {"a b": 70.0}, T0, late.sequence)]))
    portion = store.backlog.take()
    assert portion is not None
    store.client.write(portion.lines)
    store.backlog.advance(portion)
    assert [one.minute for one in store.backlog.unrolled(100)] == [late.at_ms // MINUTE_MS]
    first = window(store)
    assert total(first) == 70.0
    store.send()
    assert store.backlog.unrolled(100) == []
    second = window(store)
    for name in ("a b", "c"):
        np.testing.assert_allclose(first.mean[name], second.mean[name], rtol=1e-12)
        np.testing.assert_array_equal(first.high[name], second.high[name])
    assert len(minutes(store)) == N // 60 - 1


@pytest.mark.influx
def test_a_minute_with_rows_that_wait_is_not_rolled_up(store: HandStore) -> None:
    store.backlog.put(Batch(rows=[row(N + i) for i in range(120)]))
    assert [one.minute for one in store.backlog.unrolled(100)] == [(T0 + 1000 * N) // MINUTE_MS - 1]
    assert not roll(store.client, store.backlog)
    assert len(minutes(store)) == N // 60
    assert store.backlog.unrolled(100) == []
    store.send()
    assert len(minutes(store)) == N // 60 + 1


@pytest.mark.influx
def test_a_row_that_comes_while_its_minute_is_rolled_up_has_it_rolled_up_again(store: HandStore) -> None:
    store.backlog.put(Batch(rows=[row(90_000, T0 + 500)]))
    portion = store.backlog.take()
    assert portion is not None
    store.client.write(portion.lines)
    store.backlog.advance(portion)
    due = store.backlog.unrolled(100)
    store.backlog.put(Batch(rows=[row(90_001, T0 + 501)]))  # after the server has looked
    store.backlog.rolled(due)
    store.send()
    counts = [line for line in minutes(store) if line[0] == T0 * 10**6]
    assert 62 in counts[0]


@pytest.mark.influx
def test_a_new_backlog_does_not_take_minutes_of_an_old_one_for_rolled_up(influxd: InfluxServer, tmp_path: Path) -> None:
    one = HandStore(influxd.url, tmp_path / "one")
    one.backlog.put(Batch(rows=[row(i) for i in range(N)]))
    portion = one.backlog.take()
    assert portion is not None
    one.client.write(portion.lines)  # and then its machine is gone, before anything was rolled up
    two = HandStore(influxd.url, tmp_path / "two", fleet=one.fleet)
    two.write(Batch(rows=[row(i) for i in range(N, N + 600)]))
    assert total(window(two, T0, T0 + 1000 * (N + 600))) == 16.0
    assert np.isfinite(window(two, T0, T0 + 1000 * (N + 600)).mean["a b"]).all()
    assert window(two, T0, T0 + 1000 * (N + 600)).at_ms[0] <= T0


def test_where_the_server_makes_none_readers_are_told_and_the_file_does_not_grow(tmp_path: Path) -> None:
    with fake_influx() as fake:
        fake.version = "v2.7.1"
        store = HandStore(fake.url, tmp_path)
        store.backlog.put(Batch(rows=[row(i) for i in range(N)]))
        while (portion := store.backlog.take()) is not None:
            store.backlog.advance(portion)
        assert len(store.backlog.unrolled(100)) == N // 60 - 1
        assert not roll(store.client, store.backlog)
        connection = store.backlog._connection
        assert connection.execute("SELECT count(*) FROM dirty").fetchone() == (1,)
        (line,) = series_lines(connection, [1], ("home", "origin"), T0)
        assert f"rolled_ms={T0}i" in line
        fake.version = "1.8.10"  # which refuses our query: shipping goes on without
        other = HandStore(fake.url, tmp_path / "other")
        other.write(Batch(rows=[row(i) for i in range(N)]))
        assert fake.sequences == list(range(N))
        with pytest.raises(InfluxError, match="no queries"):
            roll(other.client, other.backlog)


@pytest.mark.influx
def test_minutes_that_lie_apart_are_rolled_up_together_and_rightly(
    store: HandStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    query = store.client.query
    monkeypatch.setattr(store.client, "query", lambda text: asked.append(text) or query(text))
    late = range(3, 59, 5)
    for i, minute in enumerate(late):
        at_ms = T0 + minute * MINUTE_MS + 500
        store.backlog.put(Batch(rows=[Row("reading", "hall/1", at_ms, {"a b": 70.0 + i}, T0, 90_000 + i)]))
    store.send()
    statements = [text for text in asked if " INTO " in text]
    assert (len(statements), statements[0].count(" INTO ")) == (1, 1)
    sql = f'SELECT "max_a b", "count_a b" FROM "fleetgp_reading_1m" WHERE fleet = \'{store.fleet}\''
    found = {
        (int(row[0] or 0) // 10**6 - T0) // MINUTE_MS: tuple(row[1:]) for table in query(sql) for row in table.values
    }
    assert found == {
        minute: (70.0 + (minute - 3) // 5, 61) if minute in late else (16.0, 60) for minute in range(N // 60 - 1)
    }


@pytest.mark.influx
def test_what_waits_is_sent_between_two_steps_of_rolling_up(influxd: InfluxServer, tmp_path: Path) -> None:
    store = HandStore(influxd.url, tmp_path)
    store.backlog.put(
        Batch(rows=[Row("reading", f"s{i}", T0 + j * 90_000, {"a": 1.0}, T0) for i in range(12) for j in range(2)])
    )
    assert store.shipper.step() == 0.0  # sends
    assert store.shipper.step() == 0.0  # rolls up some series
    assert 0 < len(store.backlog.unrolled(100)) < 12
    store.backlog.put(Batch(rows=[Row("reading", "news", T0, {"a": 1.0}, T0, 5)]))
    store.shipper.step()
    assert store.reader.sequences("news") == [5]
    store.send()
    assert store.backlog.unrolled(100) == []
