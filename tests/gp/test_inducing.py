"""Inducing features against their definition, and against the exact Gaussian process where there is one for every frame."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest
import scipy.linalg
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetgp import inducing
from fleetgp.errors import NotFinite
from fleetgp.gp import posterior, statistics
from fleetgp.gp.aggregate import prior
from fleetgp.inducing import Inducing
from fleetgp.kernels import covariance
from fleetgp.schema import Kernel

KERNELS: tuple[Kernel, ...] = get_args(Kernel)
RARE = settings(max_examples=40, deadline=None, derandomize=True)
SEED = st.integers(0, 10**6)


def random_inducing(rng: np.random.Generator, kernel: Kernel, M: int, D: int, jitter: float = 1e-6) -> Inducing:
    return inducing.make(kernel, tuple(range(D)), rng.standard_normal((M, D)), 10 ** rng.uniform(-0.5, 0.5, D), jitter)


@pytest.mark.parametrize("kernel", KERNELS)
@RARE
@given(seed=SEED, n=st.integers(0, 5), M=st.integers(1, 8), D=st.integers(1, 4))
def test_features_are_k_times_the_factors_inverse_1e_8(kernel: Kernel, seed: int, n: int, M: int, D: int) -> None:
    """F(x) = k(x, Z) L^-T with scipy's L of k(Z, Z) + jitter; columns picked out of more inputs than the kernel sees."""
    rng = np.random.default_rng(seed)
    total = D + 2
    columns = tuple(int(c) for c in rng.choice(total, D, replace=False))
    Z, lengthscale, X = rng.standard_normal((M, D)), 10 ** rng.uniform(-0.5, 0.5, D), rng.standard_normal((n, total))
    made = inducing.make(kernel, columns, Z, lengthscale, jitter=1e-4)
    L = scipy.linalg.cholesky(covariance(kernel, Z, Z, lengthscale) + 1e-4 * np.eye(M), lower=True)
    K = covariance(kernel, X[:, columns], Z, lengthscale)
    expected = scipy.linalg.solve_triangular(L, K.T, lower=True).T
    np.testing.assert_allclose(inducing.features(made, X), expected, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("kernel", KERNELS)
@RARE
@given(seed=SEED, M=st.integers(1, 30), D=st.integers(1, 6), far=st.sampled_from([1.0, 10.0, 1e6]))
def test_the_residual_is_a_variance(kernel: Kernel, seed: int, M: int, D: int, far: float) -> None:
    """1 - |F|^2, between 0 and 1, near and far; repeated inducing inputs too."""
    rng = np.random.default_rng(seed)
    Z = rng.standard_normal((M, D))
    Z[M // 2 :] = Z[: M - M // 2]
    made = inducing.make(kernel, tuple(range(D)), Z, np.ones(D))
    F = inducing.features(made, np.concatenate((far * rng.standard_normal((20, D)), Z)))
    r = inducing.residual(F)
    assert np.all((r >= 0) & (r <= 1))
    # the features themselves, before any floor: no more than the prior variance, up to rounding
    assert np.max(np.sum(F * F, axis=1)) < 1 + 1e-8
    # at an inducing input what is left is the jitter
    assert np.all(r[20:] < 3 * inducing.JITTER)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("far", [1e4, 1e200])
def test_far_from_all_inducing_inputs_features_are_nothing_and_the_residual_all(kernel: Kernel, far: float) -> None:
    made = random_inducing(np.random.default_rng(1), kernel, 8, 2)
    F = inducing.features(made, np.array([[far, 0.0], [-far, far]]))
    np.testing.assert_array_equal(F, 0.0)
    np.testing.assert_array_equal(inducing.residual(F), 1.0)


def spread_out(rng: np.random.Generator, n: int, D: int) -> np.ndarray:
    """Points at least half a lengthscale apart: closer ones a squared exponential knows better than its jitter."""
    side = int(np.ceil(n ** (1 / D)))
    grid = np.stack(np.meshgrid(*[np.arange(side)] * D), axis=-1).reshape(-1, D)
    return rng.permutation(grid)[:n] + rng.uniform(-0.25, 0.25, (n, D))


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("is_close", [False, True])
@RARE
@given(seed=SEED, n=st.integers(1, 15), D=st.integers(1, 3), channels=st.integers(1, 2))
def test_with_an_inducing_input_for_every_frame_it_is_the_exact_gaussian_process_1e_6(
    kernel: Kernel, is_close: bool, seed: int, n: int, D: int, channels: int
) -> None:
    """Prior variance v + d of the weights, missing channels and aged noise; prediction at new inputs against scipy.

    Points that are close leave the root of the jitter, 1e-5, of what a prediction says.
    """
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, D)) if is_close else spread_out(rng, n, D)
    Xs, lengthscale = X.mean(axis=0) + 2 * rng.standard_normal((6, D)), rng.uniform(0.4, 1.0, D)
    Y, k = rng.standard_normal((n, channels)), rng.integers(1, 4, (n, channels)).astype(float)
    Y[rng.random(Y.shape) < 0.2] = np.nan
    noise_var, shared, own = 10 ** rng.uniform(-1.5, 0, channels), 1.0, 0.5
    made = inducing.make(kernel, tuple(range(D)), X, lengthscale, jitter=1e-10)
    F, Fs = inducing.features(made, X), inducing.features(made, Xs)
    before = posterior.prior(
        prior(np.full((channels, n), shared)), np.full((channels, n), own), np.zeros((channels, 0))
    )
    sums = statistics.summed(F, Y, np.isfinite(Y) / k)
    mean, known = posterior.foreseen(posterior.posterior(before, sums, noise_var), Fs)
    known = known + (shared + own) * inducing.residual(Fs)[:, None]
    for q in range(channels):
        seen, variance = np.isfinite(Y[:, q]), shared + own
        S = variance * covariance(kernel, X[seen], X[seen], lengthscale) + np.diag(noise_var[q] * k[seen, q])
        cross = variance * covariance(kernel, Xs, X[seen], lengthscale)
        exact_mean = cross @ scipy.linalg.solve(S, Y[seen, q], assume_a="pos")
        exact = variance - np.sum(cross * scipy.linalg.solve(S, cross.T, assume_a="pos").T, axis=1)
        tolerance = 5e-5 if is_close else 1e-6
        np.testing.assert_allclose(mean[:, q], exact_mean, rtol=tolerance, atol=tolerance)
        np.testing.assert_allclose(known[:, q], exact, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("kernel", KERNELS)
@RARE
@given(seed=SEED, M_old=st.integers(1, 6), M_new=st.integers(1, 6), D=st.integers(1, 3))
def test_transfer_is_the_projection_of_the_old_function_on_the_new_prior_1e_8(
    kernel: Kernel, seed: int, M_old: int, M_new: int, D: int
) -> None:
    """models.md section 3: v_old = L_old^-1 k(Z_old, Z_new) L_new^-T v_new, here transposed."""
    rng = np.random.default_rng(seed)
    lengthscale = 10 ** rng.uniform(-0.5, 0.5, D)
    old, new = (
        inducing.make(kernel, tuple(range(D)), rng.standard_normal((M, D)), lengthscale, 1e-3) for M in (M_old, M_new)
    )
    L_old, L_new = (
        scipy.linalg.cholesky(covariance(kernel, one.Z, one.Z, lengthscale) + 1e-3 * np.eye(len(one.Z)), lower=True)
        for one in (old, new)
    )
    cross = covariance(kernel, old.Z, new.Z, lengthscale)
    expected = np.linalg.inv(L_old) @ cross @ np.linalg.inv(L_new).T
    np.testing.assert_allclose(inducing.transfer(old, new), expected.T, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_finer_grid_that_holds_the_old_one_loses_no_more_than_the_jitter_leaves(kernel: Kernel) -> None:
    """A function of the old features is the same function of the new ones, wherever it is looked at."""
    grids = [np.linspace(0, 10, M)[:, None] for M in (11, 41)]
    old, new = (inducing.make(kernel, (0,), Z, np.full(1, 2.0)) for Z in grids)
    x = np.linspace(0, 10, 101)[:, None]
    w = np.random.default_rng(2).standard_normal(11)
    there = inducing.features(new, x) @ (inducing.transfer(old, new) @ w)
    # F_new T' spans the old features up to the jitter's root
    back = inducing.features(old, x) @ w
    assert np.max(np.abs(there - back)) < 1e-2 * np.max(np.abs(back))


def test_inducing_inputs_of_other_columns_are_not_carried_over() -> None:
    a, b = (inducing.make("se", columns, np.zeros((1, 1)), np.ones(1)) for columns in ((0,), (1,)))
    with pytest.raises(ValueError, match="same columns"):
        inducing.transfer(a, b)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_an_inducing_input_that_is_no_number_is_refused_by_name(bad: float) -> None:
    with pytest.raises(NotFinite), np.errstate(invalid="ignore"):
        inducing.make("se", (0,), np.array([[bad], [1.0]]), np.ones(1))


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("M", [1, 2, 100])
def test_inducing_inputs_that_are_all_one_still_have_a_factor(kernel: Kernel, M: int) -> None:
    made = inducing.make(kernel, (0,), np.ones((M, 1)), np.ones(1))
    F = inducing.features(made, np.array([[1.0]]))
    assert np.sum(F * F) == pytest.approx(1.0, abs=1e-5)


def test_a_column_beyond_the_inputs_is_the_difference_of_two() -> None:
    inputs = np.random.default_rng(8).standard_normal((6, 5))
    columns = (3, inducing.difference(0, 2, 5), inducing.difference(4, 1, 5))
    expected = np.column_stack((inputs[:, 3], inputs[:, 0] - inputs[:, 2], inputs[:, 4] - inputs[:, 1]))
    np.testing.assert_array_equal(inducing.picked(inputs, columns), expected)
    np.testing.assert_array_equal(inducing.picked(inputs[2], columns), expected[2])
    # what is picked is a copy: inputs are left as they were
    np.testing.assert_array_equal(inputs, np.random.default_rng(8).standard_normal((6, 5)))
