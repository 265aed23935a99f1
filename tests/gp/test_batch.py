"""Many frames at once give the numbers that frame after frame gives: forecasts, and all that is learnt."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from drive_learner import one
from hypothesis import given, settings
from hypothesis import strategies as st
from random_learner import lone_learner, random_inputs, random_learner, random_readings

from fleetgp.arrays import Array
from fleetgp.features import Shape
from fleetgp.gp import batch, layers
from fleetgp.gp import learner as learning
from fleetgp.gp.learner import Forecast, Forgetting, Inputs, Learner
from fleetgp.gp.posterior import Weights

SIZES = [1, 2, 63, 64, 65, 255, 256, 257, 1000]
SMALL = Shape(2, 2, 1, 2)
# of the sums over frames, weights and laws, relative to the largest of each kind
TOLERANCE = 1e-9


def step_by_step(learner: Learner, inputs: Inputs, observed: Array, rule: Forgetting) -> tuple[Learner, Forecast]:
    parts = []
    for t, y in enumerate(observed):
        forecast = layers.split(learner, learning.foresee(learner, one(inputs, t)))
        learner = learning.learn(learner, forecast, y, rule)
        parts.append(_with_axis(forecast))
    return learner, batch.joined(parts)


def _with_axis(forecast: Forecast) -> Forecast:
    inputs, x, around, *rest = forecast
    grown = (type(part)(*(p[None] for p in part)) for part in (inputs, around))
    grown_rest = (None if part is None else part[None] for part in rest[:-2])
    return Forecast(next(grown), x[None], next(grown), *grown_rest, None, forecast.layers[None])


def assert_close(a: Array, b: Array, scale: float | None = None) -> None:
    size = np.max(np.abs(b), initial=0.0, where=np.isfinite(b)) if scale is None else scale
    np.testing.assert_allclose(a, b, rtol=TOLERANCE, atol=TOLERANCE * size)


def assert_same_forecast(a: Forecast, b: Forecast) -> None:
    """Means within 1e-9 of a spread, spreads within 1e-9 of themselves."""
    np.testing.assert_array_equal(a.degrees, b.degrees)
    np.testing.assert_allclose(a.scale, b.scale, rtol=TOLERANCE)
    np.testing.assert_allclose(a.variances, b.variances, rtol=TOLERANCE)
    np.testing.assert_allclose(a.squared, b.squared, rtol=TOLERANCE)
    assert np.max(np.abs(a.mean - b.mean) / b.scale) < TOLERANCE
    assert np.max(np.abs(a.means - b.means) / np.sqrt(b.variances)) < TOLERANCE
    assert a.layers is not None
    assert b.layers is not None
    np.testing.assert_allclose(a.layers[..., :4].sum(axis=-1), a.mean, rtol=1e-12)
    size = np.maximum(b.scale[..., None], np.abs(b.layers))
    assert np.max(np.abs(a.layers - b.layers) / size) < TOLERANCE
    for x, y in ((a.inputs, b.inputs), (a.around, b.around), ((a.features,), (b.features,))):
        for p, q in zip(x, y, strict=True):
            np.testing.assert_allclose(p, q, rtol=1e-12, atol=1e-12)


def assert_same_learner(a: Learner, b: Learner) -> None:
    assert (a.frames, len(a.fresh), len(a.ring.inputs)) == (b.frames, len(b.fresh), len(b.ring.inputs))
    for x, y in zip((*a.past, *a.ring, *a.tail), (*b.past, *b.ring, *b.tail), strict=True):
        assert_close(x, y)
    for x, y in ((a.noise_var, b.noise_var), (a.spare, b.spare), (a.solved.mean, b.solved.mean)):
        assert_close(x, y)
    assert_close(a.correlation.matrix, b.correlation.matrix)
    assert a.correlation.weight == pytest.approx(b.correlation.weight, rel=1e-9)
    assert_same_weights(a.weights, b.weights)
    for p, q in zip(a.fresh, b.fresh, strict=True):
        for x, y in zip(p, q, strict=True):
            assert_close(x, y)


def assert_same_weights(a: Weights, b: Weights) -> None:
    sd = np.sqrt(np.diagonal(b.cov, axis1=-2, axis2=-1))
    # in standard deviations of each weight
    assert np.max(np.abs(a.mean - b.mean) / sd) < 1e-8
    assert np.max(np.abs(a.cov - b.cov) / sd[..., :, None] / sd[..., None, :]) < 1e-8


@pytest.mark.parametrize("frames", SIZES)
@pytest.mark.parametrize("outliers", [0.0, 0.02])
@pytest.mark.parametrize("own_weight", [1.0, 0.5])
def test_frames_at_once_are_frame_by_frame_from_the_first_on_1e_9(
    frames: int, outliers: float, own_weight: float
) -> None:
    """With missing channels, ages, floors, readings a million spreads away, and all three layers."""
    rng = np.random.default_rng([frames, int(100 * outliers), int(2 * own_weight)])
    learner, inputs = random_learner(rng, SMALL, 3, 2, own_weight), random_inputs(rng, SMALL, frames)
    observed = random_readings(rng, inputs, outliers=outliers)
    rule = Forgetting()
    at_once, forecast = batch.foresee_and_learn(learner, inputs, observed, rule, is_split=True)
    single, expected = step_by_step(learner, inputs, observed, rule)
    assert_same_forecast(forecast, expected)
    assert_same_learner(at_once, single)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    st.integers(0, 10**6),
    st.lists(st.integers(1, 90), min_size=1, max_size=4),
    st.builds(Shape, st.integers(1, 3), st.integers(1, 2), st.integers(0, 2), st.sampled_from([0, 4])),
    st.integers(0, 3),
    st.sampled_from([1, 7, 64, 256]),
    st.floats(0.0, 0.9),
)
def test_any_cut_into_batches_gives_the_same_1e_9(
    seed: int, sizes: list[int], shape: Shape, shared: int, refresh: int, missing: float
) -> None:
    """A lone learner with forgetting: the batches' ends and the solutions' do not meet."""
    rng = np.random.default_rng(seed)
    learner, inputs = lone_learner(rng, shape, shared), random_inputs(rng, shape, sum(sizes))
    observed, rule = random_readings(rng, inputs, missing, outliers=0.01), Forgetting(200.0, 20.0, refresh)
    single, expected = step_by_step(learner, inputs, observed, rule)
    parts, begin = [], 0
    for size in sizes:
        rows = slice(begin, begin + size)
        part = Inputs(*(x[rows] for x in inputs))
        learner, forecast = batch.foresee_and_learn(learner, part, observed[rows], rule, is_split=True)
        parts.append(forecast)
        begin += size
    assert_same_forecast(batch.joined(parts), expected)
    assert_same_learner(learner, single)


@pytest.mark.parametrize("refresh", [(1024, 256), (256, 16), (64, 1), (16, 256)])
def test_a_rule_that_changes_between_batches_loses_and_repeats_no_frame(refresh: tuple[int, int]) -> None:
    """Settings changed while the agent was stopped: frames since the last solution are more than the new rule allows."""
    rng = np.random.default_rng(7)
    start, inputs = lone_learner(rng, SMALL), random_inputs(rng, SMALL, 1500)
    observed = random_readings(rng, inputs)
    ends, laws = [], []
    for run in (partial(batch.foresee_and_learn, is_split=True), step_by_step):
        learner = start._replace(frames=5000)
        forecasts = []
        for part, size in ((slice(0, 1000), refresh[0]), (slice(1000, None), refresh[1])):
            rows = Inputs(*(x[part] for x in inputs))
            learner, forecast = run(learner, rows, observed[part], Forgetting(refresh=size))
            forecasts.append(forecast)
        ends.append(learner)
        laws.append(batch.joined(forecasts))
    assert_same_forecast(*laws)
    assert_same_learner(*ends)


@pytest.mark.parametrize("missing", ["one channel", "all of one frame", "everything"])
def test_what_never_came_is_not_learnt_at_once_either(missing: str) -> None:
    rng = np.random.default_rng(5)
    learner, inputs = lone_learner(rng, SMALL), random_inputs(rng, SMALL, 130)
    observed = random_readings(rng, inputs, missing=0.0)
    observed[{"one channel": (slice(None), 0), "all of one frame": (70,), "everything": (slice(None),)}[missing]] = (
        np.nan
    )
    at_once, forecast = batch.foresee_and_learn(learner, inputs, observed, Forgetting(), is_split=True)
    single, expected = step_by_step(learner, inputs, observed, Forgetting())
    assert_same_forecast(forecast, expected)
    assert_same_learner(at_once, single)
    assert np.all(np.isfinite(forecast.mean))


@pytest.mark.parametrize("noise", [0.0, 1e-4])
@pytest.mark.parametrize("reach", [1.0, 1e3])
def test_a_stream_without_noise_is_as_sound_at_once_as_frame_by_frame(noise: float, reach: float) -> None:
    """Data that reach their ceiling leave rounding, not 1e-9; the law stays one and the forecasts agree within it."""
    rng = np.random.default_rng(6)
    shape = Shape(1, 3, 0, 0)
    inputs = random_inputs(rng, shape, 600)
    inputs = inputs._replace(inputs=inputs.inputs * reach, last=inputs.last * reach, age=np.zeros((600, 1)))
    observed = 0.9 * inputs.last + 0.1 * inputs.inputs[:, 1:2] + noise * rng.standard_normal((600, 1))
    learner = lone_learner(rng, shape)
    _, forecast = batch.foresee_and_learn(learner, inputs, observed, Forgetting(), is_split=True)
    _, expected = step_by_step(learner, inputs, observed, Forgetting())
    assert np.all(np.isfinite(forecast.mean))
    assert np.all(forecast.scale > 0)
    np.testing.assert_allclose(forecast.scale, expected.scale, rtol=1e-3)
    assert np.max(np.abs(forecast.mean - expected.mean) / expected.scale) < 1e-2
