"""Agents of every model in a fleet: what each takes and tells, and what becomes of its memory when its owner changes the model."""

from __future__ import annotations

import io
from pathlib import Path

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
    tell,
)

from coordinator.intake import SURPLUS
from edge_agent import agent, remodel
from edge_agent.memory import Memory
from edge_agent.state import AgentConfig, Effect, ModelArrived, Publish, RoundOpened, State
from fleetgp.arrays import Array
from fleetgp.gp import hyper
from fleetgp.gp import learner as learning
from fleetgp.models import MODELS, Model, parts
from fleetgp.runtime.logs import Log
from fleetgp.schema import Schema
from fleetgp.wire import codec
from fleetgp.wire.freeze import freeze, thaw
from fleetgp.wire.messages import FleetModel, Summary

CURVED = msgspec.structs.replace(TWO, inducing=6)
ROUNDS, FRAMES = 6, 60


def with_model(state: State, model: Model) -> AgentConfig:
    return msgspec.structs.replace(state.config, model=model)


def grown(models: dict[str, Model], schema: Schema = CURVED, rounds: int = ROUNDS, sd: float = 1.0) -> Hub:
    """A fleet whose agents work with these models, after some rounds."""
    hub = Hub(schema, list(models))
    for name, model in models.items():
        hub.agents[name] = fresh(schema, name, model=model)
    rows = {name: ar_rows(k, 3000, level=(20.0 + k, 5.0 - k), sd=sd) for k, name in enumerate(models)}
    for _ in range(rounds):
        hub.read(rows, FRAMES)
        hub.round()
    return hub


@pytest.fixture(scope="module")
def mixed() -> Hub:
    """One agent of every model, named by it, in one fleet."""
    return grown({model: model for model in MODELS})


def said(hub: Hub, name: str) -> list[str]:
    return [kind for kind, who, _ in hub.heard if who == name]


@pytest.mark.parametrize("model", MODELS)
def test_each_of_a_mixed_fleet_is_what_its_model_says(mixed: Hub, model: Model) -> None:
    """Its part in the fleet, its layers, its law and what it tells."""
    of, state = parts(model), mixed.agents[model]
    assert state.learner is not None
    shared, local = state.learner.basis.shared, state.learner.basis.local
    assert (model in mixed.coordinator.answers) == (model in mixed.coordinator.told) == of.shared
    assert (state.basis > 0) == of.shared == bool(state.sent)
    assert [kind for kind in said(mixed, model) if kind != "bootstrap"] == (["summary"] if of.shared else [])
    assert (model in mixed.coordinator.averaging.members) == of.kernel
    assert (shared is not None) == (of.shared or of.deviation)
    assert (local is not None) == of.local
    is_sure = bool(np.all(state.learner.knowledge.deviation_var == hyper.NO_DEVIATION))
    assert is_sure == (of.shared and not of.deviation)
    for kind, who, told in mixed.heard:
        if (kind, who) == ("summary", model):
            summary = codec.decode(told, Summary)
            assert summary.has_deviation == of.deviation == (summary.deviation_square is not None)
    z, effects = errors(state, mixed.tick, MODELS.index(model))
    assert 0.7 < z < 1.4
    assert counts(effects) == {}


@pytest.mark.parametrize("model", MODELS)
def test_predictions_tell_no_layer_that_a_model_has_not(mixed: Hub, model: Model) -> None:
    """All of an agent without a fleet is its own; what is told sums to the mean."""
    of, state = parts(model), mixed.agents[model]
    state = msgspec.structs.replace(state, config=msgspec.structs.replace(state.config, layers=True))
    _, effects = feed(state, list(ar_rows(1, 5)), mixed.tick)
    laws = [law for told in predictions(effects) for law in told.channels.values()]
    layers = np.array([law.layers for law in laws])
    np.testing.assert_allclose(layers.sum(axis=1), [law.mean for law in laws], rtol=1e-12)
    size = np.abs(layers[:, 1:]).max(axis=0)
    assert (size[0] > 1e-4) == of.shared == any(law.pull for law in laws)
    assert (size[1] > 1e-4) == (of.deviation or not of.shared)
    assert (size[2] > 0) == of.local


def errors(state: State, tick: int, seed: int) -> tuple[float, list[Effect]]:
    """Root mean square of the standardised errors of the next frames of a stream; effects."""
    rows = list(ar_rows(seed, ROUNDS * FRAMES + 60, level=(20.0 + seed, 5.0 - seed)))[-60:]
    _, effects = feed(state, rows, tick)
    squares = [one.z**2 for told in predictions(effects) for one in told.channels.values() if one.z is not None]
    return float(np.sqrt(np.mean(squares))), effects


def test_a_fleet_without_deviations_is_let_in_though_it_is_surer_than_a_deviating_one_can_be() -> None:
    """Of streams that hardly err its terms exceed what the coordinator takes from an agent that may deviate."""
    hub = grown(dict.fromkeys(NAMES, "global-only"), TWO, 4, sd=1e-4)
    assert set(hub.coordinator.answers) == set(NAMES)
    most = max(float(np.linalg.eigvalsh(one.term.precision).max()) for one in hub.coordinator.answers.values())
    assert SURPLUS / 0.01 < most <= 1 / hyper.NO_DEVIATION
    assert set(codec.decode(hub.model, FleetModel).included) == set(NAMES)
    assert all(np.isfinite(weights(hub, name)).all() for name in NAMES)


def test_one_law_for_all_is_nearly_one_law() -> None:
    """Agents of global-only, which read other streams, know the same weights but for how noisy each takes itself to be."""
    apart = {}
    for model in ("global-only", "full"):
        hub = grown(dict.fromkeys(NAMES, model), TWO, 4)
        means = [weights(hub, name) for name in NAMES]
        apart[model] = max(float(np.abs(mean - means[0]).max()) for mean in means)
    assert apart["global-only"] < 0.2 * apart["full"]


def weights(hub: Hub, name: str) -> Array:
    learner = hub.agents[name].learner
    assert learner is not None
    return learner.weights.mean[learning.LONG]


def test_an_agent_that_leaves_says_so_and_is_waited_for_no_longer(mixed: Hub) -> None:
    hub = mixed.twin()
    others = {name for name in hub.coordinator.told if name != "full"}
    hub.agents["full"] = remodel.under(hub.agents["full"], with_model(hub.agents["full"], "alone")).state
    hub.round()
    assert said(hub, "full") == ["bootstrap"]
    assert set(hub.coordinator.told) == set(hub.coordinator.answers) == others
    hub.round()
    assert said(hub, "full") == []
    back = remodel.under(hub.agents["full"], with_model(hub.agents["full"], "full")).state
    assert back.basis == 0
    hub.agents["full"], effects = agent.step(back, ModelArrived(START, hub.model))  # a broker gives it at once
    assert counts(effects) == {}
    hub.round()
    assert said(hub, "full") == ["bootstrap", "summary"]
    assert set(hub.coordinator.answers) == {*others, "full"}


def test_a_leave_of_an_agent_that_was_never_there_changes_nothing() -> None:
    hub = hub_of(2)
    left = msgspec.structs.replace(fresh(TWO, "nobody", model="alone"), bootstrapped=5.0)
    state, effects = agent.step(left, RoundOpened(START, 1))
    assert state.bootstrapped == 0.0
    heard = [(one.kind, "nobody", codec.encode(one.message)) for one in effects if isinstance(one, Publish)]
    after, _ = tell(hub.coordinator, heard, START + hub.tick * TICK)
    assert after.told == hub.coordinator.told
    assert [kind for kind, _, _ in heard] == ["bootstrap"]


@pytest.mark.parametrize("old", ["full", "global-only", "alone", "local-only"])
@pytest.mark.parametrize("new", MODELS)
def test_any_change_of_model_keeps_what_was_learnt_and_predicts_on(mixed: Hub, old: Model, new: Model) -> None:
    """No worse than before on the next frames, thawed from its bytes; what is let go is said."""
    before = mixed.agents[old]
    changed, words = remodel.under(before, with_model(before, new))
    assert (words == "") == (old == new)
    changed = thaw(freeze(changed), State)
    assert changed.learner is not None
    assert before.learner is not None
    assert changed.learner.frames == before.learner.frames
    assert (changed.learner.basis.local is not None) == parts(new).local
    assert ("private part is let go" in words) == (parts(old).local and not parts(new).local)
    assert ("private part begins" in words) == (parts(new).local and not parts(old).local)
    changed, effects = agent.step(changed, ModelArrived(START, mixed.model))
    assert counts(effects) == {}
    assert (changed.basis > 0) == parts(new).shared
    was, is_ = (errors(state, mixed.tick, MODELS.index(old))[0] for state in (before, changed))
    assert is_ < 1.15 * was + 0.1


def test_a_memory_made_by_another_model_is_taken_up_by_its_own_and_goes_on_by_the_new_one(tmp_path: Path) -> None:
    """What was in the journal is replayed by the model that it came under, and the change is told."""
    said = io.StringIO()
    memory = Memory(tmp_path, fresh(CURVED), Log("agent", stream=said))
    for k, row in enumerate(ar_rows(1, 300)):
        memory.keep(readings(k, row))
        memory.state, _ = agent.step(memory.state, readings(k, row))
    memory.close()
    again = Memory(tmp_path, fresh(CURVED, model="no-local"), Log("agent", stream=said))
    expected = remodel.under(memory.state, config(CURVED, model="no-local")).state
    assert freeze(again.state) == freeze(expected)
    assert again.state.learner is not None
    assert again.state.learner.basis.local is None
    assert (
        "agent.model was full and is no-local: what was learnt is kept; its private part is let go" in said.getvalue()
    )
    again.close()
