"""What an agent keeps of its past: a long and a short memory, and a layer of its own that is placed where its readings lie."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from agent_streams import START, TWO, ar_rows, feed, fresh, learnt, predictions, readings, run, sample

from edge_agent.state import Effect, Readings, State
from edge_agent.watch import LOCAL_FRAMES
from fleetgp.arrays import Array
from fleetgp.gp import learner as learning
from fleetgp.gp.learner import Forgetting, Learner
from fleetgp.schema import Channel, Schema
from fleetgp.wire.freeze import freeze, thaw

ONE = Schema(channels=(Channel(name="a"),))


def learner_of(state: State) -> Learner:
    assert state.learner is not None
    return state.learner


def at_once(state: State, rows: Sequence[Array]) -> tuple[State, list[Effect]]:
    return run(state, [Readings(START, tuple(sample(k, row) for k, row in enumerate(rows)))])


def rmse(effects: Sequence[Effect], first: int) -> float:
    errors = [
        channel.observed - channel.mean
        for p in predictions(effects)[first:]
        for channel in p.channels.values()
        if channel.observed is not None
    ]
    return float(np.sqrt(np.mean(np.square(errors))))


def log_density(effects: Sequence[Effect], first: int) -> float:
    return float(np.mean([p.log_density for p in predictions(effects)[first:] if p.log_density is not None]))


def test_each_memory_holds_the_geometric_sum_of_its_half_life() -> None:
    """After n frames: (1 - 2^(-n/h)) / (1 - 2^(-1/h)), but that a solution fades the frames of its turn by their number alike."""
    rule, count = Forgetting(2000.0, 200.0, 32), 3000
    state, _ = at_once(fresh(forgetting=rule, alarm_score=300.0), list(ar_rows(1, count + 1)))
    found = learning.total(learner_of(state)).n
    for memory, half_life in ((found[0], rule.half_life), (found[1], rule.short_half_life)):
        expected = (1 - 0.5 ** (count / half_life)) / (1 - 0.5 ** (1 / half_life))
        # frames of a turn of 32 fade between 0 and 32 frames late or early
        np.testing.assert_allclose(memory, expected, rtol=32 * math.log(2) / half_life)
    assert np.array_equal(found[0], learnt(state))


def changing(seed: int, count: int) -> list[Array]:
    """A device that pulls back by a half at first, and from the middle on swings to the other side; its noise is 1 all along."""
    rng = np.random.default_rng(seed)
    value, rows = 0.0, []
    for k in range(count):
        value = (0.5 if k < count // 2 else -0.6) * value + float(rng.standard_normal())
        rows.append(np.array([20.0 + value]))
    return rows


@pytest.mark.parametrize("seed", [1, 2])
def test_where_dynamics_change_the_short_memory_takes_the_lead(seed: int) -> None:
    """Better than the long memory alone after the change, and hardly worse before it."""
    rows = changing(seed, 4000)
    both, told = at_once(fresh(ONE, alarm_score=300.0, forgetting=Forgetting(20_000.0, 300.0, 64)), rows)
    _, slow = at_once(fresh(ONE, alarm_score=300.0, forgetting=Forgetting(20_000.0, 20_000.0, 64)), rows)
    tracks = learner_of(both).tail.tracks
    assert tracks[1, 0] > tracks[0, 0]
    after, before = 2600, slice(500, 1999)
    assert rmse(told, after) < 1.08  # the best is 1, two standard errors of 1400 frames are 0.04
    assert rmse(told, after) < rmse(slow, after) - 0.02
    assert log_density(told, after) > log_density(slow, after)
    assert rmse(told[before], 0) < 1.02 * rmse(slow[before], 0)


def test_two_memories_of_one_half_life_are_one() -> None:
    state, _ = at_once(fresh(forgetting=Forgetting(500.0, 500.0, 64)), list(ar_rows(3, 700)))
    learner = learner_of(state)
    for part in (*learner.past, *learner.weights, learner.noise_var):
        np.testing.assert_allclose(part[0], part[1], rtol=1e-9, atol=1e-12)


def curved(seed: int, count: int) -> list[Array]:
    """A channel that follows a curve of itself, which no line through its lags can."""
    rng = np.random.default_rng(seed)
    value, rows = 0.1, []
    for _ in range(count):
        value = 1.6 * math.sin(1.8 * value) + 0.2 * float(rng.standard_normal())
        rows.append(np.array([50.0 + 3.0 * value]))
    return rows


def test_the_local_layer_comes_with_frame_256_and_lies_where_readings_do() -> None:
    rows = list(ar_rows(4, LOCAL_FRAMES + 3))
    state, _ = feed(fresh(is_live=True), rows[:LOCAL_FRAMES])  # the first frame is met, not learnt
    assert learner_of(state).frames == LOCAL_FRAMES - 1
    assert learner_of(state).basis.local is None
    state, _ = feed(state, rows[LOCAL_FRAMES : LOCAL_FRAMES + 1], LOCAL_FRAMES)
    local = learner_of(state).basis.local
    assert local is not None
    assert local.Z.shape == (12, 2)
    seen = np.array(rows[:-3])
    assert np.all((seen.min(axis=0) <= local.Z) & (seen.max(axis=0) >= local.Z))
    # a few steps of k-means from a normal draw: places spread about as readings do
    assert np.all(local.Z.std(axis=0) > 0.5 * seen.std(axis=0))


@pytest.mark.parametrize("stop", [LOCAL_FRAMES - 1, LOCAL_FRAMES, LOCAL_FRAMES + 1, LOCAL_FRAMES + 2])
def test_a_restart_about_the_frame_of_the_local_layer_changes_nothing(stop: int) -> None:
    rows = list(ar_rows(5, LOCAL_FRAMES + 40))
    never, expected = feed(fresh(is_live=True), rows)
    state, first = feed(fresh(is_live=True), rows[:stop])
    state, rest = feed(thaw(freeze(state), State), rows[stop:], stop)
    assert first + rest == expected
    assert freeze(state) == freeze(never)
    assert learner_of(state).basis.local is not None


def test_the_local_layer_sees_a_curve_that_no_line_follows() -> None:
    """An agent with it foresees much better than one without; both start as the same line."""
    rows = curved(6, 2500)
    _, with_layer = at_once(fresh(ONE, alarm_score=300.0), rows)
    state, without = at_once(fresh(ONE, alarm_score=300.0, local_inducing=0), rows)
    assert learner_of(state).basis.local is None
    assert rmse(with_layer[: LOCAL_FRAMES - 2], 0) == pytest.approx(rmse(without[: LOCAL_FRAMES - 2], 0), rel=1e-6)
    assert rmse(with_layer, 1000) < 0.75 * rmse(without, 1000)
    assert rmse(with_layer, 1000) > 0.6 * 0.95  # noise of 0.2 in a unit of 3: nobody foresees more


def test_frames_with_nothing_in_them_do_not_bring_the_local_layer_nearer() -> None:
    state, _ = feed(fresh(TWO, is_live=True), ar_rows(7, LOCAL_FRAMES))
    nothing = readings(LOCAL_FRAMES, [math.nan, math.nan])
    after, _ = run(state, [nothing, readings(LOCAL_FRAMES + 1, [math.nan, math.nan])])
    assert learner_of(after).basis.local is None
    assert freeze(after.learner) == freeze(state.learner)
