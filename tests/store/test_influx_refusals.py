"""What the sender does about every kind of refusal, against a server of our own that refuses on demand."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_influx import FakeInflux, Refusal, fake_influx
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from influx_store import HandStore

from fleetgp.store.base import Batch, Row
from fleetgp.store.influx_write import DENIED_RETRY_S, FIRST_RETRY_S, IDLE_S, LAST_RETRY_S

T0 = 1_700_000_000_000


@pytest.fixture
def fake() -> Iterator[FakeInflux]:
    with fake_influx() as running:
        yield running


def rows(numbers: range, series: str = "pump") -> Batch:
    return Batch(rows=[Row("reading", series, T0 + i, {"a": float(i)}, T0, i) for i in numbers])


def dead_letters(store: HandStore) -> list[tuple[str, str]]:
    with sqlite3.connect(store.backlog.path) as connection:
        return connection.execute("SELECT line, reason FROM dead ORDER BY id").fetchall()


@pytest.mark.parametrize(
    ("refusal", "first_wait_s"),
    [
        (Refusal(500, "timeout"), FIRST_RETRY_S),
        (Refusal(503, "overloaded"), FIRST_RETRY_S),
        (Refusal(429, "slow down", (("Retry-After", "37"),)), 37.0),
        (Refusal(503, "later", (("Retry-After", "Wed, 21 Oct 2026 07:28:00 GMT"),)), FIRST_RETRY_S),
        (Refusal(408, "too slow"), FIRST_RETRY_S),
        (Refusal(401, "unauthorized"), DENIED_RETRY_S),
        (Refusal(403, "forbidden"), DENIED_RETRY_S),
        (Refusal(404, 'database not found: "fleetgp"'), DENIED_RETRY_S),
        (Refusal(405, "method not allowed"), DENIED_RETRY_S),
        (Refusal(302, "elsewhere"), DENIED_RETRY_S),
    ],
    ids=lambda value: str(value.status) if isinstance(value, Refusal) else None,
)
def test_nothing_is_dropped_while_the_server_refuses_everything(
    fake: FakeInflux, tmp_path: Path, refusal: Refusal, first_wait_s: float
) -> None:
    store = HandStore(fake.url, tmp_path)
    store.backlog.put(rows(range(50)))
    fake.rule = lambda _: refusal
    assert store.shipper.step() == first_wait_s
    assert refusal.words in store.shipper.trouble
    waits = [store.shipper.step() for _ in range(9)]
    assert waits == sorted(waits)
    assert waits[-1] in (LAST_RETRY_S, first_wait_s)
    assert store.backlog.depth().waiting == 50
    assert (fake.kept, dead_letters(store)) == ({}, [])
    fake.rule = lambda _: None
    store.send()
    assert fake.sequences == list(range(50))
    assert store.backlog.depth().waiting == 0
    assert store.shipper.step() == IDLE_S


def test_what_a_refusal_says_is_advice(fake: FakeInflux, tmp_path: Path) -> None:
    store = HandStore(fake.url, tmp_path)
    store.backlog.put(rows(range(1)))
    for status, advice in ((401, "store.token"), (403, "right to"), (404, "CREATE DATABASE"), (405, "store.url")):
        fake.rule = lambda _, status=status: Refusal(status, "no")  # type: ignore[misc]
        store.shipper.step()
        assert advice in store.shipper.trouble


def test_a_server_that_does_not_answer_in_time_is_tried_again(fake: FakeInflux, tmp_path: Path) -> None:
    store = HandStore(fake.url, tmp_path, timeout_s=0.2)
    store.backlog.put(rows(range(5)))
    fake.rule = lambda _: Refusal(500, "never seen", after_s=20.0)
    assert store.shipper.step() == FIRST_RETRY_S
    assert "does not answer: timed out" in store.shipper.trouble
    fake.rule = lambda _: None
    store.send()
    assert fake.sequences == list(range(5))


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(bad=st.sets(st.integers(0, 99), max_size=6), limit=st.sampled_from([1, 7, 10**6]), is_partial=st.booleans())
def test_bad_lines_are_found_and_all_others_stored(
    tmp_path_factory: pytest.TempPathFactory, bad: set[int], limit: int, is_partial: bool
) -> None:
    """The server refuses requests with a bad line, or of more than ``limit`` lines; partly, as InfluxDB does, or whole."""

    def is_bad(line: str) -> bool:
        return any(f"_sequence={i}i," in line for i in bad)

    with fake_influx() as fake:

        def rule(lines: list[str]) -> Refusal | None:
            if len(lines) > limit:
                return Refusal(413, "too large")
            good = [line for line in lines if not is_bad(line)]
            if len(good) == len(lines):
                return None
            if is_partial:
                fake.kept.update({(line.split(" ")[0], line.split(" ")[-1]): line.split(" ")[1] for line in good})
            return Refusal(400, "partial write: field type conflict dropped=1")

        fake.rule = rule
        store = HandStore(fake.url, tmp_path_factory.mktemp("bad"))
        store.write(rows(range(100)))
        assert fake.sequences == [i for i in range(100) if i not in bad]
        found = dead_letters(store)
        assert sorted(int(line.split("_sequence=")[1].split("i")[0]) for line, _ in found) == sorted(bad)
        assert {why for _, why in found} <= {"partial write: field type conflict dropped=1"}
        assert store.backlog.counts().get("dead", 0) == len(bad)
        store.close()


def test_a_refusal_amid_a_search_for_bad_lines_buries_nothing_twice(fake: FakeInflux, tmp_path: Path) -> None:
    store = HandStore(fake.url, tmp_path)
    store.backlog.put(rows(range(8)))
    fake.rule = lambda lines: (
        Refusal(503, "busy") if len(fake.requests) > 5 else Refusal(400, "bad") if "_sequence=0i" in lines[0] else None
    )
    assert store.shipper.step() == FIRST_RETRY_S
    assert dead_letters(store) == []
    fake.rule = lambda lines: Refusal(400, "bad") if any("_sequence=0i" in line for line in lines) else None
    store.send()
    assert [why for _, why in dead_letters(store)] == ["bad"]
    assert fake.sequences == list(range(1, 8))


def test_dead_letters_are_bounded_and_counted(
    fake: FakeInflux, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fleetgp.store.influx_backlog.MAX_DEAD", 10)
    store = HandStore(fake.url, tmp_path)
    fake.rule = lambda lines: Refusal(400, "beyond retention") if any("_sequence" in line for line in lines) else None
    for first in range(0, 40, 8):
        store.write(rows(range(first, first + 8)))
    assert store.backlog.counts()["dead"] == 40
    assert len(dead_letters(store)) == 10
    assert "_sequence=39i" in dead_letters(store)[-1][0]
    assert store.backlog.depth().waiting == 0


def test_a_kept_connection_that_was_closed_is_opened_again(fake: FakeInflux, tmp_path: Path) -> None:
    store = HandStore(fake.url, tmp_path)
    store.write(rows(range(3)))
    fake.rule = lambda _: Refusal(204, headers=(("Connection", "close"),))
    store.write(rows(range(3, 4)))
    fake.rule = lambda _: None
    store.write(rows(range(4, 6)))
    assert fake.sequences == [0, 1, 2, 4, 5]  # the fake keeps nothing of what it answers by rule
    assert fake.paths[0] == "/write?db=fleetgp&precision=ns"
