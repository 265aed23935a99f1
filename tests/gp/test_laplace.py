"""Draws around the top of a log density against its law, and what they do to intervals that were too narrow."""

from __future__ import annotations

import numpy as np

from fleetgp.arrays import Array
from fleetgp.gp import laplace, mixing
from fleetgp.gp.mixing import Law


def test_draws_have_the_normal_laws_moments_and_leave_alone_what_is_not_varied_or_not_identified() -> None:
    """20,000 draws of three entries of five; along a ridge, where the density does not change, nothing moves."""
    rng = np.random.default_rng(0)
    turn, _ = np.linalg.qr(rng.standard_normal((3, 3)))
    precision = turn @ np.diag([0.0, 4.0, 25.0]) @ turn.T
    top, varied = np.arange(5.0), np.array([0, 2, 3])

    def slope(x: Array) -> Array:
        result = np.ones(5)
        result[varied] = -precision @ (x - top)[varied]
        return result

    drawn = laplace.draws(slope, top, varied, 20_000, rng)
    np.testing.assert_array_equal(drawn[:, [1, 4]], np.tile(top[[1, 4]], (20_000, 1)))
    np.testing.assert_allclose(drawn.mean(axis=0), top, atol=1e-12)
    np.testing.assert_allclose((drawn - top)[:, varied] @ turn[:, 0], 0.0, atol=1e-6)
    expected = turn @ np.diag([0.0, 1 / 4, 1 / 25]) @ turn.T
    np.testing.assert_allclose(np.cov(drawn[:, varied].T), expected, atol=0.01)


def test_a_slope_that_is_no_number_moves_nothing() -> None:
    drawn = laplace.draws(lambda x: np.full(2, np.nan), np.ones(2), np.array([0, 1]), 4, np.random.default_rng(0))
    np.testing.assert_array_equal(drawn, np.ones((4, 2)))


def test_a_mixture_of_laws_has_the_moments_of_draws_from_it() -> None:
    rng = np.random.default_rng(1)
    laws = [Law(rng.standard_normal((1, 2)), (A @ A.T + np.eye(2))[None]) for A in rng.standard_normal((3, 2, 2))]
    drawn = np.concatenate([rng.multivariate_normal(law.mean[0], law.cov[0], 100_000) for law in laws])
    mixed = mixing.averaged(laws)
    np.testing.assert_allclose(mixed.mean[0], drawn.mean(axis=0), atol=0.02)
    np.testing.assert_allclose(mixed.cov[0], np.cov(drawn.T), atol=0.05)
