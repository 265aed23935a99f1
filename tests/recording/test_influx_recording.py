"""Answers to queries as messages: a history comes back as it was sent, anybody's table as devices would send it."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path

import pytest
from influx_servers import InfluxServer

from fleetgp.errors import RecordingError
from fleetgp.recording.influx import stream
from fleetgp.recording.message import Message
from fleetgp.recording.messages import read_messages
from fleetgp.recording.streams import streams
from fleetgp.runtime.influx import Access, Client
from fleetgp.runtime.settings import load
from fleetgp.store.base import Batch, Row
from fleetgp.store.open import open_writer
from simulator.recordings import recordings

pytestmark = pytest.mark.influx

T0 = 1_790_000_000_000


@pytest.fixture
def client(influxd: InfluxServer) -> Client:
    return Client(Access(influxd.url, "fleetgp"))


def content(message: object) -> tuple[str, dict[str, object], int]:
    assert isinstance(message, Message)
    return message.topic, json.loads(message.payload), message.received_ns


def test_a_history_comes_back_as_its_devices_sent_it(influxd: InfluxServer, client: Client, tmp_path: Path) -> None:
    flags = {"store.kind": "influx", "store.url": influxd.url, "data.dir": str(tmp_path), "fleet": "imported"}
    writer = open_writer(load(None, {}, flags))
    rows = [
        Row("reading", f"hall/{i % 2} north", T0 + i, {"load, kW": i / 7, "series": 1.0}, T0 + i + 9, i)
        for i in range(50)
    ]
    writer.write(Batch(rows=rows))
    writer.close()
    found = [content(one) for one in stream(client, "SELECT * FROM fleetgp_reading WHERE fleet = 'imported'")]
    assert found == [
        (r.series, {"load, kW": r.values["load, kW"], "series": 1, "time": r.at_ms, "seq": r.sequence}, r.at_ms * 10**6)
        for r in rows
    ]


def test_a_table_of_somebody_else_becomes_messages_by_its_tags(client: Client) -> None:
    lines = [
        f'weather,site=hill\\ {i % 2},kind=a/b temp={i}.5,hum={i}i,ok=true,said="x" {T0 + i}000000' for i in range(6)
    ]
    client.write([*lines, f"weather,site=hill\\ 0,kind=a/b temp=1 {T0 + 9}500000"])
    found = [content(one) for one in stream(client, "SELECT * FROM weather")]
    assert [topic for topic, _, _ in found] == [f"sensors/a_b-hill {i % 2}" for i in (*range(6), 0)]
    assert found[3][1] == {"time": T0 + 3, "temp": 3.5, "hum": 3, "ok": True, "said": "x"}
    assert found[6] == ("sensors/a_b-hill 0", {"time": T0 + 9.5, "temp": 1}, (T0 + 9) * 10**6 + 500_000)


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ("SELECT * FROM grouped GROUP BY site", "order of its times"),
        ("SHOW DATABASES", "no rows with times"),
        ("SELECT * FROM grouped, other", "one measurement only"),
        ("SELECT load FROM fleetgp_reading", "must bring the tag series"),
    ],
)
def test_a_query_whose_answer_is_no_recording_is_refused(client: Client, query: str, problem: str) -> None:
    client.write(
        ["grouped,site=a v=1 5", "grouped,site=b v=1 4", "other v=1 1", "fleetgp_reading,fleet=z,series=z load=1 1"]
    )
    with pytest.raises(RecordingError, match=problem):
        list(stream(client, query))


def test_a_long_answer_needs_little_memory(client: Client) -> None:
    for first in range(0, 60_000, 5000):
        client.write([f"long,site=a v={i},w={i} {T0 + i}000000" for i in range(first, first + 5000)])
    tracemalloc.start()
    number = sum(1 for _ in stream(client, "SELECT * FROM long"))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert number == 60_000
    assert peak < 12_000_000


def test_the_command_writes_a_recording_that_every_command_reads(
    influxd: InfluxServer, client: Client, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    client.write([f"mill,site={s} load={i}.25 {T0 + i}000000" for i in range(20) for s in "ab"])
    out = tmp_path / "mill.mcap"
    where = ["--store", f"{influxd.url}/fleetgp"]
    assert recordings(["query", "SELECT * FROM mill", "-o", str(out), *where]) == 0
    assert "40 messages" in capsys.readouterr().out
    assert [content(one)[1]["load"] for one in read_messages(out)] == [i + 0.25 for i in range(20) for _ in "ab"]
    assert sorted(found.name for found in streams([out], None)) == ["a", "b"]
    with pytest.raises(RecordingError, match="no row for this query"):
        recordings(["query", "SELECT * FROM nothing", "-o", str(tmp_path / "none.mcap"), *where])
    assert [file.name for file in tmp_path.iterdir()] == ["mill.mcap"]
