"""The InfluxDB store answers like the SQLite store: the same batches into both, the same questions to both."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from influx_servers import InfluxServer
from influx_store import HandStore

from fleetgp.store.base import Batch, Reader, Row, SeriesInfo, Window
from fleetgp.store.sqlite import open_reader, open_writer
from fleetgp.store.sqlite_catalog import MAX_COLUMNS
from fleetgp.wire.messages import AnomalyEvent, Health, RoundNotice, Status

pytestmark = pytest.mark.influx

T0 = 1_700_000_000_000
ALL = (-(2**62), 2**62)
# Shrinking asks a real server thousands of questions; a failing example is small enough as it is.
slowly = settings(
    max_examples=25,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def same(one: Window, other: Window) -> None:
    assert one.step_ms == other.step_ms
    np.testing.assert_array_equal(one.at_ms, other.at_ms)
    for mine, theirs, rtol in (
        (one.mean, other.mean, 1e-12), (one.low, other.low, 0.0), (one.high, other.high, 0.0)
    ):  # fmt: skip
        assert mine.keys() == theirs.keys()
        for name in mine:
            np.testing.assert_allclose(mine[name], theirs[name], rtol=rtol, err_msg=name)


class Pair:
    """Both stores, given the same."""

    def __init__(self, url: str, folder: Path) -> None:
        self.influx = HandStore(url, folder)
        self.writer = open_writer(folder / "history.sqlite", raw_days=36500, rollup_days=36500)
        self.sqlite: Reader = open_reader(folder / "history.sqlite")

    def write(self, batch: Batch) -> None:
        assert self.influx.write(batch) == self.writer.write(batch)

    def infos(self, kind: str) -> list[SeriesInfo]:
        mine = self.influx.reader.series(kind)  # type: ignore[arg-type]
        assert mine == self.sqlite.series(kind)  # type: ignore[arg-type]
        return mine

    def compare(self, start_ms: int, end_ms: int, most: int) -> None:
        reader = self.influx.reader
        for info in self.infos("reading") + self.infos("prediction") + self.infos("health"):
            question = (info.kind, info.name, [*info.channels, "never"], start_ms, end_ms, most)
            same(reader.window(*question), self.sqlite.window(*question))
            assert reader.sequences(info.name) == self.sqlite.sequences(info.name)
        assert reader.events() == self.sqlite.events()
        assert reader.events("pump") == self.sqlite.events("pump")
        assert reader.rounds() == self.sqlite.rounds()
        assert reader.statuses() == self.sqlite.statuses()
        assert reader.healths() == self.sqlite.healths()
        mine, theirs = reader.info(), self.sqlite.info()
        assert (mine.series, mine.rows, mine.first_ms, mine.last_ms) == (
            theirs.series, theirs.rows, theirs.first_ms, theirs.last_ms
        )  # fmt: skip

    def close(self) -> None:
        self.influx.close()
        self.writer.close()
        self.sqlite.close()


_values = st.dictionaries(
    st.sampled_from(["a", "b b", "time", "series"]),
    st.none() | st.sampled_from([0.0, 1.0, 2.5, -1e-300, 0.1]),
    min_size=1,
)
_rows = st.builds(
    Row,
    kind=st.sampled_from(["reading", "prediction", "health"]),
    series=st.sampled_from(["hall/1", "x,y=z \"q\" 'r'"]),
    at_ms=st.one_of(st.integers(T0, T0 + 3), st.integers(T0, T0 + 10**7)),
    values=_values,
    received_ms=st.integers(T0, T0 + 9),
    sequence=st.none() | st.integers(0, 2) | st.integers(0, 998_999),  # larger ones: test_influx_backlog, ..._names
)
_events = st.builds(
    AnomalyEvent,
    agent=st.sampled_from(["pump", "fan"]),
    event_id=st.sampled_from(["e1", "e2"]),
    state=st.sampled_from(["opened", "updated", "closed"]),
    at_ms=st.integers(T0, T0 + 3),
    start_ms=st.sampled_from([T0, T0 + 1]),
    end_ms=st.none() | st.just(T0 + 2),
    peak_score=st.just(5.0),
    peak_ms=st.just(T0),
    note=st.sampled_from(["", 'said "so"\nand \\ more', "ä"]),
)
_rounds = st.builds(
    RoundNotice,
    round=st.integers(0, 3),
    state=st.sampled_from(["opened", "closed"]),
    at_ms=st.integers(T0, T0 + 3),
    basis=st.just(0),
    bytes_sent=st.integers(0, 3),
)
_names = st.sampled_from(["pump", "fan 2"])
_statuses = st.builds(
    Status,
    name=_names,
    role=st.sampled_from(["agent", "bridge"]),
    is_online=st.booleans(),
    at_ms=st.integers(T0, T0 + 3),
)
_healths = st.builds(
    Health, name=_names, role=st.just("agent"), at_ms=st.integers(T0, T0 + 3), dropped=st.just({"late": 2})
)
_batches = st.lists(
    st.builds(
        Batch,
        rows=st.lists(_rows, max_size=12),
        statuses=st.lists(_statuses, max_size=3),
        healths=st.lists(_healths, max_size=3),
        events=st.lists(_events, max_size=4),
        rounds=st.lists(_rounds, max_size=4),
    ),
    max_size=5,
)


@slowly
@given(
    batches=_batches,
    spans=st.lists(st.integers(T0 - 5, T0 + 10**7 + 5), min_size=2, max_size=2),
    most=st.integers(1, 9),
)
def test_both_stores_answer_alike(
    influxd: InfluxServer, tmp_path_factory: pytest.TempPathFactory, batches: list[Batch], spans: list[int], most: int
) -> None:
    pair = Pair(influxd.url, tmp_path_factory.mktemp("alike"))
    for batch in batches:
        pair.write(batch)
    pair.compare(*ALL, 1000)
    pair.compare(min(spans), max(spans), most)
    pair.compare(T0, T0 + 3, most)
    pair.close()


def test_a_long_stream_in_steps_of_every_size(influxd: InfluxServer, tmp_path: Path) -> None:
    pair = Pair(influxd.url, tmp_path)
    rng = np.random.default_rng(4)
    at_ms = T0 + np.cumsum(rng.integers(200, 3000, 20_000))
    rows = [
        Row("reading", "pump", int(at), {"a": math.sin(i / 50), "b": None if i % 7 else float(i)}, int(at), i)
        for i, at in enumerate(at_ms)
    ]
    for first in range(0, len(rows), 4000):
        pair.write(Batch(rows=rows[first : first + 4000]))
    assert pair.influx.reader.sequences("pump") == list(range(20_000))
    for span in (1, 5, 60, 3000, 100_000):
        for most in (600, 7):
            for start in (T0, T0 + 12_345, int(at_ms[-1]) - span * 500):
                question = ("reading", "pump", ["b", "a"], start, start + span * 1000, most)
                mine = pair.influx.reader.window(*question)  # type: ignore[arg-type]
                same(mine, pair.sqlite.window(*question))  # type: ignore[arg-type]
                assert len(mine.at_ms) <= most
    pair.close()


def test_the_widest_series_is_read_in_several_questions(influxd: InfluxServer, tmp_path: Path) -> None:
    pair = Pair(influxd.url, tmp_path)
    names = [f"c{i}" for i in range(MAX_COLUMNS)]
    rows = [
        Row("reading", "pump", T0 + 30_000 * i, {n: float(i * j) for j, n in enumerate(names) if (i + j) % 3}, T0, i)
        for i in range(20)
    ]
    pair.write(Batch(rows=rows))
    for most in (100, 5):
        pair.compare(*ALL, most)
    pair.close()


def test_asking_for_no_points_and_asking_after_closing_are_errors(influxd: InfluxServer, tmp_path: Path) -> None:
    store = HandStore(influxd.url, tmp_path)
    with pytest.raises(ValueError, match="max_points"):
        store.reader.window("reading", "pump", ["a"], 0, 1, 0)
    assert store.reader.window("reading", "pump", ["a"], 0, 1).at_ms.shape == (0,)
    store.close()
    with pytest.raises(Exception, match="closed already"):
        store.reader.info()


def test_fleets_that_share_a_database_do_not_see_each_other(influxd: InfluxServer, tmp_path: Path) -> None:
    stores = [HandStore(influxd.url, tmp_path / str(i)) for i in range(2)]
    for i, store in enumerate(stores):
        store.write(Batch(rows=[Row("reading", "pump", T0, {"a": float(i)}, T0, 7 + i)]))
    for i, store in enumerate(stores):
        assert store.reader.sequences("pump") == [7 + i]
        assert store.reader.window("reading", "pump", ["a"], *ALL).mean["a"].tolist() == [float(i)]


def test_a_new_backlog_on_another_machine_goes_on_with_the_series(influxd: InfluxServer, tmp_path: Path) -> None:
    one = HandStore(influxd.url, tmp_path / "one")
    one.write(Batch(rows=[Row("reading", "pump", T0 + i, {"a": 1.0}, T0, i) for i in range(3)]))
    two = HandStore(influxd.url, tmp_path / "two", fleet=one.fleet)
    two.write(Batch(rows=[Row("reading", "pump", T0 + i, {"b": 1.0}, T0, i) for i in range(3, 7)]))
    assert two.reader.series("reading") == [SeriesInfo("reading", "pump", ("a", "b"), T0, T0 + 6, 7)]
