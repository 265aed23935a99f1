"""The published model is the exact posterior of everything that all agents read, on whatever basis it is told."""

from __future__ import annotations

import numpy as np
import pytest
from dense_truth import Basis, Regression, posterior
from synthetic_agents import (
    CONFIG,
    CURVED,
    SCHEMA,
    Array,
    Brains,
    F,
    Q,
    answered,
    basis,
    belief,
    bootstrap,
    close_round,
    federated,
    open_round,
    published,
    run,
    summary,
    told,
    variances,
    walk,
)

from coordinator.basis import PLACE_MOVES, REBASE_RATIO
from coordinator.state import CoordinatorConfig
from fleetgp.schema import Schema
from fleetgp.wire.convert import to_array
from fleetgp.wire.messages import FleetModel

# Sums over some hundred frames, solved twice by different ways: rounding, times the condition of a few thousand.
CLOSE = 1e-8


def assert_posterior(model: FleetModel, regressions: list[list[Regression]]) -> None:
    assert_belief(belief(model), regressions, variances(model)[0])


def assert_belief(natural: tuple[Array, ...], regressions: list[list[Regression]], prior_var: Array) -> None:
    """Precision and shift are those of the posterior given these readings, per channel: its mean and covariance."""
    precision, shift = natural
    for q, agents in enumerate(regressions):
        mean, cov = posterior(agents, prior_var[q])
        np.testing.assert_allclose(np.linalg.inv(precision[q]), cov, rtol=CLOSE, atol=CLOSE)
        np.testing.assert_allclose(np.linalg.solve(precision[q], shift[q]), mean, rtol=CLOSE, atol=CLOSE)


def fleet(
    names: tuple[str, ...] = ("a", "b", "c"), schema: Schema = SCHEMA, **scale: float
) -> tuple[Brains, FleetModel]:
    """Agents on basis 1, which have read on since; and the model that the next round closes with."""
    brains = Brains(names, schema=schema, noise_sd=scale.get("sd", 1.0))
    brains.read({name: walk(seed, 30, **scale) for seed, name in enumerate(names)})
    first = brains.round()
    assert first is not None
    assert first.basis == 1
    brains.read({name: walk(10 + seed, 40 + 15 * seed, **scale) for seed, name in enumerate(names)})
    model = brains.round()
    assert model is not None
    return brains, model


def curved_fleet() -> tuple[Brains, FleetModel]:
    """A fleet that has had inducing inputs for two rounds."""
    brains, _ = fleet(schema=CURVED)
    for _ in range(PLACE_MOVES):
        model = brains.round()
    assert model is not None
    assert model.inducing is not None
    assert brains.notes[-2:] == ["new basis: inducing inputs are placed", ""]
    return brains, model


def regressions(brains: Brains, on: Basis, names: tuple[str, ...]) -> list[list[Regression]]:
    return [[brains.regression(name, q, on) for name in names] for q in range(Q)]


@pytest.mark.parametrize("scale", [{}, {"sd": 0.01, "centre": 40.0}, {"sd": 3000.0, "centre": -9000.0}], ids=str)
def test_model_is_the_dense_posterior_of_all_that_was_read(scale: dict[str, float]) -> None:
    """Also of what was read before there was a basis, and by agents with different amounts of it."""
    brains, model = fleet(**scale)
    assert_posterior(model, regressions(brains, basis(model), brains.names))
    assert set(model.included) == {"a", "b", "c"}
    assert brains.counts == []


def test_model_is_the_dense_posterior_after_scales_have_moved() -> None:
    """Of agents whose last terms were made under scales that the coordinator learnt, a different one for each block."""
    brains, model = fleet()
    for _ in range(4):
        model = brains.round() or model
    prior_var, deviation_var = variances(model)
    assert len(set(prior_var[0].round(6))) > 2
    assert len(set(deviation_var[0].round(6))) > 2
    assert_posterior(model, regressions(brains, basis(model), brains.names))


def test_model_is_the_dense_posterior_with_inducing_features() -> None:
    brains, model = curved_fleet()
    assert_posterior(model, regressions(brains, basis(model), brains.names))
    assert brains.counts == []


def test_first_basis_is_the_scale_of_all_readings_pooled() -> None:
    brains = Brains(("a", "b"))
    brains.read({"a": walk(1, 37, centre=5.0), "b": walk(2, 12, sd=4.0)})
    model = brains.round()
    assert model is not None
    everything = np.concatenate([brains.agents["a"].readings, brains.agents["b"].readings])
    on = basis(model)
    np.testing.assert_allclose(on.centre, everything.mean(axis=0), rtol=1e-12)  # rounding of 49 additions
    np.testing.assert_allclose(on.scale, everything.std(axis=0), rtol=1e-12)
    precision, shift = belief(model)
    np.testing.assert_array_equal(precision, np.broadcast_to(np.eye(F), (Q, F, F)))
    np.testing.assert_array_equal(shift, np.zeros((Q, F)))


def moved_fleet() -> tuple[Brains, Basis, FleetModel]:
    """A fleet whose readings have grown, the basis before, and the model with which the new basis is told."""
    brains, model = fleet()
    old = basis(model)
    brains.read({"a": walk(50, 400, sd=3.0, centre=7.0), "b": walk(51, 300, sd=3.0)})
    new = brains.round(deaf=frozenset("c"))
    assert new is not None
    assert (model.basis, new.basis) == (1, 2)
    return brains, old, new


def test_terms_carried_to_a_new_basis_are_those_of_the_same_readings_there() -> None:
    """Of agents that answered in this round and of one that is silent: nothing of what was known is lost or doubled."""
    brains, old, model = moved_fleet()
    on = basis(model)
    assert np.max(on.scale / old.scale) > REBASE_RATIO
    carried = [{name: brains.carried(name, q, old, on) for name in brains.names} for q in range(Q)]
    faded = 0.5 ** (1 / CONFIG.half_life_rounds)  # c missed one round: as if its readings were so much less sure
    for channel in carried:
        channel["c"] = channel["c"]._replace(S=channel["c"].S / faded)
    assert_posterior(model, [list(channel.values()) for channel in carried])


def test_noise_is_told_in_the_units_of_the_new_basis() -> None:
    """In raw units the noise that one agent told is the same before and after, so the fleet's is their mean."""
    brains, model = fleet(("a",))
    before = to_array(model.noise_variance, (Q,), "noise") * basis(model).scale[:Q] ** 2
    np.testing.assert_allclose(before, brains.agents["a"].noise, rtol=1e-12)  # a handful of multiplications
    state = brains.coordinator
    # only moments come, no summary: the term of the round before is carried over
    state, effects = run(open_round(state), [told(bootstrap("a", incarnation=2, count=10_000.0, sd=7.0))])
    assert effects == []
    _, effects = close_round(state)
    new = published(effects)
    assert new.basis == 2
    after = to_array(new.noise_variance, (Q,), "noise") * basis(new).scale[:Q] ** 2
    np.testing.assert_allclose(after, before, rtol=1e-12)


def test_next_answers_on_the_new_basis_replace_the_carried_ones() -> None:
    brains, _, model = moved_fleet()
    on = basis(model)
    brains.read({name: walk(60, 20) for name in brains.names})
    brains.round()  # c hears of the new basis with this round's model, its answer to it was on the old one
    model = brains.round() or model
    assert model.basis == 2
    assert brains.counts == ["stale_basis"]
    np.testing.assert_array_equal(basis(model).scale, on.scale)
    # the deviation is drawn anew on the new basis, so these are the plain terms of agents that live on it
    assert_posterior(model, regressions(brains, on, brains.names))


@pytest.mark.parametrize("schema", [SCHEMA, CURVED], ids=["linear", "with inducing inputs"])
def test_each_agent_takes_exactly_its_own_part_out_again(schema: Schema) -> None:
    """What an agent starts from is the posterior of the others' readings: nothing is counted twice."""
    brains, model = fleet() if schema is SCHEMA else curved_fleet()
    for name in brains.names:
        others = tuple(other for other in brains.names if other != name)
        truth = regressions(brains, basis(model), others)
        assert_belief(tuple(brains.agents[name].cavity()), truth, variances(model)[0])


def test_own_part_is_taken_out_right_after_the_inducing_inputs_are_placed() -> None:
    """The model on the new basis holds terms that were sent on the old one: of inducing features they say nothing."""
    brains, model = fleet(schema=CURVED)
    while model.inducing is None:
        old = basis(model)
        model = brains.round() or model
    on = basis(model)
    np.testing.assert_array_equal(on.scale, old.scale)
    linear = on._replace(Z=None)
    silent = np.zeros((0, CURVED.inducing))
    for name in brains.names:
        truth = []
        for q in range(Q):
            others = [brains.regression(other, q, linear) for other in brains.names if other != name]
            truth.append(
                [one._replace(X=np.hstack((one.X, np.zeros((len(one.y), silent.shape[1]))))) for one in others]
            )
        assert_belief(tuple(brains.agents[name].cavity()), truth, variances(model)[0])


def test_silent_agent_is_in_the_model_by_its_ageing_term() -> None:
    """Precision and shift fade by one factor, which the model names, so that the agent can take its part out exactly."""
    config = CoordinatorConfig(round_s=60.0, answer_s=5.0, half_life_rounds=4.0)
    state = open_round(federated(config))
    one, other = summary("one", state, seed=1), summary("other", state, seed=2)
    state, effects = run(state, [answered(one), answered(other)])
    assert effects == []
    state, effects = close_round(state)
    whole = published(effects)
    for missed in range(1, 9):
        state = open_round(state)
        again = summary("other", state, seed=2, sequence=1 + missed)
        state, effects = close_round(run(state, [answered(again)])[0])
        model = published(effects)
        factor = 0.5 ** (missed / 4.0)
        assert {name: known.factor for name, known in model.included.items()} == {"one": factor, "other": 1.0}
        # whole = prior + P_one + P_other, and now the first of them is less, and the prior another
        own = state.answers["one"].term
        first, last = (1 / variances(m)[0][..., None] * np.eye(F) for m in (whole, model))
        (precision, shift), (was, pull) = belief(model), belief(whole)
        for now, before, part in ((precision - last, was - first, own.precision), (shift, pull, own.shift)):
            # sums of three numbers of size 100
            np.testing.assert_allclose(now, before - (1.0 - factor) * part, rtol=1e-12, atol=1e-12)


def test_faded_noise_weighs_as_little_as_the_faded_term() -> None:
    """An agent gone for long must not hold the fleet's idea of the noise."""
    config = CoordinatorConfig(round_s=60.0, answer_s=5.0, half_life_rounds=1.0)
    state = open_round(federated(config))
    state, _ = run(state, [answered(summary("gone", state, seed=1, frames=400))])
    state = open_round(close_round(state)[0])
    state = open_round(close_round(state)[0])
    here = summary("here", state, seed=2, frames=100)
    state, effects = close_round(run(state, [answered(here)])[0])
    model = published(effects)
    noise = to_array(model.noise_variance, (Q,), "noise")
    # 400 frames two half-lives ago are worth 100: the geometric mean of both, and 200 frames in all
    both = state.answers["gone"].noise_var * state.answers["here"].noise_var
    np.testing.assert_allclose(noise, np.sqrt(both), rtol=1e-12)  # a logarithm and back
    assert model.noise_frames == pytest.approx(200.0, rel=1e-12)
