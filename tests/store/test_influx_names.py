"""Names, numbers and texts of every kind come back from a real InfluxDB as they were written."""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from influx_servers import InfluxServer
from influx_store import HandStore, new_fleet

from fleetgp.runtime.influx import Access, Client
from fleetgp.runtime.influx_names import literal, own_name, quoted, stored_name
from fleetgp.store.base import Batch, Row
from fleetgp.store.influx_lines import slot
from fleetgp.wire.messages import AnomalyEvent, Status

T0 = 1_700_000_000_000
ALL = (-(2**62), 2**62)

# What the store takes as a name: no NUL, no half of a pair, not blank. Letters that some protocol finds special come often.
_special = st.sampled_from([*" ,=\"'\\\n\r\t~%#_;`/|.äß€\u2028\x85\x1f\x7f🙂", "time", "~0A", "\\n", "_x", "fleet"])
names = st.lists(_special | st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=12)
name = names.map("".join).filter(lambda text: text.strip() != "")


@settings(max_examples=500, deadline=None)
@given(one=name, other=name)
def test_a_stored_name_is_plain_and_gives_the_name_back(one: str, other: str) -> None:
    stored = stored_name(one)
    assert own_name(stored) == one
    assert (stored == stored_name(other)) == (one == other)
    assert not set(stored) & set(map(chr, (*range(32), 127, 92)))
    assert stored not in ("time", "fleet", "series")
    assert not stored.startswith("_")


def test_everyday_names_are_kept_as_they_are() -> None:
    for plain in (
        "temperature",
        "hall/1 north",
        "PM 2.5",
        "humidity %",
        "Öltemperatur",
        "a.mean",
        "x_y",
        "sensors/a=b,c",
    ):
        assert stored_name(plain) == plain


@given(ordinals=st.sets(st.integers(-256, 998_999), min_size=2, max_size=50))
def test_rows_of_one_millisecond_stay_in_the_order_of_the_sqlite_store(ordinals: set[int]) -> None:
    places = [slot(ordinal) for ordinal in sorted(ordinals)]
    assert places == sorted(set(places))
    assert all(0 <= place < 1_000_000 for place in places)


@pytest.mark.influx
@settings(
    max_examples=25, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)  # fmt: skip
@given(
    series=st.lists(name, min_size=1, max_size=3, unique=True),
    columns=st.lists(name, min_size=1, max_size=4, unique=True),
    fleet=name,
    said=st.text(st.characters(exclude_categories=["Cs"]), max_size=40),
)
def test_names_come_back_from_the_server(
    influxd: InfluxServer,
    tmp_path_factory: pytest.TempPathFactory,
    series: list[str],
    columns: list[str],
    fleet: str,
    said: str,
) -> None:
    store = HandStore(influxd.url, tmp_path_factory.mktemp("names"), fleet=f"{fleet} of {new_fleet()}")
    rows = [
        Row("reading", one, T0 + j, {column: float(i * 10 + j)}, T0, 3 * i + j)
        for i, one in enumerate(series)
        for j, column in enumerate(columns)
    ]
    event = AnomalyEvent(
        agent=series[0], event_id=said, state="opened", at_ms=T0, start_ms=T0, peak_score=1.0, peak_ms=T0, note=said
    )
    status = Status(name=series[0], role="agent", is_online=True, at_ms=T0, note=said, host=columns[0])
    store.write(Batch(rows=rows, events=[event], statuses=[status]))
    assert [info.name for info in store.reader.series("reading")] == sorted(series)
    for i, one in enumerate(series):
        (info,) = [info for info in store.reader.series("reading") if info.name == one]
        assert info.channels == tuple(columns)
        window = store.reader.window("reading", one, columns, *ALL)
        for j, column in enumerate(columns):
            assert window.mean[column][window.at_ms == T0 + j].tolist() == [float(i * 10 + j)]
    assert event in store.reader.events(series[0])
    assert status in store.reader.statuses()
    store.close()


@pytest.mark.influx
@settings(
    max_examples=15, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)  # fmt: skip
@given(
    values=st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=30),
    sequences=st.sets(st.integers(0, 2**63 - 1), min_size=1, max_size=10),
)
def test_numbers_come_back_as_the_same_doubles(
    influxd: InfluxServer, tmp_path_factory: pytest.TempPathFactory, values: list[float], sequences: set[int]
) -> None:
    store = HandStore(influxd.url, tmp_path_factory.mktemp("numbers"))
    store.write(Batch(rows=[Row("reading", "v", T0 + i, {"x": value}, T0) for i, value in enumerate(values)]))
    store.write(Batch(rows=[Row("reading", "s", T0 + i, {"x": 1.0}, T0, n) for i, n in enumerate(sequences)]))
    found = store.reader.window("reading", "v", ["x"], *ALL).mean["x"]
    assert found.tolist() == values  # but for the sign of zero, which its JSON does not keep
    assert store.reader.sequences("s") == sorted(sequences)
    store.close()


def _twins() -> list[str]:
    """Ids of events that have one place by their own."""
    by_place: dict[int, list[str]] = {}
    for i in range(10_000):
        by_place.setdefault(zlib.crc32(f"e{i}".encode()) % 10**6, []).append(f"e{i}")
    return next(ids for ids in by_place.values() if len(ids) > 1)


@pytest.mark.influx
def test_events_of_one_start_do_not_overwrite_each_other_in_whatever_order_they_go_on(
    influxd: InfluxServer, tmp_path: Path
) -> None:
    one, other = _twins()
    store = HandStore(influxd.url, tmp_path)

    def say(event_id: str, state: str, at_ms: int) -> None:
        event = AnomalyEvent(
            agent="pump", event_id=event_id, state=state, at_ms=at_ms, start_ms=T0, peak_score=1.0, peak_ms=T0
        )  # type: ignore[arg-type]
        store.write(Batch(events=[event]))

    for step, event_id in enumerate((one, other, "e", other, one)):
        say(event_id, "opened" if step < 3 else "closed", T0 + step)
    found = {event.event_id: event.state for event in store.reader.events()}
    assert found == {one: "closed", other: "closed", "e": "opened"}
    sql = f"SELECT event_id FROM fleetgp_event WHERE fleet = '{store.fleet}'"
    assert sum(len(table.values) for table in store.client.query(sql)) == 3
    store.close()


@pytest.mark.influx
def test_a_whole_number_does_not_make_a_field_of_whole_numbers(influxd: InfluxServer, tmp_path: Path) -> None:
    store = HandStore(influxd.url, tmp_path)
    for i, value in enumerate((1, 2.5, True, 3)):
        store.write(Batch(rows=[Row("reading", "pump", T0 + i, {"x": value}, T0)]))
    assert store.reader.window("reading", "pump", ["x"], *ALL).mean["x"].tolist() == [1.0, 2.5, 1.0, 3.0]
    assert store.backlog.counts() == {}
    client = Client(Access(influxd.url, "fleetgp"))
    kinds = {row[0]: row[1] for table in client.query('SHOW FIELD KEYS FROM "fleetgp_reading"') for row in table.values}
    assert kinds["x"] == "float"
    assert (kinds["_received_ms"], kinds["_sequence"]) == ("integer", "integer")


@pytest.mark.influx
def test_quotes_of_influxql_hold(influxd: InfluxServer) -> None:
    client = Client(Access(influxd.url, "fleetgp"))
    for text in ("it's", 'say "so"', "back\\slash", "'; DROP DATABASE fleetgp; --", '"; DROP DATABASE fleetgp; --'):
        assert client.query(f"SELECT {quoted(text)} FROM {quoted(text)} WHERE x = {literal(text)}") == []
    assert ["fleetgp"] in client.query("SHOW DATABASES")[0].values
