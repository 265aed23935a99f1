"""The streaming learner of mixed channels: its sums against a dense Gaussian with errors that go on, its updates against its
solutions, and what it foresees on streams whose truth is known."""

from __future__ import annotations

from typing import NamedTuple

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetgp import covariances
from fleetgp.arrays import Array
from fleetgp.gp import chain, mixed, mixed_recent, mixed_solve, mixing, position
from fleetgp.gp.aggregate import Belief
from fleetgp.gp.chain import Chain
from fleetgp.gp.learner import MAX_AGE, Forgetting, Inputs
from fleetgp.gp.mixed_state import Guess, Mixed
from fleetgp.gp.position import Plan
from fleetgp.kernels import covariance
from fleetgp.models import parts
from fleetgp.scaling import Scaling
from fleetgp.schema import Channel, Covariate, Schema
from fleetgp.wire.freeze import freeze, thaw

FEW = settings(max_examples=15, deadline=None, derandomize=True)
SEED = st.integers(0, 10**6)
CYCLE = 30
RULE = Forgetting()


def plan(channels: int = 3, own: int = 7, **changes: object) -> Plan:
    schema = Schema(
        channels=tuple(Channel(name=f"c{q}") for q in range(channels)),
        lags=1,
        phases=(float(CYCLE),),
        harmonics=1,
        inducing=10,
        mixing="ilmm",
    )
    return position.plan(msgspec.structs.replace(schema, **changes), own)


class Stream(NamedTuple):
    """What an agent sees, frame by frame: inputs and readings [n, Q]; mean [n, Q]: the truth without its errors."""

    inputs: list[Inputs]
    Y: Array
    mean: Array


def stream(seed: int, n: int, of: Plan, rho: float = 0.0, *, missing: float = 0.0, every: int = 1) -> Stream:
    """Readings about a curve of the cycle, in the unit that is learnt; every: frames from one reading of the last channel to the next."""
    sd = 0.1
    rng = np.random.default_rng(seed)
    Q = of.channels
    angle = 2 * np.pi * np.arange(n) / CYCLE
    waves = np.stack([np.cos(k * angle + p) for k, p in ((1, 0.3), (2, 1.1))], axis=1)
    mean = waves @ rng.standard_normal((2, Q))
    Y, error = np.empty((n, Q)), sd * rng.standard_normal(Q)
    for t in range(n):
        Y[t] = mean[t] + error
        error = rho * error + sd * np.sqrt(1 - rho**2) * rng.standard_normal(Q)
    Y[rng.random(Y.shape) < missing] = np.nan
    Y[np.arange(n) % every > 0, -1] = np.nan
    made, last, age = [], np.zeros(Q), np.full(Q, MAX_AGE)
    for t in range(n):
        x = np.zeros(of.columns[-1] + 1)
        x[list(of.columns)] = np.cos(angle[t]), np.sin(angle[t])
        made.append(Inputs(x, age, last, np.zeros(Q)))
        is_seen = np.isfinite(Y[t])
        last, age = np.where(is_seen, Y[t], last), np.where(is_seen, 0.0, age + 1)
    return Stream(made, Y, mean)


def unit(of: Plan) -> Scaling:
    return Scaling(np.zeros(of.channels), np.ones(of.channels))


def run(learner: Mixed, seen: Stream, begin: int = 0, end: int | None = None) -> tuple[Mixed, list[Guess]]:
    guesses = []
    for inputs, y in zip(seen.inputs[begin:end], seen.Y[begin:end], strict=True):
        guesses.append(mixed.foresee(learner, inputs))
        learner = mixed.learn(learner, guesses[-1], y, RULE)
    return learner, guesses


def solution(learner: Mixed) -> mixing.Posterior:
    sums = mixed_solve.total(learner).sums
    return mixed_solve.condition(learner.mix, sums, learner.known.belief, learner.known.own_weight)


def whole(seen: Stream, of: Plan) -> Chain:
    """All frames of a stream."""
    x = np.array([one.inputs[list(of.columns)] for one in seen.inputs])
    before, age = (np.array(column) for column in zip(*((one.last, one.age) for one in seen.inputs), strict=True))
    ticks, weights = np.where(age < len(x), age + 1, 0), np.isfinite(seen.Y).astype(float)
    return Chain(x, position.back(of, x, np.array(1.0)), seen.Y, before, ticks, weights, np.ones(len(x)))


@FEW
@given(SEED, st.integers(1, 3), st.floats(0.0, 0.95), st.sampled_from([0.0, 0.4]))
def test_weights_are_those_of_a_dense_gaussian_whose_errors_go_on_1e_6(
    seed: int, channels: int, rho: float, missing: float
) -> None:
    of = plan(channels, ranks=(1, 1, 1))
    learner = mixed.alone(of, unit(of))
    seen, rhos = stream(seed, 12, of, missing=missing), np.linspace(rho, 0.5, channels)
    mix = learner.mix._replace(noise_var=10.0 ** np.random.default_rng(seed).uniform(-2, 0, channels))
    frames = whole(seen, of)
    found = mixed_solve.condition(mix, chain.summed(mix, rhos, frames).sums, learner.known.belief, 1.0)

    H, _ = mixing.design(mix, frames.x)
    size = H.shape[2]
    precision, shift = np.eye(size), np.zeros(size)
    for q in range(channels):
        at = np.flatnonzero(np.isfinite(seen.Y[:, q]))
        apart = np.abs(np.subtract.outer(at, at))
        errors = mix.noise_var[q] / (1 - rhos[q] ** 2) * rhos[q] ** apart
        precision += H[at, q].T @ np.linalg.solve(errors, H[at, q])
        shift += H[at, q].T @ np.linalg.solve(errors, seen.Y[at, q])
    cov = np.linalg.inv(precision)
    np.testing.assert_allclose(found.mean, cov @ shift, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(found.cov, cov, rtol=1e-6, atol=1e-7)


def test_frame_by_frame_it_knows_what_the_next_solution_finds_1e_8() -> None:
    of = plan()
    seen = stream(1, 145, of, 0.8, missing=0.2)
    learner, _ = run(mixed.alone(of, unit(of)), seen, 0, 120)
    learner = mixed_solve.folded(learner)
    learner, _ = run(msgspec.structs.replace(learner, weights=solution(learner)), seen, 120)
    assert len(learner.fresh) == 25
    solved = solution(learner)
    np.testing.assert_allclose(learner.weights.mean, solved.mean, atol=1e-8)
    np.testing.assert_allclose(learner.weights.cov, solved.cov, atol=1e-8)


@pytest.mark.parametrize("rho", [0.0, 0.8])
def test_it_comes_to_foresee_as_well_as_one_who_knows_the_curve_and_says_how_well(rho: float) -> None:
    """An oracle errs by the innovations: below 6 % more, nine in ten within 90 % bands, and rho found to 0.1."""
    of = plan()
    seen = stream(2, 600, of, rho)
    learner, guesses = run(mixed.alone(of, unit(of)), seen)
    z = np.array([(y - one.mean) / one.sd for y, one in zip(seen.Y, guesses, strict=True)])[300:]
    errors = np.array([y - one.mean for y, one in zip(seen.Y, guesses, strict=True)])[300:]
    assert np.sqrt(np.mean(errors**2)) <= 1.06 * 0.1 * np.sqrt(1 - rho**2)
    assert 0.87 <= np.mean(np.abs(z) < 1.6449) <= 0.93
    np.testing.assert_allclose(learner.rho, rho, atol=0.1)


def test_it_is_better_than_the_cycle_before_and_than_the_mean_of_cycles() -> None:
    of = plan()
    seen = stream(3, 360, of, 0.5)
    _, guesses = run(mixed.alone(of, unit(of)), seen)
    late = np.arange(4 * CYCLE, 360)

    def rmse(said: Array) -> float:
        return float(np.sqrt(np.mean((seen.Y[late] - said) ** 2)))

    ours = rmse(np.array([guesses[t].mean for t in late]))
    assert ours <= 0.75 * rmse(seen.Y[late - CYCLE])
    assert ours <= 0.92 * rmse(np.array([seen.Y[t % CYCLE : t : CYCLE].mean(axis=0) for t in late]))


@pytest.mark.parametrize("rho", [0.0, 0.9])
def test_a_channel_read_every_other_frame_is_foreseen_as_well_as_it_can_be(rho: float) -> None:
    """How much of an error goes on is learnt over the ticks that there are: below 8 % more than by who knows the curve."""
    of = plan()
    seen = stream(2, 600, of, rho, every=2)
    learner, guesses = run(mixed.alone(of, unit(of)), seen)
    errors = np.array([y - one.mean for y, one in zip(seen.Y, guesses, strict=True)])[300:, 2]
    assert np.sqrt(np.nanmean(errors**2)) <= 1.08 * 0.1 * np.sqrt(1 - rho**4)
    np.testing.assert_allclose(learner.rho[2], rho, atol=0.25 if rho == 0 else 0.05)


def test_missing_channels_and_silence_leave_a_sound_law() -> None:
    of = plan()
    seen = stream(4, 300, of, 0.7, missing=0.3)
    seen.Y[:, 2] = np.nan
    learner, guesses = run(mixed.alone(of, unit(of)), seen)
    said = np.array([one.mean for one in guesses])[200:]
    assert np.all(np.isfinite(said))
    # in the first two channels it follows the curve; of the third it says that it does not know
    assert np.sqrt(np.mean((said - seen.mean[200:])[:, :2] ** 2)) < 0.12
    assert guesses[-1].sd[2] > 2 * guesses[-1].sd[0]
    assert np.all(np.linalg.eigvalsh(learner.weights.cov) > 0)


def test_a_state_goes_on_from_its_bytes_bit_for_bit() -> None:
    of = plan()
    seen = stream(5, 160, of, 0.5, missing=0.1)
    half, _ = run(mixed.alone(of, unit(of)), seen, 0, 77)
    on, _ = run(half, seen, 77)
    again, _ = run(thaw(freeze(half), Mixed), seen, 77)
    assert freeze(again) == freeze(on)
    assert len(on.climbing.steps)


@FEW
@given(SEED, st.floats(0.0, 0.9))
def test_sums_in_another_unit_are_those_of_the_readings_in_that_unit_1e_9(seed: int, rho: float) -> None:
    of = plan(2)
    rng = np.random.default_rng(seed)
    mix, frames, rhos = mixed.alone(of, unit(of)).mix, whole(stream(seed, 20, of), of), np.array([rho, 0.3])
    ratio, shift = 10 ** rng.uniform(-1, 1, 2), rng.standard_normal(2)
    T = np.eye(of.inducing + of.own)
    carried = chain.carried(chain.summed(mix, rhos, frames), T, ratio, shift)
    made = chain.summed(mix, rhos, chain.rescaled(frames, ratio, shift))
    for one, other in zip(
        (*carried.sums.statistics, carried.ones, carried.total),
        (*made.sums.statistics, made.ones, made.total),
        strict=True,
    ):
        np.testing.assert_allclose(one, other, rtol=1e-8, atol=1e-8 * max(1.0, float(np.max(np.abs(other)))))


def test_the_kernel_on_the_circle_is_the_periodic_one() -> None:
    t = np.linspace(0.0, 1.0, 9)
    x = np.stack((np.cos(2 * np.pi * t), np.sin(2 * np.pi * t)), axis=1)
    periodic = covariances.Periodic(column=0, period=1.0, lengthscale=0.7)
    np.testing.assert_allclose(
        covariance("se", x, x, np.full(2, 0.7)), periodic.matrix(t[:, None], t[:, None]), atol=1e-12
    )


def test_layers_and_base_sum_to_the_mean() -> None:
    of = plan()
    _, guesses = run(mixed.alone(of, unit(of)), stream(6, 80, of, 0.5))
    told = mixed.split(guesses[-1])
    np.testing.assert_allclose(told[:, :4].sum(axis=1), guesses[-1].mean, atol=1e-12)
    assert np.all(told[:, 1:4].any(axis=0))
    assert np.all(told[:, 4] == 1.0)


def test_a_position_that_is_no_cycle_is_learnt_along_its_range() -> None:
    schema = Schema(
        channels=(Channel(name="a"), Channel(name="b")), covariates=(Covariate(name="at", known_ahead=True),),
        lags=1, harmonics=1, inducing=9, mixing="ilmm", position="at",
    )  # fmt: skip
    of = position.plan(schema, 5)
    rng = np.random.default_rng(7)
    learner = mixed.alone(of, Scaling(np.array([0.0, 0.0, 5.0]), np.array([1.0, 1.0, 3.0])))
    last, errors = np.zeros(2), []
    for t in range(300):
        at = (t % 50) / 5
        y = np.array([np.sin(at), 0.2 * at - 1]) + 0.05 * rng.standard_normal(2)
        inputs = np.zeros(of.columns[-1] + 1)
        inputs[of.columns[0]] = at
        guess = mixed.foresee(learner, Inputs(inputs, np.zeros(2), last, np.zeros(2)))
        errors.append(y - guess.mean)
        learner, last = mixed.learn(learner, guess, y, RULE), y
    assert np.sqrt(np.mean(np.array(errors)[150:] ** 2)) < 0.06
    far = np.zeros(of.columns[-1] + 1)
    far[of.columns[0]] = 100.0
    assert np.all(mixed.foresee(learner, Inputs(far, np.full(2, 9.0), last, np.zeros(2))).sd > 0.5)


def test_an_angle_that_begins_anew_is_learnt_as_the_clocks_cycle_is_1e_9() -> None:
    clock, seen = plan(2, 5), stream(4, 120, plan(2, 5), rho=0.5)
    circle = plan(
        2, 5, phases=(), covariates=(Covariate(name="at", known_ahead=True),), position="at", position_period=360.0
    )
    by_clock = mixed.alone(clock, unit(clock))
    by_angle = mixed.alone(circle, Scaling(np.array([0.0, 0.0, 150.0]), np.array([1.0, 1.0, 90.0])))
    for t, frame in enumerate(seen.inputs):
        inputs = np.zeros(circle.columns[-1] + 1)
        inputs[circle.columns[0]] = 360.0 * (t / CYCLE + (-1) ** t)  # where it is counted from does not matter
        one, other = mixed.foresee(by_clock, frame), mixed.foresee(by_angle, frame._replace(inputs=inputs))
        np.testing.assert_allclose(other.mean, one.mean, atol=1e-9)
        np.testing.assert_allclose(other.scale, one.scale, rtol=1e-9)
        by_clock = mixed.learn(by_clock, one, seen.Y[t], RULE)
        by_angle = mixed.learn(by_angle, other, seen.Y[t], RULE)


@pytest.mark.parametrize("model", ["no-deviation", "no-local", "global-only", "alone", "local-only"])
def test_parts_that_are_off_have_no_weights_and_the_rest_goes_on_learning(model: str) -> None:
    of, seen = plan(), stream(8, 150, plan())
    learner, _ = run(mixed.alone(of, unit(of)), seen, 0, 100)
    off = parts(model)  # type: ignore[arg-type]
    schema = Schema(channels=tuple(Channel(name=f"c{q}") for q in range(3)), lags=1, phases=(float(CYCLE),), harmonics=1,
                    inducing=10, mixing="ilmm")  # fmt: skip
    switched = mixed.switched(learner, position.plan(schema, 7, off))
    assert [bool(size) for size in switched.mix.sizes] == list(off[:3])
    _, guesses = run(switched, seen, 100)
    assert np.sqrt(np.mean((np.array([one.mean for one in guesses]) - seen.Y[100:]) ** 2)) < 0.45
    back = mixed.switched(switched, of)
    np.testing.assert_allclose(back.ring.y, mixed_solve.folded(learner).ring.y)


def test_a_fleet_in_another_unit_leaves_what_is_foreseen_and_told_as_it_was_1e_8() -> None:
    """The shared loadings move with the unit, and what an agent has learnt of its own must do so too."""
    of = plan()
    seen = stream(10, 200, of, 0.5)
    learner, _ = run(mixed.alone(of, unit(of)), seen)
    assert len(learner.climbing.steps)
    new, known = Scaling(np.zeros(3), np.array([3.0, 0.5, 1.5])), learner.known
    per = 1.0 / new.scale
    there = known._replace(
        shared=known.shared._replace(Bg=per[:, None] * known.shared.Bg), noise_guess=per**2 * known.noise_guess
    )
    here, moved = mixed.inform(learner, learner.scaling, known), mixed.inform(learner, new, there)
    one, other = (mixed.foresee(made, seen.inputs[-1]) for made in (here, moved))
    np.testing.assert_allclose(other.mean, one.mean, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(other.sd, one.sd, rtol=1e-8)
    for a, b in zip(mixed.summary(moved), mixed.summary(here), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-8 * float(np.max(np.abs(b))))


def test_terms_on_the_same_values_are_moved_by_the_identity() -> None:
    known = mixed.alone(plan(), unit(plan())).known.shared
    np.testing.assert_allclose(mixed_solve.change(known, known, "se"), np.eye(20), atol=1e-12)


def test_the_slope_of_recent_frames_is_that_of_the_summed_evidence_1e_5() -> None:
    """One agent, prior as its cavity: constant and term give the evidence, whose finite differences are the slope."""
    of = plan()
    learner, _ = run(mixed.alone(of, unit(of)), stream(9, 120, of))
    recent, known = mixed_recent.recent(learner), learner.known.shared
    before = Belief(np.eye(20)[None], np.zeros((1, 20)))

    def evidence(length: float, phi: float) -> float:
        moved = known._replace(log_lengthscale=known.log_lengthscale + length, log_phi=np.asarray(known.log_phi + phi))
        term, constant = mixed_recent.tell(recent, moved)
        message = mixing.Message(term, constant)
        return mixing.evidence([message], mixing.posterior([message], 20))

    slope = mixed_recent.judge(recent, known, before).slope
    step = 1e-5
    by_length = (evidence(step, 0) - evidence(-step, 0)) / (2 * step)
    by_phi = (evidence(0, step) - evidence(0, -step)) / (2 * step)
    np.testing.assert_allclose([slope.log_lengthscale[0], slope.log_phi], [by_length, by_phi], rtol=1e-5, atol=1e-4)
