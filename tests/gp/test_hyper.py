"""Scales of blocks: an EM step against dense Gaussians, and its bounds."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from fleetgp import features
from fleetgp.features import BLOCKS, Shape
from fleetgp.gp import hyper, posterior
from fleetgp.gp.aggregate import Belief
from fleetgp.gp.hyper import CEILING, FLOOR, MOST_STEP, Scales
from fleetgp.gp.hyper import GUESS_AGENTS as G
from fleetgp.gp.statistics import summed

Array = NDArray[np.float64]

# two inverses of matrices with a condition of some thousands, against one
CLOSE = 1e-8
SHAPE = Shape(channels=2, lags=2, covariates=1)
BLOCKS_OF = features.blocks(SHAPE, 4)
F = len(BLOCKS_OF)
USED = [BLOCKS.index(name) for name in ("bias", "lags", "covariates", "held", "inducing")]
UNUSED = [b for b in range(len(BLOCKS)) if b not in USED]


def spd(rng: np.random.Generator, *shape: int) -> Array:
    half = rng.standard_normal((*shape, shape[-1] + 2))
    return half @ half.swapaxes(-1, -2)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("frames", [0, 3, 60])
def test_deviation_square_is_that_of_the_joint_gaussian_to_1e_8(seed: int, frames: int) -> None:
    """(v, d, y) jointly Gaussian, d given y read off: with v as the others leave it."""
    rng = np.random.default_rng(seed)
    Q = 2
    belief = Belief(spd(rng, Q, F), rng.standard_normal((Q, F)))
    phi = rng.uniform(0.001, 2.0, (Q, F))
    noise = rng.uniform(0.1, 1.0, Q)
    X, y = rng.standard_normal((frames, F)), rng.standard_normal((frames, Q))
    before = posterior.prior(belief, phi, np.zeros((Q, 0)))
    after = posterior.posterior(before, summed(X, y, np.ones((frames, Q))), noise)
    square = hyper.deviation_square(phi, before, after)
    for q in range(Q):
        V = np.linalg.inv(belief.precision[q])
        cov = X @ (V + np.diag(phi[q])) @ X.T + noise[q] * np.eye(frames)
        gain = np.linalg.solve(cov, X * phi[q]).T
        mean = gain @ (y[:, q] - X @ V @ belief.shift[q])
        truth = mean**2 + phi[q] - np.sum(gain * (X * phi[q]).T, axis=1)
        np.testing.assert_allclose(square[q], truth, rtol=CLOSE, atol=CLOSE)


@pytest.mark.parametrize("seed", range(3))
def test_shared_square_is_mean_square_plus_variance_to_1e_8(seed: int) -> None:
    rng = np.random.default_rng(seed)
    belief = Belief(spd(rng, 2, F), rng.standard_normal((2, F)))
    cov = np.linalg.inv(belief.precision)
    mean = np.einsum("qij,qj->qi", cov, belief.shift)
    truth = mean**2 + np.einsum("qii->qi", cov)
    np.testing.assert_allclose(hyper.shared_square(belief), truth, rtol=CLOSE, atol=CLOSE)


def near(scales: Scales, rng: np.random.Generator) -> Scales:
    """Some scales within a third of these."""
    return Scales(*(one * rng.uniform(0.8, 1.25, one.shape) for one in scales))


@pytest.mark.parametrize("seed", range(3))
def test_step_is_the_average_over_agents_and_weights_with_one_guess_among_each(seed: int) -> None:
    """By plain loops, where nothing is damped."""
    rng = np.random.default_rng(seed)
    first = hyper.start(2)
    old = near(first, rng)
    squares = [(w, near(first, rng).deviation) for w in (1.0, 0.5, 0.25)]
    shared = rng.uniform(0.8, 1.25, (2, F))
    new = hyper.improve(old, squares, shared, BLOCKS_OF)
    for q in range(2):
        for b in USED:
            of = [shared[q, f] for f in range(F) if int(BLOCKS_OF[f]) == b]
            assert new.shared[q, b] == pytest.approx((1.0 + sum(of)) / (1 + len(of)), rel=1e-12)
            told = sum(w * square[q, b] for w, square in squares)
            assert new.deviation[q, b] == pytest.approx((G * first.deviation[q, b] + told) / (G + 1.75), rel=1e-12)
        for b in UNUSED:
            assert new.shared[q, b] == old.shared[q, b]
            assert new.deviation[q, b] == old.deviation[q, b]


def test_deviations_stay_where_nobody_tells_of_them() -> None:
    old = near(hyper.start(2), np.random.default_rng(1))
    new = hyper.improve(old, [], np.ones((2, F)), BLOCKS_OF)
    np.testing.assert_array_equal(new.deviation, old.deviation)


@pytest.mark.parametrize("square", [0.0, 1e-30, 1.0, 1e6, 1e30])
def test_no_scale_moves_by_more_than_its_step_nor_out_of_bounds(square: float) -> None:
    """However many rounds a liar goes on."""
    scales = hyper.start(2)
    for _ in range(80):
        told = [(1.0, np.full((2, len(BLOCKS)), square))] * 50
        new = hyper.improve(scales, told, np.full((2, F), square), BLOCKS_OF)
        for was, now in zip(scales, new, strict=True):
            ratio = np.maximum(now / was, was / now)
            assert np.all(ratio <= MOST_STEP * (1 + 1e-12))
            assert np.all((now >= FLOOR) & (now <= CEILING))
        scales = new


def test_one_agent_that_lies_weighs_no_more_than_the_ceiling() -> None:
    """Of eleven agents ten tell 0.01 of the lags: after many rounds the scale is what the ceiling allows, not the lie."""
    honest = np.full((2, len(BLOCKS)), 0.01)
    told = [(1.0, honest)] * 10 + [(1.0, np.full_like(honest, 1e30))]
    scales = hyper.start(2)
    for _ in range(60):
        scales = hyper.improve(scales, told, np.ones((2, F)), BLOCKS_OF)
    lags = BLOCKS.index("lags")
    np.testing.assert_allclose(scales.deviation[:, lags], (0.01 * G + 0.1 + CEILING) / (11 + G), rtol=1e-12)


def test_by_feature_and_by_block_undo_each_other() -> None:
    rng = np.random.default_rng(0)
    scale = rng.uniform(0.1, 2.0, (2, len(BLOCKS)))
    back = hyper.by_block(hyper.by_feature(scale, BLOCKS_OF), BLOCKS_OF)
    np.testing.assert_allclose(back[:, USED], scale[:, USED], rtol=1e-12)
    np.testing.assert_array_equal(back[:, UNUSED], 0.0)
