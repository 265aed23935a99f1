"""When rounds open and close: on their grid and at their deadline, whoever answers and whatever the clock does."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from synthetic_agents import (
    ANSWER_MS,
    CONFIG,
    ROUND_MS,
    START_MS,
    answered,
    close_round,
    federated,
    open_round,
    run,
    summary,
)

from coordinator import rounds
from coordinator.state import CoordinatorConfig, PublishRound, State, Tick
from fleetgp.wire.messages import RoundNotice

LAW = settings(max_examples=60, deadline=None, derandomize=True)
DAY_MS = 86_400_000


def ticks(state: State, times: Iterable[int]) -> tuple[State, list[RoundNotice]]:
    state, effects = run(state, [Tick(at_ms) for at_ms in times])
    return state, [e.notice for e in effects if isinstance(e, PublishRound)]


def begun() -> State:
    return rounds.init(CONFIG, START_MS)


def opened(notices: list[RoundNotice]) -> list[int]:
    return [n.at_ms for n in notices if n.state == "opened"]


def test_first_round_opens_at_once_and_the_next_on_the_grid() -> None:
    state, notices = ticks(begun(), range(START_MS, START_MS + 3 * ROUND_MS + 1, 100))
    assert opened(notices) == [START_MS + k * ROUND_MS for k in range(4)]
    assert [n.at_ms for n in notices if n.state == "closed"] == [START_MS + k * ROUND_MS + ANSWER_MS for k in range(3)]
    assert [n.round for n in notices] == [1, 1, 2, 2, 3, 3, 4]
    assert state.round == 4


@LAW
@given(st.lists(st.integers(1, 3 * ROUND_MS), min_size=1, max_size=40), st.floats(0.0, 90.0))
def test_rounds_follow_each_other_whenever_the_clock_is_looked_at(steps: list[int], answer_s: float) -> None:
    """One at a time, numbered without a gap, at most one for each step of the grid, closed when first looked at after
    the deadline and not before."""
    config = CoordinatorConfig(round_s=ROUND_MS / 1000, answer_s=answer_s)
    state, at_ms = rounds.init(config, START_MS), START_MS
    cells = set()
    for step in steps:
        at_ms += step
        before = state
        state, notices = ticks(state, [at_ms])
        for notice in notices:
            assert notice.at_ms == at_ms
            assert notice.round == (before.round if notice.state == "closed" else state.round)
        closed = [n for n in notices if n.state == "closed"]
        assert bool(closed) == (before.open_round is not None and at_ms >= before.open_round.deadline_ms)
        if opened(notices):
            assert before.open_round is None or closed
            assert state.round == before.round + 1
            cell = (at_ms - START_MS) // ROUND_MS
            assert cell not in cells
            cells.add(cell)
            # the next one is due at the very next point of the grid
            assert state.next_ms == START_MS + (cell + 1) * ROUND_MS
        assert state.open_round is not None or at_ms < state.next_ms


@pytest.mark.parametrize("is_open", [True, False], ids=["in a round", "between rounds"])
def test_rounds_slept_through_are_not_made_up_for(is_open: bool) -> None:
    """A machine suspended for a day closes what was open, opens one round, and is back on its grid."""
    state, _ = ticks(begun(), [START_MS] if is_open else [START_MS, START_MS + ANSWER_MS])
    wake_ms = START_MS + DAY_MS + 7_000
    state, notices = ticks(state, range(wake_ms, wake_ms + 100_000, 100))
    assert [n.round for n in notices] == ([1, 2, 2, 3, 3] if is_open else [2, 2, 3, 3])
    assert opened(notices) == [wake_ms, START_MS + DAY_MS + ROUND_MS]


@LAW
@given(
    back_ms=st.integers(1, 100 * 365 * DAY_MS),
    after_ms=st.integers(0, 2 * ROUND_MS),
    answer_s=st.sampled_from([0.5, 5.0, 60.0, 600.0]),
)
@example(back_ms=74 * 365 * DAY_MS, after_ms=0, answer_s=5.0)
def test_rounds_go_on_when_the_clock_was_put_back(back_ms: int, after_ms: int, answer_s: float) -> None:
    """However far, and wherever between two rounds: from then on a round opens and closes within two spans, and no
    round takes negative time. (A board without a battery clock that started in 2100 must not wait for 2100.)"""
    state = rounds.init(CoordinatorConfig(round_s=ROUND_MS / 1000, answer_s=answer_s), START_MS)
    state, _ = ticks(state, range(START_MS, START_MS + after_ms + 1, 500))
    again_ms = START_MS + after_ms - back_ms
    _, notices = ticks(state, range(again_ms, again_ms + 4 * ROUND_MS + 1, 500))
    assert len(opened(notices)) >= 3
    assert len(opened(notices)) <= 6
    assert all(n.seconds >= 0 for n in notices)
    whole = [n.round for n in notices if n.state == "closed"]
    assert len(whole) >= 3
    assert whole == list(range(whole[0], whole[0] + len(whole)))


def test_time_that_stands_still_changes_nothing() -> None:
    state, _ = ticks(begun(), [START_MS])
    for at_ms in (START_MS, START_MS, START_MS + ANSWER_MS - 1, START_MS + 1):
        again, effects = rounds.step(state, Tick(at_ms))
        assert again is state
        assert effects == []


@pytest.mark.parametrize("answering", [0, 1, 5])
def test_round_closes_at_its_deadline_with_whoever_answered(answering: int) -> None:
    """None, one or all of those known: never earlier, never later, and those that did not answer are named."""
    state = federated()
    names = [f"agent-{k}" for k in range(5)]
    state = open_round(state)
    state, _ = run(state, [answered(summary(name, state, seed=k)) for k, name in enumerate(names)])
    state = open_round(close_round(state)[0])
    current = state.open_round
    assert current is not None
    state, effects = run(state, [answered(summary(name, state, sequence=2)) for name in names[:answering]])
    assert effects == []
    early, effects = rounds.step(state, Tick(current.deadline_ms - 1))
    assert early is state
    assert effects == []
    _, notices = ticks(state, [current.deadline_ms])
    assert [n.state for n in notices] == ["closed"]
    (notice,) = notices
    assert notice.answered == tuple(names[:answering])
    assert notice.missing == tuple(sorted(["first", *names[answering:]]))
    assert notice.included == tuple(names)
    assert notice.seconds == ANSWER_MS / 1000


def test_coordinator_that_hears_nobody_keeps_its_rounds() -> None:
    _, notices = ticks(begun(), range(START_MS, START_MS + 10 * ROUND_MS, 1000))
    closed = [n for n in notices if n.state == "closed"]
    assert len(closed) == 10
    assert {n.note for n in closed} == {"no agent has answered yet"}
    assert {n.bytes_sent for n in closed} == {0}
