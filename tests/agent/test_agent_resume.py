"""Stopping and resuming is the same as never stopping, bit for bit; and a batch is the same as its parts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from agent_streams import MIXED, START, TICK, TWO, Hub, ar_rows, config, feed, fresh, mixed_rows, readings, run, sample

from edge_agent import agent
from edge_agent.state import Event, ModelArrived, Readings, RoundOpened, State, Tick
from fleetgp.wire.freeze import freeze, thaw


@pytest.fixture(scope="module")
def model() -> bytes:
    """Knowledge of a small fleet on the schema MIXED."""
    hub = Hub(MIXED, ["left", "right"])
    rows = {name: mixed_rows(seed, 200) for seed, name in enumerate(("left", "right"))}
    for _ in range(3):
        hub.read(rows, 40)
        hub.round()
    assert hub.model
    return hub.model


def life(model: bytes) -> Iterator[Event]:
    """A stream with everything in it: missing cells, a gap, duplicates, late ones, rounds, models, an anomaly, silence."""
    rows = list(mixed_rows(5, 130))
    for tick, row in enumerate(rows):
        at_ms = START + tick * TICK
        if tick in (50, 51, 52):
            row = row + 30.0
        if 70 <= tick < 75:
            continue
        yield Readings(at_ms, (sample(tick, row),))
        if tick % 9 == 0:
            yield Readings(at_ms, (sample(tick, row), sample(max(0, tick - 4), row)))
        if tick % 10 == 0:
            yield RoundOpened(at_ms, tick // 10)
        if tick in (33, 34, 90):
            yield ModelArrived(at_ms, model)
        if tick in (60, 74):
            yield Tick(at_ms + 60_000)
        if tick == 80:
            yield ModelArrived(at_ms, model[:-9])


def test_frozen_and_thawed_after_every_event_nothing_changes(model: bytes) -> None:
    """By induction this is the law for a stop at any event: same state to the last bit, same effects."""
    never = stopping = fresh(MIXED, alarm_score=4.0, is_live=True)
    seen: set[str] = set()
    for event in life(model):
        never, expected = agent.step(never, event)
        resumed = thaw(freeze(stopping), State)
        stopping, effects = agent.step(resumed, thaw(freeze(event), Event))  # type: ignore[arg-type]
        assert effects == expected
        assert freeze(stopping) == freeze(never)
        seen |= {type(effect).__name__ + getattr(effect, "kind", "") for effect in effects}
    assert seen == {"Publishpredictions", "Publishevents", "Publishbootstrap", "Publishsummary", "Count"}
    assert never.basis == 1
    assert never.event is None


def test_a_step_does_not_touch_the_state_before_it(model: bytes) -> None:
    state = fresh(MIXED, is_live=True)
    for event in life(model):
        before, frozen = state, freeze(state)
        state, _ = agent.step(state, event)
        assert freeze(before) == frozen


def test_a_backlog_in_one_batch_is_the_same_as_its_readings_one_by_one() -> None:
    """To the last bit on a live stream; of recordings many frames are taken at once, equal to rounding (test_many)."""
    rows = list(ar_rows(1, 600))
    one_by_one, expected = feed(fresh(is_live=True), rows)
    at_once, effects = run(fresh(is_live=True), [Readings(START, tuple(sample(k, row) for k, row in enumerate(rows)))])
    assert effects == expected
    assert freeze(at_once) == freeze(one_by_one)
    assert at_once.frame_count == 600


def test_a_state_stays_small_however_long_it_lives() -> None:
    """Everything remembered is bounded: once the ring of 512 frames is full the state does not grow any more.

    Frames since the last solution come and go in turns of 256: compared are two whole turns.
    """
    state = fresh()
    sizes: list[int] = []
    rows = ar_rows(2, 1600)
    for tick, row in enumerate(rows):
        state, _ = run(state, [readings(tick, row)])
        if tick % 10 == 0:
            state, _ = run(state, [RoundOpened(START, tick)])
        if tick >= 800 and tick % 10 == 0:
            sizes.append(len(freeze(state)))
    assert max(sizes[-30:]) <= max(sizes[:30]) + 40  # counters grow by bytes as numbers get longer


def test_time_alone_changes_nothing_where_a_recordings_clock_decides() -> None:
    state, _ = feed(fresh(), ar_rows(3, 5))
    state, _ = run(state, [readings(5, [20.0])])  # the first channel alone: the frame stays open
    assert agent.step(state, Tick(START + 10**12)) == (state, [])


def test_time_alone_closes_a_live_frame() -> None:
    state, _ = feed(agent.init(config(TWO, is_live=True), START), ar_rows(3, 5))
    state, _ = run(state, [readings(5, [20.0])])
    at_ms = START + 5 * TICK
    same, effects = agent.step(state, Tick(at_ms + 2 * TICK - 1))
    assert same is state  # the body relies on this to tell that nothing happened
    assert effects == []
    _, effects = agent.step(state, Tick(at_ms + 2 * TICK))
    assert len(effects) == 1
