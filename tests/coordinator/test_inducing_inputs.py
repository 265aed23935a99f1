"""Inducing inputs of the fleet: found by k-means over sums, added to the basis, moved where frames lie elsewhere."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from synthetic_agents import (
    CURVED,
    Array,
    Brains,
    K,
    Q,
    answered,
    belief,
    bootstrap,
    close_round,
    federated,
    near_centres,
    open_round,
    published,
    run,
    summary,
    told,
    variances,
    walk,
)

from coordinator import basis as bases
from coordinator import fleet
from coordinator.state import PublishModel, State
from fleetgp import features, inducing, kernels, placement
from fleetgp.features import PRIOR_SD
from fleetgp.gp import moves
from fleetgp.placement import Centres
from fleetgp.scaling import Moments
from fleetgp.wire import knowledge
from fleetgp.wire.convert import from_triangles, to_array, to_tensor, to_triangles
from fleetgp.wire.messages import FleetModel, Summary

M, D = CURVED.inducing, 3


def curved() -> State:
    state = federated(schema=CURVED)
    assert state.centres is not None
    return state


def told_sums(state: State, seed: int, **changes: float) -> tuple[State, FleetModel]:
    """One round in which two agents tell of their frames; the state and the model after it."""
    state = open_round(state)
    size = state.feature_map.size if state.feature_map else 0
    events = []
    for k, name in enumerate("ab"):
        # a term of nothing but a little of the linear part
        message = summary(name, state, seed=seed + k, sequence=state.round, **near_centres(seed + k, **changes))
        events.append(answered(grown(message, size)))
    state, effects = run(state, events)
    assert [e for e in effects if not isinstance(e, PublishModel)] == []
    state, effects = close_round(state)
    return state, published(effects)


def grown(message: Summary, size: int) -> Summary:
    """A summary with terms of this many features: those beyond the linear ones are told nothing of."""
    linear = message.shift.shape[1]
    P = from_triangles(to_array(message.precision, (Q, linear * (linear + 1) // 2), "P"), linear)
    h = to_array(message.shift, (Q, linear), "h")
    wide = np.zeros((Q, size, size))
    wide[:, :linear, :linear] = P
    return msgspec.structs.replace(
        message,
        precision=to_tensor(to_triangles(wide)),
        shift=to_tensor(np.hstack((h, np.zeros((Q, size - linear))))),
    )


# ---- the first inducing inputs


def test_inducing_inputs_come_after_five_moves_of_the_centres() -> None:
    state = curved()
    for number in range(1, 5):
        state, model = told_sums(state, 10 * number)
        assert model.basis == 1
        assert model.inducing is None
    assert state.centres is not None
    state, model = told_sums(state, 99)
    assert model.basis == 2
    known = knowledge.read(model, CURVED)
    assert known.basis.shared is not None
    unit = placement.unit(known.basis.shape, known.basis.scaling)
    assert state.centres is not None
    np.testing.assert_allclose(known.basis.shared.Z, unit.centre + unit.scale * state.centres.place, rtol=1e-12)


def test_inducing_inputs_wait_for_ten_frames_each() -> None:
    """60 of them here; six agents' rounds of eight frames near a single centre are too few."""
    state = curved()
    for number in range(1, 9):
        frames = np.zeros(M)
        frames[0] = 8.0
        state = open_round(state)
        said = {
            "cluster_count": to_tensor(frames),
            "cluster_sum": to_tensor(np.zeros((M, D))),
            "signature": CURVED.signature(),
        }
        state, effects = run(state, [answered(summary("a", state, sequence=number, **said))])
        assert effects == []
        state, effects = close_round(state)
        assert published(effects).basis == (1 if number < 8 else 2), number


def test_nothing_of_what_was_known_is_changed_by_inducing_inputs_that_join() -> None:
    """Mean and covariance of the linear weights; of the new ones the prior is all that is known."""
    state = curved()
    for number in range(1, 6):
        before = state
        state, model = told_sums(state, 10 * number)
    assert model.basis == 2
    assert before.feature_map is not None
    linear = before.feature_map.size
    precision, shift = belief(model)
    prior_var, _ = variances(model)
    # what the linear part would have been without them, under the prior of today
    alone = fleet.belief(
        msgspec.structs.replace(
            state,
            feature_map=before.feature_map,
            answers={
                name: msgspec.structs.replace(
                    a,
                    term=a.term._replace(
                        precision=a.term.precision[:, :linear, :linear], shift=a.term.shift[:, :linear]
                    ),
                )
                for name, a in state.answers.items()
            },
        )
    )
    np.testing.assert_array_equal(precision[:, :linear, :linear], alone.precision)
    np.testing.assert_array_equal(shift[:, :linear], alone.shift)
    np.testing.assert_array_equal(precision[:, linear:, :linear], 0.0)
    np.testing.assert_array_equal(precision[:, linear:, linear:], 1 / prior_var[:, linear:, None] * np.eye(M))
    assert all(a.kept == 1.0 for a in state.answers.values())


def test_deviations_of_features_that_are_new_are_expected_to_be_what_they_are_assumed() -> None:
    """An agent that told nothing of them must not be counted as one that does not deviate."""
    brains = Brains(("a", "b"), schema=CURVED)
    brains.read({name: walk(seed, 120) for seed, name in enumerate(brains.names)})
    model = brains.round()
    while model is not None and model.inducing is None:
        model = brains.round()
    state = brains.coordinator
    assert state.scales is not None
    for answer in state.answers.values():
        assert answer.deviation_square is not None
        np.testing.assert_array_equal(
            answer.deviation_square[:, bases.INDUCING], state.scales.deviation[:, bases.INDUCING]
        )
    before = state.scales.deviation[:, bases.INDUCING]
    state, _ = close_round(open_round(state))
    assert state.scales is not None
    np.testing.assert_allclose(state.scales.deviation[:, bases.INDUCING], before, rtol=1e-12)


# ---- when the scale moves


def test_inducing_inputs_stay_where_they_are_when_the_scale_moves() -> None:
    """They are in raw units: the same functions before and after, and predictions to the last digits."""
    brains = Brains(("a", "b"), schema=CURVED)
    brains.read({name: walk(seed, 120) for seed, name in enumerate(brains.names)})
    model = brains.round()
    while model is not None and model.inducing is None:
        model = brains.round()
    model = brains.round()
    assert model is not None
    old = knowledge.read(model, CURVED)
    before = predictions(old)
    state = brains.coordinator
    # only moments come: no agent tells anything new of the weights
    moved = bootstrap("a", schema=CURVED, incarnation=2, count=10_000.0, mean=6.0, sd=9.0)
    state, effects = run(open_round(state), [told(moved)])
    assert effects == []
    assert state.scales is not None
    state, effects = close_round(state)
    after = published(effects)
    assert after.basis == model.basis + 1
    new = knowledge.read(after, CURVED)
    assert features.same(old.basis.shared, new.basis.shared)
    # of what was learnt: the prior is another on another scale
    for was, now in zip(before, predictions(new), strict=True):
        assert np.all(np.abs(now[0] - was[0]) <= was[1])
    T, ratio = moves.change(old.basis, new.basis)
    assert T.shape == (new.basis.size, old.basis.size)
    terms_before = old.belief.precision - 1 / old.prior_var[..., None] * np.eye(old.basis.size)
    terms_after = new.belief.precision - 1 / new.prior_var[..., None] * np.eye(new.basis.size)
    fading = 0.5 ** (1 / brains.config.half_life_rounds)
    want = fading * (T @ terms_before @ T.T) / ratio[:, None, None] ** 2
    np.testing.assert_allclose(terms_after, want, rtol=1e-8, atol=1e-8 * np.abs(want).max())


def predictions(known: knowledge.Published) -> list[tuple[Array, Array]]:
    """Mean and standard deviation [n] of the raw step of each channel, at inputs where the fleet's frames lie."""
    rng = np.random.default_rng(0)
    inputs = 5.0 + 1.5 * rng.standard_normal((40, known.basis.shape.inputs))
    inputs[:, -K:] = 0.0
    X = features.features(known.basis, inputs)
    result = []
    for q in range(Q):
        cov = np.linalg.inv(known.belief.precision[q])
        scale = known.basis.scaling.scale[q]
        variance = np.sum((X @ cov) * X, axis=1) + known.noise_var[q]
        result.append((scale * (X @ cov @ known.belief.shift[q]), scale * np.sqrt(variance)))
    return result


# ---- inducing inputs placed anew


def placed(state: State) -> State:
    """A state with inducing inputs, placed when a hundred readings were pooled."""
    for number in range(1, 6):
        state, _ = told_sums(state, 10 * number)
    assert state.feature_map is not None
    assert state.feature_map.shared is not None
    return state


def elsewhere(state: State, count: float, shift: float) -> State:
    """The fleet has read more, and its centres have gone by so many of its standard deviations."""
    assert state.centres is not None
    state = open_round(state)
    state, effects = run(state, [told(bootstrap("first", schema=CURVED, sequence=state.round, count=count))])
    assert effects == []
    return msgspec.structs.replace(state, centres=state.centres._replace(place=state.centres.place + shift))


@pytest.mark.parametrize(
    ("count", "shift", "is_moved"),
    [(399.0, 2.0, False), (400.0, 2.0, True), (400.0, 0.05, False), (1e6, 0.05, False)],
    ids=["too few readings", "both", "too near", "too near, however many"],
)
def test_inducing_inputs_are_placed_anew_where_frames_lie_elsewhere(count: float, shift: float, is_moved: bool) -> None:
    state = placed(curved())
    assert state.feature_map is not None
    assert state.placed_on == 100.0
    after, effects = close_round(elsewhere(state, count, shift))
    model = published(effects)
    assert model.basis == (3 if is_moved else 2)
    assert after.feature_map is not None
    assert features.same(after.feature_map.shared, state.feature_map.shared) is not is_moved
    if is_moved:
        assert after.placed_on == count


def test_a_term_loses_weight_by_what_new_inducing_inputs_cannot_express() -> None:
    """By the estimate over the centres, worked out here by the kernel itself; and the model says so to the agent."""
    state = placed(curved())
    moved = elsewhere(state, 1000.0, 1.5)
    after, effects = close_round(moved)
    model = published(effects)
    assert model.basis == 3
    assert state.feature_map is not None
    assert after.feature_map is not None
    assert after.centres is not None
    assert after.scales is not None
    old, new = state.feature_map.shared, after.feature_map.shared
    assert old is not None
    assert new is not None
    X = new.Z  # the centres are where the new inducing inputs lie
    F_old, F_new = (kernels.covariance("se", X, z.Z, z.lengthscale) @ z.root_inverse.T for z in (old, new))
    lost = np.sum((F_old @ inducing.transfer(old, new).T - F_new) ** 2, axis=1)
    mean = np.sum(after.centres.weight * lost) / np.sum(after.centres.weight)
    scale = (after.scales.shared + after.scales.deviation)[:, bases.INDUCING]
    noise = to_array(model.noise_variance, (Q,), "noise")
    loss = np.max(PRIOR_SD["inducing"] ** 2 * scale * mean / noise)
    assert 0.001 < loss <= moves.MOST_LOSS
    for name, answer in after.answers.items():
        assert answer.kept == pytest.approx(1 / (1 + loss), rel=1e-9)
        fading = 0.5 ** (1 / after.config.half_life_rounds)
        assert model.included[name].factor == pytest.approx(answer.kept * fading, rel=1e-12)


def test_inducing_inputs_stay_where_too_much_would_be_lost() -> None:
    """With a noise so small that what was learnt is worth more than places that fit better."""
    state = placed(curved())
    answers = {name: msgspec.structs.replace(a, noise_var=np.full(Q, 0.01)) for name, a in state.answers.items()}
    moved = elsewhere(msgspec.structs.replace(state, answers=answers), 1000.0, 1.5)
    after, effects = close_round(moved)
    assert published(effects).basis == 2
    assert after.feature_map is state.feature_map
    assert all(a.kept == 1.0 for a in after.answers.values())


def test_predictions_agree_within_their_uncertainty_where_inducing_inputs_were_placed_anew() -> None:
    """Of the steps of readings, by the fleet's belief alone, where its frames lie: only the places of the features changed."""
    brains = Brains(("a", "b", "c"), schema=CURVED)
    brains.read({name: walk(seed, 200) for seed, name in enumerate(brains.names)})
    model = brains.round()
    for _ in range(9):
        model = brains.round()
    assert model is not None
    assert model.inducing is not None
    moved_by(brains, 0.8, 5_000)
    everybody = frozenset(brains.names)
    before = knowledge.read(model, CURVED)
    after = brains.round(deaf=everybody)
    assert after is not None
    assert after.basis == model.basis + 1
    new = knowledge.read(after, CURVED)
    for (was, sd), (now, _) in zip(predictions(before), predictions(new), strict=True):
        z = (now - was) / sd
        assert np.max(np.abs(z)) < 1.0
        assert np.sqrt(np.mean(z**2)) < 0.35  # a change by a third of the uncertainty at most, all in all


def test_agent_takes_its_own_part_out_after_inducing_inputs_were_placed_anew() -> None:
    """Its own bytes, mapped by the same matrix, times the factor: what is left is the others', and no less than the prior.

    Also of agents that were away for one of two such changes, or for both: theirs is not inside any more.
    """
    brains = Brains(("a", "b", "c"), schema=CURVED)
    brains.read({name: walk(seed, 120) for seed, name in enumerate(brains.names)})
    model = brains.round()
    while model is not None and model.inducing is None:
        model = brains.round()
    brains.round()
    moved_by(brains, 1.0, 5_000)
    first = brains.round(deaf=frozenset("c"))
    assert first is not None
    assert first.basis == 3
    assert "placed anew" in brains.notes[-1]
    assert_own_is_taken_out(brains, first, "ab")
    moved_by(brains, -1.0, 50_000)
    second = brains.round(deaf=frozenset("bc"))
    assert second is not None
    assert second.basis == 4
    assert set(second.included) == {"a"}  # the terms of b and c would have been projected twice
    for name in "bc":
        brains.agents[name].adopt(second)
    assert_own_is_taken_out(brains, second, "abc")
    third = brains.round()
    assert third is not None
    assert set(third.included) == {"a", "b", "c"}
    assert_own_is_taken_out(brains, third, "abc")


def moved_by(brains: Brains, shift: float, count: float) -> None:
    """The centres go elsewhere, and the fleet has read so much more; what agents tell of their moments now is too late."""
    state = brains.coordinator
    assert state.centres is not None
    centres = Centres(state.centres.place + shift, np.full(M, 5000.0))
    read = {}
    for name, one in state.told.items():
        n, mean, square = one.moments
        more = Moments(np.full(K, float(count)), mean, square * count / n)
        read[name] = msgspec.structs.replace(one, sequence=10**6, moments=more)
    brains.coordinator = msgspec.structs.replace(state, centres=centres, told=read)


def assert_own_is_taken_out(brains: Brains, model: FleetModel, names: str) -> None:
    """The cavity is the prior and the others' terms as the coordinator holds them, to rounding; never below the prior."""
    state, (prior_var, _) = brains.coordinator, variances(model)
    for name in names:
        others = [a for other, a in state.answers.items() if other != name]
        precision = 1 / prior_var[..., None] * np.eye(prior_var.shape[1])
        shift = np.zeros_like(prior_var)
        for one in others:
            weight = fleet.factor(state, one)
            precision, shift = precision + weight * one.term.precision, shift + weight * one.term.shift
        cavity = brains.agents[name].cavity()
        np.testing.assert_allclose(cavity.precision, precision, rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(cavity.shift, shift, rtol=1e-8, atol=1e-8)
        assert np.all(np.linalg.eigvalsh(cavity.precision)[:, 0] > 0)
