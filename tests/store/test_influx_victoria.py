"""What a real VictoriaMetrics keeps of a history, and what it cannot."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from influx_servers import InfluxServer

from fleetgp.errors import StorageError
from fleetgp.runtime.influx import Access, Client
from fleetgp.runtime.influx_answers import InfluxError
from fleetgp.runtime.settings import Settings, load
from fleetgp.store.base import Batch, Row
from fleetgp.store.open import open_reader, open_writer
from fleetgp.wire.messages import AnomalyEvent, Status

pytestmark = pytest.mark.influx

T0 = 1_790_000_000_000


@pytest.fixture
def settings(victoria_metrics: InfluxServer, tmp_path: Path) -> Settings:
    flags = {"store.kind": "influx", "store.url": victoria_metrics.url, "data.dir": str(tmp_path / "data")}
    return load(None, {}, flags)


@pytest.fixture
def filled(settings: Settings) -> Settings:
    """500 rows and two documents, written and sent."""
    writer = open_writer(settings)
    for first in range(0, 500, 100):
        rows = [
            Row("reading", "hall 1", T0 + i, {"load": i / 7, "none": None}, T0, i) for i in range(first, first + 100)
        ]
        writer.write(Batch(rows=rows))
    event = AnomalyEvent(
        agent="a", event_id="e", state="opened", at_ms=T0, start_ms=T0, peak_score=1.0, peak_ms=T0, note="odd"
    )
    writer.write(Batch(events=[event], statuses=[Status(name="a", role="agent", is_online=True, at_ms=T0)]))
    writer.close()  # sends what waits
    return settings


def test_every_row_arrives_as_it_was(filled: Settings, victoria_metrics: InfluxServer) -> None:
    (series,) = (json.loads(line) for line in victoria_metrics.export("fleetgp_reading_load"))
    assert {name: series["metric"][name] for name in ("fleet", "series")} == {"fleet": "home", "series": "hall 1"}
    assert series["timestamps"] == [T0 + i for i in range(500)]
    assert series["values"] == pytest.approx([i / 7 for i in range(500)], rel=1e-11)  # it keeps 12 digits
    (numbers,) = (json.loads(line) for line in victoria_metrics.export("fleetgp_reading__sequence"))
    assert numbers["values"] == [float(i) for i in range(500)]
    assert victoria_metrics.export("fleetgp_reading_none") == []


def test_texts_do_not_survive_there_and_are_read_from_the_bridge_beside_it(filled: Settings) -> None:
    reader = open_reader(filled)
    assert [event.note for event in reader.events()] == ["odd"]
    assert [status.name for status in reader.statuses()] == ["a"]
    assert reader.sequences("hall 1") == list(range(500))
    reader.close()


def test_elsewhere_it_says_why_it_cannot_be_read(settings: Settings, victoria_metrics: InfluxServer) -> None:
    with pytest.raises(StorageError, match="can be written but not read back"):
        open_reader(settings)
    client = Client(Access(victoria_metrics.url, "fleetgp"))
    assert str(client.probe()) == "VictoriaMetrics"
    with pytest.raises(InfluxError, match="answers no InfluxQL") as caught:
        client.query("SHOW DATABASES")
    assert caught.value.verdict == "denied"


def test_an_outage_loses_nothing(settings: Settings, victoria_metrics: InfluxServer) -> None:
    writer = open_writer(settings)
    writer.write(Batch(rows=[Row("reading", "x", T0 + i, {"load": 1.0}, T0, i) for i in range(100)]))
    victoria_metrics.stop()
    writer.write(Batch(rows=[Row("reading", "x", T0 + i, {"load": 1.0}, T0, i) for i in range(100, 200)]))
    writer.close()
    victoria_metrics.start()
    writer = open_writer(settings)
    writer.write(Batch(rows=[Row("reading", "x", T0 + i, {"load": 1.0}, T0, i) for i in range(200, 300)]))
    writer.close()
    (series,) = (json.loads(line) for line in victoria_metrics.export("fleetgp_reading_load"))
    assert sorted(set(series["timestamps"])) == [T0 + i for i in range(300)]
