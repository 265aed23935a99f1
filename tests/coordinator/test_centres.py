"""Where inducing inputs may go: k-means over sums that agents tell, as of all frames pooled."""

from __future__ import annotations

import msgspec
import numpy as np
from synthetic_agents import (
    CURVED,
    Brains,
    answered,
    basis,
    bootstrap,
    close_round,
    federated,
    near_centres,
    open_round,
    run,
    summary,
    told,
    walk,
)

from fleetgp.placement import LEAST_FRAMES
from fleetgp.wire import knowledge

M, D = CURVED.inducing, 3


def test_a_round_is_one_step_of_k_means_on_the_frames_of_all_agents_pooled() -> None:
    """Agents assign their own frames to the published centres; the next centres are those of all frames at once, by loops."""
    brains = Brains(("a", "b", "c"), schema=CURVED)
    brains.read({name: walk(seed, 120) for seed, name in enumerate(brains.names, start=10)})
    first = brains.round()
    assert first is not None
    old, on = knowledge.read(first, CURVED), basis(first)
    brains.round()
    new = brains.coordinator.centres
    assert new is not None
    assert old.centres is not None
    columns = [4, 0, 1]  # the covariate, then lag 1 of both channels
    centre, scale = on.centre[[2, 0, 1]], on.scale[[2, 0, 1]]
    total, count = np.zeros((M, D)), np.zeros(M)
    for one in brains.agents.values():
        own_total, own_count = np.zeros((M, D)), np.zeros(M)
        for x in (one.inputs()[0][:, columns] - centre) / scale:
            nearest = min(range(M), key=lambda m, x=x: float(np.sum((x - old.centres[m]) ** 2)))
            own_total[nearest] += x
            own_count[nearest] += 1
        is_told = own_count >= LEAST_FRAMES
        total += own_total * is_told[:, None]
        count += own_count * is_told
    assert np.all(count > 0)
    np.testing.assert_allclose(new.place, (old.centres + total) / (1 + count)[:, None], rtol=1e-10)
    np.testing.assert_array_equal(new.weight, 1 + count)


def test_centres_do_not_move_where_nobody_tells_of_frames() -> None:
    state = federated(schema=CURVED)
    centres = state.centres
    for _ in range(4):
        state, _ = close_round(open_round(state))
    assert state.centres is centres
    assert (state.moves, state.told_frames) == (0, 0.0)


def test_order_of_agents_and_repeated_answers_change_no_bit_of_the_centres() -> None:
    """The newest sums of each agent count once, whatever came before and in whatever order."""
    state = open_round(federated(schema=CURVED))
    messages = {
        name: [summary(name, state, seed=k, sequence=s, **near_centres(10 * k + s)) for s in (1, 2)]
        for k, name in enumerate("abc")
    }
    newest = [answered(messages[name][1]) for name in "abc"]
    truth, _ = close_round(run(state, newest)[0])
    shuffled = [answered(messages[name][s]) for name, s in (("c", 0), ("b", 1), ("a", 0), ("c", 1), ("b", 0), ("a", 1))]
    other, _ = close_round(run(state, shuffled)[0])
    assert other.centres is not None
    assert truth.centres is not None
    assert other.centres.place.tobytes() == truth.centres.place.tobytes()
    assert other.told_frames == truth.told_frames
    assert other.sums == {}


def test_centres_and_sums_of_a_lone_agent_that_changes_its_mind_are_forgotten() -> None:
    state = open_round(federated(schema=CURVED))
    state, _ = run(state, [answered(summary("first", state, **near_centres(1)))])
    assert list(state.sums) == ["first"]
    other = msgspec.structs.replace(CURVED, lags=3)
    state, effects = run(state, [told(bootstrap("first", schema=other, incarnation=2))])
    assert effects == []
    assert (state.sums, state.centres, state.feature_map, state.moves) == ({}, None, None, 0)


def test_numbers_of_proposals_go_on_when_a_fleet_begins_anew() -> None:
    """(origin, step) names a proposal, and the origin stays: an agent would take a new one for one that it has answered."""
    state = msgspec.structs.replace(open_round(federated(schema=CURVED)), steps=7)
    other = msgspec.structs.replace(CURVED, lags=3)
    anew, _ = run(state, [told(bootstrap("first", schema=other, incarnation=2))])
    assert anew.feature_map is None
    assert (anew.origin, anew.basis, anew.steps) == (state.origin, state.basis, 7)
