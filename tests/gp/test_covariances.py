"""Covariance functions that are added and multiplied: positive definite, their slopes finite differences, their features theirs."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetgp import inducing
from fleetgp.arrays import Array
from fleetgp.covariances import Covariance, Periodic, Stationary, covariance, total, total_slopes, traced
from fleetgp.fourier import fourier
from fleetgp.gp.hierarchy import Start
from fleetgp.wire.freeze import freeze, thaw

RARE = settings(max_examples=40, deadline=None, derandomize=True)
SEED = st.integers(0, 10**6)
SE = Stationary("se", (0, 1), np.array([1.3, 0.6]), 0.7)
ROUGH = Stationary("matern32", (1,), np.array([0.8]), 1.9)
SMOOTH = Stationary("matern52", (0,), np.array([2.0]))
WAVE = Periodic(0, period=2.5, lengthscale=1.1, variance=0.4)
ALL: dict[str, Covariance] = {
    "se": SE, "matern32": ROUGH, "matern52": SMOOTH, "periodic": WAVE, "sum": SE + WAVE, "product": WAVE * ROUGH,
    "both": (SMOOTH * WAVE) + (SE * ROUGH) + WAVE,
}  # fmt: skip


@pytest.mark.parametrize("name", ALL)
@RARE
@given(seed=SEED, n=st.integers(1, 25))
def test_it_is_a_covariance(name: str, seed: int, n: int) -> None:
    """Symmetric, its total on the diagonal, no eigenvalue below rounding; repeated inputs included."""
    X = 2 * np.random.default_rng(seed).standard_normal((n, 2))
    X[n // 2 :] = X[: n - n // 2]
    K = ALL[name].matrix(X, X)
    np.testing.assert_allclose(K, K.T, rtol=1e-13)
    np.testing.assert_allclose(np.diag(K), ALL[name].total, rtol=1e-13)
    assert np.linalg.eigvalsh(K).min() > -1e-12 * ALL[name].total * n


@pytest.mark.parametrize("name", [*ALL, "word"])
@RARE
@given(seed=SEED)
def test_the_way_back_is_the_finite_difference_1e_6(name: str, seed: int) -> None:
    """For the logarithm of every parameter and for Z, of a random sum over k(X, Z); a point on itself included, where the
    Matern's distance has no slope of its own."""
    rng = np.random.default_rng(seed)
    kernel = ALL.get(name, "matern52")
    values = (np.zeros(2) if isinstance(kernel, str) else kernel.values) + 0.3 * rng.standard_normal(
        2 if isinstance(kernel, str) else len(kernel.values)
    )
    X, Z, W = rng.standard_normal((4, 2)), rng.standard_normal((3, 2)), rng.standard_normal((4, 3))
    Z[0] = X[0]

    def summed(values: Array, Z: Array) -> float:
        return float(np.sum(W * traced(kernel, X, Z, np.exp(values))[0]))

    for_values, for_Z = traced(kernel, X, Z, np.exp(values))[1](W)
    for place in np.ndindex(values.shape):
        step = _one(values, place)
        expected = (summed(values + step, Z) - summed(values - step, Z)) / 2e-5
        assert for_values[place] == pytest.approx(expected, rel=1e-6, abs=1e-8)
        up, down = (total(kernel, np.exp(v)) for v in (values + step, values - step))
        assert total_slopes(kernel, np.exp(values))[place] == pytest.approx((up - down) / 2e-5, rel=1e-6, abs=1e-8)
    for place in np.ndindex(Z.shape):
        step = _one(Z, place)
        expected = (summed(values, Z + step) - summed(values, Z - step)) / 2e-5
        assert for_Z[place] == pytest.approx(expected, rel=1e-5, abs=2e-8)


def _one(like: Array, place: tuple[int, ...]) -> Array:
    step = np.zeros_like(like)
    step[place] = 1e-5
    return step


@pytest.mark.parametrize("name", ALL)
def test_a_function_of_inputs_in_another_unit_is_the_same_function(name: str) -> None:
    rng, unit = np.random.default_rng(3), np.array([365.25, 0.02])
    X, Z = rng.standard_normal((5, 2)), rng.standard_normal((4, 2))
    told = ALL[name].stretched(unit).matrix(X / unit, Z / unit)
    np.testing.assert_allclose(told, ALL[name].matrix(X, Z), rtol=1e-9)
    assert ALL[name].reach == (1 if name in ("matern52", "periodic") else 2)


def test_entries_are_the_printed_formulas() -> None:
    x, z = np.array([[0.3, -1.0]]), np.array([[1.4, 0.2]])
    wave = 0.4 * math.exp(-2 * math.sin(math.pi * 1.1 / 2.5) ** 2 / 1.1**2)
    assert WAVE.matrix(x, z)[0, 0] == pytest.approx(wave, rel=1e-12)
    assert WAVE.matrix(x, z + np.array([[2.5, 0.0]]))[0, 0] == pytest.approx(wave, rel=1e-12)
    r = math.sqrt((1.1 / 1.3) ** 2 + (1.2 / 0.6) ** 2)
    plain = 0.7 * math.exp(-(r**2) / 2)
    assert (WAVE + SE).matrix(x, z)[0, 0] == pytest.approx(wave + plain, rel=1e-12)
    assert (WAVE * SE).matrix(x, z)[0, 0] == pytest.approx(wave * plain, rel=1e-12)


@pytest.mark.parametrize("name", ALL)
def test_features_at_their_inducing_inputs_are_the_covariance_and_elsewhere_no_more(name: str) -> None:
    """F F^T = k(Z, Z) up to the jitter; the residual is what |F|^2 lacks of the total, near nothing at Z."""
    rng, function = np.random.default_rng(0), ALL[name]
    Z = rng.standard_normal((8, 2))
    made = inducing.make(function, (0, 1), Z, np.exp(function.values), jitter=1e-10)
    F = inducing.features(made, Z)
    np.testing.assert_allclose(F @ F.T, function.matrix(Z, Z), atol=1e-8)
    np.testing.assert_allclose(inducing.residual(F, made.variance), 0.0, atol=1e-8)
    X = 3 * rng.standard_normal((50, 2))
    F = inducing.features(made, X)
    assert made.variance == pytest.approx(function.total, rel=1e-12)
    assert np.all(np.sum(F**2, axis=1) <= function.total + 1e-8)
    np.testing.assert_allclose(inducing.features(made, X[0]), F[0], rtol=1e-12)


@pytest.mark.parametrize("kernel", ["se", "matern32", "matern52"])
def test_random_fourier_features_are_the_covariance_on_average(kernel: str) -> None:
    """Of 40,000 frequencies: each entry within 5 standard errors of at most the variance over their root."""
    made = Stationary(kernel, (1, 0), np.array([0.8, 1.7]), 2.0)  # type: ignore[arg-type]
    X = np.random.default_rng(1).standard_normal((6, 3))
    features = fourier(made, 40_000, np.random.default_rng(2))
    F = features.features(X)
    expected = 2.0 * covariance(made.kernel, X[:, [1, 0]], X[:, [1, 0]], made.lengthscale)
    np.testing.assert_allclose(F @ F.T, expected, atol=5 * 2.0 / math.sqrt(40_000))
    np.testing.assert_allclose(np.sum(F**2, axis=1), 2.0, rtol=1e-12)
    np.testing.assert_array_equal(features.residual_variance(X), 0.0)


@pytest.mark.parametrize("name", [*ALL, "word"])
def test_a_frozen_start_comes_back_with_its_kernel(name: str) -> None:
    """What a learner holds is frozen by its types: a kernel is among them whole."""
    kernel = ALL.get(name, "matern52")
    Z = np.random.default_rng(2).standard_normal((3, 2))
    parameters = np.ones(2) if isinstance(kernel, str) else np.exp(kernel.values)
    back = thaw(freeze(Start(Z, Z, parameters, np.ones(2), np.ones(1), kernel=kernel)), Start)
    np.testing.assert_array_equal(covariance(back.kernel, Z, Z, parameters), covariance(kernel, Z, Z, parameters))
    assert type(back.kernel) is type(kernel)
