"""Factorisations against exact inverses, and the one policy for jitter: none first, told, and never more than allowed."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetgp.errors import NotFinite, NotPositiveDefinite
from fleetgp.linalg import JITTER_STEPS, cholesky, inverse, root, symmetric


def random_covariances(seed: int, count: int, size: int) -> np.ndarray:
    A = np.random.default_rng(seed).standard_normal((count, size, size + 3))
    return A @ A.mT


@settings(max_examples=30, deadline=None, derandomize=True)
@given(st.integers(0, 10**6), st.integers(1, 4), st.integers(1, 8))
def test_cholesky_of_positive_definite_matrices_is_scipys_and_needs_no_jitter(seed: int, count: int, size: int) -> None:
    A = random_covariances(seed, count, size)
    L, jitter = cholesky(A)
    assert jitter == 0.0
    for one, factor in zip(A, L, strict=True):
        # backward error of either is a few last bits of the largest entry
        np.testing.assert_allclose(factor, scipy.linalg.cholesky(one, lower=True), rtol=1e-9, atol=1e-10)


def test_inverse_of_hilbert_matrices_is_the_known_integer_one() -> None:
    for size in (1, 3, 6):
        # condition number 1.5e7 at size 6, times the last bit of a double
        np.testing.assert_allclose(inverse(scipy.linalg.hilbert(size)), scipy.linalg.invhilbert(size), rtol=1e-8)


def test_inverse_keeps_its_digits_whatever_units_the_rows_are_in() -> None:
    """Rows in units 15 orders apart: every entry of the inverse is as good as if the units were alike."""
    C = random_covariances(3, 2, 4)
    units = np.array([1e-7, 1.0, 1e4, 1e8])
    outer = units[:, None] * units
    np.testing.assert_allclose(inverse(C * outer), np.linalg.inv(C) / outer, rtol=1e-10)


@pytest.mark.parametrize("size", [1e-300, 1e-150, 1e150, 1e300])
def test_factors_of_tiny_and_huge_matrices_neither_vanish_nor_overflow(size: float) -> None:
    A = random_covariances(4, 1, 3)[0]
    np.testing.assert_allclose(cholesky(size * A)[0], np.sqrt(size) * cholesky(A)[0], rtol=1e-12)
    np.testing.assert_allclose(inverse(size * A), inverse(A) / size, rtol=1e-12)
    R, _ = root(size * A)
    np.testing.assert_allclose(R.T @ R / size, A, rtol=1e-12)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(st.integers(0, 10**6), st.integers(1, 8))
def test_inverse_is_symmetric_to_the_last_bit(seed: int, size: int) -> None:
    B = inverse(random_covariances(seed, 3, size))
    np.testing.assert_array_equal(B, B.mT)


def test_a_singular_matrix_gets_jitter_and_it_is_told() -> None:
    A = np.ones((3, 3)) * np.array([1.0, 1e6, 1e-6]) * np.array([[1.0], [1e6], [1e-6]])
    L, jitter = cholesky(A)
    assert 0 < jitter <= JITTER_STEPS[-1]
    # told as a share of each diagonal entry, so small entries are not swamped by large ones
    np.testing.assert_allclose(L @ L.T, A + jitter * np.diag(np.diag(A)), rtol=1e-12)


def test_in_a_stack_only_the_matrix_that_needs_jitter_gets_it() -> None:
    good = random_covariances(5, 1, 3)[0]
    L, jitter = cholesky(np.stack([good, np.ones((3, 3))]))
    assert jitter > 0
    np.testing.assert_array_equal(L[0], cholesky(good)[0])


@pytest.mark.parametrize("A", [-np.eye(2), np.diag([1.0, 0.0]), np.array([[1.0, 1.1], [1.1, 1.0]]), np.zeros((3, 3))])
def test_what_no_allowed_jitter_mends_is_refused(A: np.ndarray) -> None:
    for call in (cholesky, inverse):
        with pytest.raises(NotPositiveDefinite) as caught:
            call(A)
        assert caught.value.size == len(A)


@pytest.mark.parametrize("call", [cholesky, inverse, root])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_refused_by_name(call: object, value: float) -> None:
    A = np.eye(3)
    A[1, 1] = value
    with pytest.raises(NotFinite, match="NaN or infinity"):
        call(A)  # type: ignore[operator]


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.integers(0, 10**6), st.integers(1, 7), st.integers(0, 9))
def test_root_squares_to_a_gram_matrix_of_any_rank(seed: int, size: int, frames: int) -> None:
    """R^T R = A, and R_inv takes back any vector that A can see, with inputs in units far apart and one never excited."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((frames, size)) * 10 ** rng.uniform(-5, 5, size)
    X[:, rng.integers(size)] = 0.0
    A = X.T @ X
    R, R_inv = root(A)
    units = np.sqrt(np.where(np.diag(A) > 0, np.diag(A), 1.0))
    np.testing.assert_allclose((R.T @ R) / units / units[:, None], A / units / units[:, None], atol=1e-12)
    seen = X.T @ rng.standard_normal(frames)
    # a direction seen with 1e-6 of the rest's strength comes back with 1e-6 fewer digits
    np.testing.assert_allclose((R.T @ (R_inv @ seen)) / units, seen / units, atol=1e-6)


def test_symmetric_is_the_mean_of_a_matrix_and_its_transpose() -> None:
    A = np.arange(8.0).reshape(2, 2, 2)
    np.testing.assert_array_equal(symmetric(A), [[[0.0, 1.5], [1.5, 3.0]], [[4.0, 5.5], [5.5, 7.0]]])
