"""Moments against numpy's of the pooled readings, and scalings that never divide by nothing."""

from __future__ import annotations

from functools import reduce
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetgp.scaling import Moments, Scaling, apply, empty_moments, merge, observe, scaling

RARE = settings(max_examples=40, deadline=None, derandomize=True)


def moments_of(readings: np.ndarray) -> Moments:
    """Readings [n, K] observed one by one."""
    return reduce(observe, readings, empty_moments(readings.shape[1]))


def assert_moments_are_numpys(moments: Moments, readings: np.ndarray, rtol: float) -> None:
    for k, column in enumerate(readings.T):
        seen = column[np.isfinite(column)]
        assert moments.n[k] == len(seen)
        if len(seen):
            # numpy's two-pass sums on exactly shifted values are the truth even where x^2 would cancel
            shifted = seen - seen[0]
            assert moments.mean[k] == pytest.approx(seen[0] + shifted.mean(), rel=1e-14, abs=1e-14)
            expected = ((shifted - shifted.mean()) ** 2).sum()
            np.testing.assert_allclose(moments.centred_square_sum[k], expected, rtol=rtol, atol=1e-300)


@RARE
@given(st.integers(0, 10**6), st.integers(0, 30), st.integers(1, 4))
def test_observing_one_by_one_gives_the_moments_of_all(seed: int, n: int, inputs: int) -> None:
    rng = np.random.default_rng(seed)
    readings = rng.standard_normal((n, inputs)) * 10 ** rng.uniform(-3, 3, inputs) + 10 ** rng.uniform(-2, 2, inputs)
    readings[rng.random(readings.shape) < 0.3] = np.nan
    assert_moments_are_numpys(moments_of(readings), readings, rtol=1e-9)


# readings and running mean are themselves rounded, to 1e-7 at 1e9 and to 2e-4 at 1.7e12
@pytest.mark.parametrize(("offset", "rtol"), [(1e9, 1e-6), (-1e9, 1e-6), (1.7e12, 1e-3)])
def test_a_spread_of_one_about_a_huge_mean_is_not_lost(offset: float, rtol: float) -> None:
    """1e9 +- 1, or UTC milliseconds: a sum of squares would have no digit of the spread left."""
    rng = np.random.default_rng(1)
    readings = offset + rng.uniform(-1, 1, (1000, 1))
    moments = merge(moments_of(readings[:700]), moments_of(readings[700:]))
    assert_moments_are_numpys(moments, readings, rtol=rtol)
    assert scaling(moments).scale[0] == pytest.approx(np.std(readings - offset), rel=rtol)


@RARE
@given(st.integers(0, 10**6), st.lists(st.integers(0, 8), min_size=1, max_size=6), st.randoms(use_true_random=False))
def test_merging_in_any_order_and_grouping_gives_the_moments_of_all(
    seed: int, sizes: list[int], random: Random
) -> None:
    rng = np.random.default_rng(seed)
    parts = [rng.standard_normal((n, 2)) * 3 + 100 for n in sizes]
    summed = [moments_of(part) for part in parts]
    random.shuffle(summed)
    while len(summed) > 1:
        i = random.randrange(len(summed) - 1)
        summed[i : i + 2] = [merge(summed[i], summed[i + 1])]
    assert_moments_are_numpys(summed[0], np.concatenate(parts), rtol=1e-9)


def test_merging_with_nobody_changes_not_a_bit() -> None:
    some = moments_of(np.random.default_rng(2).standard_normal((7, 3)) + 1e6)
    for merged in (merge(some, empty_moments(3)), merge(empty_moments(3), some)):
        for a, b in zip(merged, some, strict=True):
            np.testing.assert_array_equal(a, b)


def test_counts_below_one_merge_by_their_share() -> None:
    """Faded or hostile counts need not be whole: half a reading and half a reading lie in the middle."""
    half = Moments(np.array([0.5]), np.array([2.0]), np.array([0.0]))
    other = Moments(np.array([0.25]), np.array([8.0]), np.array([0.0]))
    merged = merge(half, other)
    assert merged.mean[0] == pytest.approx(4.0)
    assert merged.centred_square_sum[0] == pytest.approx(0.5 * 4 + 0.25 * 16)
    assert scaling(merged).scale[0] == pytest.approx(np.sqrt(6 / 0.75))


def test_what_is_missing_or_infinite_is_not_counted() -> None:
    moments = moments_of(np.array([[1.0, np.nan], [np.inf, -np.inf], [3.0, np.nan]]))
    np.testing.assert_array_equal(moments.n, [2, 0])
    np.testing.assert_allclose(moments.mean, [2, 0])
    np.testing.assert_allclose(moments.centred_square_sum, [2, 0])


@pytest.mark.parametrize(
    ("readings", "centre", "scale"),
    [
        ([], 0.0, 1.0),
        ([0.0], 0.0, 1.0),
        ([-20.0], -20.0, 20.0),
        ([0.1] * 1000, 0.1, 0.1),
        ([1e9 / 3] * 1000, 1e9 / 3, 1e9 / 3),
        ([0.0, 1e-200], 0.0, 1.0),
        ([1e-320] * 3, 0.0, 1.0),
        ([1.0, 3.0], 2.0, 1.0),
        ([1e9, 1e9 + 1e-3], 1e9, 0.5e-3),
        ([-1e15, 1e15], 0.0, 1e15),
    ],
)
def test_the_scale_is_the_spread_or_the_size_or_one(readings: list[float], centre: float, scale: float) -> None:
    result = scaling(moments_of(np.array(readings).reshape(-1, 1)))
    # 1e9 + 1e-3 is itself rounded to 1.2e-7
    assert result.centre[0] == pytest.approx(centre, rel=1e-12, abs=1e-100)
    assert result.scale[0] == pytest.approx(scale, rel=1e-3)


@RARE
@given(st.integers(0, 10**6), st.floats(-1e6, 1e6), st.floats(1e-6, 1e6))
def test_a_change_of_units_changes_centre_and_scale_with_it(seed: int, offset: float, factor: float) -> None:
    readings = np.random.default_rng(seed).standard_normal((9, 1))
    before, after = scaling(moments_of(readings)), scaling(moments_of(offset + factor * readings))
    # offset / factor digits are lost to the sum offset + factor * reading itself
    rtol = 1e-12 * (1 + abs(offset) / factor) + 1e-12
    np.testing.assert_allclose(after.scale, factor * before.scale, rtol=rtol)
    np.testing.assert_allclose(after.centre, offset + factor * before.centre, atol=factor * rtol + 1e-9 * abs(offset))


def test_applied_to_what_it_was_made_of_it_gives_mean_zero_and_spread_one() -> None:
    readings = np.random.default_rng(4).standard_normal((50, 3)) * [1e-3, 1, 1e6] + [5, -5, 1e9]
    scaled = apply(scaling(moments_of(readings)), readings)
    np.testing.assert_allclose(scaled.mean(axis=0), 0, atol=1e-9)
    np.testing.assert_allclose(scaled.std(axis=0), 1, rtol=1e-9)
    np.testing.assert_allclose(apply(Scaling(np.array([1.0]), np.array([2.0])), np.array([[5.0], [1.0]])), [[2], [0]])
