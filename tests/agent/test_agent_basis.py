"""An agent on the fleet's basis: changes in the middle of a stream, changes refused, and what its summaries tell."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import pytest
from agent_streams import START, ar_rows, counts, events, feed, fresh, predictions, readings

from edge_agent import agent
from edge_agent.state import ModelArrived, Publish, RoundOpened, State
from fleetgp import features
from fleetgp.arrays import Array
from fleetgp.features import BLOCKS, Basis
from fleetgp.gp import aggregate, hyper
from fleetgp.gp import learner as learning
from fleetgp.gp.learner import Learner
from fleetgp.gp.ring import SIZE
from fleetgp.inducing import make
from fleetgp.placement import LEAST_FRAMES
from fleetgp.scaling import Scaling
from fleetgp.schema import Channel, Schema
from fleetgp.wire import codec, knowledge
from fleetgp.wire.convert import to_array
from fleetgp.wire.freeze import freeze, thaw
from fleetgp.wire.knowledge import Published, Stamp
from fleetgp.wire.messages import Summary

M = 8
CURVED = Schema(channels=(Channel(name="a"), Channel(name="b")), lags=1, inducing=M)
SHAPE = features.shape(CURVED)
STREAM = Scaling(np.array([20.0, 5.0]), np.array([1.15, 1.15]))
CENTRES = np.random.default_rng(1).standard_normal((M, 2))


def model(
    number: int, basis: int, scaling: Scaling = STREAM, Z: Array | None = None, length: float = 1.5, spread: float = 1.0
) -> ModelArrived:
    """Knowledge of a fleet that has told nothing yet, on a basis of its own; spread: prior variance of the inducing weights."""
    shared = None if Z is None else make(CURVED.kernel, (0, 1), Z, np.full(2, length))
    whole = Basis(SHAPE, scaling, shared)
    scales, blocks = hyper.start(2), features.blocks(SHAPE, whole.size - SHAPE.linear)
    prior_var = hyper.by_feature(scales.shared, blocks)
    prior_var[:, SHAPE.linear :] = spread
    known = Published(
        whole,
        aggregate.prior(prior_var),
        prior_var,
        hyper.by_feature(scales.deviation, blocks),
        np.full(2, 0.5),
        50.0,
        CENTRES,
    )
    message = knowledge.write(known, CURVED, Stamp(START, number, START, basis), {})
    return ModelArrived(START + 1, codec.encode(message))


def places(seed: int, spread: float = 1.15) -> Array:
    return STREAM.centre + spread * np.random.default_rng(seed).standard_normal((M, 2))


def learner_of(state: State) -> Learner:
    assert state.learner is not None
    return state.learner


def fed(first: ModelArrived, count: int, **changes: object) -> State:
    state, _ = agent.step(fresh(CURVED, is_live=True, **changes), first)
    state, effects = feed(state, ar_rows(3, count))
    assert events(effects) == []
    return state


def next_law(state: State) -> Array:
    """Mean and band of both channels for the next frame, the same whatever it brings."""
    tick = state.frame_count
    _, effects = agent.step(state, readings(tick, [20.0, 5.0]))
    (prediction,) = predictions(effects)
    return np.array([(c.mean, c.low, c.high) for c in prediction.channels.values()])


@pytest.mark.parametrize("count", [300, 1200])
def test_to_another_scaling_and_back_is_as_if_it_had_stayed(count: int) -> None:
    """Exact for lines, however long the past; models of the same number of rounds, each of which refines the noise a little."""
    other = Scaling(np.array([-10.0, 8.0]), np.array([4.0, 0.5]))
    state = fed(model(1, 1), count, local_inducing=0)
    moved, _ = agent.step(state, model(2, 2, other))
    assert learner_of(moved).basis.scaling.scale[0] == 4.0
    back, effects = agent.step(moved, model(3, 3))
    stayed, _ = agent.step(state, model(2, 1))
    stayed, _ = agent.step(stayed, model(3, 1))
    assert effects == []
    for one, two in zip(learning.total(learner_of(back)), learning.total(learner_of(stayed)), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-8, atol=1e-8 * np.abs(two).max())
    np.testing.assert_allclose(next_law(back), next_law(stayed), rtol=1e-4)


def test_other_inducing_inputs_while_all_frames_are_at_hand_cost_nothing() -> None:
    """The agent's statistics on the new basis are those of its frames' features there, by sums in this test."""
    state = fed(model(1, 1, Z=places(1)), 400)
    moved, effects = agent.step(state, model(2, 2, Z=places(2)))
    assert effects == []
    learner = learner_of(moved)
    ring = learning.folded(learner).ring
    assert len(ring.inputs) == learner.frames == learner_of(state).frames
    x = features.features(learner.basis, ring.inputs)
    for q in range(2):
        left = ring.weights[:, q] * ring.kept[0]
        y = ring.targets[:, q] / STREAM.scale[q]
        np.testing.assert_allclose(learning.total(learner).gram[0, q], (left[:, None] * x).T @ x, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(learning.total(learner).cross[0, q], (left * y) @ x, rtol=1e-9, atol=1e-9)


def test_a_change_that_would_lose_too_much_is_refused_counted_and_life_goes_on() -> None:
    """From places where nobody reads to wiggles where all do: neither the past nor a line says what happens there.

    The agent keeps its last frames, takes the basis and foresees on.
    """
    state = fed(model(1, 1, Z=places(1) + 500.0, spread=100.0), SIZE + 400)
    assert learner_of(state).frames > SIZE
    event = model(2, 2, Z=places(2, 0.6), length=0.4, spread=100.0)
    moved, effects = agent.step(state, event)
    assert counts(effects) == {"basis_refused": 1}
    assert (moved.basis, moved.round) == (2, 2)
    learner = learner_of(moved)
    assert learner.frames == SIZE
    assert learner.basis.shared is not None
    assert np.array_equal(learner.basis.shared.Z, places(2, 0.6))
    assert freeze(agent.step(thaw(freeze(state), State), event)[0]) == freeze(moved)
    rows = list(ar_rows(8, 300))
    moved, effects = feed(moved, rows, SIZE + 400)
    assert counts(effects) == {}
    errors = np.array([[c.observed - c.mean for c in p.channels.values()] for p in predictions(effects)], dtype=float)
    assert (
        np.sqrt(np.mean(errors**2)) < 1.15
    )  # 1 is the best, persistence is 1.155; 600 errors: three standard errors 0.09
    assert learner_of(moved).frames == SIZE + 300
    # and it answers the next round on the new basis
    _, effects = agent.step(moved, RoundOpened(START, 3))
    (summary,) = [e.message for e in effects if isinstance(e, Publish) and isinstance(e.message, Summary)]
    assert summary.basis == 2


def test_the_same_change_is_taken_while_the_frames_are_at_hand() -> None:
    state = fed(model(1, 1, Z=places(1) + 500.0, spread=100.0), SIZE - 50)
    moved, effects = agent.step(state, model(2, 2, Z=places(2, 0.6), length=0.4, spread=100.0))
    assert counts(effects) == {}
    assert learner_of(moved).frames == learner_of(state).frames


def test_the_local_layer_stays_where_it_is_through_changes_of_the_fleets_basis() -> None:
    state = fed(model(1, 1, Z=places(1)), 400)
    local = learner_of(state).basis.local
    assert local is not None
    other = Scaling(np.array([-10.0, 8.0]), np.array([4.0, 0.5]))
    for number, Z in ((2, places(2)), (3, None), (4, places(3))):
        state, effects = agent.step(state, model(number, number, other if number == 3 else STREAM, Z=Z))
        assert "model_shape" not in counts(effects)
        kept = learner_of(state).basis.local
        assert kept is not None
        assert np.array_equal(kept.Z, local.Z)
        assert np.array_equal(kept.root_inverse, local.root_inverse)
        assert np.all(np.isfinite(next_law(state)))


def summary_of(state: State) -> Summary:
    _, effects = agent.step(state, RoundOpened(START, state.round + 1))
    (summary,) = [e.message for e in effects if isinstance(e, Publish) and isinstance(e.message, Summary)]
    return codec.decode(codec.encode(summary), Summary)


def test_a_summary_tells_the_deviation_by_block_and_first_that_nothing_is_known() -> None:
    """E d^2 of an agent that has read next to nothing is its prior; with data it is settled, and the fleet's blocks only."""
    state, _ = agent.step(fresh(CURVED, is_live=True), model(1, 1, Z=places(1)))
    state, _ = feed(state, [[20.0, 5.0]])
    early = summary_of(state)
    assert early.deviation_square is not None
    found = to_array(early.deviation_square, (2, len(BLOCKS)), "deviation_square")
    prior = hyper.start(2).deviation.copy()
    for name in ("covariates", "phases", "local"):  # no features of these are the fleet's
        prior[:, BLOCKS.index(name)] = 0.0
    # one frame, that the device rests where it is met, tells of the bias above all
    np.testing.assert_allclose(found[:, 1:], prior[:, 1:], rtol=0.05)
    assert np.all(found[:, 0] <= prior[:, 0])
    state, _ = feed(state, ar_rows(3, 600), 1)
    assert learner_of(state).basis.local is not None
    late = to_array(summary_of(state).deviation_square or found, (2, len(BLOCKS)), "deviation_square")  # type: ignore[arg-type]
    assert np.all(late >= 0)
    # 600 frames settle a bias w = v + d, of which nobody else knows: v, d ~ N(0, 1) leave d = w / 2 with a variance of 1/2
    np.testing.assert_allclose(late[:, 0], 0.5, atol=0.05)
    assert np.all(late[:, prior[0] == 0] == 0)


def test_cluster_sums_are_those_of_recent_frames_and_never_of_fewer_than_five() -> None:
    """By a loop over the last frames: those nearest to each centre, in the fleet's unit; where fewer than five are, nothing."""
    state = fed(model(1, 1, Z=places(1)), 700)
    summary = summary_of(state)
    assert summary.cluster_count is not None
    assert summary.cluster_sum is not None
    count = to_array(summary.cluster_count, (M,), "cluster_count")
    total = to_array(summary.cluster_sum, (M, 2), "cluster_sum")
    expected_count, expected_total = [0] * M, np.zeros((M, 2))
    told: Sequence[Array] = learning.folded(learner_of(state)).ring.inputs
    assert len(told) == SIZE
    for row in told:
        scaled = (row[:2] - STREAM.centre) / STREAM.scale
        nearest = min(range(M), key=lambda m: float(np.sum((scaled - CENTRES[m]) ** 2)))
        expected_count[nearest] += 1
        expected_total[nearest] += scaled
    assert sum(expected_count) == SIZE
    for m in range(M):
        if expected_count[m] < LEAST_FRAMES:
            assert count[m] == 0
            assert np.all(total[m] == 0)
        else:
            assert count[m] == expected_count[m]
            np.testing.assert_allclose(total[m], expected_total[m], rtol=1e-9)


@pytest.mark.parametrize("frames", [1, 4, 5, 9])
def test_of_a_handful_of_frames_no_sum_tells_a_reading(frames: int) -> None:
    state = fed(model(1, 1, Z=places(1)), frames)
    summary = summary_of(state)
    assert summary.cluster_count is not None
    assert summary.cluster_sum is not None
    count = to_array(summary.cluster_count, (M,), "cluster_count")
    total = to_array(summary.cluster_sum, (M, 2), "cluster_sum")
    assert np.all((count == 0) | (count >= LEAST_FRAMES))
    assert np.all(total[count == 0] == 0)


def test_without_centres_nothing_is_told_of_where_readings_lie() -> None:
    schema = msgspec.structs.replace(CURVED, inducing=0)
    state, _ = feed(fresh(schema), ar_rows(1, 30))
    assert len(state.centres) == 0
    state = fed(model(1, 1), 20)
    without = summary_of(msgspec.structs.replace(state, centres=np.zeros((0, 0))))
    assert (without.cluster_count, without.cluster_sum) == (None, None)
