"""Rows of times that the bridge has forgotten: the server is asked, so nothing is overwritten and nothing doubled."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from influx_servers import InfluxServer
from influx_store import HandStore

from fleetgp.store import influx_late
from fleetgp.store.base import Batch, Reader, Row
from fleetgp.store.influx_backlog import RECENT_MS
from fleetgp.store.influx_late import settle
from fleetgp.store.sqlite import open_reader, open_writer

pytestmark = pytest.mark.influx

T0 = 1_700_000_000_000
ALL = (-(2**62), 2**62, 10_000)


def row(at_ms: int = T0, sequence: int | None = None, **values: float | None) -> Row:
    return Row("reading", "pump", at_ms, values, T0, sequence)


def forget(store: HandStore) -> None:
    store.clock.advance(2 * RECENT_MS / 1000)
    store.backlog.tidy()


def values_of(store: HandStore, *columns: str) -> list[list[float | None]]:
    window = store.reader.window("reading", "pump", columns, *ALL)
    return [[None if np.isnan(v) else float(v) for v in window.mean[name]] for name in columns]


def cells(reader: Reader) -> set[tuple[int, str, float]]:
    """Every value with its time and column."""
    names = ["a", "b", "time"]
    window = reader.window("reading", "pump", names, *ALL)
    return {
        (int(at), name, float(v))
        for name in names
        for at, v in zip(window.at_ms, window.mean[name], strict=True)
        if not np.isnan(v)
    }


_rows = st.lists(
    st.builds(
        lambda at_ms, sequence, values: Row("reading", "pump", at_ms, values, T0, sequence),
        st.integers(T0, T0 + 2),
        st.none() | st.integers(0, 2),
        st.dictionaries(st.sampled_from(["a", "b", "time"]), st.sampled_from([None, 0.0, 1.0, 2.5]), min_size=1),
    ),
    max_size=6,
)


@settings(
    max_examples=40, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)  # fmt: skip
@given(batches=st.lists(_rows, min_size=2, max_size=4))
def test_a_bridge_that_forgets_all_between_batches_loses_and_invents_no_value(
    influxd: InfluxServer, tmp_path_factory: pytest.TempPathFactory, batches: list[list[Row]]
) -> None:
    folder = tmp_path_factory.mktemp("late")
    store = HandStore(influxd.url, folder)
    writer = open_writer(folder / "history.sqlite", raw_days=36500, rollup_days=36500)
    reader = open_reader(folder / "history.sqlite")
    for rows in batches:
        for one in rows:
            store.write(Batch(rows=[one]))
            writer.write(Batch(rows=[one]))
        forget(store)
    # Not how often: rows that contradict each other at one instant may be put together in other ways.
    assert cells(store.reader) == cells(reader)
    assert store.reader.sequences("pump") == reader.sequences("pump")
    for side in (store, writer, reader):
        side.close()


def test_a_corrected_value_of_yesterday_does_not_overwrite_the_first(influxd: InfluxServer, tmp_path: Path) -> None:
    store = HandStore(influxd.url, tmp_path)
    store.write(Batch(rows=[row(a=1.0), row(sequence=7, a=3.0)]))
    forget(store)
    store.write(Batch(rows=[row(a=2.0), row(sequence=7, a=4.0)]))
    forget(store)
    store.write(Batch(rows=[row(a=2.0), row(a=1.0), row(sequence=7, a=4.0), row(sequence=7, a=3.0), row(b=5.0)]))
    found, beside = values_of(store, "a", "b")
    assert sorted(v for v in found if v is not None) == [1.0, 2.0, 3.0, 4.0]
    assert [v for v in beside if v is not None] == [5.0]
    assert store.reader.sequences("pump") == [7]


def counted(store: HandStore) -> int:
    return store.reader.series("reading")[0].rows


def test_rows_that_come_again_after_an_hour_are_counted_once(influxd: InfluxServer, tmp_path: Path) -> None:
    store = HandStore(influxd.url, tmp_path)
    first = [row(T0 + i, i, a=1.0, b=2.0) for i in range(50)]
    store.write(Batch(rows=first))
    forget(store)
    again = [replace(one, received_ms=T0 + 5000 + i) for i, one in enumerate(first)]
    store.write(Batch(rows=again[:30]))
    assert counted(store) == 50
    store.write(Batch(rows=[*again, row(T0 + 60, 60, a=1.0)]))  # 30 of them for the third time
    assert counted(store) == 51
    forget(store)
    # of one instant: known, news beside it, a column more, and a contradiction, which is a row of its own
    news = [row(T0, 0, a=1.0, b=2.0), row(T0, 900, a=3.0), row(T0 + 1, 1, c=4.0), row(T0 + 2, 2, a=9.0)]
    store.write(Batch(rows=[replace(one, received_ms=T0 + 9000) for one in news]))
    assert counted(store) == 53
    assert store.backlog.counts() == {}
    store.close()


def test_a_late_row_whose_sending_was_cut_short_is_counted(influxd: InfluxServer, tmp_path: Path) -> None:
    store = HandStore(influxd.url, tmp_path)
    store.write(Batch(rows=[row(T0 + i, i, a=1.0) for i in range(0, 100, 2)]))
    forget(store)
    store.backlog.put(Batch(rows=[row(T0 + i, i, a=1.0) for i in range(1, 100, 2)]))
    portion = store.backlog.take()
    assert portion is not None
    store.client.write(settle(store.client, store.fleet, portion.late).lines)  # and then the power fails
    store.send()
    assert counted(store) == 100
    assert store.reader.sequences("pump") == list(range(100))
    store.close()


def test_a_late_row_that_shares_a_nanosecond_with_another_is_a_dead_letter(
    influxd: InfluxServer, tmp_path: Path
) -> None:
    store = HandStore(influxd.url, tmp_path)
    store.write(Batch(rows=[row(sequence=5, a=1.0)]))
    forget(store)
    store.write(Batch(rows=[row(sequence=5 + 999_000, a=1.0)]))  # the same values, but not the same row
    assert store.backlog.counts() == {"dead": 1}
    assert store.reader.sequences("pump") == [5]
    store.close()


def test_a_row_in_order_asks_the_server_nothing(influxd: InfluxServer, tmp_path: Path) -> None:
    store = HandStore(influxd.url, tmp_path)
    store.write(Batch(rows=[row(T0 + i, i, a=1.0) for i in range(100)]))
    forget(store)
    store.backlog.put(Batch(rows=[row(T0 + i, i, a=1.0) for i in range(100, 200)]))
    portion = store.backlog.take()
    assert portion is not None
    assert (len(portion.lines), portion.late) == (101, [])
    store.backlog.put(Batch(rows=[row(T0 + 5, 5, a=1.0)]))
    portion = store.backlog.take()
    assert portion is not None
    assert [late.at_ms for late in portion.late] == [T0 + 5]


def test_more_contradictions_than_an_instant_holds_are_dead_letters(influxd: InfluxServer, tmp_path: Path) -> None:
    store = HandStore(influxd.url, tmp_path)
    store.write(Batch(rows=[row(a=float(i)) for i in range(200)]))
    forget(store)
    store.write(Batch(rows=[row(a=float(i)) for i in range(150, 300)]))
    assert store.backlog.counts() == {"dead": 300 - 256}
    (found,) = values_of(store, "a")
    assert len(set(found)) == 256
    assert store.shipper.trouble == ""


def test_a_row_from_the_future_does_not_make_all_others_late(influxd: InfluxServer, tmp_path: Path) -> None:
    store = HandStore(influxd.url, tmp_path)
    store.write(Batch(rows=[row(store.clock.now_ms() + 10**10, a=1.0), row(a=1.0)]))
    forget(store)
    store.backlog.put(Batch(rows=[row(T0 + 1, a=1.0)]))
    portion = store.backlog.take()
    assert portion is not None
    assert portion.late == []


@settings(
    max_examples=20, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)  # fmt: skip
@given(
    held=st.lists(st.tuples(st.integers(0, 60), st.integers(0, 3)), max_size=60, unique=True),
    late=st.lists(st.tuples(st.integers(0, 60), st.integers(0, 5)), min_size=1, max_size=30, unique=True),
    most=st.integers(1, 9),
)
def test_what_the_server_holds_is_found_however_dense_it_lies(
    influxd: InfluxServer,
    tmp_path_factory: pytest.TempPathFactory,
    held: list[tuple[int, int]],
    late: list[tuple[int, int]],
    most: int,
) -> None:
    store = HandStore(influxd.url, tmp_path_factory.mktemp("dense"))
    store.write(Batch(rows=[row(T0 + 100, 0, a=0.0), *(row(T0 + at, number, a=1.0) for at, number in held)]))
    forget(store)
    again = [replace(row(T0 + at, number, a=1.0), received_ms=T0 + 1) for at, number in late]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(influx_late, "CELLS_A_QUERY", 4 * most)
        store.write(Batch(rows=again))
    both = set(held) | set(late)
    assert counted(store) == len(both) + 1
    assert store.reader.sequences("pump") == sorted([0, *(number for _, number in both)])
    store.close()
