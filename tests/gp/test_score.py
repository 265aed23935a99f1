"""The chi-square tail against scipy and, where scipy underflows, against a continued fraction; scores that compare."""

from __future__ import annotations

import math
from random import Random

import numpy as np
import pytest
import scipy.special
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetgp.score import blame, log_chi_square_tail, score, scores

RARE = settings(max_examples=40, deadline=None, derandomize=True)
DOFS = range(1, 65)


def log_tail_by_continued_fraction(x: float, dof: int) -> float:
    """log Q(dof / 2, x / 2) by Legendre's continued fraction, evaluated backwards; good where x is well above dof."""
    a, y = dof / 2, x / 2
    tail = 0.0
    for n in range(200, 0, -1):
        tail = n * (n - a) / (y + 2 * n + 1 - a - tail)
    return a * math.log(y) - y - math.lgamma(a) - math.log(y + 1 - a - tail)


@pytest.mark.parametrize("dof", DOFS)
def test_the_log_tail_is_scipys_as_far_as_scipy_reaches(dof: int) -> None:
    for x in np.concatenate((np.geomspace(1e-6, 1, 10), np.geomspace(1, 1200, 30))):
        cdf = scipy.stats.chi2.cdf(x, dof)
        expected = math.log1p(-cdf) if cdf < 0.5 else scipy.stats.chi2.logsf(x, dof)
        # 1e-14: below that a log tail is the last bit of a probability near 1
        assert log_chi_square_tail(x, dof) == pytest.approx(expected, rel=1e-9, abs=1e-14)


@pytest.mark.parametrize("dof", DOFS)
def test_the_log_tail_is_good_far_beyond_the_smallest_double(dof: int) -> None:
    """Relative error below 1e-9 up to x = 1e6, where the probability is 10^-217,000."""
    for x in np.geomspace(1200, 1e6, 12):
        assert log_chi_square_tail(x, dof) == pytest.approx(log_tail_by_continued_fraction(x, dof), rel=1e-9)


@pytest.mark.parametrize("dof", [1, 2, 7, 64])
def test_the_log_tail_falls_without_a_jump(dof: int) -> None:
    """Where one formula takes over from another (x = 800 for odd dof) nothing goes up, nor down by more than its due."""
    x = np.linspace(0, 1000, 4001)
    tail = np.array([log_chi_square_tail(value, dof) for value in x])
    steps = np.diff(tail)
    assert tail[0] == 0.0
    # near x = 0 the tail of many channels is 1 to the last bit
    assert np.all(steps <= 1e-15)
    # the log density over the tail tends to 1/2 from below for dof > 2, from above for dof 1: 0.25 in x is 0.125
    assert np.all(steps[2000:] >= -0.126)


@pytest.mark.parametrize("channels", [1, 2, 3, 10, 64])
def test_a_score_is_minus_log10_of_its_own_probability_whatever_the_number_of_channels(channels: int) -> None:
    """A frame as odd as one in a million scores 6, with one channel or with 64."""
    for probability in (0.5, 1e-3, 1e-6, 1e-12, 1e-100):
        z = np.full(channels, math.sqrt(scipy.stats.chi2.isf(probability, channels) / channels))
        # isf's own inverse carries about 1e-10
        assert score(z) == pytest.approx(-math.log10(probability), rel=1e-8)


@pytest.mark.parametrize("channels", [1, 4, 32])
def test_ordinary_frames_score_above_s_once_in_10_to_the_s(channels: int) -> None:
    rng = np.random.default_rng(channels)
    scores = np.array([score(z) for z in rng.standard_normal((10_000, channels))])
    for s in (0.5, 1.0, 2.0, 3.0):
        p = 10.0**-s
        # four standard deviations of a binomial share
        assert np.mean(scores > s) == pytest.approx(p, abs=4 * math.sqrt(p * (1 - p) / len(scores)))


@RARE
@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=12), st.integers(0, 5), st.randoms(use_true_random=False))
def test_channels_that_did_not_arrive_their_order_and_signs_do_not_matter(
    z: list[float], missing: int, random: Random
) -> None:
    mixed = [-value for value in z] + [math.nan] * missing
    random.shuffle(mixed)
    # sums of squares in another order
    assert score(np.array(mixed)) == pytest.approx(score(np.array(z)), rel=1e-12)


@RARE
@given(st.lists(st.floats(-50, 50), min_size=1, max_size=12), st.integers(0, 11), st.floats(1, 1e200))
def test_an_odder_channel_makes_an_odder_frame(z: list[float], which: int, factor: float) -> None:
    odder = np.array(z)
    odder[which % len(z)] *= factor
    assert score(odder) >= score(np.array(z)) - 1e-12
    assert math.isfinite(score(odder))


def test_nothing_observed_is_nothing_odd() -> None:
    assert score(np.array([])) == 0.0
    assert score(np.full(3, np.nan)) == 0.0
    assert score(np.zeros(5)) == 0.0


def test_an_infinite_error_is_the_oddest_of_all_not_one_that_did_not_arrive() -> None:
    assert score(np.array([0.0, np.inf])) >= score(np.array([0.0, 1e100])) > 1e6
    assert math.isfinite(score(np.array([-np.inf, np.inf])))
    assert list(blame(np.array([1.0, -np.inf]), ("a", "b"))) == ["b"]


def test_blame_is_each_channels_share_of_the_squares() -> None:
    z = np.array([1.0, -3.0, np.nan, 0.1, 2.0])
    shares = blame(z, ("a", "b", "c", "d", "e"))
    assert list(shares) == ["b", "e", "a"]
    assert list(shares.values()) == pytest.approx([9 / 14, 4 / 14, 1 / 14])
    assert blame(np.array([np.nan, 0.0]), ("a", "b")) == {}


@RARE
@given(st.lists(st.floats(-1e200, 1e200) | st.just(math.nan), min_size=1, max_size=64), st.floats(0, 1))
def test_blame_always_names_the_oddest_first_and_sums_to_one(z: list[float], least: float) -> None:
    """Also where 64 channels share evenly and none has the least share by itself."""
    names = tuple(f"c{i}" for i in range(len(z)))
    shares = blame(np.array(z), names, least)
    size = np.minimum(np.nan_to_num(np.abs(z)), 1e150)
    if not np.any(size**2):
        assert shares == {}
        return
    assert math.fsum(shares.values()) == pytest.approx(1.0)
    assert size[int(next(iter(shares))[1:])] == size.max()
    assert list(shares.values()) == sorted(shares.values(), reverse=True)


def test_an_event_of_many_equal_channels_blames_them_all() -> None:
    shares = blame(np.full(64, -5.0), tuple(f"c{i}" for i in range(64)))
    assert len(shares) == 64
    assert list(shares.values()) == pytest.approx([1 / 64] * 64)


@pytest.mark.parametrize("channels", [1, 2, 3, 6, 64])
def test_scores_of_many_frames_are_those_of_each(channels: int) -> None:
    rng = np.random.default_rng(channels)
    z = rng.standard_normal((400, channels)) * np.geomspace(1e-3, 1e3, 400)[:, None]
    z[rng.random(z.shape) < 0.3] = np.nan
    z[0], z[1], z[2, 0], z[3, 0] = np.nan, 0.0, np.inf, 1e200
    # 1e-15: a score near 0 is the last bit of a probability near 1
    np.testing.assert_allclose(scores(z), [score(row) for row in z], rtol=1e-12, atol=1e-15)
