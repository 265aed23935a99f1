"""An agent's own weights: streaming equals batch, forgetting touches data only, and the noise climbs its evidence."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from dense_fleet import Priors, Stream, condition, plain, random_stream
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetgp.gp import posterior, statistics
from fleetgp.gp.aggregate import Belief
from fleetgp.gp.aggregate import prior as nobody
from fleetgp.gp.posterior import Before, Running, Weights

RARE = settings(max_examples=40, deadline=None, derandomize=True)
SEED = st.integers(0, 10**6)


def random_belief(rng: np.random.Generator, channels: int, size: int) -> Belief:
    A = rng.standard_normal((channels, size, size))
    return Belief(np.eye(size) + A @ A.mT, rng.standard_normal((channels, size)))


def alone(channels: int, size: int, deviation: float = 1.0) -> Before:
    """v ~ N(0, I) that nobody told anything of, d of this variance, no local layer."""
    priors = plain(channels, size, deviation)
    return posterior.prior(nobody(priors.shared), priors.deviation, priors.local)


def updated(running: Running, x: np.ndarray, y: np.ndarray, noise: np.ndarray) -> Running:
    """One frame by a rank-one update; a missing target, or an infinite noise, teaches nothing."""
    mean, known, reach = posterior.spread(running, x)
    is_there = np.isfinite(y)
    error, noise = np.where(is_there, y - mean, 0.0), np.where(is_there, noise, np.inf)
    return posterior.learn(running, known, reach, error, noise, posterior.rounding(running, x))


def learn(before: Before, stream: Stream, rows: range | list[int], own_weight: float = 1.0) -> Weights:
    """Frames one by one, as rank-one updates."""
    running = posterior.running(posterior.unlearnt(before))
    for t in rows:
        running = updated(running, stream.X[t], stream.Y[t], stream.noise_var * stream.k[t] / own_weight)
    return posterior.whole(running)


@RARE
@given(SEED, st.integers(0, 40), st.integers(1, 3), st.integers(1, 5), st.integers(0, 3), st.sampled_from([1.0, 0.5]))
def test_rank_one_learning_frame_by_frame_is_the_batch_solution_1e_8(
    seed: int, frames: int, channels: int, size: int, local: int, own_weight: float
) -> None:
    """Missing channels and aged frames included, from any belief of the fleet, with a local layer."""
    rng = np.random.default_rng(seed)
    stream = random_stream(rng, frames, channels, size + local)
    deviation, local_var = 10 ** rng.uniform(-2, 0, (channels, size)), 10 ** rng.uniform(-2, 0, (channels, local))
    before = posterior.prior(random_belief(rng, channels, size), deviation, local_var, own_weight)
    streamed = learn(before, stream, range(frames), own_weight)
    batch = posterior.posterior(before, stream.statistics(), stream.noise_var, own_weight)
    np.testing.assert_allclose(streamed.mean, batch.mean, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(streamed.cov, batch.cov, rtol=1e-8, atol=1e-8)


@RARE
@given(SEED, st.integers(0, 9), st.integers(1, 3), st.integers(1, 4), st.integers(0, 3), st.sampled_from([1.0, 0.5]))
def test_what_is_factored_once_before_the_data_is_the_gaussian_it_says_1e_8(
    seed: int, frames: int, channels: int, size: int, local: int, own_weight: float
) -> None:
    """Precision is the inverse of the covariance, shift the precision times the mean; two memories at once are two."""
    rng = np.random.default_rng(seed)
    deviation, local_var = 10 ** rng.uniform(-2, 0, (channels, size)), 10 ** rng.uniform(-2, 0, (channels, local))
    belief = random_belief(rng, channels, size)
    before = posterior.prior(belief, deviation, local_var, own_weight)
    cov = np.zeros((channels, size + local, size + local))
    for q in range(channels):
        cov[q, :size, :size] = np.linalg.inv(belief.precision[q]) + np.diag(deviation[q] / own_weight)
        cov[q, size:, size:] = np.diag(local_var[q] / own_weight)
    np.testing.assert_allclose(before.precision, np.linalg.inv(cov), rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(cov @ before.shift[..., None], before.mean[..., None], rtol=1e-8, atol=1e-8)
    unlearnt = posterior.unlearnt(before)
    np.testing.assert_allclose(unlearnt.cov, cov, rtol=1e-8, atol=1e-8)
    np.testing.assert_array_equal(unlearnt.mean, before.mean)
    streams = [random_stream(rng, frames, channels, size + local) for _ in range(2)]
    both = statistics.Statistics(*(np.stack(p) for p in zip(*(s.statistics() for s in streams), strict=True)))
    noise = np.stack([s.noise_var for s in streams])
    together = posterior.posterior(before, both, noise, own_weight)
    for t, stream in enumerate(streams):
        one = posterior.posterior(before, stream.statistics(), stream.noise_var, own_weight)
        np.testing.assert_allclose(together.mean[t], one.mean, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(together.cov[t], one.cov, rtol=1e-12, atol=1e-12)


@RARE
@given(SEED, st.integers(1, 12), st.integers(1, 4), st.randoms(use_true_random=False))
def test_the_order_of_frames_does_not_matter(seed: int, frames: int, size: int, random: Random) -> None:
    stream = random_stream(np.random.default_rng(seed), frames, 2, size)
    order = list(range(frames))
    random.shuffle(order)
    before = alone(2, size)
    results = [learn(before, stream, rows) for rows in (list(range(frames)), order)]
    for a, b in zip(*results, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("target", [np.nan, np.inf])
def test_a_missing_channel_is_left_alone_to_the_last_bit(target: float) -> None:
    rng = np.random.default_rng(1)
    before = posterior.prior(random_belief(rng, 2, 3), np.ones((2, 3)), np.zeros((2, 0)))
    stream = Stream(rng.standard_normal((1, 3)), np.array([[target, 1.0]]), np.ones((1, 2)), np.ones(2))
    after = learn(before, stream, [0])
    np.testing.assert_array_equal(after.mean[0], before.mean[0])
    np.testing.assert_array_equal(after.cov[0], posterior.unlearnt(before).cov[0])
    assert np.abs(after.mean[1] - before.mean[1]).max() > 0.01


@pytest.mark.parametrize("reach", [1.0, 1e4, 1e8, 1e12])
def test_what_rounding_loses_never_makes_a_prediction_surer_than_its_noise(reach: float) -> None:
    """Inputs far outside their scale, little noise: rank-one updates lose all digits, the law stays a law."""
    rng = np.random.default_rng(3)
    before, noise = alone(1, 6), np.array([1e-8])
    running = posterior.running(posterior.unlearnt(before))
    for _ in range(64):
        x = reach * rng.standard_normal(6)
        mean, known, _ = posterior.spread(running, x)
        assert np.all(known >= 0)
        assert np.all(np.isfinite(mean))
        running = updated(running, x, rng.standard_normal(1), noise)
    # v and d at first; frames only ever take from that
    assert np.diagonal(posterior.whole(running).cov[0]).max() <= 2.0


def expected_square(stream: Stream, q: int, mean: np.ndarray, cov: np.ndarray) -> float:
    """E sum (y - F w)^2 / k over w ~ N(mean, cov), frame by frame."""
    total = 0.0
    for x, y, k in zip(stream.X, stream.Y[:, q], stream.k[:, q], strict=True):
        if np.isfinite(y):
            total += ((y - x @ mean) ** 2 + x @ cov @ x) / k
    return total


@RARE
@given(SEED, st.integers(0, 15), st.integers(1, 3), st.integers(1, 4), st.floats(0.1, 20))
def test_the_noise_step_is_the_dense_expectation_over_the_weights(
    seed: int, frames: int, channels: int, size: int, guess_count: float
) -> None:
    """Expected squares by frame, divided by the number of frames, whatever their weights; the guess as more frames."""
    rng = np.random.default_rng(seed)
    stream = random_stream(rng, frames, channels, size)
    guess = 10 ** rng.uniform(-1, 1, channels)
    weights = posterior.posterior(alone(channels, size), stream.statistics(), stream.noise_var)
    estimate = posterior.estimate_noise(stream.statistics(), weights, guess, guess_count)
    for q in range(channels):
        count = np.isfinite(stream.Y[:, q]).sum()
        square = expected_square(stream, q, weights.mean[q], weights.cov[q])
        assert estimate[q] == pytest.approx((square + guess_count * guess[q]) / (count + guess_count), rel=1e-9)


def test_the_noise_step_is_a_monte_carlo_mean_over_the_weights() -> None:
    rng = np.random.default_rng(4)
    stream = random_stream(rng, 12, 1, 3, missing=0.0)
    weights = posterior.posterior(alone(1, 3), stream.statistics(), stream.noise_var)
    draws = rng.multivariate_normal(weights.mean[0], weights.cov[0], size=40_000)
    squares = ((stream.Y[:, 0] - draws @ stream.X.T) ** 2 / stream.k[:, 0]).mean(axis=1)
    estimate = posterior.estimate_noise(stream.statistics(), weights, np.ones(1), 1e-9)
    # four standard errors of the mean of 40,000 draws
    assert estimate[0] == pytest.approx(squares.mean(), abs=4 * squares.std() / 200)


def objective(stream: Stream, priors: Priors, noise_var: float, guess: float, guess_count: float) -> float:
    """Log evidence of the readings, weights integrated out, plus the log density of the guess's inverse gamma."""
    one = Stream(stream.X, stream.Y, stream.k, np.array([noise_var]))
    return condition([one], priors, 0).evidence - 0.5 * guess_count * (np.log(noise_var) + guess / noise_var)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(SEED, st.integers(1, 15), st.integers(1, 4), st.floats(-3, 3))
def test_noise_steps_climb_the_evidence_to_where_it_is_flat(seed: int, frames: int, size: int, start: float) -> None:
    """With missing and aged frames; from any start; the slope at the end is zero by finite difference."""
    rng = np.random.default_rng(seed)
    stream = random_stream(rng, frames, 1, size)
    priors, guess, guess_count = plain(1, size), 0.5, 1.0
    before = alone(1, size)
    noise = np.array([10.0**start])
    last = objective(stream, priors, noise.item(), guess, guess_count)
    for _ in range(400):
        weights = posterior.posterior(before, stream.statistics(), noise)
        noise = posterior.estimate_noise(stream.statistics(), weights, np.array([guess]), guess_count)
        now = objective(stream, priors, noise.item(), guess, guess_count)
        # a last bit of a sum of a few tens
        assert now >= last - 1e-9
        if now - last < 1e-13:
            break
        last = now
    h = 1e-4
    up, down = (objective(stream, priors, noise.item() * np.exp(s), guess, guess_count) for s in (h, -h))
    # EM stops where a step gains 1e-13, up to about 1e-4 of slope away from the top
    assert (up - down) / (2 * h) == pytest.approx(0.0, abs=2e-3)


def test_a_prediction_is_the_law_of_features_times_weights() -> None:
    weights = Weights(np.array([[1.0, -2.0]]), np.array([[[2.0, 0.5], [0.5, 1.0]]]))
    for x in (np.array([3.0, 1.0]), np.array([[3.0, 1.0]])):
        mean, known = posterior.foreseen(weights, x)
        assert mean.item() == pytest.approx(3 - 2)
        assert known.item() == pytest.approx(9 * 2 + 2 * 3 * 0.5 + 1)


@RARE
@given(SEED, st.integers(1, 5), st.integers(1, 3), st.integers(1, 6))
def test_many_frames_foreseen_at_once_are_each_foreseen_1e_12(seed: int, n: int, channels: int, size: int) -> None:
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((channels, size, size))
    weights = Weights(rng.standard_normal((channels, size)), A @ A.mT)
    X = rng.standard_normal((n, size))
    for one, x in zip(zip(*posterior.foreseen(weights, X), strict=True), X, strict=True):
        for a, b in zip(one, posterior.foreseen(weights, x), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)
