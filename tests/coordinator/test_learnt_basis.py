"""Bases learnt by gradients while frames flow: what comes of it, and that nothing an agent sends or leaves out breaks it."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest
from tuned_fleet import AGENTS, ROUND_FRAMES, TICK_MS, fleet, read, tuned

from coordinator import basis, rounds, tuning
from coordinator import fleet as fleets
from coordinator import state as coordination
from coordinator.state import Ascent, Count, GradientArrived, PublishRound, PublishTuning, State, Tick
from edge_agent import agent
from edge_agent.state import ModelArrived, Publish, TuningArrived
from edge_agent.state import State as AgentState
from fleetgp import inducing
from fleetgp.gp.learner import Learner
from fleetgp.wire import codec
from fleetgp.wire.convert import to_array
from fleetgp.wire.freeze import freeze, thaw
from fleetgp.wire.messages import Gradient, Prediction, RoundNotice, Tensor, Tuning

# a round after so many frames begins the tuning, and it is over well before the last frame
BEGUN, LAST, JUDGED = 264, 700, 600


class Desk:
    """Agents and coordinator in the middle of a tuning, for a test to carry their messages by hand."""

    def __init__(self, state: State, agents: dict[str, AgentState], at_ms: int) -> None:
        self.state, self.agents, self.at_ms = state, agents, at_ms
        self.proposal = b""
        self.notices: list[RoundNotice] = []
        self.counts: list[Count] = []

    def round(self) -> None:
        """A round that nobody answers, up to its close."""
        self.at_ms += ROUND_FRAMES * TICK_MS
        for _ in range(2):
            self.tell(Tick(self.at_ms))

    def tell(self, event: coordination.Event) -> None:
        self.state, effects = rounds.step(self.state, event)
        for effect in effects:
            if isinstance(effect, PublishTuning):
                self.proposal = effect.payload
            elif isinstance(effect, PublishRound) and effect.notice.state == "closed":
                self.notices.append(effect.notice)
            elif isinstance(effect, Count):
                self.counts.append(effect)

    def answers(self, *names: str) -> list[GradientArrived]:
        """What these agents say to the proposal."""
        made = []
        for name in names:
            self.agents[name], effects = agent.step(self.agents[name], TuningArrived(self.at_ms, self.proposal))
            said = [effect.message for effect in effects if isinstance(effect, Publish)]
            made += [GradientArrived(self.at_ms, name, codec.encode(message)) for message in said]
        return made


@pytest.fixture(scope="module")
def begun() -> tuple[State, dict[str, AgentState]]:
    """After the round in which the tuning began, and its proposal was answered."""
    running = fleet(lambda _: None)
    read(running, 0, BEGUN)
    assert running.coordinator is not None
    # with inducing inputs, and frames enough for all agents together, but too few of each
    assert running.coordinator.feature_map is not None
    assert running.coordinator.feature_map.shared is not None
    assert running.coordinator.tuning is None
    read(running, BEGUN, BEGUN + 1)
    return running.coordinator, dict(running.agents)


@pytest.fixture
def desk(begun: tuple[State, dict[str, AgentState]]) -> Desk:
    """Everybody has answered the first proposal; the second is made."""
    state, agents = begun
    desk = Desk(state, dict(agents), BEGUN * TICK_MS)
    desk.round()
    assert tuned(desk.state).step == 2
    return desk


def test_a_lengthscale_that_is_far_too_long_is_found_and_later_frames_are_foreseen_better() -> None:
    nll: dict[bool, list[float]] = {True: [], False: []}

    def hear(told: Prediction) -> None:
        if told.at_ms >= BEGUN * TICK_MS and told.log_density is not None:
            nll[told.at_ms >= JUDGED * TICK_MS].append(-told.log_density)

    running = fleet(hear)
    read(running, 0, LAST)
    running.pass_on()
    state = running.coordinator
    assert state is not None
    assert state.feature_map is not None
    assert state.feature_map.shared is not None
    # a quarter of the wave's length is 0.39; the rule of thumb says 1.3, and as much for the last reading
    length = state.feature_map.shared.lengthscale
    assert 0.15 < length[0] < 0.6
    assert length[1] > 3 * length[0]
    gain = running.outcome.learnt[0].gain
    assert gain is not None
    assert gain > 0.3
    assert np.mean(nll[True]) < np.mean(nll[False]) - 1.0
    assert running.outcome.counts == {}


def test_the_end_of_a_tuning_frees_the_frames_kept_for_it_and_changes_nothing_else(desk: Desk) -> None:
    agents = desk.agents
    for state in agents.values():
        assert state.tuning is not None
        over = codec.encode(Tuning(at_ms=0, origin=state.origin, basis=state.basis, step=9, began=9))
        after, effects = agent.step(state, TuningArrived(0, over))
        assert effects == []
        assert after == msgspec.structs.replace(state, tuning=None)


def test_a_proposal_that_comes_twice_or_late_is_answered_once(desk: Desk) -> None:
    agents = dict(desk.agents)
    first = desk.answers(*AGENTS)
    assert len(first) == len(AGENTS)
    # nothing else that an agent is, predicts or tells depends on it
    for name, state in agents.items():
        assert desk.agents[name] == msgspec.structs.replace(state, tuning=desk.agents[name].tuning)
    before = dict(desk.agents)
    assert desk.answers(*AGENTS) == []
    assert desk.agents == before
    for answer in first:
        desk.tell(answer)
    heard = desk.state
    for answer in first:
        desk.tell(answer)
    assert desk.state is heard
    assert [count.reason for count in desk.counts] == ["repeated"] * len(AGENTS)
    desk.round()
    desk.tell(first[0])
    assert desk.counts[-1].reason == "stale_step"


def test_an_agent_that_does_not_answer_is_not_waited_for_and_keeps_its_part_in_the_belief(desk: Desk) -> None:
    for answer in desk.answers("a", "b"):
        desk.tell(answer)
    desk.round()
    tune = tuned(desk.state)
    assert tune.step == 3
    assert set(codec.decode(desk.proposal, Tuning).included) == set(AGENTS)
    # and it may answer again
    for answer in desk.answers(*AGENTS):
        desk.tell(answer)
    desk.round()
    assert set(tuned(desk.state).best.answers) == set(AGENTS)  # type: ignore[union-attr]
    assert desk.counts == []


def test_a_tuning_that_nobody_answers_is_given_up_and_said(desk: Desk) -> None:
    desk.round()
    assert desk.state.tuning is None
    assert desk.notices[-1].note == "tuning given up: 0 of 3 agents answered"
    assert codec.decode(desk.proposal, Tuning).values == {}
    # whoever was away or of an older version is asked again some rounds later, not only when the fleet has read four times as much
    for _ in range(tuning.REST_ROUNDS - 1):
        desk.round()
        assert desk.state.tuning is None
    desk.round()
    assert desk.notices[-1].note == "a tuning of the basis begins with 3 agents"
    assert tuned(desk.state).step == desk.state.steps == 3


def test_a_coordinator_and_agents_from_a_snapshot_go_on_bit_for_bit(desk: Desk) -> None:
    again = Desk(thaw(freeze(desk.state), State), {}, desk.at_ms)
    again.agents = {name: thaw(freeze(state), AgentState) for name, state in desk.agents.items()}
    again.proposal = desk.proposal
    for one in (desk, again):
        for _ in range(3):
            for answer in one.answers(*AGENTS):
                one.tell(answer)
            one.round()
    assert tuned(desk.state).step == 5
    assert again.proposal == desk.proposal
    assert freeze(again.state) == freeze(desk.state)


def test_a_step_with_less_evidence_is_taken_back(desk: Desk) -> None:
    for answer in desk.answers(*AGENTS):
        desk.tell(answer)
    desk.round()
    best = tuned(desk.state).best
    assert best is not None
    for answer in desk.answers(*AGENTS):
        said = codec.decode(answer.payload, Gradient)
        worse = msgspec.structs.replace(said, constant=said.constant - 1e4)
        desk.tell(msgspec.structs.replace(answer, payload=codec.encode(worse)))
    rate = tuned(desk.state).rate
    desk.round()
    tune = tuned(desk.state)
    assert tune.taken_back == 1
    assert tune.rate == 0.5 * rate
    assert tune.best is not None
    assert tune.best.step == best.step
    assert codec.decode(desk.proposal, Tuning).is_back


def raw(*shape: int, value: float = 1.0) -> Tensor:
    return Tensor(shape=shape, data=np.full(shape, value).astype("<f8").tobytes())


F = 16  # bias, lag 1, covariate, two indicators, 12 inducing inputs, less one: y is no covariate of itself
UNSOUND: list[tuple[str, dict[str, Any], str]] = [
    ("NaN in a slope", {"slopes": {"inducing": raw(12, 2, value=np.nan), "log_lengthscale": raw(2)}}, "finite"),
    ("an infinite slope", {"slopes": {"inducing": raw(12, 2), "log_lengthscale": raw(2, value=np.inf)}}, "finite"),
    ("a slope that no reading has", {"slopes": {"inducing": raw(12, 2, value=1e20), "log_lengthscale": raw(2)}}, "range"),
    ("slopes of another shape", {"slopes": {"inducing": raw(2, 12), "log_lengthscale": raw(2)}}, "shape"),
    ("slopes of something else", {"slopes": {"noise": raw(2)}}, "shape"),
    ("one slope of two", {"slopes": {"inducing": raw(12, 2)}}, "shape"),
    ("NaN evidence", {"constant": float("nan")}, "finite"),
    ("more evidence than any density", {"constant": 1e7}, "range"),
    ("more than any density of frames held out", {"held_out": 1e7}, "range"),
    ("held-out frames beyond count", {"held_out_count": 1e12}, "range"),
    ("a negative count", {"count": raw(1, value=-1.0)}, "negative"),
    ("no readings", {"count": raw(1, value=0.0)}, "range"),
    ("a negative loss", {"loss": -1.0}, "negative"),
    ("a precision of another size", {"precision": raw(1, 3)}, "shape"),
    ("an indefinite precision", {"precision": raw(1, 17 * 18 // 2, value=-1.0)}, "indefinite"),
    ("another agent's", {"agent": "b"}, "other_agent"),
    ("an old step", {"step": 1}, "stale_step"),
    ("another coordinator's", {"origin": 7}, "stale_step"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "reason"), [case[1:] for case in UNSOUND], ids=[case[0] for case in UNSOUND])
def test_an_unsound_gradient_is_refused_by_name_and_changes_nothing(
    desk: Desk, changes: dict[str, Any], reason: str
) -> None:
    (sound,) = desk.answers("a")
    said = msgspec.structs.replace(codec.decode(sound.payload, Gradient), **changes)
    before = desk.state
    desk.tell(GradientArrived(desk.at_ms, "a", msgspec.msgpack.encode(said)))
    assert desk.state is before
    (count,) = desk.counts
    assert (count.reason, count.agent_id) == (reason, "a")
    assert count.detail


def test_one_liar_among_three_neither_draws_the_basis_nor_has_one_published(desk: Desk) -> None:
    """It pulls a thousand times as hard the other way, and says that its frames are foreseen ever better."""
    honest = Desk(desk.state, dict(desk.agents), desk.at_ms)
    honest.proposal = desk.proposal
    for one in (desk, honest):
        for answer in one.answers(*AGENTS):
            said = codec.decode(answer.payload, Gradient)
            if one is desk and said.agent == "c":
                away = {
                    name: Tensor(shape=slope.shape, data=(-1e3 * to_array(slope, slope.shape, name)).tobytes())
                    for name, slope in said.slopes.items()
                }
                answer = msgspec.structs.replace(
                    answer, payload=codec.encode(msgspec.structs.replace(said, slopes=away))
                )
            one.tell(answer)
        one.round()
    pulled, straight = (_slope(tuned(one.state)) for one in (desk, honest))
    # at most five times the median, whatever it says
    assert np.linalg.norm(pulled) < 10 * np.linalg.norm(straight)
    for answer in desk.answers(*AGENTS):
        said = codec.decode(answer.payload, Gradient)
        gained = 5.0 * said.held_out_count if said.agent == "c" else -10.0
        better = msgspec.structs.replace(said, held_out=said.held_out + gained)
        desk.tell(msgspec.structs.replace(answer, payload=codec.encode(better)))
    desk.round()
    assert tuned(desk.state).chosen is None


def _slope(tune: Ascent) -> np.ndarray:
    assert tune.best is not None
    return np.concatenate([slope.ravel() for slope in tune.best.slope.values()])


UNSOUND_PROPOSALS: list[tuple[str, dict[str, Any], str]] = [
    ("NaN inputs", {"values": {"inducing": raw(12, 2, value=np.nan), "log_lengthscale": raw(2)}}, "tuning_finite"),
    ("inputs of another number", {"values": {"inducing": raw(3, 2), "log_lengthscale": raw(2)}}, "tuning_shape"),
    ("values of something else", {"values": {"noise": raw(2)}}, "tuning_shape"),
    ("a lengthscale beyond sense", {"values": {"inducing": raw(12, 2), "log_lengthscale": raw(2, value=800.0)}}, "tuning_range"),
    ("a column that is not there", {"columns": (0, 10**6)}, "tuning_range"),
    ("a belief of another size", {"precision": raw(1, 3)}, "tuning_shape"),
    ("a belief in nothing", {"precision": raw(1, 17 * 18 // 2, value=-1.0)}, "numerical"),
    ("another basis", {"basis": 77}, "tuning_other_basis"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "reason"), [case[1:] for case in UNSOUND_PROPOSALS], ids=[case[0] for case in UNSOUND_PROPOSALS]
)
def test_an_unsound_proposal_is_counted_by_the_agent_and_changes_nothing(
    desk: Desk, changes: dict[str, Any], reason: str
) -> None:
    proposal = msgspec.structs.replace(codec.decode(desk.proposal, Tuning), **changes)
    after, effects = agent.step(desk.agents["a"], TuningArrived(desk.at_ms, msgspec.msgpack.encode(proposal)))
    assert after is desk.agents["a"]
    assert [effect.reason for effect in effects if not isinstance(effect, Publish)] == [reason]
    assert len(effects) == 1


def test_a_learnt_basis_takes_likelihoods_along_and_never_the_prior(begun: Any) -> None:
    """On it every agent knows exactly what the others told: its own part is taken out as it was mapped there."""
    state, agents = begun
    old = state.feature_map.shared
    shared = inducing.make(old.kernel, old.columns, old.Z + 0.05, 0.9 * old.lengthscale)
    after = basis.tuned(state, state.feature_map._replace(shared=shared), 0.1)
    assert after.basis == state.basis + 1
    assert set(after.answers) == set(AGENTS)
    payload = codec.encode(fleets.model(after, BEGUN * TICK_MS))
    for name in AGENTS:
        moved, effects = agent.step(agents[name], ModelArrived(BEGUN * TICK_MS, payload))
        assert effects == []
        assert isinstance(moved.learner, Learner)
        others = {other: answer for other, answer in after.answers.items() if other != name}
        known, expected = (
            moved.learner.knowledge.belief,
            fleets.belief(msgspec.structs.replace(after, answers=others)),
        )
        np.testing.assert_allclose(known.precision, expected.precision, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(known.shift, expected.shift, rtol=1e-9, atol=1e-9)


def test_no_term_is_projected_twice_even_where_nothing_was_lost(begun: Any) -> None:
    """An agent that missed the basis between would take out another term than the one inside."""
    state, _ = begun
    old = state.feature_map.shared
    for factor, expected in ((0.9, set(AGENTS)), (0.8, set())):
        shared = inducing.make(old.kernel, old.columns, old.Z, factor * old.lengthscale)
        state = basis.tuned(state, state.feature_map._replace(shared=shared), 0.0)
        assert set(state.answers) == expected
