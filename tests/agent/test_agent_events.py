"""Anomalies from the first odd frame to the last: told in order, not learnt, and in the end taken for the new normal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from agent_streams import MIXED, START, TICK, ar_rows, events, feed, fresh, learnt, mixed_rows, predictions
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_agent.state import State
from edge_agent.watch import GATED_FRAMES, UPDATE_EVERY
from fleetgp.arrays import Array
from fleetgp.wire.messages import AnomalyEvent

MODEST = settings(max_examples=12, deadline=None, derandomize=True)


@pytest.fixture(scope="module")
def calm() -> State:
    """An agent after 200 ordinary frames, with no event open."""
    state, effects = feed(fresh(), ar_rows(1, 200))
    assert events(effects) == []
    return state


def weight(state: State) -> float:
    """Frames behind what was learnt, faded."""
    return float(learnt(state).sum())


def wild(seed: int, count: int, sd: float = 30.0) -> list[Array]:
    """Frames of a device whose noise has grown thirtyfold."""
    return list(ar_rows(seed, count, sd=sd))


def at(tick: int) -> int:
    return START + tick * TICK


def test_a_spike_is_one_event_with_its_channel_blamed(calm: State) -> None:
    rows = [[20.0, 5.0], [20.0, 30.0], *ar_rows(9, 30)]
    state, effects = feed(calm, rows, 200)
    told = events(effects)
    assert [event.state for event in told] == ["opened", "closed"]
    first, last = told
    assert first.event_id == last.event_id == f"pump-{at(201)}"
    assert first.at_ms == first.start_ms == last.start_ms == first.peak_ms == at(201)
    assert (first.end_ms, first.frames) == (None, 1)
    assert last.end_ms == last.at_ms == at(200 + last.frames)
    assert max(first.blame, key=first.blame.__getitem__) == "b"
    assert first.blame["b"] > 0.9
    assert last.peak_score >= first.peak_score > 8.0
    assert state.event is None
    shown = {p.at_ms: p for p in predictions(effects)}
    assert [shown[at(k)].is_alarmed for k in (200, 201, 202)] == [False, True, True]
    assert not shown[last.at_ms].is_alarmed
    assert shown[at(201)].score > shown[at(201)].threshold


def test_alarmed_frames_teach_nothing(calm: State) -> None:
    """Neither weights nor scale nor noise see them; calibration of the band does, for it must hold on all frames."""
    before, moments = weight(calm), calm.moments
    state = calm
    for tick, row in enumerate(wild(2, GATED_FRAMES - 5), 200):
        state, _ = feed(state, [row], tick)
        if tick > 201 and state.event is not None:
            assert weight(state) <= before
            assert np.array_equal(state.moments.n, moments.n)
        else:
            before, moments = weight(state), state.moments
    assert state.event is not None
    assert np.all(state.calibration.seen == calm.calibration.seen + GATED_FRAMES - 5)


def test_what_lasts_is_learnt_in_the_end_and_the_event_says_so(calm: State) -> None:
    """A device whose noise has grown for good: alarmed, then learnt, then the event closes and ordinary life goes on."""
    state, effects = feed(calm, wild(3, 1500), 200)
    first = events(effects)[0].event_id
    told = [event for event in events(effects) if event.event_id == first]
    assert told[0].state == "opened"
    notes = [event for event in told if event.note]
    assert notes[0].state == "updated"
    assert notes[0].frames == GATED_FRAMES + 1
    assert "new normal" in notes[0].note
    assert all(event.frames <= GATED_FRAMES for event in told if not event.note)
    assert told[-1].state == "closed"
    assert weight(state) > weight(calm) + 2 * 1000
    # it now knows: the last frames lie in its band as often as it says
    inside = [
        channel.low <= channel.observed <= channel.high
        for prediction in predictions(effects)[-300:]
        for channel in prediction.channels.values()
        if channel.observed is not None
    ]
    assert np.mean(inside) == pytest.approx(0.9, abs=0.05)  # three standard errors of 600 and what is left to learn
    alarmed = [prediction.is_alarmed for prediction in predictions(effects)[-300:]]
    assert np.mean(alarmed) < 0.1


@pytest.mark.parametrize("level", [60.0, 200.0, -1000.0])
def test_another_level_for_good_is_told_at_once_and_learnt_when_it_lasts(calm: State, level: float) -> None:
    """What pulled back to 20 pulls back to the new level soon after the event was taken for the new normal."""
    state, effects = feed(calm, ar_rows(4, 200, level=(level, 5.0)), 200)
    told = events(effects)
    assert (told[0].state, told[0].at_ms) == ("opened", at(200))
    assert told[-1].state == "closed"
    assert max(event.frames for event in told) < GATED_FRAMES + 30
    assert state.event is None
    later = predictions(effects)[-80:]
    assert all(abs(p.channels["a"].mean - level) < 4.0 for p in later)  # conditional means have an sd of 0.6


def test_a_frame_of_the_warm_up_is_never_an_event() -> None:
    rows = list(ar_rows(5, 20))
    rows[15] = np.array([500.0, 5.0])
    _, effects = feed(fresh(warmup_frames=20), rows)
    assert events(effects) == []


def test_a_channel_that_speaks_for_the_first_time_is_no_event() -> None:
    """Long after the others, from far away: there is nothing yet that it could be odd against."""
    rows = list(ar_rows(8, 150))
    for row in rows[:100]:
        row[1] = math.nan
    for row in rows[100:]:
        row[1] += 5000.0
    state, effects = feed(fresh(), rows)
    assert events(effects) == []
    assert learnt(state)[1] > 40


def test_an_event_stays_open_while_nothing_comes_and_closes_when_all_is_calm(calm: State) -> None:
    nothing = [np.full(2, math.nan)] * 50
    state, effects = feed(calm, [[200.0, 5.0], *nothing], 200)
    assert [event.state for event in events(effects)] == ["opened"]
    assert state.event is not None
    assert state.event.frames == 1
    state, effects = feed(state, ar_rows(6, 30), 251)
    assert events(effects)[-1].state == "closed"
    assert state.event is None


def check_order(told: Sequence[AnomalyEvent]) -> None:
    """Laws of what is told of events: one open at a time, opened first, closed last, numbers that only grow."""
    known: dict[str, list[AnomalyEvent]] = {}
    open_id = None
    for event in told:
        assert open_id in (None, event.event_id)
        known.setdefault(event.event_id, []).append(event)
        open_id = None if event.state == "closed" else event.event_id
    for reports in known.values():
        states = [event.state for event in reports]
        assert states[0] == "opened"
        assert set(states[1:-1]) <= {"updated"}
        assert states.count("opened") == 1
        assert "closed" not in states[:-1]
        for before, after in pairwise(reports):
            assert after.frames > before.frames
            assert after.at_ms > before.at_ms
            assert after.peak_score >= before.peak_score
        for event in reports:
            assert event.start_ms == reports[0].at_ms
            assert event.start_ms <= event.peak_ms <= event.at_ms
            assert (event.end_ms is None) == (event.state != "closed")
            assert sum(event.blame.values()) == pytest.approx(1.0)
            assert bool(event.note) == (event.frames > GATED_FRAMES)


@MODEST
@given(
    st.integers(0, 10),
    st.lists(st.tuples(st.integers(0, 180), st.integers(1, 90), st.floats(3.0, 1e6)), min_size=1, max_size=5),
)
def test_events_are_told_in_order_whatever_happens(seed: int, bursts: list[tuple[int, int, float]]) -> None:
    rows = list(mixed_rows(seed, 300))
    rng = np.random.default_rng(seed)
    for start, length, size in bursts:
        for tick in range(100 + start, min(300, 100 + start + length)):
            rows[tick] = rows[tick] + np.array([size * rng.standard_normal(), 0.0, 0.0, 0.0])
    state, effects = feed(fresh(MIXED, alarm_score=4.0), rows)
    told = events(effects)
    check_order(told)
    is_open = bool(told) and told[-1].state != "closed"
    assert (state.event is not None) == is_open
    alarmed = [p.at_ms for p in predictions(effects) if p.is_alarmed]
    assert len(alarmed) >= sum(event.state == "opened" for event in told)


def test_a_long_event_is_updated_now_and_then_not_every_frame(calm: State) -> None:
    _, effects = feed(calm, wild(7, 100), 200)
    first = [event for event in events(effects) if event.event_id == events(effects)[0].event_id]
    assert len(first) <= 2 + 100 // UPDATE_EVERY + 1
    assert {event.frames for event in first if event.state == "updated"} <= {
        *range(UPDATE_EVERY, 101, UPDATE_EVERY),
        GATED_FRAMES + 1,
    }


def test_quiet_streams_raise_few_alarms() -> None:
    """At score 8, once in 100 million by chance: ordinary devices of 2 x 1000 frames should not alarm at all."""
    told = []
    for seed in range(2):
        _, effects = feed(fresh(), ar_rows(100 + seed, 1000))
        told += events(effects)
    assert told == []


@pytest.mark.parametrize("glitch", [65535.0, -40000.0, 1e9])
@pytest.mark.parametrize("when", [3, 7, 15])
def test_a_glitch_of_the_first_minutes_does_not_blind_the_alarm(glitch: float, when: int) -> None:
    """A raw register value while the sensor wakes up; 700 frames later a spike of 15 standard deviations is an event."""
    rows = [row.copy() for row in ar_rows(3, 700)]
    rows[when][0] = glitch
    state, _ = feed(fresh(), rows)
    _, effects = feed(state, [[20.0 + 15 * math.sqrt(4 / 3), 5.0], *ar_rows(4, 20)], 700)
    assert [event.state for event in events(effects)][:1] == ["opened"]


@pytest.mark.parametrize("resolution", [0.1, 0.5])
def test_a_slow_stream_in_coarse_steps_is_no_series_of_anomalies(resolution: float) -> None:
    """A cellar's thermometer: 0.4 degrees up and down a day's worth of frames, read in steps of its sensor.

    The first step that a channel ever makes may be an event, for until then nobody knows its sensor's steps; later ones are none.
    """
    rng = np.random.default_rng(5)
    turn = 2 * np.pi * np.arange(4000) / 1440
    smooth = 12.0 + 0.4 * np.sin(turn) + 0.01 * rng.standard_normal(len(turn))
    damp = 70.0 + 3.0 * np.cos(turn) + 0.1 * rng.standard_normal(len(turn))
    rows = np.stack([np.round(smooth / resolution) * resolution, np.round(damp)], axis=1)
    _, effects = feed(fresh(), list(rows))
    first_steps = np.argmax(np.diff(rows, axis=0) != 0, axis=0) + 1
    opened = {event.start_ms for event in events(effects)}
    assert opened <= {at(int(step)) for step in first_steps}


def test_one_channel_that_jumps_does_not_drag_the_others_with_it() -> None:
    """A heat pump that switches off, 200 spreads down: its room is expected where it is, in the band that it had."""
    rows = [row.copy() for row in ar_rows(6, 160, level=(1450.0, 21.0), sd=0.5)]
    for row in rows[100:]:
        row[0] -= 200.0
    _, effects = feed(fresh(), rows)
    laws = [prediction.channels["b"] for prediction in predictions(effects)]
    usual = np.mean([law.high - law.low for law in laws[50:99]])
    assert all(law.high - law.low < 3 * usual for law in laws[100:105])
    assert all(abs(law.mean - 21.0) < 3.0 for law in laws[100:105])


@pytest.mark.parametrize("pause", [30, 300, 3000])
@pytest.mark.parametrize("seed", range(3))
def test_a_walk_that_went_on_through_a_pause_is_no_anomaly(pause: int, seed: int) -> None:
    """A plant that stops overnight: its slow quantities are elsewhere in the morning, and that is ordinary."""
    rng = np.random.default_rng(seed)
    walk = 20.0 + np.cumsum(rng.standard_normal((4000 + pause, 2)) * (0.02, 0.05), axis=0)
    rows = [row.copy() for row in walk]
    for row in rows[2000 : 2000 + pause]:
        row[:] = math.nan
    _, effects = feed(fresh(), rows)
    opened = [event for event in events(effects) if event.state == "opened"]
    assert not [event for event in opened if at(2000) <= event.start_ms <= at(2000 + pause + 5)]
