"""What the basis looks at, chosen by evidence: the scores are those of dense algebra, and the right candidate is found."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from numpy.testing import assert_allclose

from coordinator import candidates, choosing
from coordinator.state import Candidate, Choice, CoordinatorConfig, Evidence, State
from edge_agent.state import AgentConfig
from fleetgp import features, inducing, placement
from fleetgp.arrays import Array
from fleetgp.features import Basis
from fleetgp.gp import message, statistics
from fleetgp.recording.csv import Record
from fleetgp.scaling import Scaling
from fleetgp.schema import Channel, Covariate, Schema
from fleetgp.wire import codec
from fleetgp.wire.freeze import freeze, thaw
from fleetgp.wire.messages import Tuning
from simulator.fleet import Fleet, Plan

SCHEMA = Schema(channels=(Channel(name="y"),), covariates=(Covariate(name="u"),), interval_s=60.0, lags=2, inducing=10)
TICK_MS, ROUND_FRAMES = 60_000, 32
NOISE, PRIOR, DEVIATION = 0.3, 0.7, 0.02
FEATURES, INDUCING = 5, 2


def swings(seed: int, count: int) -> list[Record]:
    """A step follows the sine of the step before it, which a line through that step is a bad guess of."""
    rng = np.random.default_rng(seed)
    rows, y, step = [], 0.0, 0.0
    for t in range(count):
        step = float(0.8 * np.sin(4.0 * step) - 0.1 * y + 0.1 * rng.standard_normal())
        y += step
        rows.append(Record(t * TICK_MS, (y, float(rng.standard_normal()))))
    return rows


@pytest.fixture(scope="module")
def chosen() -> tuple[Fleet, list[State]]:
    """Three agents after their choice, and the coordinator at times before it."""
    agent = AgentConfig(agent_id="any", schema=SCHEMA, is_live=False, local_inducing=0)
    fleet = Fleet(Plan(agent=agent, round_ms=ROUND_FRAMES * TICK_MS, tuning=True), lambda _: None)
    states: list[State] = []
    for t, moment in enumerate(zip(*(swings(seed, 1100) for seed in range(3)), strict=True)):
        for name, record in zip("abc", moment, strict=True):
            fleet.read(name, record)
        if t % ROUND_FRAMES == 1 and fleet.coordinator is not None:
            states.append(fleet.coordinator)
    return fleet, states


def test_the_basis_comes_to_look_at_steps_where_steps_are_what_tells(chosen: tuple[Fleet, list[State]]) -> None:
    fleet, states = chosen
    last = states[-1]
    assert last.is_chosen
    assert last.choice is None
    assert last.feature_map is not None
    assert last.feature_map.shared is not None
    size = last.feature_map.shape.inputs
    assert inducing.difference(0, 1, size) in last.feature_map.shared.columns
    notice = fleet.outcome.learnt[0]
    assert "the last readings and their last steps" in notice.note
    assert notice.gain is not None
    assert notice.gain > 0.05
    # everybody went along, without losing what was learnt
    assert fleet.outcome.counts == {}
    assert {state.basis for state in fleet.agents.values()} == {last.basis}


def test_the_choice_outlives_a_snapshot(chosen: tuple[Fleet, list[State]]) -> None:
    asking = next(state for state in chosen[1] if choosing.is_asking(state))
    between = next(state for state in chosen[1] if state.choice is not None and state.choice.sums)
    for state in (asking, between):
        assert freeze(thaw(freeze(state), State)) == freeze(state)


def test_a_sweep_that_is_switched_off_is_over_and_the_basis_may_change_again(chosen: tuple[Fleet, list[State]]) -> None:
    asking = next(state for state in chosen[1] if choosing.is_asking(state))
    off = msgspec.structs.replace(asking, config=msgspec.structs.replace(asking.config, tuning=False))
    turned = choosing.turn(off, 0)
    assert not choosing.is_asking(turned.state)
    assert "switched off" in turned.note
    # agents hear that nothing is asked any more
    assert not codec.decode(turned.payload, Tuning).values
    assert choosing.turn(turned.state, 0) == choosing.Turn(turned.state)


def test_frames_that_fade_as_fast_as_they_come_do_not_hold_up_the_choice(chosen: tuple[Fleet, list[State]]) -> None:
    """An agent that has read for long tells the same number of frames for ever; one that reads nothing does so too."""
    between = next(state for state in chosen[1] if state.choice is not None and state.choice.sums)
    choice = between.choice
    assert choice is not None
    assert choice.due_ms - 2 * 512 * TICK_MS < between.next_ms
    frames = float(np.mean([np.mean(answer.count) for answer in between.answers.values()]))
    long, silent = frames + 511.0, frames + choosing.RING_FRAMES
    for due, late_ms, is_asked in ((long, -1, False), (long, 0, True), (silent, 10**9, False), (frames, -1, True)):
        state = msgspec.structs.replace(between, choice=msgspec.structs.replace(choice, due=due))
        turned = choosing.turn(state, choice.due_ms + late_ms)
        assert choosing.is_asking(turned.state) == bool(turned.payload) == is_asked


def test_candidates_are_new_and_differ_from_what_is_live() -> None:
    basis = live(SCHEMA)
    assert basis.shared is not None
    found = candidates.candidates(SCHEMA, basis, np.array([0.04]))
    assert found[0].shared is basis.shared
    assert len({one.name for one in found}) == len(found) == 3
    # of one lag there are no steps, and the last reading is looked at already
    one_lag = msgspec.structs.replace(SCHEMA, lags=1)
    known = live(one_lag)
    assert known.shared is not None
    assert candidates.columns(one_lag, known.shape, known.shared) == ()


def test_later_sweeps_are_judged_as_dense_algebra_foresees_them() -> None:
    rng = np.random.default_rng(5)
    X = [rng.standard_normal((n, FEATURES)) for n in (9, 7, 11)]
    y = [rng.standard_normal(len(part)) for part in X]
    choice = Choice(candidates=(Candidate("any", some_inducing()),), prior_var=np.full((1, FEATURES), PRIOR))
    for part, targets in zip(X, y, strict=True):
        choice = choosing._added(msgspec.structs.replace(choice, heard=({"a": told(part, targets)},)), ["a"])
    judged = choosing.judgement(choice, 0)
    nats = {v: dense(X, y, v) - dense(X[:1], y[:1], v) for v in choosing.PRIOR_VARS}
    assert_allclose(judged.nats, max(nats.values()), rtol=1e-9)
    assert judged.prior_var[0] == max(nats, key=lambda v: nats[v])
    assert (choice.sweeps, choice.readings, choice.first_readings) == (3, 27, 9)


def test_sums_say_the_same_on_another_scaling() -> None:
    old = live(SCHEMA)
    assert old.shared is not None
    new = old._replace(scaling=Scaling(np.array([0.4, -2.0]), np.array([2.5, 0.5])))
    rng = np.random.default_rng(6)
    inputs = rng.standard_normal((12, old.shape.inputs))
    targets = rng.standard_normal(12)
    was, is_ = features.features(old, inputs), features.features(new, inputs)
    heard = {"a": told(was, targets, deviation=1e-12)}
    choice = Choice(candidates=(Candidate("live", old.shared),), prior_var=np.ones((1, old.size)), heard=(heard,))
    before = State(CoordinatorConfig(), 0, feature_map=old, choice=choosing._added(choice, ["a"]))
    after = choosing.carried(before, msgspec.structs.replace(before, feature_map=new)).choice
    assert after is not None
    moved = after.sums[0].term
    assert_allclose(after.first[0].term.precision, moved.precision)
    direct = told(is_, targets / 2.5, NOISE / 2.5**2, deviation=1e-12).term
    assert_allclose(moved.precision, direct.precision, rtol=1e-6, atol=1e-9)
    assert_allclose(moved.shift, direct.shift, rtol=1e-6)


def live(schema: Schema) -> Basis:
    shape, scaling = features.shape(schema), Scaling(np.zeros(2), np.ones(2))
    centres = placement.start(schema.inducing, len(placement.columns(shape))).place
    return Basis(shape, scaling, placement.place(schema.kernel, shape, scaling, centres))


def some_inducing() -> inducing.Inducing:
    return inducing.make("se", (0,), np.array([[0.0], [1.0]]), np.ones(1))


def told(X: Array, y: Array, noise: float = NOISE, deviation: float = DEVIATION) -> Evidence:
    sums = statistics.summed(X, y[:, None], np.ones((len(y), 1)))
    own_var = np.full((1, X.shape[1]), deviation)
    term, constant = message.evidence(sums, np.zeros(1), np.array([noise]), own_var, np.zeros((1, 0)))
    return Evidence(1, 1, term, float(constant[0]), 0.0, float(len(y)), {}, 0.0, 0.0, 0.0)


def dense(X: list[Array], y: list[Array], variance: float) -> float:
    """Log density of all readings: one draw of the shared weights, a deviation of each sweep's own."""
    whole, targets = np.concatenate(X), np.concatenate(y)
    prior = np.full(FEATURES, PRIOR)
    prior[-INDUCING:] = variance
    cov = (whole * prior) @ whole.T + NOISE * np.eye(len(targets))
    begin = 0
    for part in X:
        end = begin + len(part)
        cov[begin:end, begin:end] += DEVIATION * part @ part.T
        begin = end
    _, log_det = np.linalg.slogdet(2 * np.pi * cov)
    return float(-0.5 * (log_det + targets @ np.linalg.solve(cov, targets)))
