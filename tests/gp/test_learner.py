"""A learner on streams: equal to the dense answer, indifferent to units, sensible on everything a sensor can do."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from dense_fleet import Stream, condition
from drive_learner import drive
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetgp import features, scaling
from fleetgp.gp import aggregate, message, posterior
from fleetgp.gp import learner as learning
from fleetgp.gp.learner import Forgetting, Inputs, Knowledge, Learner
from fleetgp.scaling import Scaling

RARE = settings(max_examples=25, deadline=None, derandomize=True)
NEVER = 1e18  # a half-life that forgets nothing in any test


def autoregressive(rng: np.random.Generator, frames: int, channels: int, share: float) -> np.ndarray:
    """x_t = share x_{t-1} + e_t, e ~ N(0, 1), from a stationary start."""
    x = np.empty((frames, channels))
    x[0] = rng.standard_normal(channels) / np.sqrt(max(1 - share**2, 1e-3))
    for t in range(1, frames):
        x[t] = share * x[t - 1] + rng.standard_normal(channels)
    return x


def start(rng: np.random.Generator, channels: int = 2, lags: int = 2, covariates: int = 1) -> Learner:
    inputs = channels + covariates
    moments = scaling.empty_moments(inputs)
    for _ in range(5):
        moments = scaling.observe(moments, rng.standard_normal(inputs) * 3 + 10)
    return learning.alone(moments, channels, lags)


def random_frames(rng: np.random.Generator, learner: Learner, frames: int) -> list[tuple[Inputs, np.ndarray]]:
    """Inputs and readings, some missing, some held over."""
    Q, L = learner.channels, learner.lags
    C = len(learner.scaling.centre) - Q
    result = []
    for _ in range(frames):
        y = rng.standard_normal(Q) * 3 + 10
        y[rng.random(Q) < 0.2] = np.nan
        age = rng.integers(0, 4, Q).astype(float)
        result.append((Inputs(rng.standard_normal((L, Q)) * 3 + 10, rng.standard_normal(C) * 3 + 10, age), y))
    return result


def teach(learner: Learner, frames: list[tuple[Inputs, np.ndarray]], rule: Forgetting) -> Learner:
    for inputs, y in frames:
        forecast = learning.foresee(learner, inputs)
        learner = learning.learn(learner, forecast, inputs.lags[0], y, rule)
    return learner


def as_stream(learner: Learner, frames: list[tuple[Inputs, np.ndarray]]) -> Stream:
    """The same frames for the dense computation, on the learner's scale."""
    Q = learner.channels
    centre, scale = learner.scaling
    X, Y, k = [], [], []
    for inputs, y in frames:
        lags = (inputs.lags - centre[:Q]) / scale[:Q]
        X.append(features.linear(lags, (inputs.covariates - centre[Q:]) / scale[Q:]))
        Y.append((y - inputs.lags[0]) / scale[:Q])
        k.append(1 + inputs.age)
    return Stream(np.array(X), np.array(Y), np.array(k), learner.noise_var)


@RARE
@given(st.integers(0, 10**6), st.integers(1, 12))
def test_after_any_frames_the_weights_are_the_dense_posterior_at_the_learners_noise(seed: int, frames: int) -> None:
    """Between exact solutions too: rank-one learning on top of the last one is the batch answer, to 1e-8."""
    rng = np.random.default_rng(seed)
    learner = start(rng)
    data = random_frames(rng, learner, frames)
    # the noise changes at an exact solution only: none but the first in the second half
    learner = teach(learner, data[: frames // 2], Forgetting(NEVER, 1))
    learner = teach(learner._replace(frames=1000), data[frames // 2 :], Forgetting(NEVER, 64))
    stream = as_stream(learner, data)
    for q in range(learner.channels):
        mean, cov = condition([stream], learner.knowledge.phi, q).weights(0)
        np.testing.assert_allclose(learner.weights.mean[q], mean, rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(learner.weights.cov[q], cov, rtol=1e-8, atol=1e-8)


@RARE
@given(st.integers(0, 10**6), st.sampled_from([1.0, 0.5]))
def test_streaming_on_the_fleets_knowledge_is_the_batch_solution(seed: int, own_weight: float) -> None:
    """Also inside a covariance intersection: no sawtooth of certainty between exact solutions."""
    rng = np.random.default_rng(seed)
    learner = start(rng)
    A = rng.standard_normal((2, 6, 6))
    belief = aggregate.Belief(np.eye(6) + A @ A.mT, rng.standard_normal((2, 6)))
    known = Knowledge(belief, learner.knowledge.phi, np.full(2, 0.1), 20.0, own_weight)
    learner = learning.inform(teach(learner, random_frames(rng, learner, 10), Forgetting()), learner.scaling, known)
    streamed = teach(learner._replace(frames=1000, fresh=0), random_frames(rng, learner, 30), Forgetting(NEVER, 64))
    before = posterior.prior(belief, known.phi, own_weight)
    batch = posterior.posterior(before, streamed.statistics, streamed.noise_var, own_weight)
    np.testing.assert_allclose(streamed.weights.mean, batch.mean, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(streamed.weights.cov, batch.cov, rtol=1e-8, atol=1e-8)


def test_learners_that_tell_each_other_terms_know_what_one_who_saw_all_data_knows() -> None:
    """Three agents, one round: each one's weights are the dense posterior given everybody's frames, to 1e-8."""
    rng = np.random.default_rng(1)
    learners, frames = [], []
    for _ in range(3):
        one = start(rng)._replace(scaling=Scaling(np.full(3, 10.0), np.full(3, 3.0)))
        frames.append(random_frames(rng, one, 15))
        learners.append(learning.solve(teach(one, frames[-1], Forgetting(NEVER, 1))))
    phi = learners[0].knowledge.phi
    terms = [message.summarise(one.statistics, one.noise_var, phi) for one in learners]
    published = aggregate.posterior(terms, 2, 6)
    streams = [as_stream(one, data) for one, data in zip(learners, frames, strict=True)]
    for i, one in enumerate(learners):
        known = Knowledge(aggregate.cavity(published, terms[i]), phi, one.noise_var, 20.0, 1.0)
        informed = learning.inform(one, one.scaling, known)
        # an agent's noise moves on with what it hears; the others' stays what they told
        everybody = [*streams[:i], as_stream(informed, frames[i]), *streams[i + 1 :]]
        for q in range(2):
            mean, cov = condition(everybody, phi, q).weights(i)
            np.testing.assert_allclose(informed.weights.mean[q], mean, rtol=1e-8, atol=1e-8)
            np.testing.assert_allclose(informed.weights.cov[q], cov, rtol=1e-8, atol=1e-8)


@RARE
@given(st.integers(0, 10**6), st.integers(1, 20))
def test_a_change_of_scale_is_as_if_the_learner_had_always_been_on_it(seed: int, frames: int) -> None:
    """Statistics carried over equal those made afresh, and so does every prediction at the same noise, to 1e-8."""
    rng = np.random.default_rng(seed)
    old = start(rng)
    new = Scaling(old.scaling.centre + 5 * rng.standard_normal(3), old.scaling.scale * 10 ** rng.uniform(-1, 1, 3))
    data = random_frames(rng, old, frames)
    taught = teach(old, data, Forgetting(NEVER, 1))
    moved = learning.inform(taught, new, taught.knowledge)
    afresh = teach(old._replace(scaling=new, noise_var=moved.noise_var), data, Forgetting(NEVER, 1))
    for a, b in zip(moved.statistics, afresh.statistics, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-8 * (1 + np.abs(b).max()))
    moved, afresh = (learning.solve(one._replace(noise_var=taught.noise_var)) for one in (moved, afresh))
    inputs = random_frames(rng, old, 1)[0][0]
    for a, b in zip(learning.foresee(moved, inputs)[3:], learning.foresee(afresh, inputs)[3:], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-8)


def test_predictions_before_and_after_a_change_of_scale_agree_as_far_as_the_prior_allows() -> None:
    """With many frames the prior of the weights, which lives on the scale, hardly matters."""
    rng = np.random.default_rng(2)
    run = drive(autoregressive(rng, 2000, 2, 0.8) + 20, rule=Forgetting(NEVER, 64))
    old = learning.solve(run.learner)
    new = Scaling(old.scaling.centre + np.array([3.0, -2.0]), old.scaling.scale * np.array([2.0, 0.6]))
    moved = learning.inform(old, new, old.knowledge)
    inputs = Inputs(np.array([[21.0, 19.0], [20.0, 22.0]]), np.zeros(0), np.zeros(2))
    before, after = learning.foresee(old, inputs), learning.foresee(moved, inputs)
    # the prior is worth a frame or two among 2000
    np.testing.assert_allclose(after.mean, before.mean, atol=3e-3)
    np.testing.assert_allclose(after.sd, before.sd, rtol=3e-3)


@RARE
@given(st.integers(0, 10**6), st.floats(1e-6, 1e6), st.floats(-1e3, 1e3))
def test_a_learner_does_not_care_about_units(seed: int, factor: float, offset: float) -> None:
    """Degrees Celsius or Kelvin, pascal or bar: the same standardised errors, to 1e-6, once two readings differ."""
    rng = np.random.default_rng(seed)
    frames = autoregressive(rng, 40, 2, 0.7)
    runs = []
    for series in (frames, factor * (frames + offset)):
        moments = scaling.empty_moments(2)
        for row in series[:10]:
            moments = scaling.observe(moments, row)
        learner = learning.alone(moments, 2, 1)
        z = []
        for lag, y in pairwise(series[9:]):
            forecast = learning.foresee(learner, Inputs(lag[None], np.zeros(0), np.zeros(2)))
            z.append((y - forecast.mean) / forecast.sd)
            learner = learning.learn(learner, forecast, lag, y, Forgetting())
            moments = scaling.observe(moments, y)
            learner = learning.rescale(learner, moments)
        runs.append(np.array(z))
    # readings 1000 spreads from zero have lost three digits before they are seen
    np.testing.assert_allclose(runs[0], runs[1], rtol=1e-6, atol=1e-6)


def test_a_scale_found_too_small_is_mended_as_frames_double() -> None:
    """A quiet start, then a hundred times the spread: the scale follows within the ratio that is let pass, the law too."""
    rng = np.random.default_rng(13)
    series = rng.standard_normal((2049, 1)) * np.where(np.arange(2049) < 100, 0.01, 1.0)[:, None] + 5
    run = drive(series)
    assert run.learner.scaling.scale[0] == pytest.approx(series.std(), rel=learning.RESCALE_RATIO - 1)
    assert np.std(run.z[1500:]) == pytest.approx(1.0, abs=0.1)


def test_the_order_of_channels_does_not_matter() -> None:
    rng = np.random.default_rng(3)
    series = autoregressive(rng, 300, 3, 0.7) + np.array([0.0, 10.0, 100.0])
    order = [2, 0, 1]
    straight, permuted = drive(series), drive(series[:, order])
    # sums over features in another order
    np.testing.assert_allclose(permuted.z, straight.z[:, order], rtol=1e-8, atol=1e-8)


def test_the_fleets_visits_do_not_stop_forgetting() -> None:
    """Rounds more frequent than exact solutions: the past fades as it does alone."""
    series = autoregressive(np.random.default_rng(4), 800, 1, 0.8)
    rule = Forgetting(half_life=200.0, refresh=64)

    def visit(learner: Learner, frame: int) -> Learner:
        return learning.inform(learner, learner.scaling, learner.knowledge) if frame % 10 == 0 else learner

    alone, visited = drive(series, rule=rule), drive(series, rule=rule, between=visit)
    for a, b in zip(visited.learner.statistics, alone.learner.statistics, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9)
    # a half-life of 200 frames remembers 200 / log 2 of them
    assert visited.learner.statistics.n[0] == pytest.approx(200 / np.log(2), rel=0.2)


def test_a_slowly_changing_relation_is_followed_with_a_short_memory_and_missed_with_a_long_one() -> None:
    """A coefficient that goes from 0.9 to -0.9 over 3000 frames: errors within 6 % of one who is told it."""
    rng = np.random.default_rng(5)
    n = 3000
    share = np.linspace(0.9, -0.9, n)
    noise = rng.standard_normal((n, 1))
    x = np.zeros((n, 1))
    for t in range(1, n):
        x[t] = share[t] * x[t - 1] + noise[t]

    def rms(half_life: float) -> float:
        return float(np.sqrt(np.mean((x[1:] - drive(x, lags=1, rule=Forgetting(half_life, 64)).mean)[n // 2 :] ** 2)))

    told = float(np.sqrt(np.mean(noise[n // 2 + 1 :] ** 2)))
    assert rms(100.0) < 1.06 * told
    assert rms(NEVER) > 1.15 * told


def test_twenty_thousand_frames_with_forgetting_leave_a_covariance_between_nothing_and_the_prior() -> None:
    """Looked at in the middle of rank-one runs; a constant covariate's weight stays as unsure as at first, to 1e-9."""
    rng = np.random.default_rng(6)
    series = autoregressive(rng, 20_000, 2, 0.95)
    series[rng.random(series.shape) < 0.1] = np.nan
    series[0] = 1.0
    looks = []

    def look(learner: Learner, frame: int) -> Learner:
        if frame % 500 == 63:
            prior = posterior.prior(learner.knowledge.belief, learner.knowledge.phi).cov
            assert np.linalg.eigvalsh(learner.weights.cov).min() > 0
            assert np.linalg.eigvalsh(prior - learner.weights.cov).min() > -1e-9
            looks.append(learner.weights.cov[:, -1, -1])
        return learner

    run = drive(series, covariates=np.full((20_000, 1), 7.0), rule=Forgetting(500.0, 64), between=look)
    assert len(looks) == 40
    np.testing.assert_allclose(looks, 1.01, rtol=1e-9)
    assert np.nanstd(run.z[1000:]) == pytest.approx(1.0, abs=0.03)


@pytest.mark.parametrize("share", [0.0, 0.5, 0.95, 1.0])
def test_errors_are_as_large_as_the_law_says(share: float) -> None:
    """White noise to random walk: standardised errors have unit spread, after 100 frames and after 1500."""
    series = autoregressive(np.random.default_rng(7), 1500, 4, share) * 0.01 + 20
    z = drive(series).z
    # four standard deviations of a spread from 400 and 4000 errors, and 3 % for what is still learnt
    assert np.std(z[50:150]) == pytest.approx(1.0, abs=4 / np.sqrt(2 * 400) + 0.03)
    assert np.std(z[500:]) == pytest.approx(1.0, abs=4 / np.sqrt(2 * 4000) + 0.03)


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
    # 1200 readings tell a standard deviation to 2 %: four of those
    assert np.sqrt(run.learner.noise_var[0]) * run.learner.scaling.scale[0] == pytest.approx(1.0, abs=0.08)
    assert np.nanstd(run.z[300 * every :]) == pytest.approx(1.0, abs=0.1)


def test_the_longer_a_reading_is_held_the_less_is_known() -> None:
    learner = drive(autoregressive(np.random.default_rng(10), 200, 1, 0.9)).learner
    ages = [0.0, 1.0, 5.0, learning.MAX_AGE, 1000.0]
    sd = [learning.foresee(learner, Inputs(np.zeros((2, 1)), np.zeros(0), np.array([age]))).sd[0] for age in ages]
    assert sd == sorted(sd)
    assert sd[1] > 1.3 * sd[0]
    # older than the oldest is as old
    assert sd[4] == sd[3]


def test_what_an_agent_tells_of_its_noise_does_not_depend_on_what_it_was_told() -> None:
    """Two guesses 10^4 apart, worth 20 frames: what each tells after 1000 of its own differs by under 2 %."""
    learner = drive(autoregressive(np.random.default_rng(11), 1000, 1, 0.5)).learner
    told = []
    for guess in (1e-2, 1e2):
        known = learner.knowledge._replace(noise_guess=np.array([guess]), noise_frames=20.0)
        told.append(learning.own_noise(learning.inform(learner, learner.scaling, known))[0])
    assert told[0] == pytest.approx(told[1], rel=0.02)
    assert told[0] * learner.scaling.scale[0] ** 2 == pytest.approx(1.0, rel=0.15)


def test_a_constant_fleet_does_not_talk_itself_into_certainty() -> None:
    """Rounds of telling and being told without a new frame do not shrink the noise of a channel that stood still."""
    learner = drive(np.full((500, 1), 20.0)).learner
    told = []
    for _ in range(20):
        told.append(float(learning.own_noise(learner)[0]))
        known = learner.knowledge._replace(noise_guess=np.array(told[-1:]), noise_frames=20.0)
        learner = learning.inform(learner, learner.scaling, known)
    # what the bias's weight may still be moves with the noise, and the estimate a little with it
    assert told[-1] == pytest.approx(told[0], rel=0.1)
