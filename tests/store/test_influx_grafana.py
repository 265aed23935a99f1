"""Every query of the Grafana dashboard in docs/grafana gives rows on a real InfluxDB that a bridge's store has filled."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from influx_servers import InfluxServer
from influx_store import HandStore

from fleetgp.runtime.influx_answers import Table
from fleetgp.store.base import Batch, Row
from fleetgp.wire.messages import AnomalyEvent, Health, Status

BOARD: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "docs" / "grafana" / "fleetgp.json").read_text(encoding="utf-8")
)
T0 = 1_790_000_000_000
AGENT, CHANNEL = "pump 1", "oil temp"


def queries() -> Iterator[tuple[str, str]]:
    for panel in BOARD["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["query"]
    for note in BOARD["annotations"]["list"]:
        yield note["name"], note["target"]["query"]


@pytest.fixture(scope="module")
def store(influxd: InfluxServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HandStore]:
    """Two minutes of one agent with an anomaly."""
    store = HandStore(influxd.url, tmp_path_factory.mktemp("grafana"))
    rows = []
    for i in range(120):
        at_ms = T0 + 1000 * i
        law = {"mean": 40.0, "low": 39.0, "high": 41.0, "observed": 40.0 + i % 3, "z": 0.1}
        values = {"score": 0.5, "threshold": 8.0, "is_alarmed": 0.0} | {f"{CHANNEL}.{n}": v for n, v in law.items()}
        rows.append(Row("prediction", AGENT, at_ms, values, at_ms))
        rows.append(Row("reading", "sensors/pump 1", at_ms, {CHANNEL: 40.0}, at_ms, i))
        rows.append(Row("health", "bridge", at_ms, {"rss_mb": 50.0, "influx_waiting": 3.0}, at_ms))
    event = AnomalyEvent(
        agent=AGENT, event_id="e", state="closed", at_ms=T0, start_ms=T0 + 60_000, end_ms=T0 + 70_000, peak_score=9.0,
        peak_ms=T0, blame={"flow": 0.1, CHANNEL: 0.9},
    )  # fmt: skip
    status = Status(name=AGENT, role="agent", is_online=True, at_ms=T0, state="federated")
    health = Health(name="bridge", role="bridge", at_ms=T0, dropped={"late": 2, "text": 3})
    store.write(Batch(rows=rows, events=[event], statuses=[status], healths=[health]))
    yield store
    store.close()


def ask(store: HandStore, query: str) -> list[Table]:
    """As Grafana asks: variables put in as they are."""
    now_ms = store.clock.now_ms()
    span = f"time >= {T0 - 3_600_000}ms and time <= {max(now_ms, T0) + 3_600_000}ms"
    for name, value in {
        "$timeFilter": span, "$__interval": "10s", "$fleet": store.fleet, "$agent": AGENT, "${channel}": CHANNEL
    }.items():  # fmt: skip
        query = query.replace(name, value)
    assert "$" not in query, query
    return store.client.query(query)


@pytest.mark.influx
@pytest.mark.parametrize(("title", "query"), list(queries()), ids=[title for title, _ in queries()])
def test_every_query_gives_rows(store: HandStore, title: str, query: str) -> None:
    tables = ask(store, query)
    assert tables, "no answer"
    for column in range(1, len(tables[0].columns)):
        assert any(row[column] not in (None, "") for table in tables for row in table.values) or (
            tables[0].columns[column] == "note"
        ), tables[0].columns[column]


@pytest.mark.influx
def test_its_numbers_are_those_that_were_stored(store: HandStore) -> None:
    found = {title: ask(store, query) for title, query in queries()}
    (band,) = found["$channel of $agent: reading and 90 % band"]
    assert band.columns == ["time", "reading", "expected", "low", "high"]
    full = [row for row in band.values if row[1] is not None]
    assert {tuple(row[2:]) for row in full} == {(40, 39, 41)}
    assert len(full) == 12
    (events,) = found["Anomalies of the fleet"]
    assert [row[1:] for row in events.values] == [[AGENT, "closed", 9, 10, 1, f"{CHANNEL}, flow"]]
    (rows,) = found["Readings stored"]
    assert sum(row[1] for row in rows.values if isinstance(row[1], int)) == 120
    assert [row[1] for table in found["Left out"] for row in table.values if row[1] is not None] == [5]


@pytest.mark.influx
def test_its_variables_find_fleets_agents_and_channels(store: HandStore) -> None:
    variables = {variable["name"]: variable for variable in BOARD["templating"]["list"]}
    found = {
        name: [
            str(row[-1] if name != "channel" else row[0])
            for table in ask(store, variable["query"])
            for row in table.values
        ]
        for name, variable in variables.items()
    }
    assert store.fleet in found["fleet"]
    assert found["agent"] == [AGENT]
    pattern = re.compile(variables["channel"]["regex"].strip("/"))
    channels = [match[1] for key in found["channel"] if (match := pattern.search(key))]
    assert CHANNEL in channels


def test_it_can_be_imported_anywhere() -> None:
    """The data source is asked for at the import; panels have ids of their own and do not cover each other."""
    text = json.dumps(BOARD)
    assert set(re.findall(r'"uid": "([^"]*)"', text)) == {"${DS_INFLUXDB}", "fleetgp"}
    assert [entry["name"] for entry in BOARD["__inputs"]] == ["DS_INFLUXDB"]
    panels = BOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in panels)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
