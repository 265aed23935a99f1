"""An agent in a fleet: what it takes in, what of its own it takes out again, what it refuses, and what it tells."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from agent_streams import (
    NAMES,
    START,
    TICK,
    TWO,
    Hub,
    ar_rows,
    config,
    counts,
    feed,
    fresh,
    hub_of,
    predictions,
    readings,
    run,
    streams,
    tell,
)

from coordinator import rounds
from coordinator import state as coordination
from edge_agent import agent
from edge_agent.agent import REMEMBERED_SUMMARIES
from edge_agent.state import ModelArrived, Publish, RoundOpened, State
from fleetgp import features
from fleetgp.arrays import Array
from fleetgp.gp.aggregate import Belief
from fleetgp.schema import Channel, Schema
from fleetgp.wire import codec
from fleetgp.wire.convert import from_triangles, to_array
from fleetgp.wire.freeze import freeze
from fleetgp.wire.messages import FleetModel, Summary

F = features.Shape(2, 2, 0).linear


def belief_of(model: FleetModel) -> Belief:
    triangles = to_array(model.precision, (2, F * (F + 1) // 2), "precision")
    return Belief(from_triangles(triangles, F), to_array(model.shift, (2, F), "shift"))


def knowledge(state: State) -> Belief:
    assert state.learner is not None
    return state.learner.knowledge.belief


def prior_of(model: FleetModel) -> Array:
    """Prior precision [2, F, F] of a model: what is no agent's."""
    assert model.prior_variance is not None
    return np.eye(F) / to_array(model.prior_variance, (2, F), "prior_variance")[:, None, :]


def told_to(state: State) -> Belief:
    """What the others told an agent: its knowledge without the prior."""
    assert state.learner is not None
    belief = knowledge(state)
    return Belief(belief.precision - np.eye(F) / state.learner.knowledge.prior_var[:, None, :], belief.shift)


def is_sound(state: State) -> bool:
    """Whether what an agent knows is a belief: a prior, and a sum of other agents' terms, of which none is negative."""
    told = told_to(state).precision
    return bool(np.linalg.eigvalsh(told).min() > -1e-9 * np.abs(told).max())


def assert_same(found: Belief, expected: Belief) -> None:
    """To 1e-10 of the largest number: what adding and subtracting terms of that size costs in rounding, times a few."""
    size = float(np.abs(expected.precision).max())
    np.testing.assert_allclose(found.precision, expected.precision, atol=1e-10 * size, rtol=0)
    np.testing.assert_allclose(
        found.shift, expected.shift, atol=1e-10 * max(size, np.abs(expected.shift).max()), rtol=0
    )


def without(hub: Hub, before: coordination.State, name: str) -> Belief:
    """What a coordinator was told by all others in the last round, had it not heard one agent's summary.

    Less the prior: its scales are learnt from all that is told, so that it is another for a coordinator that hears less.
    """
    heard = [message for message in hub.heard if message[:2] != ("summary", name)]
    _, effects = tell(before, heard, START + hub.tick * TICK)
    (payload,) = [effect.payload for effect in effects if isinstance(effect, coordination.PublishModel)]
    model = codec.decode(payload, FleetModel)
    belief = belief_of(model)
    return Belief(belief.precision - prior_of(model), belief.shift)


def test_an_agents_own_part_is_taken_out_exactly() -> None:
    """After a round each agent was told what a coordinator without its summary would have been told."""
    hub = hub_of(1)  # the first round gives the basis, the second the first terms
    before = hub.coordinator
    hub.read(streams(seed=7), 60)
    # the second round, played by hand up to its closing, so that it can be closed twice
    model = hub.round()
    assert model is not None
    assert set(model.included) == set(NAMES)
    opened, _ = rounds.step(before, coordination.Tick(START + hub.tick * TICK))
    for name in NAMES:
        assert_same(told_to(hub.agents[name]), without(hub, opened, name))


def test_two_agents_alone_know_of_each_other_only_what_the_other_said() -> None:
    """With one other agent, the knowledge is the prior and the other's own term, whatever was added on the way."""
    hub = Hub(TWO, NAMES[:2])
    rows = streams()
    for _ in range(3):
        hub.read({name: rows[name] for name in NAMES[:2]}, 60)
        hub.round()
    said = {name: codec.decode(payload, Summary) for kind, name, payload in hub.heard if kind == "summary"}
    for name, other in (NAMES[:2], NAMES[1::-1]):
        triangles = to_array(said[other].precision, (2, F * (F + 1) // 2), "precision")
        expected = Belief(from_triangles(triangles, F), to_array(said[other].shift, (2, F), "shift"))
        assert_same(told_to(hub.agents[name]), expected)


def test_an_aged_term_is_taken_out_at_its_age() -> None:
    """An agent that missed rounds is still inside at a factor; it takes out that much, no more and no less."""
    hub = hub_of(3, half_life_rounds=2.0)
    rows = streams(seed=3)
    hub.away = {"left"}
    for _ in range(3):
        hub.read({name: rows[name] for name in NAMES[1:]}, 30)
        model = hub.round()
    assert model is not None
    assert model.included["left"].factor == pytest.approx(0.5**1.5)
    state, effects = agent.step(hub.agents["left"], ModelArrived(START, hub.model))
    assert counts(effects) == {}
    own = next(one for one in state.sent if one.sequence == model.included["left"].sequence).term
    whole = belief_of(model)
    factor = model.included["left"].factor
    assert_same(knowledge(state), Belief(whole.precision - factor * own.precision, whole.shift - factor * own.shift))
    assert is_sound(state)


def test_an_agent_whose_answers_are_lost_takes_out_the_last_that_arrived() -> None:
    """However many it has sent since: that one is remembered, and the newest, and not more."""
    hub = hub_of(3)
    rows = streams(seed=4)
    arrived = {one.sequence: one.term for one in hub.agents["left"].sent}
    hub.away = {"left"}
    for number in range(6):
        hub.read(rows, 30)
        model = hub.round()
        assert model is not None
        effects = hub.give("left", RoundOpened(START + hub.tick * TICK, model.round))
        assert [e.kind for e in effects if isinstance(e, Publish)][-1:] == ["summary"]
        if number % 2:
            assert counts(hub.give("left", ModelArrived(START, hub.model))) == {}
        state = hub.agents["left"]
        assert len(state.sent) <= REMEMBERED_SUMMARIES + 1
    included, own_weight = model.included["left"], state.learner and state.learner.knowledge.own_weight
    assert own_weight == 1.0
    assert state.named == included.sequence
    assert state.sent[-1].sequence >= included.sequence + 6
    whole, own, factor = belief_of(model), arrived[included.sequence], included.factor
    assert_same(knowledge(state), Belief(whole.precision - factor * own.precision, whole.shift - factor * own.shift))
    # the first that arrives again is known as well
    hub.away = set()
    hub.read(rows, 30)
    model = hub.round()
    assert model is not None
    state = hub.agents["left"]
    assert state.named == model.included["left"].sequence == state.sent[-1].sequence
    assert state.learner is not None
    assert state.learner.knowledge.own_weight == 1.0


@pytest.mark.parametrize("name", NAMES)
def test_an_agents_own_part_is_taken_out_also_when_the_basis_changes(name: str) -> None:
    """The fleet's scale moves fourfold: in every round an agent knows what a coordinator deaf to its summaries knows.

    Terms are carried over to the new basis on both sides; the difference is still the other agents' sum, to rounding.
    """
    hub = Hub(TWO, NAMES)
    deaf = hub.coordinator
    rows, wide = streams(), streams(sd=4.0, seed=9)
    bases = []
    for number in range(8):
        hub.read(rows if number < 2 else wide, 30 if number < 2 else 60)
        model = hub.round()
        at_ms = START + hub.tick * TICK
        deaf, _ = rounds.step(deaf, coordination.Tick(at_ms))
        deaf, effects = tell(deaf, [m for m in hub.heard if m[:2] != ("summary", name)], at_ms)
        for effect in effects:
            if isinstance(effect, coordination.PublishModel):
                other = codec.decode(effect.payload, FleetModel)
                assert model is not None
                assert other.basis == model.basis
                belief = belief_of(other)
                terms = Belief(belief.precision - prior_of(other), belief.shift)
                assert_same(told_to(hub.agents[name]), terms)
                bases.append(other.basis)
    assert len(bases) == 8
    assert len(set(bases)) >= 2


def test_an_agent_that_does_not_know_what_it_sent_counts_nothing_twice() -> None:
    """Covariance intersection: half of all terms, the prior whole, and its own data at half weight."""
    hub = hub_of(3)
    model = codec.decode(hub.model, FleetModel)
    whole = belief_of(model)
    later = msgspec.structs.replace(model, round=model.round + 1)
    forgetful = msgspec.structs.replace(hub.agents["left"], sent=())
    reborn = msgspec.structs.replace(hub.agents["left"], incarnation=hub.agents["left"].incarnation + 1)
    for state in (forgetful, reborn):
        after, effects = agent.step(state, ModelArrived(START, codec.encode(later)))
        assert effects == []
        assert after.learner is not None
        assert after.learner.knowledge.own_weight == 0.5
        before = prior_of(model)
        expected = Belief(before + (whole.precision - before) / 2, whole.shift / 2)
        assert_same(knowledge(after), expected)


def test_an_agent_the_model_does_not_hold_takes_it_whole() -> None:
    hub = hub_of(3)
    state, effects = agent.step(fresh(agent_id="new"), ModelArrived(START, hub.model))
    assert effects == []
    assert_same(knowledge(state), belief_of(codec.decode(hub.model, FleetModel)))
    assert state.learner is not None
    assert state.learner.knowledge.own_weight == 1.0


def test_with_the_fleets_model_the_very_first_frame_is_predicted() -> None:
    """A new agent knows scale, noise and dynamics before its first reading; from its second on it is sharp."""
    hub = hub_of(6)
    state, _ = agent.step(fresh(agent_id="new"), ModelArrived(START, hub.model))
    rows = list(ar_rows(77, 40, level=(23.0, 3.0)))
    _, effects = feed(state, rows)
    made = predictions(effects)
    assert [p.sequence for p in made] == list(range(40))
    first, second = made[0].channels["a"], made[1].channels["a"]
    assert first.low < 23.0 < first.high
    assert second.high - second.low < 5.0  # innovations have sd 1: a 90 % band of 3.3 where all is known
    assert second.high - second.low < 0.5 * (first.high - first.low)
    _, alone = feed(fresh(agent_id="new"), rows)
    width = predictions(alone)[0].channels["a"]
    assert second.high - second.low < 0.5 * (width.high - width.low)
    assert not any(p.is_alarmed for p in made)


@pytest.mark.parametrize("level", [(20.0, 5.0), (40.0, -10.0), (-100.0, 100.0)])
def test_a_device_that_lives_elsewhere_is_not_pulled_to_the_fleet(level: tuple[float, float]) -> None:
    """From its second frame on a new device is predicted about where it was met, not about the fleet's mean of 20 and 5."""
    hub = hub_of(6)
    state, _ = agent.step(fresh(agent_id="new"), ModelArrived(START, hub.model))
    _, effects = feed(state, ar_rows(78, 30, level=level))
    for prediction in predictions(effects)[1:]:
        for name, place in zip("ab", level, strict=True):
            # the reading itself is within 4 sd of 1.15 of its level, a wrong pull would be a half of up to 120
            assert abs(prediction.channels[name].mean - place) < 6.0


def test_the_same_model_again_changes_nothing() -> None:
    """A broker sends its retained message after every reconnection."""
    hub = hub_of(3)
    state = hub.agents["left"]
    again, effects = agent.step(state, ModelArrived(START + 10**9, hub.model))
    assert again is state
    assert effects == []


def test_an_old_model_that_comes_late_does_no_harm() -> None:
    """What it holds of the agent is still known, so nothing is counted twice; the next model puts all in order."""
    hub = hub_of(2)
    old = hub.model
    rows = streams(seed=20)
    for _ in range(2):
        hub.read(rows, 60)
        hub.round()
    state, effects = agent.step(hub.agents["left"], ModelArrived(START, old))
    assert effects == []
    assert state.learner is not None
    assert state.learner.knowledge.own_weight == 1.0
    assert is_sound(state)
    back, _ = agent.step(state, ModelArrived(START, hub.model))
    assert_same(knowledge(back), knowledge(hub.agents["left"]))


def test_rounds_opened_again_and_again_do_no_harm() -> None:
    """Stale notices make the agent speak more often; what it sent is remembered and taken out as ever."""
    hub = hub_of(2)
    for number in (1, 2, 2, 1):
        for effect in hub.give("left", RoundOpened(START, number)):
            assert isinstance(effect, Publish)
    hub.read(streams(seed=5), 40)
    hub.round()
    state = hub.agents["left"]
    assert state.learner is not None
    assert state.learner.knowledge.own_weight == 1.0
    assert is_sound(state)


def test_a_round_before_any_reading_is_answered_with_silence() -> None:
    state = fresh()
    assert agent.step(state, RoundOpened(START, 1)) == (state, [])


def test_moments_are_told_again_when_readings_have_doubled() -> None:
    told = []
    state = fresh()
    for tick, row in enumerate(ar_rows(1, 130)):
        state, _ = run(state, [readings(tick, row)])
        state, effects = agent.step(state, RoundOpened(START, tick + 1))
        told += [tick + 1 for e in effects if isinstance(e, Publish) and e.kind == "bootstrap"]
    assert told == [2, 4, 8, 16, 32, 64, 128]


def test_summaries_are_told_once_there_is_a_basis_each_with_a_number_of_its_own() -> None:
    hub = hub_of(4)
    numbers = []
    for _ in range(3):
        _, effects = agent.step(hub.agents["left"], RoundOpened(START, 9))
        hub.agents["left"], _ = agent.step(hub.agents["left"], RoundOpened(START, 9))
        (summary,) = [e.message for e in effects if isinstance(e, Publish) and isinstance(e.message, Summary)]
        assert (summary.basis, summary.agent, summary.origin) == (1, "left", hub.coordinator.origin)
        numbers.append(summary.sequence)
    assert numbers == sorted(set(numbers))


def test_a_coordinator_that_lost_its_memory_has_a_model_again_within_two_rounds() -> None:
    """Agents that have read for long tell their moments at once, not when their readings have doubled."""
    hub = hub_of(5, frames=100)
    old = hub.coordinator.origin
    hub.coordinator = hub.new_coordinator()
    hub.model = b""
    rows = streams(seed=30)
    for _ in range(2):
        hub.read(rows, 5)
        model = hub.round()
    assert model is not None
    assert model.origin != old
    assert set(model.included) == set(NAMES)
    for name in NAMES:
        assert hub.agents[name].origin == model.origin
        assert is_sound(hub.agents[name])


def test_sixty_four_channels_learn_and_answer_a_round() -> None:
    """As many channels as a schema may have, through basis, summary and model and back to predictions."""
    wide = Schema(channels=tuple(Channel(name=f"c{i}") for i in range(64)), lags=1)
    hub = Hub(wide, ["wide"])
    rows = {"wide": ar_rows(1, 100, level=tuple(np.linspace(-50, 50, 64)))}
    for count in (20, 2):
        hub.read(rows, count)
        model = hub.round()
    assert model is not None
    assert "wide" in model.included
    _, effects = feed(hub.agents["wide"], list(rows["wide"])[:2], hub.tick)
    assert [len(prediction.channels) for prediction in predictions(effects)] == [64, 64]


def test_an_agent_of_another_name_shares_nothing_but_the_fleet() -> None:
    """Two agents with the same readings and different names do exactly the same."""
    rows = list(ar_rows(5, 60))
    left, _ = feed(agent.init(config(agent_id="left"), START), rows)
    right, _ = feed(agent.init(config(agent_id="right"), START), rows)
    assert freeze(msgspec.structs.replace(left, config=right.config)) == freeze(right)
