"""Agents of mixed channels as brains, alone and in a fleet with a real coordinator: what they take in, tell, and go on from."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import msgspec
import numpy as np
import pytest
from agent_streams import START, TICK, Hub, config, counts, feed, fresh, predictions, readings, run

from coordinator import mixed as fleet_of_mixed
from coordinator import mixed_proposals
from edge_agent import agent, remodel
from edge_agent.state import ModelArrived, Publish, RoundOpened, State
from fleetgp.arrays import Array
from fleetgp.errors import ConfigError, PeerError
from fleetgp.gp.mixed_state import Mixed
from fleetgp.models import Model, parts
from fleetgp.schema import Channel, Schema
from fleetgp.wire import codec, mixture
from fleetgp.wire.convert import from_triangles, to_array, to_tensor
from fleetgp.wire.freeze import freeze, thaw
from fleetgp.wire.messages import FleetModel, Summary
from fleetgp.wire.mixed_proposal import LOADINGS

CYCLE = 20
SCHEMA = Schema(
    channels=(Channel(name="a"), Channel(name="b")), lags=1, phases=(float(CYCLE),), harmonics=1, inducing=8, mixing="ilmm",
    ranks=(2, 1, 1),
)  # fmt: skip
F = 16
NAMES = ("left", "middle", "right")


def rows(seed: int, count: int, sd: float = 0.05) -> Iterator[Array]:
    """A machine that repeats the curve of its kind in its own strength, about its own level."""
    rng = np.random.default_rng(seed)
    strength, level = 1 + 0.1 * rng.standard_normal(2), np.array([20.0, 5.0]) + 0.2 * rng.standard_normal(2)
    for t in range(count):
        angle = 2 * np.pi * t / CYCLE
        curve = np.array([np.cos(angle) + 0.5 * np.cos(2 * angle + 1), 0.7 * np.sin(angle)])
        yield level + strength * curve + sd * rng.standard_normal(2)


@cache
def grown() -> Hub:
    """Three agents after six rounds of a cycle and a half each; a round takes a cycle."""
    hub = Hub(SCHEMA, NAMES)
    made = {name: rows(seed, 600) for seed, name in enumerate(NAMES)}
    for _ in range(6):
        hub.read(made, CYCLE)
        hub.round()
    return hub


def mixed(state: State) -> Mixed:
    assert isinstance(state.learner, Mixed)
    return state.learner


def errors(state: State, stream: Iterator[Array], first_tick: int) -> tuple[State, Array]:
    """Errors [n, Q] of what was said of frames before they were seen, own unit."""
    state, effects = feed(state, stream, first_tick)
    found = [
        [one.observed - one.mean for one in said.channels.values() if one.observed is not None]
        for said in predictions(effects)
    ]
    return state, np.array(found)


def test_a_lone_agent_learns_the_cycle_and_says_how_sure_it_is() -> None:
    state, found = errors(fresh(SCHEMA), rows(1, 200), 0)
    assert np.sqrt(np.mean(found[100:] ** 2)) < 0.075
    assert mixed(state).frames == 199
    _, effects = feed(state, rows(1, 40), 200)
    inside = [
        c.low <= c.observed <= c.high
        for p in predictions(effects)
        for c in p.channels.values()
        if c.observed is not None
    ]
    assert 0.75 <= np.mean(inside) <= 1.0


def test_a_newcomer_knows_the_shape_of_the_cycle_before_it_has_seen_one() -> None:
    hub = grown()
    begun, _ = agent.step(fresh(SCHEMA, "new"), ModelArrived(START, hub.model))
    _, with_fleet = errors(begun, rows(7, 16), 0)
    _, alone = errors(fresh(SCHEMA, "lone"), rows(7, 16), 0)
    assert np.sqrt(np.mean(with_fleet[3:] ** 2)) <= 0.8 * np.sqrt(np.mean(alone[2:] ** 2))


def test_an_agent_takes_out_of_the_model_what_it_told_1e_9() -> None:
    hub = grown().twin()
    model = codec.decode(hub.model, FleetModel)
    published = mixture.read(model, SCHEMA)
    for name in NAMES:
        told = next(one.term for one in hub.agents[name].sent if one.sequence == model.included[name].sequence)
        rest = mixed(hub.agents[name]).known.belief
        np.testing.assert_allclose(rest.precision + told.precision, published.belief.precision, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(rest.shift + told.shift, published.belief.shift, rtol=1e-9, atol=1e-9)
        assert np.linalg.eigvalsh(rest.precision[0])[0] > 0.9


def test_the_model_is_the_sum_of_what_was_told_and_comes_back_bit_for_bit() -> None:
    hub = grown()
    told = [codec.decode(payload, Summary) for kind, _, payload in hub.heard if kind == "summary"]
    assert len(told) == 3
    published = mixture.read(codec.decode(hub.model, FleetModel), SCHEMA)
    total = np.eye(F)[None] + sum(from_triangles(to_array(one.precision, (1, F * (F + 1) // 2), ""), F) for one in told)
    np.testing.assert_allclose(published.belief.precision, total, rtol=1e-12)
    assert hub.coordinator.mixture is not None
    assert freeze(published.shared) == freeze(hub.coordinator.mixture)


def test_a_state_goes_on_from_its_bytes_bit_for_bit_through_a_round() -> None:
    hub = grown()
    state = hub.agents["left"]
    rest = [readings(900 + k, row) for k, row in enumerate(rows(0, 30))]
    asked = [*rest[:20], RoundOpened(START + 950 * TICK, 99), *rest[20:]]
    on, said = run(state, asked)
    again, repeated = run(thaw(freeze(state), State), asked)
    assert freeze(again) == freeze(on)
    assert said == repeated


def test_an_event_teaches_a_shadow_only_and_what_lasts_is_learnt() -> None:
    state, _ = feed(fresh(SCHEMA, warmup_frames=20), rows(2, 120))
    odd = (row + np.array([3.0, 0.0]) for row in rows(2, 100))
    after, effects = feed(state, odd, 120)
    assert after.event is None or after.event.is_learnt
    said = predictions(effects)
    assert said[0].is_alarmed or said[1].is_alarmed
    assert abs(said[-1].channels["a"].mean - said[-1].channels["a"].observed) < 0.5  # type: ignore[operator]


@pytest.mark.parametrize("field", ["loadings", "log_phi", "inducing", "precision"])
def test_a_model_that_cannot_be_one_is_counted_and_changes_nothing(field: str) -> None:
    hub = grown()
    model = codec.decode(hub.model, FleetModel)
    known = getattr(model, field)
    beyond = np.full(known.shape, 1e35)
    for wrong in (None if field != "precision" else to_tensor(np.zeros((1, 3))), to_tensor(beyond)):
        payload = codec.encode(msgspec.structs.replace(model, round=77, **{field: wrong}))
        state = hub.agents["left"]
        after, effects = agent.step(state, ModelArrived(START, payload))
        assert after is state
        assert set(counts(effects)) <= {"model_shape", "model_range"}
        assert counts(effects)


def test_a_summary_that_claims_more_than_its_frames_can_tell_is_refused() -> None:
    hub = grown()
    assert hub.coordinator.mixture is not None
    kind, _, payload = hub.heard[-1]
    assert kind == "summary"
    summary = codec.decode(payload, Summary)
    sure = msgspec.structs.replace(
        summary, precision=to_tensor(1e6 * to_array(summary.precision, summary.precision.shape, ""))
    )
    fleet_of_mixed.contents(summary, hub.coordinator.mixture)
    with pytest.raises(PeerError, match="more than its frames can tell"):
        fleet_of_mixed.contents(sure, hub.coordinator.mixture)


def test_an_agent_under_another_model_keeps_what_it_learnt() -> None:
    state = grown().agents["middle"]
    changed = remodel.under(state, config(SCHEMA, "middle", model="alone"))
    assert "kept" in changed.said
    assert mixed(changed.state).mix.sizes[0] == 0
    _, found = errors(changed.state, rows(1, 80), 800)
    assert np.sqrt(np.mean(found[40:] ** 2)) < 0.1
    silent, effects = agent.step(changed.state, RoundOpened(START + 900 * TICK, 100))
    assert [e.kind for e in effects if isinstance(e, Publish)] == ["bootstrap"]
    assert silent.sent == ()


@pytest.mark.parametrize("model", ["no-deviation", "no-local", "global-only"])
def test_who_joins_with_fewer_parts_begins_with_these_alone(model: Model) -> None:
    state = fresh(SCHEMA, "new", model=model, local_inducing=5)
    state, _ = agent.step(state, ModelArrived(START, grown().model))
    of = parts(model)
    assert [bool(size) for size in mixed(state).mix.sizes] == [of.shared, of.deviation, of.local]


def test_a_term_that_was_projected_already_is_let_go_by_the_next_tuning_even_where_nothing_was_lost() -> None:
    """Its agent may have missed the basis between: what it then took out of the belief would not be inside."""
    state = grown().coordinator
    values = mixed_proposals.start(state)
    first = mixed_proposals.tuned(state, {**values, LOADINGS: values[LOADINGS] + 0.1}, 0.0)
    assert set(first.answers) == set(NAMES)
    second = mixed_proposals.tuned(first, {**values, LOADINGS: values[LOADINGS] * 1.2}, 0.0)
    assert second.answers == {}
    assert second.basis == state.basis + 2


def test_a_learnt_lengthscale_stays_where_the_scale_moves() -> None:
    state = grown().coordinator
    assert state.mixture is not None
    learnt = msgspec.structs.replace(
        state, mixture=state.mixture._replace(log_lengthscale=state.mixture.log_lengthscale + 0.4), based_on=(1.0, 1.0)
    )
    wider = {
        name: msgspec.structs.replace(
            told, moments=told.moments._replace(centred_square_sum=9 * told.moments.centred_square_sum)
        )
        for name, told in learnt.told.items()
    }
    after, note = fleet_of_mixed.renew(msgspec.structs.replace(learnt, told=wider))
    assert "scale has moved" in note
    assert after.mixture is not None
    assert learnt.mixture is not None
    np.testing.assert_allclose(after.mixture.log_lengthscale, learnt.mixture.log_lengthscale)
    np.testing.assert_allclose(after.mixture.Bg, learnt.mixture.Bg / 3, rtol=0.1)


def test_a_model_that_averages_lengthscales_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="local-only"):
        fresh(SCHEMA, model="pfedgp")
