"""Covariance functions against their formulas, the law of positive definiteness, and the far ends of doubles."""

from __future__ import annotations

import math
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetgp.kernels import covariance
from fleetgp.schema import Kernel

KERNELS: tuple[Kernel, ...] = get_args(Kernel)
RARE = settings(max_examples=60, deadline=None, derandomize=True)
SEED = st.integers(0, 10**6)


def by_hand(kernel: Kernel, x: np.ndarray, z: np.ndarray, lengthscale: np.ndarray) -> float:
    """One entry, as Rasmussen and Williams print it (eqs. 4.9 and 4.17)."""
    r = math.sqrt(sum(((a - b) / s) ** 2 for a, b, s in zip(x, z, lengthscale, strict=True)))
    if kernel == "se":
        return math.exp(-(r**2) / 2)
    if kernel == "matern32":
        return (1 + math.sqrt(3) * r) * math.exp(-math.sqrt(3) * r)
    return (1 + math.sqrt(5) * r + 5 * r**2 / 3) * math.exp(-math.sqrt(5) * r)


@pytest.mark.parametrize("kernel", KERNELS)
@RARE
@given(seed=SEED, n=st.integers(0, 6), m=st.integers(0, 6), D=st.integers(1, 6))
def test_every_entry_is_the_printed_formula_1e_12(kernel: Kernel, seed: int, n: int, m: int, D: int) -> None:
    rng = np.random.default_rng(seed)
    X, Z, lengthscale = rng.standard_normal((n, D)), rng.standard_normal((m, D)), 10 ** rng.uniform(-1, 1, D)
    expected = np.array([[by_hand(kernel, x, z, lengthscale) for z in Z] for x in X]).reshape(n, m)
    np.testing.assert_allclose(covariance(kernel, X, Z, lengthscale), expected, rtol=1e-11, atol=1e-300)


@pytest.mark.parametrize("kernel", KERNELS)
@RARE
@given(seed=SEED, n=st.integers(1, 30), D=st.integers(1, 6), offset=st.sampled_from([0.0, 1e3, -1e8]))
def test_a_covariance_matrix_is_symmetric_with_ones_and_no_eigenvalue_below_minus_1e_12(
    kernel: Kernel, seed: int, n: int, D: int, offset: float
) -> None:
    """Points that repeat each other, and points far from the origin, included."""
    rng = np.random.default_rng(seed)
    X = offset + rng.standard_normal((n, D))
    X[n // 2 :] = X[: n - n // 2]
    K = covariance(kernel, X, X, 10 ** rng.uniform(-1, 1, D))
    np.testing.assert_array_equal(np.diag(K), 1.0)
    np.testing.assert_allclose(K, K.T, rtol=1e-14)
    # n eigenvalues of size up to n: a few last bits
    assert np.linalg.eigvalsh(K).min() > -1e-12


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("far", [1e3, 1e10, 1e100, 1e155, 1e200, 1e308])
def test_far_points_have_no_covariance_and_nothing_overflows(kernel: Kernel, far: float) -> None:
    X = np.array([[far, 0.0], [0.0, -far], [0.0, 0.0]])
    with np.errstate(all="raise", under="ignore"):
        K = covariance(kernel, X, np.zeros((1, 2)), np.ones(2))
    np.testing.assert_array_equal(K[:, 0], [0.0, 0.0, 1.0])


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("lengthscale", [1e-200, 1e-300])
def test_a_lengthscale_near_nothing_parts_all_points(kernel: Kernel, lengthscale: float) -> None:
    X = np.array([[0.0], [1e-3], [2e5]])
    np.testing.assert_array_equal(covariance(kernel, X, X, np.array([lengthscale])), np.eye(3))


@pytest.mark.parametrize("kernel", KERNELS)
@RARE
@given(seed=SEED, D=st.integers(1, 5), unit=st.floats(1e-20, 1e20))
def test_a_covariance_has_no_unit(kernel: Kernel, seed: int, D: int, unit: float) -> None:
    rng = np.random.default_rng(seed)
    X, Z, lengthscale = rng.standard_normal((4, D)), rng.standard_normal((3, D)), 10 ** rng.uniform(-1, 1, D)
    a, b = covariance(kernel, X, Z, lengthscale), covariance(kernel, unit * X, unit * Z, unit * lengthscale)
    np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-300)


@pytest.mark.parametrize("kernel", KERNELS)
def test_covariance_falls_with_distance(kernel: Kernel) -> None:
    x = np.linspace(0, 40, 400)[:, None]
    K = covariance(kernel, x, np.zeros((1, 1)), np.ones(1))[:, 0]
    assert np.all(np.diff(K) <= 0)
    assert K[0] == 1.0
