"""Streams that break learners: constant, repeated, missing, absurd, or hardly there. Finite and sensible, every one."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from drive_learner import Run, drive, inputs_of
from random_learner import random_basis

from fleetgp import scaling
from fleetgp.errors import NumericalError
from fleetgp.features import PRIOR_SD, Basis, Shape
from fleetgp.gp import aggregate, batch, learner, moves, posterior
from fleetgp.gp.learner import LONG, Forgetting, Inputs, Learner
from fleetgp.scaling import Scaling

FRAMES = 400


def noise(seed: int, channels: int = 1, frames: int = FRAMES) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((frames, channels))


def assert_sound_state(state: Learner) -> None:
    """Every matrix a covariance, the summary fit to be sent."""
    for cov, mean in zip(state.weights.cov, state.weights.mean, strict=True):
        assert np.all(np.isfinite(mean))
        sd = np.sqrt(np.diagonal(cov, axis1=1, axis2=2))
        assert np.all(sd > 0)
        # rank-one updates on top of the last exact solution may lose a few last bits
        assert np.linalg.eigvalsh(cov / sd[:, :, None] / sd[:, None, :]).min() > -1e-9
    term, square = learner.summary(state)
    eigenvalues = np.linalg.eigvalsh(term.precision)
    assert np.all(eigenvalues[:, 0] >= -1e-9 * np.maximum(eigenvalues[:, -1], 1.0))
    assert np.all(np.isfinite(term.shift))
    assert np.all(np.isfinite(square))
    assert np.all(square >= 0)
    assert all(np.all(np.isfinite(part)) for part in state.tail)


def assert_sound(run: Run) -> None:
    """Every forecast a number, every spread positive."""
    assert np.all(np.isfinite(run.mean))
    assert np.all(np.isfinite(run.sd))
    assert np.all(run.sd > 0)
    assert_sound_state(run.learner)


def with_local(state: Learner, frame: int) -> Learner:
    """A local layer placed early on, as an agent does."""
    return moves.place_local(state, 4, "se") if frame == 30 else state


both = pytest.mark.parametrize("drive", [drive, partial(drive, between=with_local)], ids=["linear", "local"])


@both
@pytest.mark.parametrize("value", [0.0, 20.0, -1e-3, 1e9, -1e15, 1e-300])
def test_a_constant_channel_is_foreseen_exactly_and_never_odd(drive: partial[Run], value: float) -> None:
    run = drive(np.full((FRAMES, 1), value))
    assert_sound(run)
    np.testing.assert_allclose(run.mean[-100:], value, rtol=1e-9)
    assert np.abs(run.z).max() < 1


def test_a_constant_channel_beside_a_moving_one_disturbs_neither() -> None:
    moving = 20 + noise(1)
    run, alone = drive(np.column_stack((moving, np.full(FRAMES, 5.0)))), drive(moving)
    assert_sound(run)
    np.testing.assert_allclose(run.mean[100:, 1], 5.0, rtol=1e-3)
    # its constant lag is a feature of zeros
    np.testing.assert_allclose(run.z[:, 0], alone.z[:, 0], rtol=1e-6, atol=1e-6)


@both
def test_a_constant_channel_that_moves_at_last_is_odd_once_and_then_followed(drive: partial[Run]) -> None:
    series = np.full((FRAMES, 1), 20.0)
    series[300:] = 35.0
    run = drive(series)
    assert_sound(run)
    assert abs(run.z[299, 0]) > 5
    np.testing.assert_allclose(run.mean[310:], 35.0, atol=0.5)


@both
def test_a_constant_input_tells_nothing_and_costs_nothing(drive: partial[Run]) -> None:
    run = drive(noise(2), covariates=np.full((FRAMES, 1), 3.0))
    assert_sound(run)
    # of white noise, foreseen from lags
    assert np.std(run.z[100:]) == pytest.approx(1.0, abs=0.15)


@both
def test_inputs_that_repeat_each_other_are_learnt_as_one(drive: partial[Run]) -> None:
    """The same channel thrice: no singular matrix, three equal forecasts, as good as alone."""
    series = 50 + np.cumsum(noise(3), axis=0) * 0.1
    run, alone = drive(np.repeat(series, 3, axis=1)), drive(series)
    assert_sound(run)
    np.testing.assert_allclose(run.mean[:, 1], run.mean[:, 0], rtol=1e-9)
    error, single = (np.sqrt(np.mean((series[101:, 0] - one.mean[100:, 0]) ** 2)) for one in (run, alone))
    assert error < 1.03 * single


def test_what_repeated_inputs_cannot_tell_stays_as_unsure_as_the_prior() -> None:
    """A stream without noise, twice: the data's weight reaches its ceiling and must not drown the prior in rounding."""
    series = np.sin(np.arange(2000.0) / 50)[:, None]
    state = learner.solve(drive(np.repeat(series, 2, axis=1)).learner)
    difference = np.zeros(state.basis.size)
    difference[1:3] = np.array([1.0, -1.0]) / np.sqrt(2)
    # 2000 frames divided by the least noise are 10^10: six digits of the prior are left
    np.testing.assert_allclose(state.weights.cov[LONG] @ difference @ difference, 1.01, rtol=1e-4)


@both
def test_a_channel_that_never_comes_is_held_at_nothing_known(drive: partial[Run]) -> None:
    series = np.column_stack((10 + noise(4), np.full(FRAMES, np.nan)))
    run = drive(series)
    assert_sound(run)
    assert not learner.total(run.learner).n[:, 1].any()
    np.testing.assert_array_equal(run.mean[:, 1], 0.0)
    assert run.sd[-1, 1] >= 1.0
    assert np.std(run.z[100:, 0]) == pytest.approx(1.0, abs=0.2)


def test_a_channel_that_dies_is_forgotten_down_to_the_prior() -> None:
    """Long after its last reading nothing is known but the guess, and what others say is unharmed."""
    series = 10 + noise(5, 2, 1200)
    series[200:, 1] = np.nan
    run = drive(series, rule=Forgetting(half_life=20.0, short_half_life=10.0, refresh=16))
    assert_sound(run)
    state = run.learner
    # 50 half-lives: nothing left but the size of a last bit
    np.testing.assert_allclose(
        state.weights.cov[LONG, 1], posterior.unlearnt(state.before).cov[1], rtol=1e-9, atol=1e-13
    )
    assert state.noise_var[LONG, 1] == pytest.approx(learner.OWN_NOISE, rel=1e-6)
    assert np.std(run.z[400:, 0]) == pytest.approx(1.0, abs=0.2)


@both
@pytest.mark.parametrize("at", [5, 100])
@pytest.mark.parametrize("outlier", [-127.0, 65535.0, -1e6])
def test_one_reading_up_to_a_million_spreads_away_is_overcome(drive: partial[Run], outlier: float, at: int) -> None:
    """Learnt, for want of an alarm; within 200 frames forecasts are as good as persistence, or 20 millionths off."""
    series = 20 + noise(6)
    series[at] = outlier
    run = drive(series)
    assert_sound(run)
    # persistence of white noise has an error of 1.41 spreads
    assert np.sqrt(np.mean((run.mean[at + 200 :] - series[at + 201 :]) ** 2)) < 1.5 + 2e-5 * abs(outlier)


@both
@pytest.mark.parametrize("first", [0.0, 85.0, -127.0, 65535.0, 1e6])
def test_a_first_reading_that_was_none_is_overcome(drive: partial[Run], first: float) -> None:
    """What a sensor says at power-on, when nothing is known to tell it by: back within 200 frames, or millionths off."""
    series = 20 + noise(7)
    series[0] = first
    run = drive(series)
    assert_sound(run)
    assert np.sqrt(np.mean((run.mean[200:] - series[201:]) ** 2)) < 1.5 + 2e-6 * abs(first)


@both
@pytest.mark.parametrize("at", [0, 1, 5, 200])
@pytest.mark.parametrize("outlier", [1e15, -1e15, 1e100, -1e150])
def test_the_largest_readings_leave_the_learner_sound(drive: partial[Run], outlier: float, at: int) -> None:
    """What follows is drowned in rounding, but every number stays one."""
    series = 20 + noise(6)
    series[at] = outlier
    with np.errstate(over="ignore", invalid="ignore"):
        run = drive(series)
    if abs(outlier) < 1e150:
        assert_sound(run)
    # the square of that is beyond doubles: a spread may be infinite, and is a number all the same
    assert np.all(np.isfinite(run.mean))
    assert not np.any(np.isnan(run.sd))
    assert_sound_state(run.learner)


@pytest.mark.parametrize("outlier", [1e15, 1e100, 1e150, 1e300])
def test_a_reading_beyond_all_reason_is_no_number_nowhere(outlier: float) -> None:
    """At once, in a stream on a settled scale: forecasts stay numbers, or an error says by name what cannot be done."""
    rng = np.random.default_rng(8)
    series = 20 + rng.standard_normal((300, 1))
    series[150] = outlier
    state = learner.alone(Basis(Shape(1, 2, 0), Scaling(np.full(1, 20.0), np.ones(1))))
    inputs = inputs_of(series)
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            state, forecast = batch.foresee_and_learn(state, inputs, series[1:], Forgetting())
    except NumericalError:
        return
    assert not np.any(np.isnan(forecast.mean))
    assert not np.any(np.isnan(forecast.scale))
    assert_sound_state(state)


@pytest.mark.parametrize("centre", [1e9, -1e9, 1e12])
def test_a_spread_of_one_about_a_huge_value_is_learnt_like_any_other(centre: float) -> None:
    series = noise(8)
    run, plain = drive(centre + series), drive(series + 0.0)
    assert_sound(run)
    # readings near 1e12 are rounded to 1e-4 of a spread; the first frames differ, for a first reading has a size only
    np.testing.assert_allclose(run.z[200:], plain.z[200:], atol=0.1)


@pytest.mark.parametrize("size", [1e-300, 1e-30, 1e-12, 1e12, 1e150])
def test_tiny_and_huge_units_give_sound_forecasts(size: float) -> None:
    run = drive(size * (20 + noise(9)))
    assert_sound(run)
    assert np.std(run.z[100:]) < 1.2


@both
@pytest.mark.parametrize("shape", ["alternating", "ramp", "steps", "pulses"])
def test_streams_without_any_noise_are_sound(drive: partial[Run], shape: str) -> None:
    """Perfectly regular streams drive the noise to its floor and the data's weight to its ceiling."""
    t = np.arange(1500.0)
    series = {"alternating": t % 2, "ramp": t, "steps": t // 100, "pulses": 1.0 * (t % 50 == 0)}[shape]
    run = drive(series[:, None], rule=Forgetting(half_life=300.0))
    assert_sound(run)
    step = np.sqrt(np.mean(np.diff(series[1000:]) ** 2))
    assert np.sqrt(np.mean((run.mean[1000:, 0] - series[1001:]) ** 2)) < 1.1 * step


def test_with_no_reading_at_all_the_law_is_the_prior_about_zero() -> None:
    state = learner.on_moments(scaling.empty_moments(2), Shape(1, 1, 1))
    nothing = Inputs(np.zeros(state.basis.shape.inputs), np.zeros(1), np.zeros(1), np.zeros(1))
    forecast = learner.foresee(state, nothing)
    assert forecast.mean[0] == 0.0
    # noise 1, and the bias's weight of variance 2 times its feature 0.5 squared
    assert forecast.sd[0] == pytest.approx(np.sqrt(1 + 2 * PRIOR_SD["bias"] ** 2), rel=0.1)
    assert learner.own_noise(state)[0] == pytest.approx(learner.OWN_NOISE, rel=0.1)
    assert not learner.summary(state)[0].precision.any()


def test_one_reading_foresees_itself_within_its_own_size() -> None:
    run = drive(np.array([[20.0], [20.0]]))
    assert_sound(run)
    assert run.mean[0, 0] == pytest.approx(20.0)
    assert 1 < run.sd[0, 0] < 60


def test_a_frame_without_readings_leaves_everything_as_it_was() -> None:
    state = drive(noise(10)).learner
    inputs = Inputs(np.zeros(state.basis.shape.inputs), np.zeros(1), np.zeros(1), np.zeros(1))
    assert learner.learn(state, learner.foresee(state, inputs), np.array([np.nan]), Forgetting()) is state


def test_an_agent_whose_unit_is_another_than_the_fleets_stays_sound() -> None:
    """Pascal among hectopascal: readings 20,000 spreads from the fleet's centre, round after round."""
    fleet = Scaling(np.array([1013.0]), np.array([5.0]))

    def visit(state: Learner, frame: int) -> Learner:
        if frame % 20:
            return state
        state = moves.move(state, state.basis._replace(scaling=fleet))
        prior_var = state.knowledge.prior_var
        state = learner.inform(state, state.knowledge._replace(belief=aggregate.prior(prior_var)))
        term, _ = learner.summary(state)
        published = aggregate.posterior([term, term, term], prior_var)
        known = state.knowledge._replace(
            belief=aggregate.cavity(published, term), noise_guess=np.array([1e-3]), noise_frames=20.0
        )
        return learner.inform(state, known)

    series = 101_325 + 100 * noise(11)
    run = drive(series, between=visit)
    assert_sound(run)
    assert np.sqrt(np.mean((run.mean[300:] - series[301:]) ** 2)) < 3 * 100


@pytest.mark.parametrize("noise_guess", [1e-8, 1e8])
def test_a_fleets_wrong_guess_of_the_noise_is_outgrown(noise_guess: float) -> None:
    """Worth 20 frames at most: after a few hundred of its own an agent's law is its own."""

    def visit(state: Learner, frame: int) -> Learner:
        known = state.knowledge._replace(noise_guess=np.array([noise_guess]), noise_frames=20.0)
        return learner.inform(state, known) if frame % 50 == 0 else state

    run = drive(noise(12, frames=1000), between=visit)
    assert_sound(run)
    assert np.std(run.z[500:]) == pytest.approx(1.0, abs=0.15)


@both
@pytest.mark.parametrize("outlier", [1e3, 1e6, 1e9])
def test_inducing_inputs_may_move_after_an_outlier_in_the_ring_or_before_it(
    drive: partial[Run], outlier: float
) -> None:
    """Frames whose inputs are far out are taken off the past and put back: rounding must not eat the rest."""
    series = 20 + noise(13, 2, 900)
    series[[100, 600], 0] = outlier
    state = drive(series).learner
    basis = random_basis(np.random.default_rng(1), state.basis.shape, 5)._replace(scaling=state.basis.scaling)
    fleet = learner.alone(basis).knowledge
    for way in (moves.move, moves.restart):
        moved = learner.inform(way(state, basis), fleet)
        assert_sound_state(moved)
        at = Inputs(state.ring.inputs[-1], np.zeros(2), series[-1], np.zeros(2))
        assert np.all(np.abs(learner.foresee(moved, at).mean - series[-1]) < 20 + 1e-5 * outlier)


def test_before_a_first_solution_and_after_none_the_posterior_is_the_prior() -> None:
    state = learner.alone(Basis(Shape(2, 1, 1), Scaling(np.zeros(3), np.ones(3))))
    before = posterior.prior(state.knowledge.belief, state.knowledge.deviation_var, np.zeros((2, 0)))
    for track in range(learner.TRACKS):
        np.testing.assert_allclose(state.weights.cov[track], posterior.unlearnt(before).cov, rtol=1e-12)
        np.testing.assert_array_equal(state.weights.mean[track], 0.0)
