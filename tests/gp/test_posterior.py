"""An agent's own weights: streaming equals batch, forgetting touches data only, and the noise climbs its evidence."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from dense_fleet import Stream, condition, random_stream
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetgp.gp import posterior, statistics
from fleetgp.gp.aggregate import Belief
from fleetgp.gp.aggregate import prior as nobody
from fleetgp.gp.posterior import Weights

RARE = settings(max_examples=40, deadline=None, derandomize=True)
SEED = st.integers(0, 10**6)


def random_belief(rng: np.random.Generator, channels: int, size: int) -> Belief:
    A = rng.standard_normal((channels, size, size))
    return Belief(np.eye(size) + A @ A.mT, rng.standard_normal((channels, size)))


@RARE
@given(SEED, st.integers(0, 40), st.integers(1, 3), st.integers(1, 5), st.sampled_from([1.0, 0.5]))
def test_rank_one_learning_frame_by_frame_is_the_batch_solution(
    seed: int, frames: int, channels: int, size: int, own_weight: float
) -> None:
    """Missing channels and aged frames included, from any belief of the fleet, to 1e-8."""
    rng = np.random.default_rng(seed)
    stream = random_stream(rng, frames, channels, size)
    before = posterior.prior(random_belief(rng, channels, size), 10 ** rng.uniform(-2, 0, size), own_weight)
    streamed = before
    for x, y, k in zip(stream.X, stream.Y, stream.k, strict=True):
        present = np.isfinite(y).astype(float)
        streamed = posterior.learn(streamed, x, y, stream.noise_var * k / own_weight, present)
    batch = posterior.posterior(before, stream.statistics(), stream.noise_var, own_weight)
    np.testing.assert_allclose(streamed.mean, batch.mean, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(streamed.cov, batch.cov, rtol=1e-8, atol=1e-8)


@RARE
@given(SEED, st.integers(1, 12), st.integers(1, 4), st.randoms(use_true_random=False))
def test_the_order_of_frames_does_not_matter(seed: int, frames: int, size: int, random: Random) -> None:
    stream = random_stream(np.random.default_rng(seed), frames, 2, size)
    order = list(range(frames))
    random.shuffle(order)
    results = []
    for rows in (range(frames), order):
        weights = posterior.prior(nobody(2, size), np.ones(size))
        for t in rows:
            present = np.isfinite(stream.Y[t]).astype(float)
            weights = posterior.learn(weights, stream.X[t], stream.Y[t], stream.noise_var * stream.k[t], present)
        results.append(weights)
    for a, b in zip(*results, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-8)


def test_a_missing_channel_is_left_alone_to_the_last_bit() -> None:
    rng = np.random.default_rng(1)
    before = posterior.prior(random_belief(rng, 2, 3), np.ones(3))
    after = posterior.learn(before, rng.standard_normal(3), np.array([np.nan, 1.0]), np.ones(2), np.array([0.0, 1.0]))
    np.testing.assert_array_equal(after.mean[0], before.mean[0])
    np.testing.assert_allclose(after.cov[0], before.cov[0], rtol=1e-15)
    assert np.abs(after.mean[1] - before.mean[1]).max() > 0.01


def test_forgetting_touches_data_only() -> None:
    """A million decayed frames that never excite a direction: its variance stays what the prior says, to 1e-9.

    (Forgetting that decays the posterior's precision instead makes such a variance grow without bound.)
    """
    phi, factor = np.array([0.3, 1.0, 0.01]), 0.5 ** (64 / 2000)
    before = posterior.prior(nobody(1, 3), phi)
    rng = np.random.default_rng(2)
    block = statistics.empty(1, 3)
    for _ in range(64):
        x = np.array([rng.standard_normal(), 0.0, 0.0])
        block = statistics.observe(block, x, 2 * x[:1], np.ones(1))
    sums = statistics.empty(1, 3)
    for _ in range(1_000_000 // 64):
        sums = statistics.decay(statistics.merge(sums, block), factor)
    after = posterior.posterior(before, sums, np.ones(1))
    np.testing.assert_allclose(after.cov[0, 1:, 1:], before.cov[0, 1:, 1:], rtol=1e-9)
    np.testing.assert_array_equal(after.mean[0, 1:], 0.0)
    # the excited one is known from the frames still remembered, and no better
    excited = factor / (1 - factor) * block.gram[0, 0, 0]
    assert after.cov[0, 0, 0] == pytest.approx(1 / (1 / before.cov[0, 0, 0] + excited), rel=1e-9)


@pytest.mark.parametrize("reach", [1.0, 1e4, 1e8, 1e12])
def test_what_rounding_loses_never_makes_a_prediction_surer_than_its_noise(reach: float) -> None:
    """Inputs far outside their scale, little noise: rank-one updates lose all digits, the law stays a law."""
    rng = np.random.default_rng(3)
    weights, noise = posterior.prior(nobody(1, 6), np.ones(6)), np.array([1e-8])
    for _ in range(64):
        x = reach * rng.standard_normal(6)
        law = posterior.predict(weights, x, noise)
        assert np.all(law.variance >= noise)
        assert np.all(np.isfinite(law.mean))
        weights = posterior.learn(weights, x, rng.standard_normal(1), noise, np.ones(1))
    # v and d at first; frames only ever take from that
    assert np.diagonal(weights.cov[0]).max() <= 2.0


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
    weights = posterior.posterior(
        posterior.prior(nobody(channels, size), np.ones(size)), stream.statistics(), stream.noise_var
    )
    estimate = posterior.estimate_noise(stream.statistics(), weights, guess, guess_count)
    for q in range(channels):
        count = np.isfinite(stream.Y[:, q]).sum()
        square = expected_square(stream, q, weights.mean[q], weights.cov[q])
        assert estimate[q] == pytest.approx((square + guess_count * guess[q]) / (count + guess_count), rel=1e-9)


def test_the_noise_step_is_a_monte_carlo_mean_over_the_weights() -> None:
    rng = np.random.default_rng(4)
    stream = random_stream(rng, 12, 1, 3, missing=0.0)
    weights = posterior.posterior(posterior.prior(nobody(1, 3), np.ones(3)), stream.statistics(), stream.noise_var)
    draws = rng.multivariate_normal(weights.mean[0], weights.cov[0], size=40_000)
    squares = ((stream.Y[:, 0] - draws @ stream.X.T) ** 2 / stream.k[:, 0]).mean(axis=1)
    estimate = posterior.estimate_noise(stream.statistics(), weights, np.ones(1), 1e-9)
    # four standard errors of the mean of 40,000 draws
    assert estimate[0] == pytest.approx(squares.mean(), abs=4 * squares.std() / 200)


def objective(stream: Stream, phi: np.ndarray, noise_var: float, guess: float, guess_count: float) -> float:
    """Log evidence of the readings, weights integrated out, plus the log density of the guess's inverse gamma."""
    one = Stream(stream.X, stream.Y, stream.k, np.array([noise_var]))
    return condition([one], phi, 0).evidence - 0.5 * guess_count * (np.log(noise_var) + guess / noise_var)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(SEED, st.integers(1, 15), st.integers(1, 4), st.floats(-3, 3))
def test_noise_steps_climb_the_evidence_to_where_it_is_flat(seed: int, frames: int, size: int, start: float) -> None:
    """With missing and aged frames; from any start; the slope at the end is zero by finite difference."""
    rng = np.random.default_rng(seed)
    stream = random_stream(rng, frames, 1, size)
    phi, guess, guess_count = np.ones(size), 0.5, 1.0
    before = posterior.prior(nobody(1, size), phi)
    noise = np.array([10.0**start])
    last = objective(stream, phi, noise.item(), guess, guess_count)
    for _ in range(400):
        weights = posterior.posterior(before, stream.statistics(), noise)
        noise = posterior.estimate_noise(stream.statistics(), weights, np.array([guess]), guess_count)
        now = objective(stream, phi, noise.item(), guess, guess_count)
        # a last bit of a sum of a few tens
        assert now >= last - 1e-9
        if now - last < 1e-13:
            break
        last = now
    h = 1e-4
    up, down = (objective(stream, phi, noise.item() * np.exp(s), guess, guess_count) for s in (h, -h))
    # EM stops where a step gains 1e-13, up to about 1e-4 of slope away from the top
    assert (up - down) / (2 * h) == pytest.approx(0.0, abs=2e-3)


def test_a_prediction_is_the_law_of_features_times_weights_plus_noise() -> None:
    weights = Weights(np.array([[1.0, -2.0]]), np.array([[[2.0, 0.5], [0.5, 1.0]]]))
    law = posterior.predict(weights, np.array([3.0, 1.0]), np.array([0.25]))
    assert law.mean.item() == pytest.approx(3 - 2)
    assert law.variance.item() == pytest.approx(9 * 2 + 2 * 3 * 0.5 + 1 + 0.25)
