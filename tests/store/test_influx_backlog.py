"""What waits on disk for the server: bounds, restarts, repeated messages, clocks that jump."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_influx import FakeInflux, Refusal, fake_influx
from influx_store import LARGE, NOW_MS, HandStore

from fleetgp.errors import StorageError
from fleetgp.runtime.clock import SystemClock
from fleetgp.store import influx_backlog
from fleetgp.store.base import Batch, Row
from fleetgp.store.influx_backlog import RECENT_MS, Bounds
from fleetgp.store.influx_lines import LATEST_MS
from fleetgp.store.influx_write import NOTE_AFTER_S, InfluxWriter
from fleetgp.wire.messages import AnomalyEvent, Health

T0 = 1_700_000_000_000
DAY_MS = 86_400_000


@pytest.fixture
def fake() -> Iterator[FakeInflux]:
    with fake_influx() as running:
        yield running


def rows(first: int, number: int, columns: int = 1) -> Batch:
    return Batch(
        rows=[
            Row("reading", "pump", T0 + i, {f"c{j}": float(i) for j in range(columns)}, T0, i)
            for i in range(first, first + number)
        ]
    )


def event(state: str) -> AnomalyEvent:
    return AnomalyEvent(agent="pump", event_id="e", state=state, at_ms=T0, start_ms=T0, peak_score=1.0, peak_ms=T0)  # type: ignore[arg-type]


def used_bytes(path: Path) -> int:
    return sum(file.stat().st_size for file in path.parent.glob("backlog.sqlite*"))


def test_a_message_that_comes_twice_is_known_and_sent_once(fake: FakeInflux, tmp_path: Path) -> None:
    store = HandStore(fake.url, tmp_path)
    assert store.write(rows(0, 10)).written == 10
    sent = sum(fake.requests)
    report = store.write(rows(5, 10))
    assert (report.written, report.duplicates) == (5, 5)
    assert store.write(rows(0, 15)).duplicates == 15
    assert fake.sequences == list(range(15))
    assert sum(fake.requests) - sent == 10 + 1  # the batch with news in it, and what the series holds


def test_the_backlog_of_an_earlier_process_goes_on(fake: FakeInflux, tmp_path: Path) -> None:
    store = HandStore(fake.url, tmp_path)
    store.write(rows(0, 5))
    fake.rule = lambda _: Refusal(503)
    store.backlog.put(rows(5, 5))
    store.shipper.step()
    store.close()
    again = HandStore(fake.url, tmp_path, fleet=store.fleet)
    assert again.backlog.depth().waiting == 5
    assert again.backlog.origin == store.backlog.origin
    assert again.backlog.put(rows(0, 12)).duplicates == 10
    fake.rule = lambda _: None
    again.send()
    assert fake.sequences == list(range(12))


def test_what_was_sent_is_forgotten_after_a_while(fake: FakeInflux, tmp_path: Path) -> None:
    store = HandStore(fake.url, tmp_path)
    store.write(rows(0, 5000))
    store.clock.advance(RECENT_MS / 1000 - 1)
    store.backlog.tidy()
    assert store.write(rows(0, 5000)).duplicates == 5000
    store.clock.advance(2)
    store.backlog.tidy()
    with sqlite3.connect(store.backlog.path) as connection:
        for table in ("log", "s1"):
            assert connection.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)
    store.write(rows(5000, 10))
    assert fake.sequences == list(range(5010))


def test_when_it_is_full_the_oldest_rows_go_and_are_counted(
    fake: FakeInflux, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(influx_backlog, "STEP", 200)
    bounds = Bounds(1_000_000, 30 * DAY_MS)
    store = HandStore(fake.url, tmp_path, bounds=bounds)
    fake.rule = lambda _: Refusal(503)
    store.backlog.put(Batch(events=[event("opened")]))
    for first in range(0, 20_000, 500):
        store.backlog.put(rows(first, 500, columns=20))
        assert store.backlog.depth().used_bytes < 1.2 * bounds.most_bytes
    dropped = store.backlog.counts()["dropped_for_room"]
    assert dropped > 10_000
    assert store.backlog.depth().waiting == 20_001 - dropped
    fake.rule = lambda _: None
    store.send()
    assert fake.sequences == list(range(dropped, 20_000))
    assert any(series.startswith("fleetgp_event") for series, _ in fake.kept)  # documents go last
    store.backlog.put(rows(20_000, 1))
    assert store.backlog.counts() == {"dropped_for_room": dropped}
    assert used_bytes(store.backlog.path) < 8_000_000


def test_what_was_sent_makes_room_before_anything_is_dropped(fake: FakeInflux, tmp_path: Path) -> None:
    store = HandStore(fake.url, tmp_path, bounds=Bounds(1_000_000, 30 * DAY_MS))
    for first in range(0, 20_000, 500):
        store.write(rows(first, 500, columns=20))
    store.backlog.tidy()
    assert store.backlog.counts() == {}
    assert store.backlog.depth().used_bytes < 1_200_000
    assert fake.sequences == list(range(20_000))


def test_what_waits_too_long_goes_and_is_counted(fake: FakeInflux, tmp_path: Path) -> None:
    store = HandStore(fake.url, tmp_path, bounds=Bounds(10**9, 2 * DAY_MS))
    fake.rule = lambda _: Refusal(503)
    store.backlog.put(rows(0, 5000))
    store.clock.advance(86_400)
    store.backlog.put(rows(5000, 10))
    store.clock.advance(86_401)
    store.backlog.tidy()
    assert store.backlog.counts() == {"dropped_for_age": 5000}
    fake.rule = lambda _: None
    store.send()
    assert fake.sequences == list(range(5000, 5010))


def test_a_clock_that_was_not_set_when_rows_came_does_not_make_them_old(fake: FakeInflux, tmp_path: Path) -> None:
    store = HandStore(fake.url, tmp_path, bounds=Bounds(10**9, 2 * DAY_MS), now_ms=100_000)  # booted in 1970
    fake.rule = lambda _: Refusal(503)
    store.backlog.put(rows(0, 10))
    store.clock.advance(NOW_MS / 1000)
    store.backlog.put(rows(10, 10))
    store.backlog.tidy()
    assert store.backlog.counts() == {}
    fake.rule = lambda _: None
    store.send()
    assert fake.sequences == list(range(20))


def test_times_that_no_server_can_hold_are_refused_and_counted(fake: FakeInflux, tmp_path: Path) -> None:
    store = HandStore(fake.url, tmp_path)
    late = Row("reading", "pump", LATEST_MS + 1, {"a": 1.0}, T0)
    edge = Row("reading", "pump", LATEST_MS, {"a": 1.0}, T0)
    report = store.write(Batch(rows=[late, edge, *rows(0, 1).rows, Row("reading", "", T0, {"a": 1.0}, T0)]))
    assert (report.written, report.refused) == (2, {"time_out_of_range": 1, "empty_name": 1})
    far = AnomalyEvent(
        agent="p", event_id="e", state="opened", at_ms=T0, start_ms=LATEST_MS + 1, peak_score=1.0, peak_ms=T0
    )
    assert store.write(Batch(events=[far, event("opened")])).refused == {"document_time_out_of_range": 1}


def test_two_sequences_that_share_a_nanosecond_are_never_one_point(fake: FakeInflux, tmp_path: Path) -> None:
    store = HandStore(fake.url, tmp_path)
    twins = [Row("reading", "pump", T0, {"a": float(i)}, T0, 5 + 999_000 * i) for i in range(2)]
    store.write(Batch(rows=twins))
    assert fake.sequences == [5]
    with sqlite3.connect(store.backlog.path) as connection:
        ((line, reason),) = connection.execute("SELECT line, reason FROM dead").fetchall()
    assert ("_sequence=999005i" in line, reason) == (True, "another row has the same nanosecond")


def test_a_disk_that_refuses_keeps_nothing_of_the_batch(fake: FakeInflux, tmp_path: Path) -> None:
    store = HandStore(fake.url, tmp_path)
    store.write(rows(0, 10))
    connection = store.backlog._connection
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    connection.execute(f"PRAGMA max_page_count = {pages + 2}")
    large = Batch(rows=[*rows(10, 3000).rows, *(Row("reading", f"new{i}", T0, {"v": 1.0}, T0) for i in range(50))])
    for _ in range(2):
        with pytest.raises(StorageError, match="disk is full"):
            store.backlog.put(large)
        assert store.backlog.depth().waiting == 0
    connection.execute("PRAGMA max_page_count = 1000000")
    assert store.write(large).written == 3050
    assert fake.sequences == list(range(3010))


def test_the_writer_says_what_is_wrong_long_before_anything_is_dropped(fake: FakeInflux, tmp_path: Path) -> None:
    bounds = Bounds(2_000_000, 30 * DAY_MS)
    store = HandStore(fake.url, tmp_path, bounds=bounds)
    writer = InfluxWriter(store.backlog, store.client, store.clock, bounds, shipper=store.shipper)
    fake.rule = lambda _: Refusal(404, "database not found")
    writer.write(rows(0, 10))
    store.shipper.step()
    assert writer.note() == ""
    store.clock.advance(NOTE_AFTER_S)
    assert "CREATE DATABASE" in writer.note()
    assert "10 instants wait on disk" in writer.note()
    assert "half" not in writer.note()
    writer.write(rows(10, 10_000, columns=8))
    assert "more than half" in writer.note()
    assert writer.figures()["influx_waiting"] == 10_010
    fake.rule = lambda _: None
    store.send()
    assert writer.note() == ""
    assert writer.figures()["influx_waiting"] == 0
    assert writer.figures()["influx_shipped"] >= 10_010


def test_a_server_that_holds_back_its_answer_does_not_hold_back_the_end(fake: FakeInflux, tmp_path: Path) -> None:
    store = HandStore(fake.url, tmp_path, timeout_s=30.0)
    writer = InfluxWriter(store.backlog, store.client, SystemClock(), LARGE)
    fake.rule = lambda _: Refusal(503, after_s=25.0)
    writer.write(rows(0, 10))
    began_s = time.monotonic()
    writer.close()
    assert time.monotonic() - began_s < 4.0
    fake.rule = lambda _: None
    again = HandStore(fake.url, tmp_path, fleet=store.fleet)
    again.send()
    assert fake.sequences == list(range(10))


def test_healths_are_sent_in_their_newest_state_only(fake: FakeInflux, tmp_path: Path) -> None:
    store = HandStore(fake.url, tmp_path)
    for i in range(5):
        store.backlog.put(Batch(healths=[Health(name="pump", role="agent", at_ms=T0 + i, dropped={"late": i})]))
    store.send()
    bodies = [fields for (series, _), fields in fake.kept.items() if series.startswith("fleetgp_program_health")]
    assert len(bodies) == 1
    assert "left_out=4i" in bodies[0]
