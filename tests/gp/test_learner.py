"""A learner on streams: equal to the dense answer, indifferent to units, as sure as it may be."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from dense_fleet import Priors, Stream, condition
from drive_learner import NEVER, autoregressive, drive, one
from hypothesis import given, settings
from hypothesis import strategies as st
from random_learner import lone_learner, random_basis, random_inputs, random_learner, random_readings

from fleetgp import features, scaling
from fleetgp.arrays import Array
from fleetgp.features import PRIOR_SD, Shape
from fleetgp.gp import aggregate, hyper, learner, message, moves, posterior
from fleetgp.gp.learner import LONG, Forgetting, Inputs, Knowledge, Learner
from fleetgp.gp.posterior import Weights
from fleetgp.gp.statistics import Statistics

RARE = settings(max_examples=25, deadline=None, derandomize=True)
SHAPES = st.builds(Shape, st.integers(1, 2), st.integers(1, 2), st.integers(0, 2), st.sampled_from([0, 2]))
SEED = st.integers(0, 10**6)


def teach(state: Learner, inputs: Inputs, observed: Array, rule: Forgetting) -> Learner:
    for t, y in enumerate(observed):
        state = learner.learn(state, learner.foresee(state, one(inputs, t)), y, rule)
    return state


def as_stream(state: Learner, frames: int, track: int = LONG) -> Stream:
    """What is in its ring, on its scale, for the dense computation: each frame with the weight it was learnt with."""
    ring, unit = state.ring, state.basis.scaling.scale[: state.basis.shape.channels]
    assert len(ring.inputs) <= frames
    weights = ring.weights * ring.kept[track][:, None]
    k = np.divide(1.0, weights, out=np.ones_like(weights), where=weights > 0)
    targets = np.where(weights > 0, ring.targets / unit, np.nan)
    return Stream(features.features(state.basis, ring.inputs), targets, k, state.noise_var[track])


def priors_of(state: Learner) -> Priors:
    local = np.tile(state.local_var[:, None], (1, state.basis.local_size))
    return Priors(state.knowledge.prior_var, state.knowledge.deviation_var, local)


def assert_dense(state: Learner, streams: list[Stream], agent: int, track: int = LONG) -> None:
    for q in range(state.basis.shape.channels):
        mean, cov = condition(streams, priors_of(state), q).weights(agent)
        np.testing.assert_allclose(state.weights.mean[track, q], mean, rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(state.weights.cov[track, q], cov, rtol=1e-8, atol=1e-8)


@RARE
@given(SEED, SHAPES, st.integers(0, 3), st.integers(1, 20), st.sampled_from([NEVER, 10.0]))
def test_after_any_frames_the_weights_are_the_dense_posterior_1e_8(
    seed: int, shape: Shape, shared: int, frames: int, short: float
) -> None:
    """Rank-one learning on top of the last exact solution, at its noise; both memories, one of which forgets."""
    rng = np.random.default_rng(seed)
    state, inputs = lone_learner(rng, shape, shared), random_inputs(rng, shape, frames)
    observed = random_readings(rng, inputs, outliers=0.03)
    half, rule = frames // 2, Forgetting(NEVER, short, 1)
    state = teach(state, Inputs(*(part[:half] for part in inputs)), observed[:half], rule)
    # solved anew at a noise that is kept from here on: a solution takes one step of its noise after its weights
    state = learner.solve(state)._replace(noise_var=state.noise_var)
    rest = Inputs(*(part[half:] for part in inputs))
    state = teach(state._replace(frames=4000), rest, observed[half:], Forgetting(NEVER, short, 64))
    full = learner.folded(state)._replace(frames=frames)
    for track in range(learner.TRACKS):
        assert_dense(full, [as_stream(full, frames, track)], 0, track)


@RARE
@given(SEED, SHAPES, st.integers(0, 3), st.integers(0, 3), st.sampled_from([1.0, 0.5]))
def test_streaming_on_the_fleets_knowledge_is_the_batch_solution_1e_8(
    seed: int, shape: Shape, shared: int, local: int, own_weight: float
) -> None:
    """Also inside a covariance intersection: no sawtooth of certainty between exact solutions."""
    rng = np.random.default_rng(seed)
    state, inputs = random_learner(rng, shape, shared, local, own_weight), random_inputs(rng, shape, 40)
    observed = random_readings(rng, inputs)
    state = teach(state._replace(frames=4000), inputs, observed, Forgetting(NEVER, NEVER, 64))
    assert len(state.fresh) > 10
    before = posterior.prior(state.knowledge.belief, state.knowledge.deviation_var, priors_of(state).local, own_weight)
    for track in range(learner.TRACKS):
        sums = Statistics(*(part[track] for part in learner.total(state)))
        batch = posterior.posterior(before, sums, state.noise_var[track], own_weight)
        np.testing.assert_allclose(state.weights.mean[track], batch.mean, rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(state.weights.cov[track], batch.cov, rtol=1e-8, atol=1e-8)


@RARE
@given(SEED, SHAPES, st.integers(0, 3))
def test_learners_that_tell_each_other_terms_know_what_one_who_saw_all_data_knows_1e_8(
    seed: int, shape: Shape, shared: int
) -> None:
    """Three agents on one basis, one round: each one's weights are the dense posterior given everybody's frames."""
    rng = np.random.default_rng(seed)
    start = lone_learner(rng, shape, shared)
    states = []
    for _ in range(3):
        inputs = random_inputs(rng, shape, 12)
        state = teach(start, inputs, random_readings(rng, inputs), Forgetting(NEVER, NEVER, 1))
        states.append(learner.folded(state))
    terms, noise = [learner.summary(state)[0] for state in states], [state.noise_var[LONG] for state in states]
    published = aggregate.posterior(terms, start.knowledge.prior_var)
    streams = [as_stream(state, 12) for state in states]
    for i, state in enumerate(states):
        known = start.knowledge._replace(
            belief=aggregate.cavity(published, terms[i]), noise_guess=noise[i], noise_frames=20.0
        )
        informed = learner.inform(state, known)
        # inform moves the noise on by one step before it solves: an agent's own, not what the others told
        mine = learner.solve(state._replace(knowledge=known, before=informed.before)).noise_var[LONG]
        own = Stream(streams[i].X, streams[i].Y, streams[i].k, mine)
        assert_dense(informed, [*streams[:i], own, *streams[i + 1 :]], i)


def on_fleet(state: Learner, scale: scaling.Scaling) -> tuple[Learner, Knowledge]:
    """A learner moved to another scaling, and its knowledge as exactly the same belief on it."""
    basis, known = state.basis._replace(scaling=scale), state.knowledge
    T, ratio = moves.change(state.basis, basis)
    moved = message.rebase(message.Term(*known.belief), T, ratio)
    factor = (ratio[:, None] / np.diag(T)) ** 2
    return moves.move(state, basis), known._replace(
        belief=aggregate.Belief(*moved),
        deviation_var=known.deviation_var * factor,
        prior_var=known.prior_var * factor,
        noise_guess=known.noise_guess * ratio**2,
    )


def at_noise(state: Learner, known: Knowledge, noise_var: Array) -> Weights:
    """The exact solution with this knowledge at a given noise [T, Q]."""
    local = np.tile(state.local_var[:, None], (1, state.basis.local_size))
    before = posterior.prior(known.belief, known.deviation_var, local, known.own_weight)
    return posterior.posterior(before, learner.total(state), noise_var, known.own_weight)


@RARE
@given(SEED, SHAPES, st.integers(0, 2), st.integers(1, 30), st.booleans())
def test_a_change_of_scaling_leaves_every_prediction_as_it_was_1e_8(
    seed: int, shape: Shape, shared: int, frames: int, is_shifted: bool
) -> None:
    """Statistics, terms and priors all rebased. A deviation that is diagonal on one centre is not on another: there none."""
    rng = np.random.default_rng(seed)
    state, inputs = random_learner(rng, shape, shared), random_inputs(rng, shape, frames + 4)
    if is_shifted:
        known = state.knowledge._replace(deviation_var=np.full_like(state.knowledge.deviation_var, 1e-13))
        state = learner.knowing(state.basis, known)
    history = Inputs(*(part[:frames] for part in inputs))
    state = teach(state, history, random_readings(rng, history, outliers=0.05), Forgetting())
    old = state.basis.scaling
    centre = old.centre + (5 * rng.standard_normal(len(old.centre)) if is_shifted else 0.0)
    moved, known = on_fleet(state, scaling.Scaling(centre, old.scale * 10 ** rng.uniform(-1, 1, len(old.scale))))
    Q = shape.channels
    ratio = old.scale[:Q] / moved.basis.scaling.scale[:Q]
    np.testing.assert_allclose(moved.noise_var, ratio**2 * state.noise_var, rtol=1e-12)
    before = at_noise(state, state.knowledge, state.noise_var)
    after = at_noise(moved, known, ratio**2 * state.noise_var)
    for t in range(frames, frames + 4):
        x_old, x_new = (features.features(basis, inputs.inputs[[t]])[0] for basis in (state.basis, moved.basis))
        mean_old, known_old, _ = posterior.spread(posterior.running(before), x_old)
        mean_new, known_new, _ = posterior.spread(posterior.running(after), x_new)
        np.testing.assert_allclose(mean_new / ratio, mean_old, rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(known_new / ratio**2, known_old, rtol=1e-8, atol=1e-8)


@RARE
@given(SEED, SHAPES, st.integers(1, 40))
def test_the_terms_of_a_learner_move_with_its_scaling_1e_8(seed: int, shape: Shape, frames: int) -> None:
    """What it tells on the new scaling, with its own layers' priors moved too, is what it told on the old, rebased."""
    rng = np.random.default_rng(seed)
    state, inputs = random_learner(rng, shape, 2, 2), random_inputs(rng, shape, frames)
    state = teach(state, inputs, random_readings(rng, inputs), Forgetting())
    factor = 10 ** rng.uniform(-1, 1, len(state.basis.scaling.scale))
    old = state.basis.scaling
    moved, known = on_fleet(state, scaling.Scaling(old.centre, old.scale * factor))
    T, ratio = moves.change(state.basis, moved.basis)
    moved = moved._replace(knowledge=known, local_var=state.local_var * ratio**2, base=state.base)
    told, expected = message.rebase(learner.summary(state)[0], T, ratio), learner.summary(moved)[0]
    for a, b in zip(told, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-8 * (1 + np.abs(b).max()))


@RARE
@given(SEED, st.floats(1e-6, 1e6), st.floats(-1e3, 1e3))
def test_a_learner_does_not_care_about_units(seed: int, factor: float, offset: float) -> None:
    """Degrees Celsius or Kelvin, pascal or bar: the same standardised errors, to 1e-6, once two readings differ."""
    rng = np.random.default_rng(seed)
    frames = autoregressive(rng, 40, 2, 0.7)
    runs = []
    for series in (frames, factor * (frames + offset)):
        moments = scaling.empty_moments(2)
        for row in series[:10]:
            moments = scaling.observe(moments, row)
        state = learner.on_moments(moments, Shape(2, 1, 0))
        z = []
        for lag, y in pairwise(series[9:]):
            forecast = learner.foresee(state, Inputs(np.concatenate((lag, np.zeros(2))), np.zeros(2), lag, np.zeros(2)))
            z.append((y - forecast.mean) / forecast.sd)
            state = learner.learn(state, forecast, y, Forgetting())
            moments = scaling.observe(moments, y)
            state = moves.rescale(state, moments)
        runs.append(np.array(z))
    # readings 1000 spreads from zero have lost three digits before they are seen
    np.testing.assert_allclose(runs[0], runs[1], rtol=1e-6, atol=1e-6)


def test_a_scale_found_too_small_is_mended_as_frames_double() -> None:
    """A quiet start, then a hundred times the spread: the scale follows within the ratio that is let pass, the law too."""
    rng = np.random.default_rng(13)
    series = rng.standard_normal((2049, 1)) * np.where(np.arange(2049) < 100, 0.01, 1.0)[:, None] + 5
    run = drive(series)
    assert run.learner.basis.scaling.scale[0] == pytest.approx(series.std(), rel=moves.RESCALE_RATIO - 1)
    assert np.std(run.z[1500:]) == pytest.approx(1.0, abs=0.1)


def test_the_order_of_channels_does_not_matter() -> None:
    rng = np.random.default_rng(3)
    series = autoregressive(rng, 300, 3, 0.7) + np.array([0.0, 10.0, 100.0])
    order = [2, 0, 1]
    straight, permuted = drive(series), drive(series[:, order])
    # sums over features in another order
    np.testing.assert_allclose(permuted.z, straight.z[:, order], rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("share", [0.0, 0.5, 0.95, 1.0])
def test_errors_are_as_large_as_the_law_says(share: float) -> None:
    """White noise to random walk: standardised errors have unit spread, after 100 frames and after 1500."""
    series = autoregressive(np.random.default_rng(7), 1500, 4, share) * 0.01 + 20
    z = drive(series).z
    # four standard deviations of a spread from 400 and 4000 errors, and 5 % for what is still learnt and for the tail
    assert np.std(z[50:150]) == pytest.approx(1.0, abs=4 / np.sqrt(2 * 400) + 0.05)
    assert np.std(z[500:]) == pytest.approx(1.0, abs=4 / np.sqrt(2 * 4000) + 0.05)


@pytest.mark.parametrize("noise", [1e-2, 1e-4])
def test_a_smooth_stream_is_known_as_well_as_it_is_smooth(noise: float) -> None:
    """A slow swing with little noise: a first guess of the noise must not stand for ever between a fault and its score."""
    rng = np.random.default_rng(8)
    t = np.arange(6000)
    z = drive((np.sin(t / 700) + noise * rng.standard_normal(6000))[:, None]).z
    # the noise comes down by one EM step a solution, from variances 10^7 times too large: some 15 % are left
    assert np.std(z[4000:]) == pytest.approx(1.0, abs=0.2)


@pytest.mark.parametrize("every", [1, 5])
def test_a_channel_that_comes_rarely_has_the_noise_of_its_steps(every: int) -> None:
    """A random walk read every k-th tick: its step variance is learnt, not k times it, and the law fits its errors."""
    rng = np.random.default_rng(9)
    walk = np.cumsum(rng.standard_normal((1200 * every, 1)), axis=0)
    walk[np.arange(len(walk)) % every != 0] = np.nan
    run = drive(walk, lags=1)
    sd = np.sqrt(run.learner.noise_var[LONG, 0]) * run.learner.basis.scaling.scale[0]
    # the scale of a Student-t, below the standard deviation; five steps' worth would be 2.2
    assert 0.7 < sd < 1.1
    assert np.nanstd(run.z[300 * every :]) == pytest.approx(1.0, abs=0.1)


def test_the_longer_a_reading_is_held_the_less_is_known() -> None:
    state = drive(autoregressive(np.random.default_rng(10), 200, 1, 0.9)).learner
    sd = []
    for age in (0.0, 1.0, 5.0, learner.MAX_AGE, 1000.0, np.inf):
        held = Inputs(np.zeros(state.basis.shape.inputs), np.array([age]), np.zeros(1), np.zeros(1))
        sd.append(learner.foresee(state, held).sd[0])
    assert sd == sorted(sd)
    assert sd[1] > 1.3 * sd[0]
    # older than the oldest is as old
    assert sd[3] == sd[4] == sd[5]


@pytest.mark.parametrize("floor", [0.0, 1e-3, 5.0, 1e6])
def test_no_law_is_sharper_than_the_sensors_resolution(floor: float) -> None:
    state = drive(autoregressive(np.random.default_rng(11), 300, 1, 0.9)).learner
    at = Inputs(np.zeros(state.basis.shape.inputs), np.zeros(1), np.zeros(1), np.zeros(1))
    sharp, blunt = (learner.foresee(state, at._replace(floor=np.array([f]))) for f in (0.0, floor))
    # the tail's factor may widen it further
    assert max(sharp.scale[0], floor) <= blunt.scale[0] * (1 + 1e-12) < 1.5 * max(sharp.scale[0], floor)
    assert blunt.mean[0] == pytest.approx(sharp.mean[0])


def test_far_from_all_inducing_inputs_the_law_is_the_prior_of_the_inducing_part() -> None:
    """Mean of the nonlinear part 0, its variance the prior's, beyond what the noise holds of it already."""
    rng = np.random.default_rng(12)
    shape = Shape(1, 1, 0)
    state, inputs = random_learner(rng, shape, 4, 3), random_inputs(rng, shape, 200)
    state = teach(state, inputs, random_readings(rng, inputs), Forgetting())
    far = Inputs(np.array([1e9, 0.0]), np.zeros(1), np.array([1e9]), np.zeros(1))
    forecast = learner.foresee(state, far)
    assert not forecast.features[shape.linear :].any()
    layers = (state.knowledge.prior_var[0, -1] + state.knowledge.deviation_var[0, -1], state.local_var[0])
    sd = (PRIOR_SD["inducing"], PRIOR_SD["local"])
    expected = sum(v * (s**2 - spare) for v, s, spare in zip(layers, sd, state.spare, strict=True))
    assert forecast.around.extra[0] == pytest.approx(expected, rel=1e-9)
    known = posterior.spread(state.base, forecast.features)[1]
    np.testing.assert_allclose(forecast.variances, known + state.noise_var + expected, rtol=1e-9)
    # among its frames it adds next to nothing
    near = learner.foresee(state, one(inputs, 0))
    assert near.around.extra[0] < 0.2 * expected


@pytest.mark.parametrize("size", [1.0, 30.0])
def test_the_local_layers_scale_is_the_dense_em_step_1e_8_and_stops_at_the_ceiling(size: float) -> None:
    """Streams made by weights of this size. As many weights of the first guess count beside the layer's own."""
    rng = np.random.default_rng(14)
    shape = Shape(1, 1, 0)
    state = learner.alone(random_basis(rng, shape, 0, 3))
    inputs = random_inputs(rng, shape, 200)
    step = size * features.features(state.basis, inputs.inputs)[:, -3:] @ np.array([1.0, -1.0, 1.0])
    observed = inputs.last + state.unit * (step[:, None] + 0.01 * rng.standard_normal((200, 1)))
    state = teach(state, inputs, observed, Forgetting(NEVER, NEVER))
    told = learner.inform(state, state.knowledge)
    # ``inform`` solves twice: under the noise of the first solution, by the scales of before
    mean, cov = condition([as_stream(learner.folded(learner.solve(state)), 200)], priors_of(state), 0).weights(0)
    square = mean[-3:] ** 2 + np.diagonal(cov)[-3:]
    expected = (3 * hyper.LOCAL + np.sum(square)) / 6
    assert told.local_var[0] == pytest.approx(expected, rel=1e-8)
    for _ in range(30):
        told = learner.inform(told, state.knowledge)
    # the mean of the weights' squares and of the first guess, up to the ceiling
    assert told.local_var[0] == pytest.approx(min((hyper.LOCAL + size**2) / 2, hyper.CEILING), rel=0.1)


def test_what_an_agent_tells_of_its_noise_does_not_depend_on_what_it_was_told() -> None:
    """Two guesses 10^4 apart, worth 20 frames: what each tells after 1000 of its own differs by under 2 %."""
    state = drive(autoregressive(np.random.default_rng(11), 1000, 1, 0.5)).learner
    told = []
    for guess in (1e-2, 1e2):
        known = state.knowledge._replace(noise_guess=np.array([guess]), noise_frames=20.0)
        told.append(learner.own_noise(learner.inform(state, known))[0])
    assert told[0] == pytest.approx(told[1], rel=0.02)
    # the squared scale of a Student-t: of Gaussian errors up to 30 % below their variance
    assert 0.65 < told[0] * state.basis.scaling.scale[0] ** 2 < 1.1


def test_a_constant_fleet_does_not_talk_itself_into_certainty() -> None:
    """Rounds of telling and being told without a new frame do not shrink the noise of a channel that stood still."""
    state = drive(np.full((500, 1), 20.0)).learner
    told = []
    for _ in range(20):
        told.append(float(learner.own_noise(state)[0]))
        known = state.knowledge._replace(noise_guess=np.array(told[-1:]), noise_frames=20.0)
        state = learner.inform(state, known)
    # what the bias's weight may still be moves with the noise, and the estimate a little with it
    assert told[-1] == pytest.approx(told[0], rel=0.1)
