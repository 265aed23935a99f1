"""Another basis: exact where it can be, honest about what it loses where it cannot, refused where that is too much."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
import scipy.linalg
from drive_learner import NEVER, autoregressive, drive
from hypothesis import given, settings
from hypothesis import strategies as st
from random_learner import random_basis, random_inputs, random_learner, random_readings

from fleetgp import features, inducing, kernels, scaling
from fleetgp.arrays import Array
from fleetgp.errors import BasisRefused
from fleetgp.features import PRIOR_SD, Basis, Shape
from fleetgp.gp import batch, learner, moves, posterior, statistics
from fleetgp.gp import ring as rings
from fleetgp.gp.aggregate import prior
from fleetgp.gp.learner import LONG, TRACKS, Forgetting, Inputs, Knowledge, Learner

RARE = settings(max_examples=20, deadline=None, derandomize=True)
SHAPES = st.builds(Shape, st.integers(1, 2), st.integers(1, 2), st.integers(0, 2), st.sampled_from([0, 2]))
SEED = st.integers(0, 10**6)
RULE = Forgetting()


def taught(state: Learner, rng: np.random.Generator, frames: int, outliers: float = 0.0) -> Learner:
    inputs = random_inputs(rng, state.basis.shape, frames)
    return batch.foresee_and_learn(state, inputs, random_readings(rng, inputs, outliers=outliers), RULE)[0]


def afresh(state: Learner, basis: Basis) -> statistics.Statistics:
    """Statistics [T, ...] of all that is in the ring, made on a basis by the definition, frame by frame."""
    ring, Q = state.ring, basis.shape.channels
    X, y = features.features(basis, ring.inputs), ring.targets / basis.scaling.scale[:Q]
    sums = statistics.empty(TRACKS, Q, basis.size + basis.local_size)
    for t in range(TRACKS):
        for i, x in enumerate(X):
            for q in range(Q):
                left, w = ring.kept[t, i], ring.weights[i, q]
                sums.n[t, q] += left * (w > 0)
                sums.square[t, q] += left * w * y[i, q] ** 2
                sums.cross[t, q] += left * w * y[i, q] * x
                sums.gram[t, q] += left * w * np.outer(x, x)
    return sums


def assert_same(a: statistics.Statistics, b: statistics.Statistics, tolerance: float = 1e-9) -> None:
    for x, y in zip(a, b, strict=True):
        np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance * (1 + np.abs(y).max(initial=0)))


@RARE
@given(SEED, SHAPES, st.integers(0, 3), st.integers(0, 3), st.integers(0, 60))
def test_while_every_frame_is_in_the_ring_a_move_is_exact_1e_9(
    seed: int, shape: Shape, shared: int, local: int, frames: int
) -> None:
    """Inducing inputs that come, go or change, and another scaling: as if it had always been there. Nothing is refused."""
    rng = np.random.default_rng(seed)
    state = (
        taught(random_learner(rng, shape, shared, local), rng, frames)
        if frames
        else random_learner(rng, shape, shared, local)
    )
    basis = random_basis(rng, shape, int(rng.integers(0, 5)), int(rng.integers(0, 4)))
    moved = moves.move(state, basis)
    assert_same(moved.past, afresh(moved, basis))
    assert moved.frames == state.frames == len(moved.ring.inputs)
    assert not moved.fresh


@RARE
@given(SEED, SHAPES, st.integers(1, 3), st.integers(rings.SIZE + 1, 700))
def test_another_scaling_alone_is_exact_however_long_the_past_1e_8(
    seed: int, shape: Shape, shared: int, frames: int
) -> None:
    """There and back is where it was, with a past that no ring holds; and a scaled past is the sums of scaled frames."""
    rng = np.random.default_rng(seed)
    state = learner.folded(taught(random_learner(rng, shape, shared), rng, frames))
    old = state.basis.scaling
    new = scaling.Scaling(
        old.centre + rng.standard_normal(len(old.centre)), old.scale * 10 ** rng.uniform(-1, 1, len(old.scale))
    )
    there = moves.move(state, state.basis._replace(scaling=new))
    back = moves.move(there, state.basis)
    assert_same(back.past, state.past, 1e-8)
    np.testing.assert_allclose(back.noise_var, state.noise_var, rtol=1e-12)
    # the part in the ring, and so the part that is not: both move alike
    T = features.change(state.basis, there.basis)
    ratio = (old.scale / new.scale)[: shape.channels]
    assert_same(statistics.rebase(afresh(state, state.basis), T, ratio), afresh(state, there.basis), 1e-8)


@RARE
@given(SEED, SHAPES, st.integers(1, 3), st.integers(20, 600))
def test_a_restart_keeps_the_ring_and_nothing_else(seed: int, shape: Shape, shared: int, frames: int) -> None:
    rng = np.random.default_rng(seed)
    state = taught(random_learner(rng, shape, shared), rng, frames)
    basis = random_basis(rng, shape, 4, 2)
    again = moves.restart(state, basis)
    assert_same(again.past, afresh(again, basis))
    assert again.frames == len(again.ring.inputs) == min(state.frames, rings.SIZE)
    assert moves.is_complete(again)
    assert moves.loss(again, random_basis(rng, shape, 2)).max() == 0.0


class World(NamedTuple):
    """One channel that is a function of its covariates, drawn from the prior, and noise; last reading always 0. truth: of the nonlinear part."""

    inputs: Inputs
    observed: Array
    truth: Array


NOISE = 0.05
DEVIATION = 0.01


def draw(rng: np.random.Generator, X: Array, lengthscale: float, at: Array) -> World:
    """A world over covariates X [n, C], and the true values of its nonlinear part at the points [m, C]."""
    n, C = X.shape
    points = np.concatenate((X, at))
    K = kernels.covariance("se", points, points, np.full(C, lengthscale)) + 1e-8 * np.eye(len(points))
    sd = PRIOR_SD["inducing"] * np.sqrt(1 + DEVIATION)
    f = sd * scipy.linalg.cholesky(K, lower=True) @ rng.standard_normal(len(points))
    linear = PRIOR_SD["covariates"] * np.sqrt(1 + DEVIATION) * rng.standard_normal(C)
    rows = np.concatenate((np.zeros((n, 1)), X, np.zeros((n, 1 + C))), axis=1)
    y = f[:n] + X @ linear + NOISE * rng.standard_normal(n)
    nothing = np.zeros((n, 1))
    return World(Inputs(rows, nothing, nothing, nothing), y[:, None], f[n:])


def world_basis(Z: Array, lengthscale: float) -> Basis:
    C = Z.shape[1]
    columns, unit = tuple(range(1, 1 + C)), scaling.Scaling(np.zeros(1 + C), np.ones(1 + C))
    layer = inducing.make("se", columns, Z, np.full(C, lengthscale))
    return Basis(Shape(1, 1, C), unit, layer)


def world_learner(basis: Basis) -> Learner:
    prior_var = np.ones((1, basis.size))
    known = Knowledge(prior(prior_var), prior_var, DEVIATION * prior_var, np.array([NOISE**2]), 5.0, 1.0)
    return learner.knowing(basis, known)


def on(state: Learner, basis: Basis) -> Learner:
    return learner.inform(moves.move(state, basis), world_learner(basis).knowledge)


def mean_square(state: Learner, world: World) -> float:
    """Mean z^2 of the true function's inducing weights under the long memory: 1 where it knows what it does not know."""
    layer, linear = state.basis.shared, state.basis.shape.linear
    assert layer is not None
    truth = layer.root_inverse @ world.truth / PRIOR_SD["inducing"]
    gap = state.weights.mean[LONG, 0, linear:] - truth
    cov = state.weights.cov[LONG, 0, linear:, linear:]
    return float(gap @ scipy.linalg.solve(cov, gap, assume_a="pos")) / len(gap)


@pytest.mark.parametrize("frames", [300, 1500])
def test_on_a_dense_line_the_weights_after_a_change_are_as_sure_as_they_are_right(frames: int) -> None:
    """One dimension: a shifted grid, with a past that the ring no longer holds and without; mean z^2 from 0.7 to 1.5."""
    old, new = np.linspace(-1, 11, 25)[:, None], np.linspace(-1.2, 11.2, 22)[:, None]
    squares = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        world = draw(rng, rng.uniform(0, 10, (frames, 1)), 1.5, new)
        rule = Forgetting(NEVER, 1000.0, 256)
        state, _ = batch.foresee_and_learn(world_learner(world_basis(old, 1.5)), world.inputs, world.observed, rule)
        squares.append(mean_square(on(state, world_basis(new, 1.5)), world))
    assert 0.7 < np.mean(squares) < 1.5


def in_span(rng: np.random.Generator, X: Array, basis: Basis) -> World:
    """A world that the new features can express, drawn from the prior of their weights; ``truth``: those of the inducing ones."""
    n, C = X.shape
    rows = np.concatenate((np.zeros((n, 1)), X, np.zeros((n, 1 + C))), axis=1)
    w = np.sqrt(1 + DEVIATION) * rng.standard_normal(basis.size)
    y = features.features(basis, rows) @ w + NOISE * rng.standard_normal(n)
    nothing = np.zeros((n, 1))
    return World(Inputs(rows, nothing, nothing, nothing), y[:, None], w[basis.shape.linear :])


@pytest.mark.parametrize("frames", [600, 1500, 4000])
@pytest.mark.parametrize("step", [0.03, 0.1, 0.3])
def test_in_six_dimensions_the_weights_after_a_change_are_as_sure_as_they_are_right(frames: int, step: float) -> None:
    """Few inducing inputs, moved: the projection's error is the same at every frame, and no past may outvote it.

    Mean z^2 from 0.7 to 1.5; and the function is known better than from the ring alone.
    """
    squares, errors, lengthscale = [], [], 0.8 * np.sqrt(6)
    for seed in range(4):
        rng = np.random.default_rng(seed)
        old = rng.standard_normal((40, 6))
        was, basis = (
            world_basis(old, lengthscale),
            world_basis(old + step * rng.standard_normal(old.shape), lengthscale),
        )
        world = in_span(rng, rng.standard_normal((frames, 6)), basis)
        rule = Forgetting(NEVER, 1000.0, 256)
        state, _ = batch.foresee_and_learn(world_learner(was), world.inputs, world.observed, rule)
        moved, again = on(state, basis), learner.inform(moves.restart(state, basis), world_learner(basis).knowledge)
        linear = basis.shape.linear
        gap = moved.weights.mean[LONG, 0, linear:] - world.truth
        cov = moved.weights.cov[LONG, 0, linear:, linear:]
        squares.append(gap @ scipy.linalg.solve(cov, gap, assume_a="pos") / len(gap))
        other = again.weights.mean[LONG, 0, linear:] - world.truth
        F = features.features(basis, world.inputs.inputs[-200:])[:, linear:]
        errors.append([np.mean((F @ gap) ** 2), np.mean((F @ other) ** 2)])
    assert 0.7 < np.mean(squares) < 1.5
    with_past, without = np.mean(errors, axis=0)
    assert with_past < 1.05 * without


@pytest.mark.parametrize("dimensions", [1, 6])
def test_a_change_that_would_lose_too_much_is_refused_and_a_restart_is_not(dimensions: int) -> None:
    """The old inducing inputs saw nothing of what the new ones see: past statistics cannot say what those would have been."""
    rng = np.random.default_rng(1)
    X, Z = rng.standard_normal((800, dimensions)), rng.standard_normal((30, dimensions))
    here, elsewhere = world_basis(Z, 1.0), world_basis(Z + 20.0, 1.0)
    world = in_span(rng, X, here)
    state, _ = batch.foresee_and_learn(world_learner(elsewhere), world.inputs, world.observed, RULE)
    state = state._replace(noise_var=np.full((TRACKS, 1), NOISE**2))
    with pytest.raises(BasisRefused) as refused:
        moves.move(state, here)
    assert refused.value.loss > moves.MOST_LOSS
    again = learner.inform(moves.restart(state, here), world_learner(here).knowledge)
    assert again.frames == rings.SIZE
    # and a learner that holds every frame may go anywhere
    few, _ = batch.foresee_and_learn(
        world_learner(elsewhere), Inputs(*(p[:400] for p in world.inputs)), world.observed[:400], RULE
    )
    assert moves.move(few, here).frames == 400


@pytest.mark.parametrize("dimensions", [1, 6])
def test_inducing_inputs_that_see_nothing_know_nothing_and_the_noise_says_so(dimensions: int) -> None:
    """A move to where no frame is: the new weights are at their prior, the law as wide as what is no longer expressed."""
    rng = np.random.default_rng(2)
    Z = rng.standard_normal((30, dimensions))
    here, elsewhere = world_basis(Z, 1.0), world_basis(Z + 20.0, 1.0)
    world = in_span(rng, rng.standard_normal((800, dimensions)), here)
    state, _ = batch.foresee_and_learn(world_learner(here), world.inputs, world.observed, RULE)
    moved, linear = on(state, elsewhere), here.shape.linear
    np.testing.assert_allclose(moved.weights.mean[:, 0, linear:], 0.0, atol=1e-9)
    np.testing.assert_allclose(
        moved.weights.cov[LONG, 0, linear:, linear:],
        posterior.unlearnt(moved.before).cov[0, linear:, linear:],
        atol=1e-9,
    )
    always, _ = batch.foresee_and_learn(world_learner(elsewhere), world.inputs, world.observed, RULE)
    # a few steps of EM for the noise away from one that was always there
    for _ in range(5):
        moved = learner.solve(moved)
    assert moved.noise_var[LONG, 0] > 0.7 * always.noise_var[LONG, 0] > state.noise_var[LONG, 0]


def forecasts(state: Learner, X: Array) -> tuple[Array, Array]:
    n, C = X.shape
    rows = np.concatenate((np.zeros((n, 1)), X, np.zeros((n, 1 + C))), axis=1)
    means, sds = [], []
    for row in rows:
        forecast = learner.foresee(state, Inputs(row, np.zeros(1), np.zeros(1), np.zeros(1)))
        means.append(forecast.mean[0])
        sds.append(forecast.sd[0])
    return np.array(means), np.array(sds)


@pytest.mark.parametrize(("dimensions", "step"), [(1, 0.1), (1, 0.5), (6, 0.05), (6, 0.3)])
def test_predictions_before_and_after_a_change_agree_within_their_uncertainty(dimensions: int, step: float) -> None:
    """Of the function: within three times what either says it does not know, noise aside, on new inputs."""
    rng = np.random.default_rng(2)
    X = rng.uniform(0, 10, (1200, 1)) if dimensions == 1 else rng.standard_normal((1200, 6))
    lengthscale = 1.5 if dimensions == 1 else 0.8 * np.sqrt(6)
    old = np.linspace(-1, 11, 25)[:, None] if dimensions == 1 else rng.standard_normal((40, 6))
    world = draw(rng, X, lengthscale, old)
    state, _ = batch.foresee_and_learn(world_learner(world_basis(old, lengthscale)), world.inputs, world.observed, RULE)
    moved = on(state, world_basis(old + step * rng.standard_normal(old.shape), lengthscale))
    (before, sd_before), (after, sd_after) = forecasts(state, X[:100]), forecasts(moved, X[:100])
    # of the function alone: what is left of the law without its noise; 0.3 of the noise where both know it well
    least = min(sd_before.min(), sd_after.min())
    unknown = np.sqrt(sd_before**2 + sd_after**2 - 2 * least**2 + (0.3 * NOISE) ** 2)
    assert np.mean(np.abs(after - before) < 2 * unknown) > 0.95
    np.testing.assert_allclose(sd_after, sd_before, rtol=0.25)


@RARE
@given(SEED, SHAPES, st.integers(2, 200), st.integers(1, 6))
def test_a_local_layer_placed_late_is_one_that_was_always_there_1e_9(
    seed: int, shape: Shape, frames: int, size: int
) -> None:
    """Its frames are all in the ring: the statistics are those made afresh with the new features; placed but once."""
    rng = np.random.default_rng(seed)
    state = taught(random_learner(rng, shape, 2), rng, frames, outliers=0.02)
    placed = moves.place_local(state, size, "se")
    assert placed.basis.local_size == size
    assert_same(placed.past, afresh(placed, placed.basis))
    again = moves.place_local(placed, size + 1, "se")
    assert again.basis.local_size == size
    # what is new has a prior, and predictions stay within what it allows: sound numbers, about as sure
    inputs = Inputs(*(part[0] for part in random_inputs(rng, shape, 1)))
    forecast = learner.foresee(placed, inputs)
    assert np.all(np.isfinite(forecast.mean))
    assert np.all(forecast.scale > 0)


def test_no_local_layer_where_frames_have_left_the_ring_or_none_is_wanted() -> None:
    rng = np.random.default_rng(3)
    state = taught(random_learner(rng, Shape(1, 1, 0)), rng, 2 * rings.SIZE)
    assert state.frames > rings.SIZE
    assert moves.place_local(state, 5, "se").basis.local is None
    few = taught(random_learner(rng, Shape(1, 1, 0)), rng, 50)
    assert moves.place_local(few, 0, "se").basis.local is None


def test_a_rescaled_learner_is_informed_on_its_own_scale() -> None:
    """The prior lives on the scale: many frames drown it, and predictions hardly move."""
    rng = np.random.default_rng(4)
    run = drive(autoregressive(rng, 3000, 2, 0.8) + 20, rule=Forgetting(NEVER, NEVER, 64))
    state = learner.solve(run.learner)._replace(frames=4096)
    moments = scaling.Moments(np.full(2, 10.0), np.array([23.0, 18.0]), 10 * np.array([4.0, 0.3]) ** 2)
    moved = moves.rescale(state, moments)
    np.testing.assert_allclose(moved.basis.scaling.scale, [4.0, 0.3])
    at = Inputs(np.array([21.0, 19.0, 20.0, 22.0, 0, 0]), np.zeros(2), np.array([21.0, 19.0]), np.zeros(2))
    before, after = learner.foresee(state, at), learner.foresee(moved, at)
    # the prior is worth a frame or two among 3000
    np.testing.assert_allclose(after.mean, before.mean, atol=1e-2)
    np.testing.assert_allclose(after.sd, before.sd, rtol=1e-2)


@pytest.mark.parametrize("frames", [65, 100, 4095, 5000])
def test_scales_are_looked_at_where_frames_have_doubled_only(frames: int) -> None:
    rng = np.random.default_rng(5)
    state = taught(random_learner(rng, Shape(1, 1, 0)), rng, 20)._replace(frames=frames)
    far = scaling.Moments(np.ones(1), np.array([1e3]), np.array([1e6]))
    assert moves.rescale(state, far) is state
    assert moves.rescale(state._replace(frames=64), far) is not state
