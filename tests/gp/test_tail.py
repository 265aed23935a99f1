"""The Student-t law of a stream: its scale, its degrees, and which of two memories is believed."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.integrate
import scipy.stats
from drive_learner import autoregressive, drive_in_batches, settled
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetgp.gp import tail
from fleetgp.gp.learner import Learner
from fleetgp.gp.tail import DEGREES, LEAST_SCALE, MOST_SCALE, RATE, Tail

RARE = settings(max_examples=40, deadline=None, derandomize=True)
HUGE = [1e6, 1e100, 1e200, 1e308, np.inf]


def run(errors: np.ndarray, refresh: int = 64) -> tuple[Tail, np.ndarray, np.ndarray]:
    """Errors [n] of one channel over a law of variance 1: the tail, and degrees and scale in use before each frame."""
    state = tail.init(1, 2)
    degrees, scales, befores, squares = [], [], [], []
    for t, error in enumerate(errors):
        degrees.append(state.degrees[0])
        scales.append(tail.scale(state)[0])
        befores.append(state.scales)
        squares.append([error**2])
        state = tail.step(state, np.full((2, 1), error), np.ones((2, 1)), np.array(squares[-1]))
        if t % refresh == refresh - 1:
            state = tail.choose(state, np.array(befores), np.array(squares))
            befores, squares = [], []
    return state, np.array(degrees), np.array(scales)


@RARE
@given(st.floats(-30, 30), st.sampled_from(list(range(len(DEGREES)))), st.floats(0.01, 100))
def test_the_log_density_is_scipys_1e_12(error: float, g: int, variance: float) -> None:
    density = tail.log_density(np.array(error**2 / variance), DEGREES[g], tail.LOG_NORM[g]) - 0.5 * np.log(variance)
    assert density == pytest.approx(
        scipy.stats.t.logpdf(error, DEGREES[g], scale=np.sqrt(variance)), rel=1e-12, abs=1e-12
    )


@pytest.mark.parametrize("degrees", DEGREES)
def test_where_the_law_is_right_the_scale_stays_on_the_mean_1e_8(degrees: float) -> None:
    """E z^2 (nu + 1) / (nu + z^2) = 1 for z of that law, by quadrature: what is followed has its fixed point there."""
    density = scipy.stats.t(degrees).pdf
    for scale in (0.5, 1.0, 4.0):
        g = list(DEGREES).index(degrees)

        def moved(z: float, scale: float = scale, g: int = g) -> float:
            after = tail.follow(np.full((len(DEGREES), 1), scale), np.array([scale * z * z]))
            return float(after[g, 0] * density(z))

        mean = 2 * scipy.integrate.quad(moved, 0, np.inf, epsabs=1e-11, limit=400)[0]
        assert mean == pytest.approx(scale, rel=1e-8)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("before", "after"), [(1.0, 3.0), (1.0, 0.3), (5.0, 0.2)])
def test_the_scale_follows_a_step_in_the_spread(seed: int, before: float, after: float) -> None:
    """Within 300 frames, a few times 1 / RATE; of Gaussian errors seen as Student-t a little less than the variance."""
    rng = np.random.default_rng(seed)
    errors = np.concatenate((before * rng.standard_normal(2000), after * rng.standard_normal(1000)))
    state, degrees, scales = run(errors)
    sd = np.sqrt(scales * degrees / (degrees - 2))
    # 2 / RATE frames' worth of errors: a spread of about 12 %, averaged over many times as long
    assert np.mean(sd[1000:2000]) == pytest.approx(before, rel=0.15)
    assert np.mean(sd[2300:]) == pytest.approx(after, rel=0.15)
    assert np.all(state.scales > 0)


@pytest.mark.parametrize("outlier", HUGE)
def test_one_outlier_moves_no_scale_by_more_than_its_rate(outlier: float) -> None:
    """By RATE nu at most, however far out; and it is forgotten."""
    state, _, _ = run(np.random.default_rng(1).standard_normal(500))
    with np.errstate(over="ignore"):
        square = np.array([outlier]) ** 2
    after = tail.step(state, np.full((2, 1), outlier), np.ones((2, 1)), square)
    assert np.all(after.scales <= state.scales * (1 + RATE * DEGREES[:, None]) * (1 + 1e-12))
    assert np.all(after.scales >= state.scales)


@pytest.mark.parametrize("outlier", HUGE)
@pytest.mark.parametrize("count", [1, 30])
def test_no_error_however_large_takes_the_law_away_for_good(outlier: float, count: int) -> None:
    """All of state stays finite, and 3000 frames on degrees and shares are what they would be without."""
    rng = np.random.default_rng(2)
    usual = rng.standard_normal(4000)
    unusual = usual.copy()
    unusual[500 : 500 + count] = outlier
    with np.errstate(over="ignore"):
        state, degrees, _ = run(unusual)
    expected, usual_degrees, _ = run(usual)
    assert all(np.all(np.isfinite(part)) for part in state)
    np.testing.assert_allclose(state.scales, expected.scales, rtol=1e-6)
    np.testing.assert_array_equal(degrees[-300:], usual_degrees[-300:])


@pytest.mark.parametrize("error", [0.0, 1e-200, 1e6, np.inf])
def test_scales_stay_between_their_ends(error: float) -> None:
    with np.errstate(over="ignore"):
        state, _, _ = run(np.full(3000, error))
    assert np.all((state.scales >= LEAST_SCALE) & (state.scales <= MOST_SCALE))
    assert np.all(np.isfinite(state.densities))


@pytest.mark.parametrize("seed", range(4))
def test_gaussian_errors_are_given_many_degrees_and_heavy_tails_few(seed: int) -> None:
    """Where the last few hundred errors decide: right in nine of ten frames."""
    rng = np.random.default_rng(seed)
    _, gaussian, _ = run(rng.standard_normal(6000))
    _, heavy, _ = run(rng.standard_t(3, 6000))
    assert np.mean(gaussian[1000:] >= 10) > 0.85
    assert np.mean(heavy[1000:] <= 5) > 0.85
    # and on the whole the choice pays against the one that everybody starts with
    assert np.median(gaussian[1000:]) >= 15
    assert np.median(heavy[1000:]) <= 4


def test_missing_errors_change_nothing_but_let_the_past_fade() -> None:
    state, _, _ = run(np.random.default_rng(3).standard_normal(200))
    after = tail.step(state, np.full((2, 1), np.nan), np.ones((2, 1)), np.array([np.nan]))
    np.testing.assert_array_equal(after.scales, state.scales)
    np.testing.assert_allclose(after.tracks, tail.TRACK_MEMORY * state.tracks)


@RARE
@given(st.integers(0, 10**6), st.integers(1, 20), st.integers(1, 3), st.floats(0, 0.5))
def test_scales_of_many_frames_are_those_followed_one_by_one_1e_12(
    seed: int, n: int, channels: int, missing: float
) -> None:
    rng = np.random.default_rng(seed)
    squares = np.where(rng.random((n, channels)) < missing, np.nan, rng.standard_t(3, (n, channels)) ** 2)
    start = 10 ** rng.uniform(-1, 1, (len(DEGREES), channels))
    before, end = tail.followed(start, squares)
    scales = start
    for t, square in enumerate(squares):
        np.testing.assert_allclose(before[t], scales, rtol=1e-12)
        scales = tail.follow(scales, square)
    np.testing.assert_allclose(end, scales, rtol=1e-12)


@RARE
@given(st.integers(0, 10**6), st.sampled_from([1.0, 100.0]))
def test_a_mixture_has_the_moments_of_its_parts_1e_8(seed: int, far: float) -> None:
    """Against moments summed by hand, in two channels and with log densities near and far apart."""
    rng = np.random.default_rng(seed)
    lead, means = far * rng.standard_normal((2, 2)), rng.standard_normal((2, 2))
    variances = rng.uniform(0.1, 2, (2, 2))
    mean, squared = tail.mixed(lead, means, variances)
    for q in range(2):
        share = np.exp(lead[:, q] - lead[:, q].max())
        share = share / share.sum()
        expected = sum(s * m for s, m in zip(share, means[:, q], strict=True))
        second = sum(s * (v + m * m) for s, m, v in zip(share, means[:, q], variances[:, q], strict=True))
        assert mean[q] == pytest.approx(expected, rel=1e-8, abs=1e-8)
        assert squared[q] == pytest.approx(second - expected**2, rel=1e-8)


@RARE
@given(st.integers(0, 10**6), st.lists(st.integers(1, 20), min_size=1, max_size=5), st.floats(0, 0.5))
def test_degrees_chosen_many_frames_at_a_time_are_those_of_every_frame_1e_9(
    seed: int, sizes: list[int], missing: float
) -> None:
    """Running densities summed by hand, frame by frame, each under the scale before it."""
    rng = np.random.default_rng(seed)
    state = tail.init(1, 2)
    scales, densities = state.scales, state.densities
    for size in sizes:
        squares = np.where(rng.random((size, 1)) < missing, np.nan, rng.standard_t(3, (size, 1)) ** 2)
        befores = []
        for square in squares:
            befores.append(state.scales)
            state = tail.step(state, np.sqrt(np.tile(square, (2, 1))), np.ones((2, 1)), square)
            if np.isfinite(square[0]):
                z2 = square / scales
                law = scipy.stats.t.logpdf(np.sqrt(z2), DEGREES[:, None]) - 0.5 * np.log(scales)
                densities, scales = tail.MEMORY * densities + law, tail.follow(scales, square)
        state = tail.choose(state, np.array(befores), squares)
        np.testing.assert_allclose(state.densities, densities, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(state.scales, scales, rtol=1e-9)
        assert state.degrees[0] == DEGREES[np.argmax(densities[:, 0])]


@pytest.mark.parametrize("wide", [1e200, 1e308, np.inf])
@pytest.mark.parametrize("lead", [0.0, 1.0, 1e4])
def test_a_memory_whose_law_is_endlessly_wide_leaves_no_trace_once_it_is_not_believed(wide: float, lead: float) -> None:
    """Infinity times nothing is no part of a mixture, and no running sum keeps it."""
    state = tail.init(1, 2)
    state = state._replace(tracks=np.array([[lead], [0.0]]))
    variances, errors = np.array([[1.0], [wide]]), np.array([[0.5], [1e150]])
    mean, squared = tail.mixed(state.tracks, errors, variances)
    assert not np.isnan(mean).any()
    assert not np.isnan(squared).any()
    if lead == 1e4:
        assert (mean[0], squared[0]) == (0.5, 1.0)
    for _ in range(50):
        state = tail.step(state, errors, variances, np.array([0.25]))
    assert np.all(np.isfinite(state.tracks))
    mean, squared = tail.mixed(state.tracks, errors, variances)
    assert mean[0] == pytest.approx(0.5)
    assert squared[0] == pytest.approx(1.0)


def share_of_long(learner: Learner) -> float:
    tracks = learner.tail.tracks[:, 0]
    return float(1 / (1 + np.exp(tracks[1] - tracks[0])))


@pytest.mark.parametrize("seed", range(3))
def test_the_long_memory_is_believed_while_a_relation_lasts_and_the_short_one_once_it_changed(seed: int) -> None:
    """20,000 frames of one relation, then another: the long memory keeps more than half, then the short one has it all."""
    rng = np.random.default_rng(seed)
    series = autoregressive(rng, 20_000, 1, 0.8)
    learner, shares = settled(series, 2), []
    for begin in range(0, 20_000 - 500, 500):
        learner, _ = drive_in_batches(learner, series[begin : begin + 501])
        shares.append(share_of_long(learner))
    assert np.mean(shares[4:]) > 0.5
    changed = autoregressive(rng, 2001, 1, -0.5)
    shares = []
    for begin in range(0, 2000, 100):
        learner, _ = drive_in_batches(learner, changed[begin : begin + 101])
        shares.append(share_of_long(learner))
    assert max(shares[10:]) < 0.2


def test_scales_of_many_frames_stop_at_the_same_bounds() -> None:
    """Falling for a thousand quiet frames, then as high as any error lifts them."""
    squares = np.concatenate((np.zeros((1000, 1)), np.full((3, 1), np.inf), np.full((400, 1), 1e9)))
    before, end = tail.followed(np.ones((len(DEGREES), 1)), squares)
    scales = np.ones((len(DEGREES), 1))
    for t, square in enumerate(squares):
        np.testing.assert_allclose(before[t], scales, rtol=1e-12)
        scales = tail.follow(scales, square)
    np.testing.assert_allclose(end, scales, rtol=1e-12)
    assert before.min() == pytest.approx(tail.LEAST_SCALE)
    assert before.max() == pytest.approx(tail.MOST_SCALE)
