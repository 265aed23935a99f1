"""The shadow of an agent's learner: it alone learns an anomaly, and takes the learner's place where that is the new normal."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np
import pytest
from agent_streams import MIXED, NAMES, START, Hub, ar_rows, feed, fresh, hub_of, mixed_rows, predictions

from edge_agent import agent
from edge_agent.state import Effect, ModelArrived, State
from edge_agent.watch import GATED_FRAMES, LOCAL_FRAMES
from fleetgp.arrays import Array
from fleetgp.gp.learner import Learner
from fleetgp.wire.freeze import freeze, thaw

QUIET = 300


def turned(seed: int, count: int) -> list[Array]:
    """A device whose level, noise and dynamics are others: it swings to the other side of its level at every tick."""
    rng = np.random.default_rng(seed)
    deviation = np.zeros(2)
    rows = []
    for _ in range(count):
        deviation = -0.9 * deviation + 2.0 * rng.standard_normal(2)
        rows.append(np.array([60.0, -20.0]) + deviation)
    return rows


@pytest.fixture(scope="module")
def calm() -> State:
    state, _ = feed(fresh(is_live=True), ar_rows(1, QUIET))
    assert state.event is None
    return state


@pytest.fixture(scope="module")
def amid(calm: State) -> State:
    """Forty frames into an event that lasts."""
    state, _ = feed(calm, turned(2, 40), QUIET)
    assert state.event is not None
    assert state.event.frames == 40
    return state


def steps(state: State, rows: list[Array], first_tick: int) -> Iterator[tuple[State, list[Effect]]]:
    for k, row in enumerate(rows):
        state, effects = feed(state, [row], first_tick + k)
        yield state, effects


def learner_of(state: State) -> Learner:
    assert state.learner is not None
    return state.learner


def hopeless(state: State) -> State:
    """The same agent, whose shadow has foreseen so badly that it will not take over."""
    assert state.shadow is not None
    return msgspec.structs.replace(state, shadow=msgspec.structs.replace(state.shadow, lead=-1e9))


def log_density(effects: list[Effect]) -> float:
    """Mean log density of what came, by the law told before."""
    return float(np.mean([prediction.log_density for prediction in predictions(effects)]))


def test_while_an_event_is_open_the_learner_stays_as_it_was_bit_for_bit(calm: State) -> None:
    """The learner of before the first odd frame is that of the last odd one; what closes the event is learnt, and the shadow gone."""
    rows = [*turned(3, 30), *ar_rows(4, 40)]
    before = freeze(learner_of(calm))
    is_over = False
    for state, _ in steps(calm, rows, QUIET):
        if state.event is not None:
            assert not is_over
            assert freeze(state.learner) == before
            assert state.shadow is not None
            assert state.shadow.learner.frames == learner_of(calm).frames + state.event.frames
        elif not is_over:
            is_over = True
            assert learner_of(state).frames == learner_of(calm).frames + 1
        if is_over:
            assert state.shadow is None
    assert is_over


def test_what_closes_an_event_is_learnt_as_if_the_event_had_been_silence(calm: State) -> None:
    """The learner after it is that of an agent which was told nothing of these frames but where the device stood last."""
    ended = calm
    for state, _ in steps(calm, [*turned(3, 30), *ar_rows(4, 40)], QUIET):
        if state.event is None:
            break
        ended = state
    assert freeze(ended.learner) == freeze(calm.learner)
    assert np.array_equal(ended.moments.n, calm.moments.n)
    assert np.array_equal(ended.moments.mean, calm.moments.mean)


def test_a_new_normal_is_foreseen_better_by_the_shadow_than_by_a_model_that_waited(calm: State) -> None:
    """Same frames, same event, but one agent begins to learn only when the event has lasted."""
    rows = turned(5, GATED_FRAMES + 40)
    state, _ = feed(calm, rows[: GATED_FRAMES - 1], QUIET)
    assert state.event is not None
    assert state.event.frames == GATED_FRAMES - 1
    assert state.shadow is not None
    assert state.shadow.lead > 0
    patient = hopeless(state)
    state, _ = feed(state, rows[GATED_FRAMES - 1 : GATED_FRAMES], QUIET + GATED_FRAMES - 1)
    patient, _ = feed(patient, rows[GATED_FRAMES - 1 : GATED_FRAMES], QUIET + GATED_FRAMES - 1)
    assert learner_of(state).frames == learner_of(calm).frames + GATED_FRAMES
    assert learner_of(patient).frames == learner_of(calm).frames
    for one in (state, patient):
        assert one.shadow is None
        assert one.event is not None
        assert one.event.is_learnt
    _, taught = feed(state, rows[GATED_FRAMES:], QUIET + GATED_FRAMES)
    _, waited = feed(patient, rows[GATED_FRAMES:], QUIET + GATED_FRAMES)
    assert log_density(taught) > log_density(waited) + 1.0


def test_a_shadow_that_foresees_worse_is_dropped(calm: State) -> None:
    """Where the learner foresaw as well as its shadow the event lasts all the same, and from then on it is learnt."""
    rows = turned(6, GATED_FRAMES + 5)
    state, _ = feed(calm, rows[: GATED_FRAMES - 1], QUIET)
    state, _ = feed(hopeless(state), rows[GATED_FRAMES - 1 :], QUIET + GATED_FRAMES - 1)
    assert state.shadow is None
    assert learner_of(state).frames == learner_of(calm).frames + 5


def test_the_lead_is_the_sum_of_log_densities_of_two_agents(calm: State) -> None:
    """One that learns every frame, one that learns none: how much better the first foresees is what the second counts."""
    rows = turned(7, 20)
    gated, told = feed(calm, rows, QUIET)
    # an event that is said to have lasted is learnt from its first frame on
    opened, first = feed(calm, rows[:1], QUIET)
    assert opened.event is not None
    assert opened.shadow is not None
    eager = msgspec.structs.replace(
        opened,
        learner=opened.shadow.learner,
        moments=opened.shadow.moments,
        shadow=None,
        event=msgspec.structs.replace(opened.event, is_learnt=True),
    )
    eager, learnt = feed(eager, rows[1:], QUIET + 1)
    better = sum(p.log_density for p in predictions(first + learnt)) - sum(p.log_density for p in predictions(told))
    assert gated.shadow is not None
    assert gated.shadow.lead > 0
    assert gated.shadow.lead == pytest.approx(better, rel=1e-9)
    assert freeze(gated.shadow.learner) == freeze(eager.learner)


@pytest.fixture(scope="module")
def fleet() -> Hub:
    return hub_of(3)


def test_a_model_that_comes_in_the_middle_of_an_event_reaches_the_shadow_too(amid: State, fleet: Hub) -> None:
    """Learner and shadow are what each would be had it taken the model alone; the event and its evidence go on."""
    message = ModelArrived(START + 10**6, fleet.model)
    after, effects = agent.step(amid, message)
    assert effects == []
    assert after.basis > amid.basis == 0
    alone, _ = agent.step(msgspec.structs.replace(amid, shadow=None, event=None), message)
    assert freeze(after.learner) == freeze(alone.learner)
    assert amid.shadow is not None
    assert after.shadow is not None
    moved, _ = agent.step(msgspec.structs.replace(amid, learner=amid.shadow.learner, shadow=None, event=None), message)
    assert freeze(after.shadow.learner) == freeze(moved.learner)
    assert (after.event, after.shadow.lead) == (amid.event, amid.shadow.lead)
    # life goes on: the event lasts, and the shadow, which has learnt all of it, takes over
    rows = turned(2, 200)[40:]
    later, told = feed(after, rows, QUIET + 40)
    assert learner_of(later).frames >= learner_of(amid).frames + GATED_FRAMES
    made = predictions(told)[-60:]
    assert all(np.isfinite(p.log_density) for p in made)
    assert np.mean([p.is_alarmed for p in made]) < 0.1


def test_a_second_model_on_the_same_basis_informs_learner_and_shadow(amid: State, fleet: Hub) -> None:
    hub = fleet.twin()
    first, _ = agent.step(amid, ModelArrived(START, hub.model))
    rows = {name: ar_rows(50 + k, 60, level=(20.0 + k, 5.0 - k)) for k, name in enumerate(NAMES)}
    hub.read(rows, 60)
    model = hub.round()
    assert model is not None
    second, _ = agent.step(first, ModelArrived(START, hub.model))
    assert second.round > first.round
    assert second.shadow is not None
    inner = second.shadow.learner
    assert np.array_equal(inner.knowledge.belief.shift, learner_of(second).knowledge.belief.shift)
    assert inner.frames == learner_of(second).frames + 40
    assert first.shadow is not None
    assert second.shadow.lead == first.shadow.lead


def test_stopped_and_resumed_in_every_frame_of_a_long_event_nothing_changes(calm: State) -> None:
    """Across the frame at which the shadow takes over, to the last bit."""
    never = stopping = calm
    saw_shadow = saw_swap = False
    for k, row in enumerate([*turned(8, GATED_FRAMES + 20), *ar_rows(9, 5, level=(60.0, -20.0))]):
        never, expected = feed(never, [row], QUIET + k)
        stopping, effects = feed(thaw(freeze(stopping), State), [row], QUIET + k)
        assert effects == expected
        assert freeze(stopping) == freeze(never)
        saw_shadow |= never.shadow is not None
        saw_swap |= never.event is not None and never.event.is_learnt
    assert saw_shadow
    assert saw_swap


def test_the_local_layer_is_placed_though_a_shadow_leapt_over_its_frame() -> None:
    """The learner stands still before frame 256, its shadow goes beyond: the layer comes with the next frame that is learnt."""
    before = LOCAL_FRAMES - 20
    state, _ = feed(fresh(is_live=True), ar_rows(1, before))
    assert learner_of(state).basis.local is None
    assert state.event is None
    placed_at = 0
    for k, (after, _) in enumerate(steps(state, turned(2, GATED_FRAMES + 5), before)):
        state = after
        if learner_of(state).basis.local is not None:
            placed_at = placed_at or k + 1
    assert learner_of(state).frames > LOCAL_FRAMES
    assert placed_at == GATED_FRAMES + 1


def test_holes_in_an_event_teach_nobody() -> None:
    """A frame with nothing in it, and channels that are silent for a while, in the middle of an event."""
    state, _ = feed(fresh(MIXED, is_live=True), list(mixed_rows(3, 200)))
    assert state.event is None
    quiet = freeze(state.learner)
    rows = list(mixed_rows(4, 30))
    for k, row in enumerate(rows):
        row[0] = 20.0 + (60.0 if k % 2 else -60.0)
    rows[10] = np.full(4, np.nan)
    rows[15][1] = np.nan
    frames = []
    for after, effects in steps(state, rows, 200):
        state = after
        assert freeze(state.learner) == quiet
        assert state.shadow is not None
        frames.append(state.shadow.learner.frames)
        for prediction in predictions(effects):
            assert all(np.isfinite([c.mean, c.low, c.high]).all() for c in prediction.channels.values())
    assert np.array_equal(np.diff(frames), [0 if k == 10 else 1 for k in range(1, 30)])


def test_a_channel_that_speaks_for_the_first_time_in_an_event_is_met_once_the_event_is_over() -> None:
    """While channel a is odd, b says its first words: nothing of them is learnt twice, and b is as well known as ever after."""
    rows = list(ar_rows(8, 200))
    for row in rows[:100]:
        row[1] = np.nan
    for k, row in enumerate(rows[90:110]):
        row[0] = 60.0 if k % 2 else -20.0
    state, _ = feed(fresh(is_live=True, warmup_frames=20), rows[:100])
    assert state.event is not None
    before = freeze(state.learner)
    frames = learner_of(state).frames
    over = 0
    for after, _ in steps(state, rows[100:], 100):
        state = after
        if state.event is not None:
            assert freeze(state.learner) == before
        elif not over:
            over = 1
            # the closing frame, and once the place that b is met at
            assert learner_of(state).frames == frames + 2
    assert over
    _, effects = feed(state, ar_rows(9, 40), 200)
    assert np.mean([abs(p.channels["b"].mean - 5.0) for p in predictions(effects)]) < 1.0  # conditional means: sd 0.6
