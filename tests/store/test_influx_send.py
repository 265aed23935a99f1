"""Whose fault a refusal is: a bad line, a line that makes the server fail, or a server that takes nothing at all."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_influx import FakeInflux, Refusal, Rule, fake_influx
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from influx_servers import InfluxServer
from influx_store import HandStore

from fleetgp.runtime.influx import Access, Client
from fleetgp.store.base import Batch, Row
from fleetgp.store.influx_send import BLAMED_AFTER_S, MAX_SUSPECTS
from fleetgp.store.influx_write import DENIED_RETRY_S, InfluxWriter

T0 = 1_700_000_000_000


@pytest.fixture
def fake() -> Iterator[FakeInflux]:
    with fake_influx() as running:
        yield running


def rows(numbers: range) -> Batch:
    return Batch(rows=[Row("reading", "pump", T0 + i, {"a": float(i)}, T0, i) for i in numbers])


def dead_numbers(store: HandStore) -> list[int]:
    with sqlite3.connect(store.backlog.path) as connection:
        lines = [line for (line,) in connection.execute("SELECT line FROM dead")]
    return sorted(int(line.split("_sequence=")[1].split("i")[0]) for line in lines)


def failing_on(bad: set[int], refusal: Refusal) -> Rule:
    return lambda lines: refusal if any(f"_sequence={i}i," in line for line in lines for i in bad) else None


def go_on(store: HandStore, seconds: float) -> None:
    """Let the sender try for so long."""
    by_s = store.clock.monotonic_s() + seconds
    while store.clock.monotonic_s() < by_s:
        store.clock.advance(store.shipper.step() or 0.01)


@pytest.mark.parametrize("refusal", [Refusal(400, "bad request"), Refusal(413, "too large"), Refusal(422, "no")])
def test_a_server_that_refuses_everything_costs_no_line_however_many_wait(
    fake: FakeInflux, tmp_path: Path, refusal: Refusal
) -> None:
    store = HandStore(fake.url, tmp_path)
    store.backlog.put(rows(range(12_000)))  # more than there is room for dead letters
    fake.rule = lambda _: refusal
    assert store.shipper.step() == DENIED_RETRY_S
    assert "refuses whatever it is sent" in store.shipper.trouble
    assert "store.url" in store.shipper.trouble
    go_on(store, 100.0)
    assert store.backlog.counts() == {}
    assert store.backlog.depth().waiting == 12_000
    assert len(fake.requests) <= 2 * 12  # it is not pestered with halves
    fake.rule = lambda _: None
    store.send()
    assert fake.sequences == list(range(12_000))


def test_a_line_that_makes_the_server_fail_holds_up_the_others_for_a_while_only(
    fake: FakeInflux, tmp_path: Path
) -> None:
    store = HandStore(fake.url, tmp_path)
    store.backlog.put(rows(range(300)))
    fake.rule = failing_on({77}, Refusal(500, "panic: index out of range"))
    go_on(store, BLAMED_AFTER_S - 1)
    assert "panic" in store.shipper.trouble
    assert store.backlog.counts() == {}
    go_on(store, 30.0)
    assert dead_numbers(store) == [77]
    assert fake.sequences == [i for i in range(300) if i != 77]
    assert (store.shipper.trouble, store.backlog.depth().waiting) == ("", 0)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    failing=st.sets(st.integers(0, 199), max_size=3),
    bad=st.sets(st.integers(0, 199), max_size=3),
    busy_for=st.integers(0, 40),
)
def test_bad_lines_failing_lines_and_a_busy_server_are_told_apart(
    tmp_path_factory: pytest.TempPathFactory, failing: set[int], bad: set[int], busy_for: int
) -> None:
    with fake_influx() as fake:
        fails, refuses = failing_on(failing, Refusal(500, "boom")), failing_on(bad, Refusal(400, "unparsable"))
        store = HandStore(fake.url, tmp_path_factory.mktemp("mixed"))
        fake.rule = lambda lines: (
            Refusal(503, "starting") if len(fake.requests) <= busy_for else fails(lines) or refuses(lines)
        )
        store.backlog.put(rows(range(200)))
        go_on(store, 600.0)
        assert dead_numbers(store) == sorted(failing | bad)
        assert fake.sequences == [i for i in range(200) if i not in failing | bad]
        store.close()


@pytest.mark.parametrize(
    "rule",
    [
        lambda lines: Refusal(500, "engine: no space left on device"),
        lambda lines: Refusal(503, "later", (("Retry-After", "5"),)) if "_sequence" in lines[0] else None,
        lambda lines: Refusal(429, "slow down") if any("_sequence" in line for line in lines) else None,
        lambda lines: Refusal(500, "shard is gone") if any("_sequence" in line for line in lines) else None,
    ],
    ids=["full disk", "asks to wait", "limited", "takes no readings"],
)
def test_a_server_in_a_bad_state_is_waited_for(fake: FakeInflux, tmp_path: Path, rule: Rule) -> None:
    store = HandStore(fake.url, tmp_path)
    store.backlog.put(rows(range(MAX_SUSPECTS + 50)))
    fake.rule = rule
    go_on(store, 1200.0)
    assert store.shipper.trouble != ""
    assert store.backlog.counts() == {}
    fake.rule = lambda _: None
    go_on(store, 20.0)
    assert fake.sequences == list(range(MAX_SUSPECTS + 50))


def test_a_server_too_slow_for_large_requests_gets_smaller_ones(fake: FakeInflux, tmp_path: Path) -> None:
    store = HandStore(fake.url, tmp_path, timeout_s=0.3)
    store.backlog.put(rows(range(64)))
    fake.rule = lambda lines: Refusal(500, "never seen", after_s=5.0) if len(lines) > 20 else None
    go_on(store, 30.0)
    assert fake.sequences == list(range(64))
    assert store.backlog.counts() == {}


def test_a_server_of_another_kind_that_comes_to_the_address_is_written_its_own_way(
    fake: FakeInflux, tmp_path: Path
) -> None:
    store = HandStore(fake.url, tmp_path)
    store.write(rows(range(1)))
    fake.rule, fake.version = (lambda _: Refusal(404, "not found")), "v2.7.1"  # as it says of /write without a mapping
    store.backlog.put(rows(range(1, 2)))
    store.shipper.step()
    fake.rule = lambda _: None
    store.send()
    assert fake.paths[-1].startswith("/api/v2/write")
    assert fake.sequences == [0, 1]


@pytest.mark.influx
def test_a_database_that_is_not_there_is_made_and_that_is_said_once(
    influxd_of_my_own: InfluxServer, tmp_path: Path
) -> None:
    server = influxd_of_my_own
    server.ask("POST", "/query?q=DROP+DATABASE+fleetgp")
    store = HandStore(server.url, tmp_path)
    writer = InfluxWriter(store.backlog, store.client, store.clock, store.backlog._bounds, shipper=store.shipper)
    store.write(rows(range(20)))
    assert store.reader.sequences("pump") == list(range(20))
    assert "made the database" in writer.news()
    assert writer.news() == ""
    server.ask("POST", "/query?q=DROP+DATABASE+fleetgp")  # an hour later, by mistake
    store.clock.advance(3600.0)
    store.backlog.tidy()
    store.write(rows(range(10, 30)))  # of rows that were forgotten here the server is asked
    assert "made the database" in writer.news()
    assert store.reader.sequences("pump") == list(range(10, 30))
    store.close()


@pytest.mark.influx
def test_a_login_that_may_not_make_a_database_is_told_to_have_it_made(tmp_path: Path) -> None:
    server = InfluxServer("influxd", tmp_path / "influxd", auth=True).start()
    try:
        server.ask("POST", "/query?q=CREATE+USER+root+WITH+PASSWORD+'s'+WITH+ALL+PRIVILEGES")
        server.ask("POST", "/query?u=root&p=s&q=CREATE+USER+bridge+WITH+PASSWORD+'b'")
        store = HandStore(server.url, tmp_path)
        store.shipper._sender._client = store.shipper._client = Client(
            Access(server.url, "fleetgp", username="bridge", password="b")
        )
        store.backlog.put(rows(range(3)))
        assert store.shipper.step() == DENIED_RETRY_S
        assert store.backlog.depth().waiting == 3
        trouble = store.shipper.trouble
        server.make_database("fleetgp", login="u=root&p=s&")
        server.ask("POST", "/query?u=root&p=s&q=GRANT+ALL+ON+fleetgp+TO+bridge")
        store.send()
        assert "does not let us make the database" in trouble
        assert "CREATE DATABASE" in trouble
        assert store.shipper.shipped >= 3
        store.close()
    finally:
        server.stop()


def test_not_found_for_another_reason_is_not_tried_without_end(fake: FakeInflux, tmp_path: Path) -> None:
    store = HandStore(fake.url, tmp_path)
    fake.answers_queries = True
    store.backlog.put(rows(range(3)))
    fake.rule = lambda _: Refusal(404, "no such page")
    waits = [store.shipper.step() for _ in range(4)]
    assert waits == [0.0, DENIED_RETRY_S, DENIED_RETRY_S, DENIED_RETRY_S]
    assert "no such page" in store.shipper.trouble
