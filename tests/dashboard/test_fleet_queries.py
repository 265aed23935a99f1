"""What the fleet and rounds pages are given, against the made-up history."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from synthetic_fleet import NOW_MS, MemoryStore, Plan, Watch, history

from dashboard import labels, queries
from dashboard.view import View, in_order
from fleetgp.store.base import Batch, SeriesInfo
from fleetgp.wire.messages import Health, RoundNotice, Status


def view_of(watch: Watch, batch: Batch) -> View:
    return watch(MemoryStore(batch))[0].look()


def test_headline_counts(watch: Watch):
    view = view_of(watch, history(Plan(agents=4, frames=50, dead="press-3", silent="press-4", rounds=5)))
    facts = queries.headline(view)
    assert (facts.alive, facts.silent, facts.offline, facts.agents) == (2, 1, 1, 4)
    assert (facts.messages, facts.topics) == (4 * 50, 4)
    assert (facts.alarms_open, facts.alarms_day) == (1, 2)
    assert facts.last_round == 5
    assert facts.round_age_s == pytest.approx(8.0)


def test_fleet_frame_row_by_row(watch: Watch, small_fleet: Batch):
    view = view_of(watch, small_fleet)
    frame = queries.fleet_frame(view, queries.quality_frame(view)).set_index(labels.AGENT)
    assert list(frame.index) == [f"press-{n}" for n in range(1, 7)]
    assert (frame[labels.FRAMES] == 120).all()
    assert frame[labels.ALARMS].to_dict() == {f"press-{n}": int(n == 2) for n in range(1, 7)}
    assert frame[labels.LEARNING].iloc[-1] == "alone"
    rows = [row.values for row in small_fleet.rows if row.kind == "prediction" and row.series == "press-3"]
    inside = [
        row[f"{c}.low"] <= row[f"{c}.observed"] <= row[f"{c}.high"]
        for row in rows
        for c in ("temperature", "pressure", "vibration", "current")
    ]
    assert frame.loc["press-3", labels.COVERAGE] == pytest.approx(100 * np.mean(inside))
    newest = [min(row["score"] / row["threshold"], 1.2) for row in rows[-60:]]
    assert frame.loc["press-3", labels.ODDNESS] == pytest.approx(newest)


def test_an_agent_that_only_said_hello_has_a_row_without_numbers(watch: Watch):
    status = Status(at_ms=NOW_MS, name="new", role="agent", is_online=True, state="starting")
    view = view_of(watch, Batch(statuses=[status]))
    frame = queries.fleet_frame(view, queries.quality_frame(view))
    row = frame.iloc[0]
    assert row[labels.PRESENCE] == labels.DOTS["alive"]
    assert row[labels.LAST_FRAME] == "–"
    assert np.isnan(row[labels.COVERAGE])
    assert row[labels.LEARNING] == "starting"


def status_view(*, is_online: bool, heard_ago_s: float | None, at_ago_s: float = 9000.0) -> View:
    status = Status(at_ms=NOW_MS - int(at_ago_s * 1000), name="a", role="agent", is_online=is_online)
    healths = () if heard_ago_s is None else (Health(at_ms=NOW_MS - int(heard_ago_s * 1000), name="a", role="agent"),)
    return View(version=1, looked_ms=NOW_MS, location="", statuses=(status,), healths=healths)


def test_presence_in_all_its_words():
    assert queries.presence(status_view(is_online=True, heard_ago_s=30), "a") == "alive"
    assert queries.presence(status_view(is_online=True, heard_ago_s=90), "a") == "silent"
    assert queries.presence(status_view(is_online=True, heard_ago_s=None, at_ago_s=1), "a") == "alive"
    assert queries.presence(status_view(is_online=False, heard_ago_s=1), "a") == "offline"
    assert queries.presence(status_view(is_online=True, heard_ago_s=1), "b") == "unknown"


def series(last_ms: int) -> SeriesInfo:
    return SeriesInfo("prediction", "a", (), 0, last_ms, 10)


def test_age_of_a_live_frame_is_by_its_own_time():
    view = replace(status_view(is_online=True, heard_ago_s=40), predictions={"a": series(NOW_MS - 2000)})
    assert queries.frame_age_s(view, "a") == 2.0


def test_age_of_a_recorded_frame_is_by_when_it_came():
    recorded = {"a": series(1_400_000_000_000)}  # 2014
    before_us = replace(status_view(is_online=True, heard_ago_s=40), predictions=recorded)
    assert queries.frame_age_s(before_us, "a") == 40.0
    watched = replace(before_us, noticed_ms={"a": NOW_MS - 4000})
    assert queries.frame_age_s(watched, "a") == 4.0


def test_alarms_of_a_recording_are_counted_by_its_own_day(watch: Watch):
    years_ago_ms = 1_400_000_000_000
    view = view_of(watch, history(Plan(agents=2, frames=40, interval_s=3600, end_ms=years_ago_ms)))
    # the fault ran from 12 to 6 hours before the end, the open alarm began 2 hours before it
    assert queries.headline(view).alarms_day == 2
    later = history(Plan(agents=2, frames=140, interval_s=3600, end_ms=years_ago_ms))  # its fault: 42 hours before
    assert queries.headline(view_of(watch, later)).alarms_day == 1


def test_names_are_sorted_as_people_do():
    names = ["pump-10", "pump-2", "7", "pump", "Pump-1", "pump-2b", "pump-02", "pump-2"]
    assert in_order(names) == ["7", "Pump-1", "pump", "pump-02", "pump-2", "pump-2b", "pump-10"]


def notice(number: int, **more: object) -> RoundNotice:
    return RoundNotice(at_ms=NOW_MS, round=number, basis=1, **{"state": "closed", **more})


def test_rounds_strip_says_how_each_took_part():
    newest = notice(2, answered=("a",), missing=("b", "c"), included=("a", "b"), bytes_received=1500, bytes_sent=3000)
    first = notice(1, answered=("a", "b"), included=("a", "b"), seconds=0.5)
    data = queries.rounds_data([newest, first], "UTC")
    assert set(data.strip.itertuples(index=False, name=None)) == {
        (2, "a", labels.TOOK_PART), (2, "b", labels.KEPT), (2, "c", labels.ABSENT),
        (1, "a", labels.TOOK_PART), (1, "b", labels.TOOK_PART),
    }  # fmt: skip
    assert data.costs[data.costs["round"] == 2]["kilobytes"].tolist() == [1.5, 3.0]
    assert data.table[labels.ROUND_MISSING].tolist() == ["b, c", "–"]
    assert data.closing["seconds"].tolist() == [0.0, 0.5]


def test_an_open_round_is_in_the_table_only():
    data = queries.rounds_data([notice(3, state="opened")], "UTC")
    assert data.strip.empty
    assert data.closing.empty
    assert data.table[labels.ROUND_STATE].tolist() == ["open"]


def test_rounds_are_bounded():
    notices = [notice(number, answered=("a",)) for number in range(200, 0, -1)]
    data = queries.rounds_data(notices, "UTC")
    assert (len(data.table), len(data.closing), data.closing["round"].min()) == (60, 60, 141)
