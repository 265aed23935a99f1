"""Student-t laws against scipy, the score against numerical integration, and all of them far out."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import scipy.integrate
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetgp import student

DEGREES = (2, 3, 4, 5, 6, 7, 10, 15, 29, 30)
MANY = settings(max_examples=100, deadline=None, derandomize=True)
NEAR = np.linspace(-12, 12, 801)
FAR = np.geomspace(12, 1e6, 60)
Z = np.concatenate((-FAR, NEAR, FAR))


@pytest.mark.parametrize("v", DEGREES)
def test_density_and_distribution_are_scipys(v: int) -> None:
    np.testing.assert_allclose(student.log_density(Z, v), scipy.stats.t.logpdf(Z, v), rtol=0, atol=1e-10)
    # relative, so the small tail counts as well
    np.testing.assert_allclose(student.cdf(Z, v), scipy.stats.t.cdf(Z, v), rtol=1e-10, atol=0)


@pytest.mark.parametrize("v", DEGREES)
def test_quantiles_are_scipys(v: int) -> None:
    p = np.concatenate((np.geomspace(1e-12, 0.01, 40), np.linspace(0.01, 0.99, 99), [0.25, 0.75, 0.975, 1 - 1e-9]))
    np.testing.assert_allclose(student.quantile(p, v), scipy.stats.t.ppf(p, v), rtol=1e-10, atol=1e-10)


@MANY
@given(st.floats(1e-200, 0.5) | st.floats(1e-9, 0.5).map(lambda p: 1 - p), st.sampled_from([*DEGREES, 100]))
def test_quantile_turns_the_distribution_round(p: float, v: int) -> None:
    """In relative terms, so in the far tail too (where scipy gives up)."""
    assert float(student.cdf(student.quantile(p, v), v)) == pytest.approx(p, rel=1e-10)


@pytest.mark.parametrize("v", [100, 1000])
def test_many_degrees_cost_neither_tail_nor_middle(v: int) -> None:
    z = np.linspace(-30, 30, 301)
    np.testing.assert_allclose(student.cdf(z, v), scipy.stats.t.cdf(z, v), rtol=1e-10, atol=0)
    p = np.array([1e-100, 1e-6, 0.3, 0.9])
    np.testing.assert_allclose(student.quantile(p, v), scipy.stats.t.ppf(p, v), rtol=1e-10)


@pytest.mark.parametrize("v", DEGREES)
@pytest.mark.parametrize("z", [-40.0, -2.5, -0.3, 0.0, 1e-9, 1.0, 7.0, 300.0])
def test_the_score_is_the_integral_that_defines_it(z: float, v: int) -> None:
    """The integral of (F(x) - 1{x >= z})^2 over all x, in pieces that quad can take."""
    edges = [-math.inf, *sorted({-1000.0, -10.0, 0.0, 10.0, 1000.0, z}), math.inf]
    value = 0.0
    for a, b in itertools.pairwise(edges):

        def integrand(x: float, is_after: bool = a >= z) -> float:
            return float(scipy.stats.t.sf(x, v) if is_after else scipy.stats.t.cdf(x, v)) ** 2

        value += scipy.integrate.quad(integrand, a, b, epsabs=1e-12, epsrel=1e-12, limit=200)[0]
    assert float(student.crps(z, v)) == pytest.approx(value, rel=1e-10, abs=1e-10)


@pytest.mark.parametrize("v", DEGREES)
@pytest.mark.filterwarnings("error")
def test_far_out_nothing_overflows(v: int) -> None:
    z = np.array([-1e150, 1e150])
    height = math.lgamma((v + 1) / 2) - math.lgamma(v / 2) - 0.5 * math.log(v * math.pi)
    expected = height - (v + 1) * (math.log(1e150) - 0.5 * math.log(v))
    np.testing.assert_allclose(student.log_density(z, v), expected, rtol=1e-12)
    np.testing.assert_allclose(student.crps(z, v), 1e150, rtol=1e-12)
    assert student.cdf(z, v)[1] == 1.0
    assert 0 <= student.cdf(z, v)[0] < 1e-299
    assert np.all(np.isfinite(student.quantile(np.array([1e-300, 1 - 1e-16]), v)))


def test_the_ends_of_quantile() -> None:
    found = student.quantile(np.array([0.0, 1.0, 0.5, -0.1, 1.1, math.nan]), 4)
    np.testing.assert_array_equal(found, [-math.inf, math.inf, 0.0, math.nan, math.nan, math.nan])


@pytest.mark.parametrize("law", [student.log_density, student.cdf, student.crps, student.quantile])
def test_arrays_broadcast_and_degrees_may_differ(law: student.Law) -> None:
    x = np.array([[0.1], [0.6]])
    degrees = np.array([3.0, 30.0, 3.0])
    found = law(x, degrees)
    assert found.shape == (2, 3)
    for i, j in np.ndindex(2, 3):
        assert found[i, j] == pytest.approx(float(law(float(x[i, 0]), float(degrees[j]))), rel=1e-14)
    assert law(np.empty((0, 3)), degrees).shape == (0, 3)


@pytest.mark.parametrize("degrees", [1, 0, 2.5, math.nan, math.inf, -4])
def test_degrees_that_have_no_closed_form_are_refused(degrees: float) -> None:
    with pytest.raises(ValueError, match="whole numbers from 2 on"):
        student.cdf(0.0, degrees)
