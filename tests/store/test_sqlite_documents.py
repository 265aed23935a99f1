"""Events, rounds, presence and health: which state of each is kept."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetgp.schema import Channel, Schema
from fleetgp.store import sqlite_documents
from fleetgp.store.base import Batch, Reader, Row, Writer
from fleetgp.store.sqlite import open_reader, open_writer
from fleetgp.wire.messages import AnomalyEvent, Health, RoundNotice, Status

T0 = 1_700_000_000_000


def opened(path: Path) -> tuple[Writer, Reader]:
    return open_writer(path, raw_days=90, rollup_days=1825), open_reader(path)


def event(
    event_id: str = "e1", state: str = "opened", at_ms: int = T0, agent: str = "pump", **more: Any
) -> AnomalyEvent:
    start_ms = more.pop("start_ms", T0)
    return AnomalyEvent(
        agent=agent, event_id=event_id, state=state, at_ms=at_ms, start_ms=start_ms, peak_score=5.0, peak_ms=T0, **more
    )  # type: ignore[arg-type]


def notice(number: int, state: str = "opened", at_ms: int = T0, **more: Any) -> RoundNotice:
    return RoundNotice(round=number, state=state, at_ms=at_ms, basis=0, **more)  # type: ignore[arg-type]


def test_an_event_ends_in_its_last_state_in_whatever_order_it_comes(tmp_path: Path) -> None:
    story = [
        event(state="opened", at_ms=T0 + 9),  # a late clock does not make an opening win
        event(state="updated", at_ms=T0 + 1, frames=2, blame={"a": 0.25, "b": 0.75}),
        event(state="updated", at_ms=T0 + 2, frames=3),
        event(state="closed", at_ms=T0 + 3, end_ms=T0 + 3),
    ]
    for i, order in enumerate(itertools.permutations(story)):
        writer, reader = opened(tmp_path / f"{i}")
        for one in order:
            writer.write(Batch(events=[one]))
        assert reader.events() == [story[3]]
        writer.close()
    writer, reader = opened(tmp_path / "together")
    writer.write(Batch(events=story[2::-1]))
    assert reader.events() == [story[2]]


def test_events_are_found_by_agent_latest_start_first(tmp_path: Path) -> None:
    writer, reader = opened(tmp_path / "h.sqlite")
    events = [event(f"e{i}", agent=f"agent{i % 2}", start_ms=T0 + i) for i in range(10)]
    writer.write(Batch(events=events))
    assert reader.events() == events[::-1]
    assert reader.events("agent1") == events[9::-2]
    assert reader.events(limit=3) == events[:6:-1]
    assert reader.events("nobody") == []


def test_one_event_id_of_two_agents_is_two_events(tmp_path: Path) -> None:
    writer, reader = opened(tmp_path / "h.sqlite")
    writer.write(Batch(events=[event(agent="a"), event(agent="b")]))
    assert len(reader.events()) == 2


def test_a_round_is_closed_for_good(tmp_path: Path) -> None:
    writer, reader = opened(tmp_path / "h.sqlite")
    closed = notice(1, "closed", T0 + 5, answered=("a", "b"), missing=("c",), bytes_received=900, seconds=0.5)
    writer.write(Batch(rounds=[closed, notice(1, "opened", T0 + 6), notice(2, at_ms=T0 + 10, deadline_ms=T0 + 20)]))
    writer.write(Batch(rounds=[notice(1, "opened", T0)]))
    assert reader.rounds() == [notice(2, at_ms=T0 + 10, deadline_ms=T0 + 20), closed]
    assert reader.rounds(limit=1)[0].round == 2


def test_a_count_of_rounds_that_started_anew_is_the_latest(tmp_path: Path) -> None:
    writer, reader = opened(tmp_path / "h.sqlite")
    writer.write(Batch(rounds=[notice(i, "closed", T0 + i) for i in range(500)]))
    writer.write(Batch(rounds=[notice(1, "closed", T0 + 9000)]))
    assert [one.round for one in reader.rounds(limit=2)] == [1, 499]


def test_the_last_presence_written_counts_even_a_will_made_earlier(tmp_path: Path) -> None:
    writer, reader = opened(tmp_path / "h.sqlite")
    schema = Schema(channels=(Channel(name="a", unit="bar"),), interval_s=0.5)
    online = Status(name="pump", role="agent", is_online=True, at_ms=T0 + 100, schema=schema)
    will = Status(name="pump", role="agent", is_online=False, at_ms=T0)
    bridge = Status(name="pump", role="bridge", is_online=True, at_ms=T0)
    writer.write(Batch(statuses=[online, bridge]))
    assert reader.statuses() == [online, bridge]
    writer.write(Batch(statuses=[online, will]))
    assert reader.statuses() == [will, bridge]


def test_the_last_health_of_each_program_is_kept(tmp_path: Path) -> None:
    writer, reader = opened(tmp_path / "h.sqlite")
    healths = [Health(name=f"p{i % 3}", role="agent", at_ms=T0 + i, figures={"rss_mb": float(i)}) for i in range(9)]
    writer.write(Batch(healths=healths))
    assert reader.healths() == healths[6:]


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (
            Batch(healths=[Health(name="p", role="agent", at_ms=T0, figures={"x": float("nan")})]),
            "document_not_writable",
        ),
        (Batch(events=[event(at_ms=2**70)]), "document_time_out_of_range"),
        (Batch(events=[event(start_ms=-(2**70))]), "document_time_out_of_range"),
        (Batch(rounds=[notice(2**64)]), "document_round_out_of_range"),
        (Batch(events=[event("\ud800")]), "document_not_writable"),
    ],
)
def test_a_bad_document_is_counted_and_the_rest_is_stored(tmp_path: Path, bad: Batch, reason: str) -> None:
    writer, reader = opened(tmp_path / "h.sqlite")
    report = writer.write(
        Batch(
            rows=[Row("reading", "a", T0, {"v": 1.0}, T0), Row("reading", "a", T0, {}, T0)],
            healths=[*bad.healths, Health(name="good", role="agent", at_ms=T0)],
            events=[*bad.events, event("good")],
            rounds=[*bad.rounds, notice(3)],
        )
    )
    assert (report.written, report.refused) == (1, {reason: 1, "no_values": 1})
    assert [one.name for one in reader.healths()] == ["good"]
    assert [one.event_id for one in reader.events()] == ["good"]
    assert [one.round for one in reader.rounds()] == [3]


def test_the_oldest_documents_beyond_the_bound_are_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MAX_EVENTS", "MAX_ROUNDS", "MAX_PROGRAMS"):
        monkeypatch.setattr(sqlite_documents, name, 5)
    writer, reader = opened(tmp_path / "h.sqlite")
    order = [3, 1, 4, 0, 6, 2, 5, 7]
    writer.write(Batch(
        events=[event(f"e{i}", start_ms=T0 + i) for i in order],
        rounds=[notice(i, at_ms=T0 + i) for i in order],
        healths=[Health(name=f"p{i}", role="agent", at_ms=T0) for i in order],
    ))  # fmt: skip
    writer.maintain(T0)
    assert [one.event_id for one in reader.events()] == ["e7", "e6", "e5", "e4", "e3"]
    assert [one.round for one in reader.rounds()] == [7, 6, 5, 4, 3]
    assert {one.name for one in reader.healths()} == {f"p{i}" for i in order[3:]}


_events = st.builds(
    event,
    event_id=st.sampled_from(["e1", "e2"]),
    state=st.sampled_from(["opened", "updated", "closed"]),
    at_ms=st.integers(T0, T0 + 3),
    frames=st.integers(1, 3),
)
_rounds = st.builds(
    notice,
    number=st.integers(1, 2),
    state=st.sampled_from(["opened", "closed"]),
    at_ms=st.integers(T0, T0 + 3),
    bytes_sent=st.integers(0, 3),
)


@settings(max_examples=30, deadline=None)
@given(events=st.lists(_events, max_size=8), rounds=st.lists(_rounds, max_size=8), data=st.data())
def test_order_of_events_and_rounds_does_not_matter(
    tmp_path_factory: pytest.TempPathFactory, events: list[AnomalyEvent], rounds: list[RoundNotice], data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("timeless")
    found = []
    for name in ("one", "two"):
        writer, reader = opened(folder / name)
        for one in data.draw(st.permutations(events)):
            writer.write(Batch(events=[one]))
        for other in data.draw(st.permutations(rounds)):
            writer.write(Batch(rounds=[other]))
        found.append((reader.events(), reader.rounds()))
        writer.close()
        reader.close()
    assert found[0] == found[1]
