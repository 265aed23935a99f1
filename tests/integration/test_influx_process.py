"""A bridge as a process of its own whose history is in a real InfluxDB, which goes away and comes back."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from bench import Bench, Desk, Running
from influx_servers import InfluxServer

from broker_bridge.broker import EmbeddedBroker
from fleetgp.runtime.influx import Access, Client
from fleetgp.runtime.settings import load
from fleetgp.store.base import Reader
from fleetgp.store.influx_read import InfluxReader
from fleetgp.store.open import open_reader

pytestmark = [pytest.mark.broker, pytest.mark.influx]

SERIES = "sensors/mill 7"
START_MS = time.time_ns() // 1_000_000 - 60_000


def reading(sequence: int) -> dict[str, object]:
    """One of a thousand a second, of the last minute."""
    return {"seq": sequence, "time": START_MS + sequence, "load": sequence % 17, "heat": 40.0 + sequence % 5}


def bridge_on(bench: Bench, server: InfluxServer, **values: object) -> Running:
    chosen = {"bridge__batch_s": 0.05, "store__kind": "influx", "store__url": server.url, **values}
    return bench.start("bridge", **chosen)


@contextmanager
def reader_of(server: InfluxServer) -> Iterator[Reader]:
    reader = InfluxReader(Client(Access(server.url, "fleetgp")), "home")
    yield reader
    reader.close()


def stored(server: InfluxServer) -> list[int]:
    with reader_of(server) as reader:
        return reader.sequences(SERIES)


def figure(desk: Desk, name: str, otherwise: float) -> float:
    health = desk.health("bridge")
    return health.figures.get(name, otherwise) if health else otherwise


def note(desk: Desk) -> str:
    health = desk.health("bridge")
    return health.note if health else ""


def test_an_outage_of_the_server_and_kills_of_the_bridge_inside_it_lose_and_double_nothing(
    bench: Bench, desk: Desk, any_broker: EmbeddedBroker, influxd_of_my_own: InfluxServer
) -> None:
    server = influxd_of_my_own
    bridge = bridge_on(bench, server)
    desk.until(lambda: desk.is_online("bridge"))
    said = iter(range(4000))

    def say(number: int) -> None:
        for _, sequence in zip(range(number), said, strict=False):
            desk.say(SERIES, reading(sequence))

    say(800)
    desk.until(lambda: len(stored(server)) > 200)
    server.kill()  # amid writes
    say(900)
    desk.flush()
    desk.until(lambda: figure(desk, "influx_waiting", 0) > 300)
    bridge.kill()
    say(300)  # kept by the broker
    bridge = bridge_on(bench, server)
    say(500)
    desk.flush()
    desk.until(lambda: figure(desk, "rows_stored", 0) > 400)
    server.start()
    desk.until(lambda: len(stored(server)) > 1500, 25.0)
    bridge.kill()  # amid catching up
    bridge = bridge_on(bench, server)
    say(1500)
    desk.until(lambda: len(stored(server)) == 4000, 30.0)
    assert stored(server) == list(range(4000))
    desk.until(lambda: figure(desk, "influx_waiting", 1) == 0)
    health = desk.health("bridge")
    assert health is not None
    assert not {name for name in health.dropped if name.startswith("influx")}
    assert bridge.stop() == 0
    with reader_of(server) as reader:
        (info,) = [info for info in reader.series("reading") if info.name == SERIES]
        assert (info.rows, info.first_ms, info.last_ms) == (4000, START_MS, START_MS + 3999)
        window = reader.window("reading", SERIES, ["load"], 0, 2**60, 10_000)
        assert window.mean["load"].tolist() == [float(i % 17) for i in range(4000)]
        assert [status.state for status in reader.statuses() if status.name == "bridge"] == ["storing"]


def test_a_bridge_starts_without_its_server_and_says_what_is_wrong(
    bench: Bench, desk: Desk, any_broker: EmbeddedBroker, influxd_of_my_own: InfluxServer
) -> None:
    server = influxd_of_my_own
    server.kill()
    bridge = bridge_on(bench, server)
    desk.until(lambda: desk.is_online("bridge"))
    assert desk.status("bridge").note == f"history in {server.url}/fleetgp"
    for sequence in range(50):
        desk.say(SERIES, reading(sequence))
    desk.until(lambda: "does not answer" in note(desk), 30.0)
    assert "wait on disk" in note(desk)
    assert figure(desk, "rows_stored", 0) >= 50
    server.start()
    desk.until(lambda: len(stored(server)) == 50, 20.0)
    desk.until(lambda: not note(desk), 20.0)
    assert bridge.stop() == 0


def test_the_last_words_of_a_bridge_that_stops_are_sent_or_kept(
    bench: Bench, desk: Desk, any_broker: EmbeddedBroker, influxd_of_my_own: InfluxServer
) -> None:
    bridge = bridge_on(bench, influxd_of_my_own)
    desk.until(lambda: desk.is_online("bridge"))
    for sequence in range(500):
        desk.say(SERIES, reading(sequence))
    desk.flush()
    assert bridge.stop() == 0
    desk.until(lambda: not desk.is_online("bridge"))
    bridge = bridge_on(bench, influxd_of_my_own)
    desk.until(lambda: desk.is_online("bridge"))
    desk.until(lambda: stored(influxd_of_my_own) == list(range(500)))
    assert bridge.stop() == 0


def findings(bench: Bench, *flags: str) -> dict[str, dict[str, str]]:
    report = bench.folder / "doctor.json"
    doctor = bench.run("doctor", "--broker", bench.url, "--data-dir", str(bench.data), "--json", str(report), *flags)
    doctor.wait(30.0)
    return {finding["check"]: finding for finding in json.loads(report.read_text())}


def test_the_doctor_looks_at_the_server_at_what_waits_and_at_dead_letters(
    bench: Bench, desk: Desk, any_broker: EmbeddedBroker, influxd_of_my_own: InfluxServer
) -> None:
    server = influxd_of_my_own
    flags = ("--set", "store.kind=influx", "--set", f"store.url={server.url}")
    server.ask("POST", "/write?db=fleetgp", b'fleetgp_reading load="heavy"')  # somebody else's idea of the field
    bridge = bridge_on(bench, server)
    desk.until(lambda: desk.is_online("bridge"))
    for sequence in range(3):
        desk.say(SERIES, reading(sequence))
    desk.until(lambda: desk.dropped("bridge", "influx_dead") == 3)
    found = findings(bench, *flags)
    assert found["influx"]["verdict"] == "ok"
    assert found["influx"]["seen"].startswith("InfluxDB 1.6")
    assert "3 lines refused for good: partial write: field type conflict" in found["dead"]["seen"]
    assert "_sequence=2i" in found["dead"]["seen"]
    assert found["backlog"]["verdict"] == "ok"
    assert found["bridge"]["verdict"] == "ok"
    server.kill()
    found = findings(bench, *flags)
    assert (found["influx"]["verdict"], "Connection refused" in found["influx"]["seen"]) == ("fault", True)
    server.start()
    found = findings(bench, *flags, "--set", "store.database=elsewhere")
    assert found["database"]["verdict"] == "warning"
    assert 'CREATE DATABASE "elsewhere"' in found["database"]["advice"]
    assert "influx" not in found
    assert bridge.stop() == 0


def test_settings_open_what_the_bridge_has_written(tmp_path: Path, influxd: InfluxServer) -> None:
    flags = {"store.kind": "influx", "store.url": influxd.url, "data.dir": str(tmp_path), "fleet": "settings-test"}
    reader = open_reader(load(None, {}, flags))
    assert isinstance(reader, InfluxReader)
    assert reader.info().location == f"{influxd.url}/fleetgp"
