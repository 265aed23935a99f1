"""Scales of the blocks: each round is one EM step on what the agents know of their deviations, and it finds what is true."""

from __future__ import annotations

import dense_truth
import msgspec
import numpy as np
import pytest
from synthetic_agents import (
    SCHEMA,
    Array,
    Brains,
    F,
    K,
    Q,
    answered,
    basis,
    close_round,
    federated,
    open_round,
    published,
    run,
    summary,
    variances,
    walk,
)

from coordinator import closing
from coordinator.state import CoordinatorConfig, State
from fleetgp import features
from fleetgp.features import BLOCKS
from fleetgp.gp import hyper
from fleetgp.gp.hyper import GUESS_AGENTS
from fleetgp.wire.convert import to_array, to_tensor

# two solutions of systems of some hundred readings
CLOSE = 1e-8
BLOCKS_OF = features.blocks(features.shape(SCHEMA)).astype(int)
BIAS, LAGS = BLOCKS.index("bias"), BLOCKS.index("lags")


def told_by(brains: Brains, name: str) -> Array:
    """Mean square of a deviation by block [Q, B], as the coordinator holds it."""
    square = brains.coordinator.answers[name].deviation_square
    assert square is not None
    return square


def test_what_agents_tell_is_the_dense_mean_square_of_their_deviation() -> None:
    """Given all readings of the fleet, under the scales of the round before; nobody reads anything in between."""
    brains = Brains(("a", "b", "c"))
    brains.read({name: walk(seed, 40 + 20 * seed) for seed, name in enumerate(brains.names)})
    for _ in range(3):
        model = brains.round()
    assert model is not None
    on, (prior_var, _) = basis(model), variances(model)
    inside = {name: [brains.regression(name, q, on) for q in range(Q)] for name in brains.names}
    brains.round()
    for name in brains.names:
        for q in range(Q):
            own = brains.regression(name, q, on)  # under the deviation of the model that it heard last
            others = [inside[other][q] for other in brains.names if other != name]
            square = dense_truth.deviation_square(own, brains.agents[name].phi[q], others, prior_var[q])
            for b in range(len(BLOCKS)):
                if np.any(b == BLOCKS_OF):
                    np.testing.assert_allclose(told_by(brains, name)[q, b], square[b == BLOCKS_OF].mean(), rtol=CLOSE)


def test_a_close_is_one_em_step_from_the_dense_posterior() -> None:
    """E v^2 from all readings at once, E d^2 as told, aged; each scale moved by half at most."""
    brains = Brains(("a", "b", "c"), config=CoordinatorConfig(round_s=60.0, answer_s=5.0, half_life_rounds=2.0))
    brains.read({name: walk(seed, 40 + 20 * seed) for seed, name in enumerate(brains.names)})
    for _ in range(3):
        model = brains.round()
    assert model is not None
    on, (old_prior, old_deviation) = basis(model), variances(model)
    model = brains.round(deaf=frozenset("c"))
    assert model is not None
    weights = {"a": 1.0, "b": 1.0, "c": 0.5**0.5}
    new_prior, new_deviation = variances(model)
    first = [1.0] + [0.01] * (F - 1)
    for q in range(Q):
        agents = [brains.regression(name, q, on) for name in brains.names]
        agents = [one._replace(S=one.S / weight) for one, weight in zip(agents, weights.values(), strict=True)]
        mean, cov = dense_truth.posterior(agents, old_prior[q])
        square = mean**2 + np.diag(cov)
        for f in range(F):
            same = BLOCKS_OF[f] == BLOCKS_OF
            shared = (1.0 + np.sum(square[same])) / (1.0 + np.sum(same))
            told = sum(w * told_by(brains, name)[q, BLOCKS_OF[f]] for name, w in weights.items())
            deviation = (GUESS_AGENTS * first[f] + told) / (GUESS_AGENTS + sum(weights.values()))
            for new, want, old in (
                (new_prior[q, f], shared, old_prior[q, f]),
                (new_deviation[q, f], deviation, old_deviation[q, f]),
            ):
                assert new == pytest.approx(min(max(want, old / 1.5), old * 1.5), rel=CLOSE)


def devices(seed: int, count: int, rows: int, level: float, dynamics: float) -> dict[str, Array]:
    """Streams of devices of one kind: around the same place, each with a level (sd) and with dynamics (sd) of its own."""
    rng = np.random.default_rng(seed)
    streams = {}
    for k in range(count):
        own = level * rng.standard_normal(K)
        pull = np.clip(-0.5 + dynamics * rng.standard_normal(K), -0.9, -0.1)  # a stable stream
        values = np.zeros((rows, K))
        for t in range(1, rows):
            values[t] = values[t - 1] + pull * values[t - 1] + own + rng.standard_normal(K)
        streams[f"d{k}"] = values
    return streams


def learnt(level: float, dynamics: float) -> tuple[Array, Array]:
    """Deviation scales [Q, B] that a fleet of such devices comes to, and the scale [Q] of its inputs."""
    streams = devices(7, 24, 800, level, dynamics)
    brains = Brains(tuple(streams))
    brains.read(streams)
    for one in brains.agents.values():
        one.noise = np.ones(Q)  # as it is
    for _ in range(30):
        model = brains.round()
    assert model is not None
    assert brains.counts == []
    assert brains.coordinator.scales is not None
    return brains.coordinator.scales.deviation, basis(model).scale[:Q]


def test_devices_that_differ_in_level_only_are_found_to() -> None:
    """The scale of the bias becomes that of the levels, the one of the lags falls to a fraction of where it began."""
    deviation, scale = learnt(level=0.5, dynamics=0.0)
    # a level moves the step by 0.5 in raw units; the weight of the bias is per PRIOR_SD of 0.5
    truth = (0.5 / scale / 0.5) ** 2
    # 24 levels tell their variance to a third of it, either way
    assert np.all((deviation[:, BIAS] > 0.5 * truth) & (deviation[:, BIAS] < 2.0 * truth))
    assert np.all(deviation[:, LAGS] < 0.5 * hyper.DEVIATION["lags"])


def test_devices_that_differ_in_dynamics_are_found_to() -> None:
    """The other way round: the scale of the lags grows by far, that of the bias falls."""
    deviation, _ = learnt(level=0.0, dynamics=0.25)
    assert np.all(deviation[:, LAGS] > 5 * hyper.DEVIATION["lags"])
    assert np.all(deviation[:, BIAS] < 0.1 * hyper.DEVIATION["bias"])


def lied(state: State, value: float) -> State:
    """The state after a round in which nine agents tell little and one this."""
    state = open_round(state)
    shape = (Q, len(BLOCKS))
    events = [
        answered(
            summary(
                f"a{k}",
                state,
                seed=k,
                sequence=state.round,
                deviation_square=to_tensor(np.full(shape, value if k == 9 else 0.01)),
            )
        )
        for k in range(10)
    ]
    state, effects = run(state, events)
    assert effects == []
    return state


@pytest.mark.parametrize("value", [0.0, 1e30])
def test_no_agent_moves_a_scale_by_more_than_half_in_a_round(value: float) -> None:
    state = federated()
    _, before = variances(published(close_round(lied(state, value))[1]))
    for _ in range(4):
        state, effects = close_round(lied(state, value))
        _, after = variances(published(effects))
        assert np.all(np.maximum(after / before, before / after) <= 1.5 * (1 + 1e-12))
        before = after


def test_order_in_which_deviations_are_told_changes_no_bit() -> None:
    streams = devices(3, 4, 60, 1.0, 0.1)
    models = []
    for names in (tuple(streams), tuple(streams)[::-1]):
        brains = Brains(tuple(streams))
        brains.read(streams)
        brains.agents = {name: brains.agents[name] for name in names}
        models.append([brains.round() for _ in range(4)][-1])
    assert models[0] is not None
    assert models[0] == models[1]


def test_terms_that_no_inverse_comes_of_leave_the_scales_as_they_are() -> None:
    """A round closes whatever was let in."""
    state = open_round(federated())
    state, _ = run(state, [answered(summary("a", state))])
    answer = state.answers["a"]
    broken = answer.term._replace(precision=-5.0 * np.abs(answer.term.precision) - 10.0 * np.eye(F))
    state = msgspec.structs.replace(state, answers={"a": msgspec.structs.replace(answer, term=broken)})
    assert closing.improve_scales(state) is state
    _, effects = close_round(state)
    assert to_array(published(effects).shift, (Q, F), "shift").shape == (Q, F)
