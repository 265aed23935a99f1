"""pFedGP's average: an agent's own slope is that of its evidence, the fleet's value the mean of what agents came to."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import settings as chosen
from hypothesis import strategies as st

from coordinator import averaging, rounds
from coordinator import state as coordination
from edge_agent import agent, remodel
from edge_agent.frames import Sample
from edge_agent.state import AgentConfig, Publish, Readings, RoundOpened, State, TuningArrived
from fleetgp import features
from fleetgp.arrays import Array
from fleetgp.gp import personal
from fleetgp.gp.recent import recent
from fleetgp.linalg import inverse
from fleetgp.schema import Channel, Schema
from fleetgp.wire import codec
from fleetgp.wire.convert import to_array, to_tensor
from fleetgp.wire.messages import FleetModel, Gradient, Tuning

START, TICK = 1_772_615_730_000, 1000
SCHEMA = Schema(channels=(Channel(name="a"), Channel(name="b")), lags=1, kernel="matern32")
COUNTS = {"few": 280, "many": 420}


def grown(name: str, model: str, frames: int) -> State:
    """A device whose step from the last reading is a wave of it."""
    config = AgentConfig(agent_id=name, schema=SCHEMA, is_live=False, model=model, local_inducing=6)  # type: ignore[arg-type]
    rng = np.random.default_rng(frames)
    state, x = agent.init(config, START), np.zeros(2)
    for k in range(frames):
        x = 0.6 * x + np.sin(3 * x[::-1]) + 0.5 * rng.standard_normal(2)
        sample = Sample(START + k * TICK, START + k * TICK, (0, 1), tuple(map(float, x)))
        state, _ = agent.step(state, Readings(sample.at_ms, (sample,)))
    return state


@pytest.fixture(scope="module")
def members() -> dict[str, State]:
    return {name: grown(name, "pfedgp", frames) for name, frames in COUNTS.items()}


def evidence(state: State, log_lengthscale: Array) -> float:
    """Log density of the ring's steps under the dense Gaussian of all weights, noise and weights held."""
    assert state.learner is not None
    found, belief = recent(state.learner), state.learner.knowledge.belief
    assert found.basis.local is not None
    x = features.features(found.basis._replace(local=personal.layer(found.basis.local, log_lengthscale)), found.inputs)
    F, total = found.basis.size, 0.0
    for q in range(2):
        cov = np.diag(found.local_var[q, 0] * np.ones(x.shape[1]))
        cov[:F, :F] = inverse(belief.precision[q]) + np.diag(found.deviation_var[q])
        is_read = found.weights[:, q] > 0
        X, y = x[is_read], found.targets[is_read, q]
        noise = found.noise_var[q] / found.weights[is_read, q]
        total += float(scipy.stats.multivariate_normal(np.zeros(len(y)), X @ cov @ X.T + np.diag(noise)).logpdf(y))
    return total


def test_an_agents_slope_is_that_of_its_dense_evidence(members: dict[str, State]) -> None:
    state = members["few"]
    assert state.learner is not None
    assert state.learner.basis.local is not None
    at = np.log(state.learner.basis.local.lengthscale) + np.array([0.3, -0.2])
    slope = personal.own_slope(recent(state.learner), state.learner.knowledge.belief, at)
    for d, step in enumerate(1e-4 * np.eye(2)):
        found = (evidence(state, at + step) - evidence(state, at - step)) / 2e-4
        assert slope[d] == pytest.approx(found, rel=1e-4, abs=1e-3)
    way, readings = personal.climbed(state.learner, at)
    assert evidence(state, at + way) > evidence(state, at) + 0.1
    assert readings.tolist() == np.sum(recent(state.learner).weights > 0, axis=0).tolist()
    assert np.all(np.abs(way) <= personal.FURTHEST)


class Fleet:
    """Members around a coordinator that is told everything at once."""

    def __init__(self, members: dict[str, State]) -> None:
        self.members = dict(members)
        self.coordinator = rounds.init(coordination.CoordinatorConfig(round_s=10.0, answer_s=0.0), START)
        self.at_ms = START
        self.told: dict[str, Gradient] = {}
        self.proposed: Tuning | None = None
        self.models: list[FleetModel] = []

    def round(self) -> None:
        self.at_ms += 10_000
        self._coordinate(coordination.Tick(self.at_ms))
        for name in self.members:
            self._give(name, RoundOpened(self.at_ms, self.coordinator.round))
        self._coordinate(coordination.Tick(self.at_ms))

    def _give(self, name: str, event: RoundOpened | TuningArrived) -> None:
        self.members[name], effects = agent.step(self.members[name], event)
        for effect in effects:
            assert isinstance(effect, Publish)
            kind = coordination.GradientArrived if effect.kind == "gradient" else coordination.BootstrapArrived
            if isinstance(effect.message, Gradient):
                self.told[name] = effect.message
            self._coordinate(kind(self.at_ms, name, codec.encode(effect.message)))

    def _coordinate(self, event: coordination.Event) -> None:
        self.coordinator, effects = rounds.step(self.coordinator, event)
        for effect in effects:
            if isinstance(effect, coordination.PublishTuning):
                self.proposed = codec.decode(effect.payload, Tuning)
                for name in self.members:
                    self._give(name, TuningArrived(self.at_ms, effect.payload))
            elif isinstance(effect, coordination.PublishModel):
                self.models.append(codec.decode(effect.payload, FleetModel))
            else:
                assert isinstance(effect, coordination.PublishRound), effect
                assert effect.notice.missing == ()

    @property
    def value(self) -> Array:
        assert self.proposed is not None
        return to_array(self.proposed.values[personal.NAME], (2,), "values")


def test_the_next_average_is_the_mean_of_what_agents_came_to_weighted_by_readings(members: dict[str, State]) -> None:
    """Each takes it for its own; nobody is waited for, there is no model of the fleet, and who leaves counts no more."""
    fleet = Fleet(members)
    fleet.round()
    before = fleet.value
    readings = {name: float(np.sum(to_array(one.count, (2,), "count"))) for name, one in fleet.told.items()}
    ways = {name: to_array(one.slopes[personal.NAME], (2,), "way") for name, one in fleet.told.items()}
    assert list(readings) == ["few", "many"]
    assert readings["many"] > 1.3 * readings["few"]
    fleet.round()
    mean = sum(readings[name] * ways[name] for name in ways) / sum(readings.values())
    np.testing.assert_allclose(fleet.value, before + mean, rtol=1e-12)
    for _ in range(6):
        fleet.round()
    for state in fleet.members.values():
        assert state.learner is not None
        assert state.learner.basis.local is not None
        apart = np.abs(np.log(state.learner.basis.local.lengthscale) - fleet.value)
        assert np.max(apart) < personal.WORTH_MOVING
    assert (fleet.models, fleet.coordinator.told, fleet.coordinator.basis) == ([], {}, 0)
    few = fleet.members["few"]
    fleet.members["few"] = remodel.under(few, msgspec.structs.replace(few.config, model="alone")).state
    fleet.round()
    assert set(fleet.coordinator.averaging.members) == {"many"}


UNSOUND: list[tuple[str, dict[str, object]]] = [
    ("stale_step", {"step": 99}),
    ("other_agent", {"agent": "many"}),
    ("range", {"slopes": {personal.NAME: to_tensor(np.array([0.0, 0.6]))}}),
    ("range", {"count": to_tensor(np.zeros(2))}),
    ("shape", {"slopes": {personal.NAME: to_tensor(np.zeros(3))}}),
    ("repeated", {}),
]


@pytest.mark.parametrize(("reason", "changes"), UNSOUND)
def test_unsound_answers_are_counted_and_change_nothing(
    members: dict[str, State], reason: str, changes: dict[str, object]
) -> None:
    fleet = Fleet(members)
    fleet.round()
    before = fleet.coordinator
    if reason != "repeated":
        kept = {name: one for name, one in before.averaging.answers.items() if name != "few"}
        before = msgspec.structs.replace(before, averaging=msgspec.structs.replace(before.averaging, answers=kept))
    told = msgspec.structs.replace(fleet.told["few"], **changes)
    after, effects = rounds.step(before, coordination.GradientArrived(START, "few", codec.encode(told)))
    assert after is before
    assert [one.reason for one in effects if isinstance(one, coordination.Count)] == [reason]


@chosen(max_examples=30, deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.floats(1, 1e6), st.floats(-0.5, 0.5)), min_size=1, max_size=5))
def test_no_average_leaves_the_range_of_what_agents_came_to(ways: list[tuple[float, float]]) -> None:
    answers = {str(k): coordination.Way(n, np.array([way])) for k, (n, way) in enumerate(ways)}
    found = averaging.mean(coordination.Averaging(answers=answers), np.array([0.2]), np.zeros(1))
    assert min(way for _, way in ways) - 1e-12 <= found[0] - 0.2 <= max(way for _, way in ways) + 1e-12
