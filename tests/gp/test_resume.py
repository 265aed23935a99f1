"""A learner that is stopped, frozen, thawed and resumed is one that never stopped, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
from drive_learner import one
from hypothesis import given, settings
from hypothesis import strategies as st
from random_learner import lone_learner, random_inputs, random_learner, random_readings

from fleetgp.errors import PeerError
from fleetgp.features import Shape
from fleetgp.gp import batch, learner, moves
from fleetgp.gp.learner import Forgetting, Inputs, Learner
from fleetgp.wire.freeze import freeze, thaw

SHAPES = st.builds(Shape, st.integers(1, 3), st.integers(1, 2), st.integers(0, 2), st.sampled_from([0, 4]))


def thawed(state: Learner) -> Learner:
    return thaw(freeze(state), Learner)


@settings(max_examples=20, deadline=None, derandomize=True)
@given(
    st.integers(0, 10**6), SHAPES, st.integers(0, 3), st.integers(0, 2), st.integers(0, 40), st.integers(1, 40),
    st.sampled_from([1, 16, 256]),
)  # fmt: skip
def test_stop_and_resume_is_never_stopping_bit_for_bit(
    seed: int, shape: Shape, shared: int, local: int, before: int, after: int, refresh: int
) -> None:
    """Any place to stop: between solutions, before the first frame, with outliers and missing channels behind it."""
    rng = np.random.default_rng(seed)
    state = random_learner(rng, shape, shared, local) if rng.random() < 0.5 else lone_learner(rng, shape, shared)
    inputs = random_inputs(rng, shape, before + after)
    observed, rule = random_readings(rng, inputs, outliers=0.03), Forgetting(100.0, 10.0, refresh)
    resumed = state
    for t in range(before + after):
        if t == before:
            resumed = thawed(resumed)
        forecasts = [learner.foresee(each, one(inputs, t)) for each in (state, resumed)]
        assert freeze(forecasts[0]) == freeze(forecasts[1])
        state, resumed = (
            learner.learn(each, forecast, observed[t], rule)
            for each, forecast in zip((state, resumed), forecasts, strict=True)
        )
    assert freeze(state) == freeze(resumed)


@settings(max_examples=10, deadline=None, derandomize=True)
@given(st.integers(0, 10**6), SHAPES, st.integers(1, 200), st.integers(1, 200))
def test_so_it_is_for_batches_and_a_local_layer_placed_on_the_way(
    seed: int, shape: Shape, before: int, after: int
) -> None:
    rng = np.random.default_rng(seed)
    state, inputs = lone_learner(rng, shape, 2), random_inputs(rng, shape, before + after)
    observed, rule = random_readings(rng, inputs), Forgetting()
    first, rest = (Inputs(*(part[rows] for part in inputs)) for rows in (slice(before), slice(before, None)))
    state, _ = batch.foresee_and_learn(state, first, observed[:before], rule)
    ends = []
    for each in (state, thawed(state)):
        placed = moves.place_local(each, 3, "matern52")
        ends.append(
            batch.foresee_and_learn(thawed(placed) if each is not state else placed, rest, observed[before:], rule)
        )
    assert freeze(ends[0]) == freeze(ends[1])


def test_a_frozen_learner_cut_short_is_refused_by_name() -> None:
    payload = freeze(lone_learner(np.random.default_rng(1), Shape(1, 1, 0)))
    for size in (0, 1, len(payload) // 2, len(payload) - 1):
        with pytest.raises(PeerError):
            thaw(payload[:size], Learner)
