"""Streams of every kind at once, through every layer and every change of basis: numbers stay numbers.

Shapes from one channel and one lag to 24 lags; values from 1e-18 to 1e150; most readings missing; inputs that repeat each
other; local layers placed and inducing inputs moved on the way.
"""

from __future__ import annotations

import numpy as np
import pytest
from drive_learner import Run, drive, inputs_of
from random_learner import lone_learner, random_basis, random_inputs, random_readings
from test_learner_edges import assert_sound_state

from fleetgp.errors import BasisRefused
from fleetgp.features import Shape
from fleetgp.gp import batch, learner, moves
from fleetgp.gp.learner import Forgetting, Learner
from fleetgp.scaling import Scaling

KINDS = ["white", "walk", "constant", "counts", "wave", "steps", "tiny", "collinear"]


def base(kind: str, rng: np.random.Generator, n: int, Q: int) -> np.ndarray:
    t, ones = np.arange(n)[:, None], np.ones((1, Q))
    return {
        "white": lambda: rng.standard_normal((n, Q)),
        "walk": lambda: np.cumsum(rng.standard_normal((n, Q)), axis=0),
        "constant": lambda: np.ones((n, Q)),
        "counts": lambda: rng.integers(0, 3, (n, Q)).astype(float),
        "wave": lambda: np.sin(t / rng.uniform(1, 100)) * ones,
        "steps": lambda: (t // 50) * ones,
        "tiny": lambda: 1e-9 * rng.standard_normal((n, Q)),
        "collinear": lambda: rng.standard_normal((n, 1)) * ones,
    }[kind]()


def hostile(kind: str, rng: np.random.Generator, n: int, Q: int, most: float = 150) -> np.ndarray:
    """In any unit about any value, with outliers of up to 10^most and up to nine tenths missing."""
    series = base(kind, rng, n, Q) * 10 ** rng.uniform(-9, 9) + rng.choice([0, 1, 1e3, 1e9]) * rng.standard_normal()
    is_outlier = rng.random(series.shape) < rng.choice([0, 0.01, 0.05])
    size = 10 ** rng.uniform(0, rng.choice([6, 15, most]), series.shape)
    series = np.where(is_outlier, size * rng.choice([-1, 1], series.shape), series)
    return np.where(rng.random(series.shape) < rng.choice([0, 0.2, 0.9]), np.nan, series)


def inputs_beside(rng: np.random.Generator, series: np.ndarray, C: int) -> np.ndarray:
    """Covariates in any unit, the first now and then a channel's own copy, some missing."""
    covariates = rng.standard_normal((len(series), C)) * 10 ** rng.uniform(-6, 6)
    if C and rng.random() < 0.5:
        covariates[:, 0] = np.nan_to_num(series[:, 0])
    return np.where(rng.random(covariates.shape) < rng.choice([0, 0.2]), np.nan, covariates)


def moved(state: Learner, rng: np.random.Generator, size: int) -> Learner:
    """On other inducing inputs, and now and then another scaling, as a fleet would say."""
    basis = random_basis(rng, state.basis.shape, size)._replace(local=state.basis.local)
    if rng.random() < 0.5:
        basis = basis._replace(scaling=state.basis.scaling)
    fleet = learner.alone(basis._replace(local=None)).knowledge
    try:
        return learner.inform(moves.move(state, basis), fleet)
    except BasisRefused:
        return learner.inform(moves.restart(state, basis), fleet)


def run_through(kind: str, seed: int) -> Run:
    rng = np.random.default_rng([seed, KINDS.index(kind)])
    Q, L = int(rng.integers(1, 4)), int(rng.choice([1, 2, 5, 24]))
    C, P, size = int(rng.choice([0, 0, 1, 3])), int(rng.choice([0, 0, 2, 6])), int(rng.integers(0, 6))
    n = int(rng.choice([2, 3, 5, 20, 130, 600]))
    series = hostile(kind, rng, n, Q)

    def between(state: Learner, frame: int) -> Learner:
        if frame == 30:
            state = moves.place_local(state, size, "se")
        return moved(state, rng, size) if size and frame in (100, 590) else state

    rule = Forgetting(float(rng.choice([50, 20_000])), float(rng.choice([10, 1000])), int(rng.choice([1, 16, 256])))
    covariates, phases = inputs_beside(rng, series, C), np.cos(rng.uniform(0, 6, (n, P)))
    with np.errstate(over="ignore", invalid="ignore"):
        return drive(series, lags=L, covariates=covariates, phases=phases, rule=rule, between=between)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(8))
def test_forecasts_are_numbers_and_the_learner_stays_sound(kind: str, seed: int) -> None:
    """A spread may be infinite where nothing can be known; none is ever no number, or none at all."""
    run = run_through(kind, seed)
    assert np.all(np.isfinite(run.mean))
    assert not np.any(np.isnan(run.sd))
    assert np.all(run.sd > 0)
    assert_sound_state(run.learner)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("far", [0.0, 10.0, 1e6])
@pytest.mark.parametrize("seed", range(4))
def test_so_they_are_many_frames_at_once_on_a_scale_that_is_not_the_streams(kind: str, far: float, seed: int) -> None:
    """A fleet's centre ``far`` spreads away: what is known of a frame is drowned in rounding, and no factor exists.

    Readings up to 1e15, the most that is let in.
    """
    rng = np.random.default_rng([seed, KINDS.index(kind)])
    Q, L, n = int(rng.integers(1, 3)), int(rng.choice([1, 2, 8])), int(rng.choice([5, 130, 600]))
    series = hostile(kind, rng, n, Q, most=15)
    centre = [np.median(column[np.isfinite(column)]) if np.isfinite(column).any() else 0.0 for column in series.T]
    spread = np.abs(np.nan_to_num(series) - centre).mean(axis=0)
    scale = np.where(spread > 0, spread, 1.0) * 10 ** rng.uniform(-3, 0)
    basis = random_basis(rng, Shape(Q, L, 0), 3)._replace(scaling=Scaling(centre + far * scale, scale))
    end, forecast = batch.foresee_and_learn(learner.alone(basis), inputs_of(series, L), series[1:], Forgetting())
    assert np.all(np.isfinite(forecast.mean))
    assert np.all(np.isfinite(forecast.scale))
    assert np.all(forecast.scale > 0)
    # between solutions what is left of a weight known to 1e-15 may be rounding; the next solution knows it again
    assert_sound_state(learner.solve(learner.folded(end)))


@pytest.mark.parametrize("size", [1e3, 1e20, 1e35, 1e60, 1e100])
def test_a_frame_that_is_not_learnt_teaches_nothing_however_far_out_its_inputs(size: float) -> None:
    """One channel missing, inputs beyond all reason: what is known of it is more than any noise that stands for missing."""
    rng = np.random.default_rng(9)
    shape = Shape(2, 1, 0)
    state, inputs = lone_learner(rng, shape), random_inputs(rng, shape, 60)
    inputs = inputs._replace(age=np.zeros((60, 2)), floor=np.zeros((60, 2)))
    observed = random_readings(rng, inputs, missing=0.0)
    observed[20:40, 0] = np.nan
    wild = inputs.inputs.copy()
    wild[20:40] *= size
    rule = Forgetting(refresh=256)
    ends = [
        batch.foresee_and_learn(state._replace(frames=4000), inputs._replace(inputs=rows), observed, rule)[0]
        for rows in (inputs.inputs, wild)
    ]
    usual, unusual = (end.weights for end in ends)
    np.testing.assert_allclose(unusual.mean[:, 0], usual.mean[:, 0], rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(unusual.cov[:, 0], usual.cov[:, 0], rtol=1e-7, atol=1e-9)
