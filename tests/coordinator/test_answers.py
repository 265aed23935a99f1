"""Delivery is at least once, in any order, late or never: the same answers always come to the same model."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic_agents import (
    CONFIG,
    SCHEMA,
    START_MS,
    answered,
    belief,
    bootstrap,
    close_round,
    counted,
    federated,
    open_round,
    published,
    run,
    summary,
    told,
    variances,
)

from coordinator import basis, rounds
from coordinator.state import CoordinatorConfig, Count, Effect, PublishModel, State, SummaryArrived
from fleetgp.schema import Channel, Covariate, Schema
from fleetgp.wire.messages import Bootstrap, FleetModel

LAW = settings(max_examples=40, deadline=None, derandomize=True)
NAMES = ("a", "b", "c")


def model_bytes(state: State) -> bytes:
    _, effects = close_round(state)
    (payload,) = [e.payload for e in effects if isinstance(e, PublishModel)]
    return payload


def all_answers(state: State) -> list[SummaryArrived]:
    """Of three agents, three each; the last of b comes after it lost its memory and counts from 1 again."""
    counts = {"a": [(1, 4), (1, 5), (1, 6)], "b": [(1, 4), (1, 9), (2, 1)], "c": [(1, 1), (3, 1), (3, 2)]}
    return [
        answered(summary(name, state, seed=17 * k + i, incarnation=incarnation, sequence=sequence))
        for k, name in enumerate(NAMES)
        for i, (incarnation, sequence) in enumerate(counts[name])
    ]


OPEN = open_round(federated())
ANSWERS = all_answers(OPEN)
NEWEST = [ANSWERS[k] for k in (2, 5, 8)]


@LAW
@given(st.lists(st.sampled_from(range(len(ANSWERS))), max_size=20), st.randoms(use_true_random=False))
def test_order_and_repetition_of_answers_change_no_bit(repeated: list[int], chance: random.Random) -> None:
    """Everything at least once, in any order: each agent's newest is in the model, and only that."""
    stream = [*ANSWERS, *(ANSWERS[k] for k in repeated)]
    chance.shuffle(stream)
    state, _ = run(OPEN, stream)
    truth, _ = run(OPEN, NEWEST)
    assert model_bytes(state) == model_bytes(truth)
    assert {n: (a.incarnation, a.sequence) for n, a in state.answers.items()} == {"a": (1, 6), "b": (2, 1), "c": (3, 2)}


@LAW
@given(st.permutations([(name, sequence) for name in NAMES for sequence in (1, 2)]))
def test_order_of_moments_changes_no_bit_of_the_basis(order: list[tuple[str, int]]) -> None:
    """Also where agents call their topics, fields and units differently: the model shows nobody's."""

    def moments(name: str, sequence: int) -> Bootstrap:
        own = Schema(
            channels=tuple(
                Channel(name=c.name, topic=f"plant/{name}", field=f"{name}_{c.name}") for c in SCHEMA.channels
            ),
            covariates=(Covariate(name="u", unit=name),),
        )
        centre = 3.0 + NAMES.index(name) / 7
        return bootstrap(name, sequence=sequence, count=10.0 * sequence, mean=centre, sd=1.0 + sequence, schema=own)

    state = open_round(rounds.init(CONFIG, START_MS))
    expected, _ = run(state, [told(moments(name, 2)) for name in NAMES])
    state, _ = run(state, [told(moments(name, sequence)) for name, sequence in order])
    payload = model_bytes(state)
    assert payload == model_bytes(expected)
    assert not any(f"plant/{name}".encode() in payload or f"{name}_t".encode() in payload for name in NAMES)


def test_a_message_told_again_is_counted_and_leaves_the_very_same_state() -> None:
    state, _ = run(OPEN, NEWEST)
    for event in NEWEST:
        again, effects = rounds.step(state, event)
        assert again is state
        assert counted(effects) == ["repeated"]


def test_an_older_start_is_refused_under_a_name_of_its_own() -> None:
    """Not as a repetition, which nobody looks at: an agent whose clock was behind when it lost its memory is never heard
    again otherwise, and nobody is told why."""
    state, _ = run(OPEN, [answered(summary("a", OPEN, incarnation=50, sequence=3))])
    state, _ = run(state, [told(bootstrap("a", incarnation=50, sequence=2))])
    for event in (
        answered(summary("a", OPEN, incarnation=49, sequence=99)),
        told(bootstrap("a", incarnation=49, sequence=99)),
    ):
        again, effects = rounds.step(state, event)
        assert again is state
        assert counted(effects) == ["older_incarnation"]
        assert all("clock" in e.detail for e in effects if isinstance(e, Count))


def test_agent_that_lost_its_memory_replaces_what_it_said_before() -> None:
    """Its new term stands alone in the model, though its count began anew; so do its new moments in the scale."""
    state, _ = run(OPEN, [answered(summary("a", OPEN, seed=1, incarnation=10, sequence=500))])
    lost, effects = run(state, [answered(summary("a", OPEN, seed=2, incarnation=11, sequence=1))])
    assert effects == []
    alone, _ = run(OPEN, [answered(summary("a", OPEN, seed=2, incarnation=11, sequence=1))])
    assert model_bytes(lost) == model_bytes(alone)
    told_again, _ = run(lost, [told(bootstrap("first", incarnation=2, sequence=1, mean=77.0))])
    np.testing.assert_array_equal(basis.pooled_moments(told_again).mean, [77.0] * 3)


def test_late_answer_is_welcome_while_its_basis_holds() -> None:
    """After the deadline, and rounds later: it is in the next model at full weight."""
    late = answered(summary("slow", OPEN, seed=3))
    state, effects = close_round(OPEN)
    assert published(effects).included == {}
    state, effects = rounds.step(state, late)  # between two rounds
    assert effects == []
    for _ in range(2):
        state = open_round(state)
        state, effects = close_round(state)
    model = published(effects)
    assert list(model.included) == ["slow"]
    assert model.round == OPEN.round + 2
    assert model.included["slow"].factor == pytest.approx(0.5 ** (2 / CONFIG.half_life_rounds), rel=1e-12)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"basis": 0}, "an agent on its own basis"),
        ({"basis": 2}, "a basis that is not there yet"),
        ({"origin": START_MS - 1}, "the basis of a coordinator that lost its memory since"),
    ],
    ids=str,
)
def test_answer_on_another_basis_is_refused_with_a_reason(changes: dict[str, int], reason: str) -> None:
    state, effects = rounds.step(OPEN, answered(summary("a", OPEN, **changes)))
    assert state is OPEN, reason
    assert counted(effects) == ["stale_basis"]
    assert all("a is on basis" in e.detail for e in effects if isinstance(e, Count))


def test_answer_before_there_is_a_basis_is_refused() -> None:
    """Even when it says that it is on basis 0 of this coordinator: there is no scale on which it could be added."""
    state = open_round(rounds.init(CONFIG, START_MS))
    state, _ = run(state, [told(bootstrap("a", count=3.0))])
    after, effects = rounds.step(state, answered(summary("b", state)))
    assert after is state
    assert counted(effects) == ["stale_basis"]


def test_answer_on_the_basis_before_is_refused_after_a_change() -> None:
    old = summary("a", OPEN, seed=1)
    state, _ = run(OPEN, [answered(old), told(bootstrap("first", sequence=2, count=4000.0, sd=30.0))])
    state, effects = close_round(state)
    assert published(effects).basis == 2
    after, effects = rounds.step(state, answered(summary("a", OPEN, seed=2, sequence=2)))
    assert after is state
    assert counted(effects) == ["stale_basis"]
    after, effects = rounds.step(state, answered(summary("a", state, seed=2, sequence=2)))
    assert effects == []


# ---- when there is a basis


PAIR = Schema(channels=(Channel(name="t"), Channel(name="p")), lags=1)


def after_moments(state: State, message: Bootstrap) -> State:
    """The state after a round in which these moments came."""
    state, effects = run(open_round(state), [told(message)])
    assert effects == []
    return close_round(state)[0]


@pytest.mark.parametrize(
    ("counts", "number"),
    [((19.0, 199.0), 0), ((20.0, 20.0), 1), ((0.0, 199.0), 0), ((0.0, 200.0), 1)],
    ids=["one input too few", "enough of both", "a silent input, too early", "a silent input that is not waited for"],
)
def test_first_basis_waits_for_readings_but_not_for_a_channel_that_never_arrives(
    counts: tuple[float, float], number: int
) -> None:
    state = after_moments(rounds.init(CONFIG, START_MS), bootstrap("a", schema=PAIR, count=counts))
    assert state.basis == number


def test_scale_that_moves_little_or_on_little_evidence_makes_no_new_basis() -> None:
    state = after_moments(rounds.init(CONFIG, START_MS), bootstrap("a", schema=PAIR, count=100.0, sd=1.0))
    cases = [(399.0, 9.0, 1), (400.0, 1.24, 1), (400.0, 1.26, 2), (400.0, 0.79, 2), (400.0, 0.81, 1)]
    for count, sd, number in cases:
        after = after_moments(state, bootstrap("a", schema=PAIR, count=count, sd=sd, sequence=2))
        assert after.basis == number, (count, sd)
        assert after.feature_map is not None
        np.testing.assert_allclose(after.feature_map.scaling.scale, sd if number == 2 else 1.0, rtol=1e-12)


def test_a_channel_that_comes_late_gets_a_scale_of_its_own() -> None:
    """As soon as there is enough of it: 40 readings, though the others have had 100,000 and hardly grow any more."""
    state = rounds.init(CONFIG, START_MS)
    state = after_moments(state, bootstrap("a", schema=PAIR, count=(1e5, 0.0), sd=(2.0, 0.0)))
    assert state.basis == 1
    few = bootstrap("a", schema=PAIR, count=(1e5, 19.0), mean=(3.0, 101_325.0), sd=(2.0, 300.0), sequence=2)
    assert after_moments(state, few).basis == 1
    more = bootstrap("a", schema=PAIR, count=(1e5 + 40, 40.0), mean=(3.0, 101_325.0), sd=(2.0, 300.0), sequence=2)
    state = after_moments(state, more)
    assert state.basis == 2
    assert state.feature_map is not None
    np.testing.assert_allclose(state.feature_map.scaling.centre, [3.0, 101_325.0], rtol=1e-12)
    np.testing.assert_allclose(state.feature_map.scaling.scale, [2.0, 300.0], rtol=1e-12)


# ---- what a fleet watches


OTHER = Schema(channels=(Channel(name="flow"),), lags=3)


def test_fleet_of_several_refuses_an_agent_that_watches_something_else() -> None:
    """Moments and summaries, of strangers and of its own: counted, with a word on what to do."""
    state, _ = run(OPEN, NEWEST)
    for event in (
        told(bootstrap("stranger", schema=OTHER)),
        told(bootstrap("first", schema=OTHER, sequence=2)),
        answered(summary("a", state, sequence=100, signature=OTHER.signature())),
    ):
        after, effects = rounds.step(state, event)
        assert after is state
        assert counted(effects) == ["other_schema"]
        assert all("give it another fleet" in e.detail for e in effects if isinstance(e, Count))


def test_the_only_agent_may_change_its_mind_about_what_it_watches() -> None:
    """The owner of one device who adds a channel is not locked out by what the coordinator remembers of it; and the old
    basis is never taken for the new one."""
    state, _ = run(OPEN, [answered(summary("first", OPEN))])
    state, effects = rounds.step(state, told(bootstrap("first", schema=OTHER, incarnation=2)))
    assert effects == []
    assert state.schema is not None
    assert state.schema.signature() == OTHER.signature()
    state, effects = close_round(state)
    model = published(effects)
    assert (model.basis, model.included) == (2, {})
    assert model.schema.signature() == OTHER.signature()
    assert counted(rounds.step(state, answered(summary("first", OPEN, sequence=2)))[1]) == ["stale_basis"]


def test_an_old_message_of_what_it_watched_before_does_not_turn_a_lone_agent_back() -> None:
    state, _ = rounds.step(OPEN, told(bootstrap("first", schema=OTHER, incarnation=2)))
    after, effects = rounds.step(state, told(bootstrap("first", incarnation=1, sequence=50)))
    assert after is state
    assert counted(effects) == ["older_incarnation"]


# ---- agents that come and go


def test_no_more_agents_than_the_bound_by_whatever_message_they_come() -> None:
    config = CoordinatorConfig(round_s=60.0, answer_s=5.0, most_agents=4)
    state = open_round(federated(config))
    state, effects = run(state, [told(bootstrap("a")), *(answered(summary(n, state)) for n in "bc")])
    assert effects == []
    for event in (told(bootstrap("d")), answered(summary("d", state))):
        after, effects = rounds.step(state, event)
        assert after is state
        assert counted(effects) == ["too_many_agents"]
    _, effects = run(state, [answered(summary(n, state, sequence=2)) for n in ("a", "b", "first")])
    assert effects == []


def rounds_of(state: State, number: int, answering: str = "") -> tuple[State, FleetModel]:
    """State and model after so many rounds, in which one agent answers."""
    effects: list[Effect] = []
    for _ in range(number):
        state = open_round(state)
        if answering:
            state, _ = run(state, [answered(summary(answering, state, sequence=state.round))])
        state, effects = close_round(state)
    return state, published(effects)


def test_dead_agent_fades_and_is_let_go_in_the_end() -> None:
    """Half after its half-life, a thousandth after ten; then nothing of it is left, and its place is free again."""
    config = CoordinatorConfig(round_s=60.0, answer_s=5.0, half_life_rounds=3.0, most_agents=3)
    state = open_round(federated(config))
    state, _ = run(state, [told(bootstrap("dead")), answered(summary("dead", state, seed=1))])
    state, _ = close_round(state)
    state, _ = rounds_of(state, 28, answering="alive")
    assert counted(rounds.step(state, told(bootstrap("new")))[1]) == ["too_many_agents"]
    state, model = rounds_of(state, 1, answering="alive")
    assert model.included["dead"].factor == pytest.approx(0.5 ** (29 / 3), rel=1e-12)
    assert list(state.told) == ["dead"]  # "first" told its moments a round earlier and never spoke again
    state, model = rounds_of(state, 1, answering="alive")
    assert list(model.included) == ["alive"]
    assert list(state.answers) == ["alive"]
    assert list(state.told) == []
    assert rounds.step(state, told(bootstrap("new")))[1] == []
    precision, _ = belief(model)
    before = np.array([np.diag(1 / of) for of in variances(model)[0]])
    np.testing.assert_array_equal(precision, before + state.answers["alive"].term.precision)


def test_moments_stay_as_long_as_their_agent_answers() -> None:
    """Moments are told again only when they have doubled, which takes a year after a year: they may not fade meanwhile."""
    config = CoordinatorConfig(round_s=60.0, answer_s=5.0, half_life_rounds=2.0)
    state, _ = rounds_of(federated(config), 60, answering="first")
    assert list(state.told) == ["first"]


def test_fleet_forgotten_altogether_begins_anew_with_whoever_comes() -> None:
    """Also when the newcomers watch something else."""
    config = CoordinatorConfig(round_s=60.0, answer_s=5.0, half_life_rounds=1.0)
    state, model = rounds_of(federated(config), 12)
    assert (state.told, state.answers, model.included) == ({}, {}, {})
    state, effects = run(open_round(state), [told(bootstrap("x", schema=OTHER)), told(bootstrap("y", schema=OTHER))])
    assert effects == []
    model = published(close_round(state)[1])
    assert model.basis == 2
    assert model.schema.signature() == OTHER.signature()
