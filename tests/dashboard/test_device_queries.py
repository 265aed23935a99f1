"""What the device page is given: ranges, gaps, anomalies, extremes, words."""

from __future__ import annotations

import numpy as np
import pandas as pd
from synthetic_fleet import NOW_MS, MemoryStore, Plan, Watch, fault_span, history

from dashboard import device_queries, labels
from dashboard.view import View
from fleetgp.store.base import SeriesInfo, Window
from fleetgp.wire.messages import AnomalyEvent


def window(at_ms: list[int], step_ms: int = 0, **columns: list[float]) -> Window:
    values = {name.replace("_", ".", 1): np.array(column) for name, column in columns.items()}
    return Window(np.array(at_ms, dtype=float), values, values, values, step_ms)


def view(*events: AnomalyEvent) -> View:
    return View(version=1, looked_ms=NOW_MS, location="", events=events)


def event(start_ms: int, end_ms: int | None, **blame: float) -> AnomalyEvent:
    return AnomalyEvent(
        at_ms=start_ms, agent="a", event_id=str(start_ms), state="opened" if end_ms is None else "closed",
        start_ms=start_ms, end_ms=end_ms, peak_score=9.0, peak_ms=start_ms, blame=blame,
    )  # fmt: skip


def channel(data: device_queries.DeviceData, name: str) -> pd.DataFrame:
    return next(channel.points for channel in data.channels if channel.name == name)


SECONDS = [0, 1000, 2000, 3000, 4000]
TWO = {"x_mean": [1.0] * 5, "x_observed": [1.0] * 5, "y_mean": [2.0] * 5, "y_observed": [2.0] * 5}


def test_points_in_an_event_are_marked_on_the_channels_it_blames():
    data = device_queries.device_data(view(event(1000, 2000, x=0.97, y=0.03)), "a", window(SECONDS, **TWO), "UTC")
    assert channel(data, "x")["look"].tolist() == ["reading", "anomaly", "anomaly", "reading", "reading"]
    assert set(channel(data, "y")["look"]) == {"reading"}
    assert data.spans["start"].tolist() == [pd.Timestamp("1970-01-01 00:00:00.500")]
    assert data.spans["end"].tolist() == [pd.Timestamp("1970-01-01 00:00:02.500")]


def test_an_event_that_blames_nobody_marks_all_and_an_open_one_lasts_to_the_end():
    data = device_queries.device_data(view(event(3000, None)), "a", window(SECONDS, **TWO), "UTC")
    for name in ("x", "y"):
        assert channel(data, name)["look"].tolist() == ["reading"] * 3 + ["anomaly"] * 2


def test_events_of_others_and_outside_the_range_are_not_shown():
    data = device_queries.device_data(view(event(9000, None), event(-9000, -8000)), "a", window(SECONDS, **TWO), "UTC")
    assert data.spans.empty
    other = device_queries.device_data(view(event(1000, 2000)), "b", window(SECONDS, **TWO), "UTC")
    assert other.spans.empty


def test_a_line_breaks_at_a_long_gap():
    at_ms = [0, 1000, 2000, 60_000, 61_000]
    data = device_queries.device_data(view(), "a", window(at_ms, **TWO), "UTC")
    points = channel(data, "x")
    assert points["at"].tolist() == [pd.Timestamp(ms, unit="ms") for ms in (0, 1000, 2000, 31_000, 60_000, 61_000)]
    assert np.isnan(points["observed"][3])
    assert points["observed"].notna().sum() == 5
    assert len(data.score) == 6


def test_thinned_points_keep_the_most_extreme_frame():
    low = {"x.mean": np.array([1.0, 1.0]), "x.observed": np.array([0.5, 0.6]), "x.z": np.array([-7.0, -1.0])}
    high = {"x.mean": np.array([1.0, 1.0]), "x.observed": np.array([2.0, 1.2]), "x.z": np.array([2.0, 4.0])}
    mean = {"x.mean": np.array([1.0, 1.0]), "x.observed": np.array([1.0, 1.0]), "x.z": np.array([0.1, 0.2])}
    scores = ({"score": np.array([s, s])} for s in (1.0, 0.1, 20.0))
    mean, low, high = (side | score for side, score in zip((mean, low, high), scores, strict=True))
    data = device_queries.device_data(view(), "a", Window(np.array([0.0, 60_000.0]), mean, low, high, 60_000), "UTC")
    points = channel(data, "x")
    assert points["z"].tolist() == [-7.0, 4.0]
    assert points["observed_low"].tolist() == [0.5, 0.6]
    assert points["observed_high"].tolist() == [2.0, 1.2]
    assert data.score["score"].tolist() == [20.0, 20.0]


def test_times_are_those_of_a_clock_on_the_wall():
    summer_ms = int(pd.Timestamp("2026-07-01 12:00", tz="UTC").timestamp() * 1000)
    data = device_queries.device_data(view(), "a", window([summer_ms], x_mean=[1.0]), "Europe/Berlin")
    assert channel(data, "x")["at"].tolist() == [pd.Timestamp("2026-07-01 14:00")]


def test_a_missing_column_is_a_column_of_nothing():
    data = device_queries.device_data(view(), "a", window(SECONDS, x_mean=[1.0] * 5), "UTC")
    (found,) = data.channels
    assert found.readings == 0
    assert found.points["observed"].isna().all()
    assert data.score["score"].isna().all()


def test_an_empty_window_draws_nothing_and_raises_nothing():
    data = device_queries.device_data(view(event(0, None)), "a", window([], x_mean=[]), "UTC")
    assert len(data.channels[0].points) == 0


def test_a_range_ends_at_the_agents_newest_frame_and_holds_exactly_600_seconds(watch: Watch):
    store = MemoryStore(history(Plan(agents=1, frames=900, faulty="")))
    seen = watch(store)[0].look()
    request = device_queries.device_request(seen, "press-1", labels.RANGES_MS["10 min"])
    assert request is not None
    assert (request.start_ms, request.end_ms) == (NOW_MS - 599_999, NOW_MS)
    found = store.window("prediction", "press-1", request.columns, request.start_ms, request.end_ms, 600)
    assert (len(found.at_ms), found.step_ms) == (600, 0)
    assert device_queries.device_request(seen, "nobody", None) is None


def test_the_range_to_start_with_follows_the_interval():
    def shown(interval_ms: int) -> str:
        series = SeriesInfo("prediction", "a", (), 0, 100 * interval_ms, 101)
        return device_queries.default_range(View(version=1, looked_ms=0, location="", predictions={"a": series}), "a")

    assert [shown(ms) for ms in (1000, 60_000, 600_000, 3_600_000, 86_400_000)] == [
        "10 min", "6 hours", "1 day", "1 week", "All",
    ]  # fmt: skip


def test_events_in_words(watch: Watch):
    plan = Plan(agents=3, frames=220)
    seen = watch(MemoryStore(history(plan)))[0].look()
    frame = device_queries.events_frame(seen, "press-2", "UTC")
    first, last = fault_span(plan)
    assert frame[labels.EVENT_STATE].tolist() == ["going on", "over"]
    assert frame[labels.EVENT_DURATION].tolist() == ["2 s", f"{last - first} s"]
    assert frame[labels.EVENT_BLAME].tolist()[1] == "mainly vibration (72 %), also current (22 %), pressure (6 %)"
    assert frame[labels.EVENT_START][1] == pd.Timestamp(NOW_MS - (219 - first) * 1000, unit="ms")
    assert labels.EVENT_NOTE not in frame
    assert device_queries.events_frame(seen, "press-1", "UTC").empty
    assert device_queries.events_frame(seen, None, "UTC")[labels.AGENT].tolist() == ["press-2", "press-2"]
