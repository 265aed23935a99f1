"""The joint law of a frame's channels: its density against scipy's, its correlation against what the errors were drawn with."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetgp.gp import joint

RARE = settings(max_examples=40, deadline=None, derandomize=True)
SEED = st.integers(0, 10**6)


def random_correlation(rng: np.random.Generator, Q: int) -> np.ndarray:
    A = rng.standard_normal((Q, Q + 2))
    cov = A @ A.T
    sd = np.sqrt(np.diag(cov))
    return cov / sd[:, None] / sd[None, :]


@RARE
@given(SEED, st.integers(1, 5), st.integers(1, 6), st.sampled_from([3.0, 5.0, 30.0]))
def test_the_density_of_a_frame_is_scipys_multivariate_t_of_the_channels_that_came_1e_9(
    seed: int, Q: int, n: int, degrees: float
) -> None:
    rng = np.random.default_rng(seed)
    # further apart scipy takes the smallest for none
    R, scale = random_correlation(rng, Q), 10 ** rng.uniform(-1, 1, (n, Q))
    errors = scale * rng.standard_normal((n, Q))
    errors[rng.random((n, Q)) < 0.3] = np.nan
    density = joint.log_density(np.tile(R, (n, 1, 1)), errors, scale, np.full((n, Q), degrees))
    for i in range(n):
        seen = np.isfinite(errors[i])
        if not seen.any():
            assert density[i] == 0.0
            continue
        shape = joint.covariance(R, scale[i])[np.ix_(seen, seen)]
        expected = scipy.stats.multivariate_t.logpdf(errors[i, seen], shape=shape, df=degrees)
        assert density[i] == pytest.approx(expected, rel=1e-9, abs=1e-9)


@RARE
@given(SEED, st.integers(1, 4))
def test_one_channel_has_the_density_of_its_own_law(seed: int, n: int) -> None:
    """Each frame with its own degrees."""
    rng = np.random.default_rng(seed)
    errors, scale, degrees = rng.standard_normal((n, 1)), rng.uniform(0.1, 3, (n, 1)), rng.choice([3.0, 7.0], (n, 1))
    density = joint.log_density(np.ones((n, 1, 1)), errors, scale, degrees)
    np.testing.assert_allclose(density, scipy.stats.t.logpdf(errors, degrees, scale=scale)[:, 0], rtol=1e-10)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("missing", [0.0, 0.5])
def test_the_correlation_of_gaussian_errors_is_found_with_half_of_them_missing(seed: int, missing: float) -> None:
    """20,000 frames: within a standard error or two and what the clip at three scales and the shrinkage take."""
    rng = np.random.default_rng(seed)
    R = random_correlation(rng, 4)
    state = joint.init(4)
    for _ in range(80):
        errors = rng.multivariate_normal(np.zeros(4), R, size=250)
        errors[rng.random(errors.shape) < missing] = np.nan
        state = joint.learn(state, errors, 0.9)
    # with half of them missing, expectation maximisation as frames go by lags behind, on the side of no correlation
    np.testing.assert_allclose(state.matrix, R, atol=0.06 if missing == 0.0 else 0.12)


@RARE
@given(SEED, st.integers(1, 6), st.integers(0, 20), st.floats(0.0, 1.0), st.sampled_from([1.0, 1e3, 1e200, np.inf]))
def test_whatever_comes_the_matrix_is_a_correlation(seed: int, Q: int, n: int, missing: float, size: float) -> None:
    """Positive definite with ones on its diagonal: channels equal, opposite, constant, absent, or absurd."""
    rng = np.random.default_rng(seed)
    state = joint.init(Q)
    for _ in range(4):
        errors = np.tile(rng.standard_normal((n, 1)), (1, Q)) * rng.choice([-1.0, 0.0, 1.0], Q)
        with np.errstate(invalid="ignore"):
            errors = np.where(rng.random((n, Q)) < missing, np.nan, errors * size)
        state = joint.learn(state, errors, 0.9)
        np.testing.assert_array_equal(np.diag(state.matrix), 1.0)
        np.testing.assert_array_equal(state.matrix, state.matrix.T)
        assert np.linalg.eigvalsh(state.matrix).min() > 1e-3
    density = joint.log_density(
        np.tile(state.matrix, (2, 1, 1)), np.full((2, Q), 1e150), np.ones((2, Q)), np.full((2, Q), 4.0)
    )
    assert np.all(np.isfinite(density))


def test_forgetting_lets_a_correlation_that_changed_be_followed() -> None:
    rng, state = np.random.default_rng(5), joint.init(2)
    for r in (0.9, -0.9):
        for _ in range(40):
            state = joint.learn(state, rng.multivariate_normal(np.zeros(2), [[1, r], [r, 1]], size=100), 0.8)
        assert state.matrix[0, 1] == pytest.approx(r, abs=0.08)
