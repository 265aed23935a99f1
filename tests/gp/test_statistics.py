"""Statistics are an algebra: any order, any grouping, any basis give those of all frames at once."""

from __future__ import annotations

from functools import reduce
from random import Random

import numpy as np
import pytest
from dense_fleet import Stream, random_stream
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetgp.gp import statistics
from fleetgp.gp.statistics import Statistics

RARE = settings(max_examples=40, deadline=None, derandomize=True)
SEED = st.integers(0, 10**6)


def dense(stream: Stream) -> Statistics:
    """From matrices of all frames, channel by channel."""
    n, square, cross, gram = [], [], [], []
    for q in range(stream.Y.shape[1]):
        seen = np.isfinite(stream.Y[:, q])
        X, y, D = stream.X[seen], stream.Y[seen, q], np.diag(1.0 / stream.k[seen, q])
        n.append(seen.sum())
        square.append(y @ D @ y)
        cross.append(X.T @ D @ y)
        gram.append(X.T @ D @ X)
    return Statistics(np.array(n, dtype=float), np.array(square), np.array(cross), np.array(gram))


def assert_same(a: Statistics, b: Statistics, rtol: float = 1e-12) -> None:
    for x, y in zip(a, b, strict=True):
        # sums of terms of either sign: relative to the largest of them
        np.testing.assert_allclose(x, y, rtol=rtol, atol=rtol * (1 + np.abs(y).max(initial=0)))


@RARE
@given(SEED, st.integers(0, 12), st.integers(1, 3), st.integers(1, 5))
def test_summed_frames_are_the_dense_sums_1e_12(seed: int, frames: int, channels: int, size: int) -> None:
    """n counts frames, whatever their weights; the sums carry the weights; missing channels add nothing."""
    stream = random_stream(np.random.default_rng(seed), frames, channels, size)
    assert_same(stream.statistics(), dense(stream))


@RARE
@given(SEED, st.lists(st.integers(0, 6), min_size=1, max_size=6), st.randoms(use_true_random=False))
def test_merges_in_any_order_and_grouping_are_the_sums_over_all_frames(
    seed: int, sizes: list[int], random: Random
) -> None:
    rng = np.random.default_rng(seed)
    parts = [random_stream(rng, n, 2, 3) for n in sizes]
    whole = Stream(*(np.concatenate([getattr(part, name) for part in parts]) for name in "XYk"), parts[0].noise_var)
    sums = [part.statistics() for part in parts]
    random.shuffle(sums)
    while len(sums) > 1:
        i = random.randrange(len(sums) - 1)
        sums[i : i + 2] = [statistics.merge(sums[i], sums[i + 1])]
    assert_same(sums[0], dense(whole))


def test_nothing_is_neutral_to_the_last_bit() -> None:
    some = random_stream(np.random.default_rng(1), 9, 2, 3).statistics()
    for merged in (statistics.merge(some, statistics.empty(2, 3)), statistics.merge(statistics.empty(2, 3), some)):
        for x, y in zip(merged, some, strict=True):
            np.testing.assert_array_equal(x, y)


@RARE
@given(SEED, st.floats(0.01, 1.0), st.integers(1, 6))
def test_forgetting_as_it_goes_weighs_each_frame_by_its_age(seed: int, factor: float, frames: int) -> None:
    stream = random_stream(np.random.default_rng(seed), frames, 2, 3)
    faded = statistics.empty(2, 3)
    for t in range(frames):
        one = Stream(stream.X[t : t + 1], stream.Y[t : t + 1], stream.k[t : t + 1], stream.noise_var)
        faded = statistics.decay(statistics.merge(faded, one.statistics()), factor)
    weights = factor ** np.arange(frames, 0, -1.0)
    expected = dense(Stream(stream.X, stream.Y, stream.k / weights[:, None], stream.noise_var))
    expected = expected._replace(n=(np.isfinite(stream.Y) * weights[:, None]).sum(axis=0))
    assert_same(faded, expected)
    # in one go, by what is left of each frame
    left = statistics.summed(stream.X, stream.Y, np.isfinite(stream.Y) / stream.k, weights)
    assert_same(left, expected)


@RARE
@given(SEED, st.floats(0.01, 1.0))
def test_forgetting_goes_through_merging(seed: int, factor: float) -> None:
    rng = np.random.default_rng(seed)
    a, b = (random_stream(rng, 5, 2, 3).statistics() for _ in range(2))
    merged = statistics.decay(statistics.merge(a, b), factor)
    assert_same(merged, statistics.merge(statistics.decay(a, factor), statistics.decay(b, factor)))


@RARE
@given(SEED, st.integers(0, 9), st.integers(1, 3), st.integers(1, 4))
def test_rebased_statistics_are_those_of_the_frames_on_the_new_basis(
    seed: int, frames: int, channels: int, size: int
) -> None:
    """Any linear change of features (even to fewer) and of units of the targets."""
    rng = np.random.default_rng(seed)
    stream = random_stream(rng, frames, channels, size)
    T = rng.standard_normal((int(rng.integers(1, size + 1)), size))
    ratio = 10 ** rng.uniform(-2, 2, channels)
    afresh = Stream(stream.X @ T.T, stream.Y * ratio, stream.k, stream.noise_var)
    assert_same(statistics.rebase(stream.statistics(), T, ratio), dense(afresh), rtol=1e-10)


def test_rebasing_goes_through_merging_and_chains() -> None:
    rng = np.random.default_rng(5)
    parts = [random_stream(rng, 6, 2, 3).statistics() for _ in range(4)]
    T, U = rng.standard_normal((2, 3, 3))
    r, s = 10 ** rng.uniform(-1, 1, (2, 2))
    whole = statistics.rebase(reduce(statistics.merge, parts), U @ T, s * r)
    pieces = [statistics.rebase(statistics.rebase(part, T, r), U, s) for part in parts]
    assert_same(reduce(statistics.merge, pieces), whole, rtol=1e-10)


@RARE
@given(SEED, st.integers(0, 9), st.integers(1, 3), st.integers(1, 4))
def test_two_memories_in_one_are_each_what_it_would_be_alone(seed: int, frames: int, channels: int, size: int) -> None:
    """Leading axes: a merge adds the same frames to each, a decay forgets at each one's pace, a rebase maps each."""
    rng = np.random.default_rng(seed)
    a, b = (random_stream(rng, frames, channels, size).statistics() for _ in range(2))
    T, ratio, factors = rng.standard_normal((size, size)), 10 ** rng.uniform(-1, 1, channels), np.array([0.9, 0.3])
    both = statistics.merge(statistics.empty(2, channels, size), a)
    both = statistics.rebase(statistics.decay(statistics.merge(both, b), factors), T, ratio)
    for t, factor in enumerate(factors):
        alone = statistics.rebase(statistics.decay(statistics.merge(a, b), float(factor)), T, ratio)
        assert_same(Statistics(*(part[t] for part in both)), alone)


@pytest.mark.parametrize("target", [np.nan, np.inf, -np.inf, 1e200])
def test_a_target_that_is_not_learnt_leaves_no_trace_whatever_it_is(target: float) -> None:
    sums = statistics.summed(np.ones((2, 3)), np.array([[1.0, 2.0], [target, 2.0]]), np.array([[1.0, 1.0], [0.0, 1.0]]))
    np.testing.assert_array_equal(sums.n, [1, 2])
    np.testing.assert_array_equal(sums.square, [1, 8])
    np.testing.assert_array_equal(sums.cross[0], np.ones(3))


@RARE
@given(SEED, st.integers(1, 12), st.integers(0, 12), st.floats(0.1, 1.0))
def test_taking_a_part_out_leaves_the_rest_1e_9(seed: int, rest: int, part: int, factor: float) -> None:
    """Of faded sums too; and nothing where the part is the whole."""
    rng = np.random.default_rng(seed)
    a, b = (statistics.decay(random_stream(rng, n, 2, 3).statistics(), factor) for n in (rest, part))
    assert_same(statistics.without(statistics.merge(a, b), b), a, rtol=1e-9)
    for nothing in statistics.without(a, a):
        np.testing.assert_array_equal(nothing, 0.0)


@RARE
@given(SEED, st.sampled_from([1e3, 1e6, 1e9, 1e12]), st.integers(1, 30))
def test_what_is_left_when_something_huge_is_taken_out_is_a_gram_matrix(seed: int, huge: float, frames: int) -> None:
    """Rounding of the size of what was taken is left; never a negative square."""
    rng = np.random.default_rng(seed)
    a, b = (random_stream(rng, n, 2, 4) for n in (frames, 3))
    b = Stream(b.X * huge, b.Y, b.k, b.noise_var)
    left = statistics.without(statistics.merge(a.statistics(), b.statistics()), b.statistics())
    assert_gram(left)


@RARE
@given(SEED, st.sampled_from([1e3, 1e6, 1e9, 1e12]), st.integers(1, 30))
def test_features_far_from_their_centre_still_have_a_gram_matrix_near_it(seed: int, far: float, frames: int) -> None:
    """A first scale that was nowhere near: the mean is taken off by a rebase, and what is left is nothing but rounding."""
    rng = np.random.default_rng(seed)
    X = np.column_stack((np.ones(frames), far + rng.standard_normal((frames, 3))))
    T = np.eye(4)
    T[1:, 0] = -far
    sums = statistics.summed(X, rng.standard_normal((frames, 1)), np.ones((frames, 1)))
    moved = statistics.rebase(sums, T, np.ones(1))
    assert_gram(moved)
    if far == 1e3:
        expected = statistics.summed(X @ T.T, np.zeros((frames, 1)), np.ones((frames, 1))).gram
        # squares of 1e6 before: ten digits are left
        np.testing.assert_allclose(moved.gram, expected, atol=1e-6 * (1 + frames))


def assert_gram(sums: Statistics) -> None:
    """No eigenvalue below zero but for a last bit of each row's own size."""
    sd = np.sqrt(np.diagonal(sums.gram, axis1=-2, axis2=-1))
    assert np.all(np.isfinite(sd))
    part = np.divide(1.0, sd, out=np.zeros_like(sd), where=sd > 0)
    assert np.linalg.eigvalsh(sums.gram * part[..., :, None] * part[..., None, :]).min() > -1e-13
    assert np.all(sums.n >= 0)
    assert np.all(sums.square >= 0)
