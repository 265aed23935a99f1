"""The brain of the coordinator: ``step(state, event) -> (state, effects)``.

Delivery is at least once and in any order, so every message is taken by (incarnation, sequence) and only when it is newer
than what its agent said before. A round closes at its deadline with whoever answered, none included; an agent that did not
answer is represented by its last term, which fades with the rounds it misses.
"""

from __future__ import annotations

import msgspec
import numpy as np

from coordinator import intake
from coordinator.state import (
    Answer,
    BootstrapArrived,
    CoordinatorConfig,
    Count,
    Effect,
    Event,
    PublishModel,
    PublishRound,
    Round,
    State,
    SummaryArrived,
    Tick,
    Told,
)
from fleetgp import features, scaling
from fleetgp.errors import PeerError
from fleetgp.gp import aggregate, message
from fleetgp.gp.learner import basis_change, default_phi
from fleetgp.scaling import Moments, Scaling
from fleetgp.schema import Schema
from fleetgp.wire import codec
from fleetgp.wire.convert import to_tensor, to_triangles
from fleetgp.wire.messages import Bootstrap, FleetModel, Included, RoundNotice, Summary

# readings of every input before there is a basis; or so many of one, where another never arrives
ENOUGH_READINGS = 20
ENOUGH_OF_ONE = 200
# how much more readings a new basis needs, and by what factor a scale must differ
REBASE_GROWTH = 4.0
REBASE_RATIO = 1.25
FORGOTTEN = 1e-3


def init(config: CoordinatorConfig, at_ms: int) -> State:
    """A coordinator that has heard nobody yet; its first round opens at once."""
    return State(config=config, origin=at_ms, next_ms=at_ms)


def step(state: State, event: Event) -> tuple[State, list[Effect]]:
    """State and effects after one event; the very same state where nothing came of it."""
    match event:
        case Tick():
            return _tick(state, event.at_ms)
        case BootstrapArrived() | SummaryArrived():
            take = _take_moments if isinstance(event, BootstrapArrived) else _take_answer
            try:
                after = take(state, event.agent_id, event.payload)
            except PeerError as err:
                return state, [Count(err.code, event.agent_id, str(err))]
            return _note_bytes(after, event), []


def _take_moments(state: State, agent_id: str, payload: bytes) -> State:
    bootstrap = intake.bootstrap(payload, agent_id)
    known = state.told.get(agent_id)
    _check_newer(bootstrap, known)
    schema = state.schema
    if schema is None or bootstrap.schema.signature() != schema.signature():
        if _names(state) - {agent_id}:
            raise _other_schema(agent_id, bootstrap.schema.signature())
        # nobody else is in the fleet: what it watches is for this agent to say, also when it changes its mind
        schema = intake.common(bootstrap.schema)
        state = msgspec.structs.replace(state, scaling=None, based_on=(), told={}, answers={})
    _check_room(state, agent_id)
    told = Told(bootstrap.incarnation, bootstrap.sequence, state.round, intake.moments(bootstrap))
    return msgspec.structs.replace(state, schema=schema, told={**state.told, agent_id: told})


def _take_answer(state: State, agent_id: str, payload: bytes) -> State:
    summary = intake.summary(payload, agent_id)
    if state.schema is None or state.scaling is None or (summary.origin, summary.basis) != (state.origin, state.basis):
        raise PeerError("stale_basis", f"{agent_id} is on basis {summary.origin}/{summary.basis}")
    if summary.signature != state.schema.signature():
        raise _other_schema(agent_id, summary.signature)
    _check_newer(summary, state.answers.get(agent_id))
    _check_room(state, agent_id)
    Q, L, C = _shape(state.schema)
    term, noise_var, count = intake.term(summary, Q, default_phi(Q, L, C))
    answer = Answer(summary.incarnation, summary.sequence, state.round, term, noise_var, count)
    return msgspec.structs.replace(state, answers={**state.answers, agent_id: answer})


def _other_schema(agent_id: str, signature: str) -> PeerError:
    return PeerError(
        "other_schema",
        f"{agent_id} watches {signature:.200}, the fleet something else; give it another fleet, or all agents one [stream], "
        "[channels] and [covariates] and the coordinator an empty data folder",
    )


def _check_newer(message: Bootstrap | Summary, known: Told | Answer | None) -> None:
    if known is None or (message.incarnation, message.sequence) > (known.incarnation, known.sequence):
        return
    if message.incarnation < known.incarnation:
        raise PeerError(
            "older_incarnation",
            f"{message.agent} speaks as of an earlier start than is known of it: an old message, two agents of one name, "
            "or one that lost its memory while its clock was behind",
        )
    raise PeerError("repeated", f"{message.agent} told {message.sequence} already")


def _check_room(state: State, agent_id: str) -> None:
    if agent_id in state.told or agent_id in state.answers:
        return
    if len(_names(state)) >= state.config.most_agents:
        raise PeerError("too_many_agents", f"{state.config.most_agents} agents are known already")


def _names(state: State) -> set[str]:
    return {*state.told, *state.answers}


def _shape(schema: Schema) -> tuple[int, int, int]:
    """Channels, lags and covariates."""
    return len(schema.channels), schema.lags, len(schema.covariates)


def _note_bytes(state: State, event: BootstrapArrived | SummaryArrived) -> State:
    current = state.open_round
    if current is None:
        return state
    answered = current.answered if event.agent_id in current.answered else (*current.answered, event.agent_id)
    received = current.bytes_received + len(event.payload)
    return msgspec.structs.replace(
        state, open_round=msgspec.structs.replace(current, answered=answered, bytes_received=received)
    )


def _tick(state: State, at_ms: int) -> tuple[State, list[Effect]]:
    effects: list[Effect] = []
    span = _span_ms(state)
    current = state.open_round
    # a moment more than a round ahead was set by a clock that has been put back since: it is not waited for
    if current is not None and not 0 < current.deadline_ms - at_ms <= span:
        state, effects = _close(state, current, at_ms)
    if state.open_round is None and not 0 < state.next_ms - at_ms <= span:
        state, more = _open(state, at_ms)
        effects += more
    return state, effects


def _open(state: State, at_ms: int) -> tuple[State, list[Effect]]:
    span = _span_ms(state)
    # rounds keep to their grid; those that were slept through are not made up for
    next_ms = at_ms + span - (at_ms - state.next_ms) % span
    deadline = at_ms + min(round(state.config.answer_s * 1000), span)
    number = state.round + 1
    state = msgspec.structs.replace(state, round=number, next_ms=next_ms, open_round=Round(at_ms, deadline))
    notice = RoundNotice(at_ms=at_ms, round=number, state="opened", basis=state.basis, deadline_ms=deadline)
    return state, [PublishRound(notice)]


def _span_ms(state: State) -> int:
    return max(1, round(state.config.round_s * 1000))


def _close(state: State, current: Round, at_ms: int) -> tuple[State, list[Effect]]:
    state, note = _renew_basis(_forget(state))
    payload = codec.encode(model(state, at_ms)) if state.scaling is not None else b""
    notice = RoundNotice(
        at_ms=at_ms,
        round=state.round,
        state="closed",
        basis=state.basis,
        deadline_ms=current.deadline_ms,
        answered=tuple(sorted(current.answered)),
        missing=tuple(sorted(_names(state).difference(current.answered))),
        included=tuple(sorted(state.answers)),
        bytes_received=current.bytes_received,
        bytes_sent=len(payload),
        seconds=max(0, at_ms - current.opened_ms) / 1000,
        note=note,
    )
    state = msgspec.structs.replace(state, open_round=None)
    return state, [PublishModel(payload), PublishRound(notice)] if payload else [PublishRound(notice)]


def _forget(state: State) -> State:
    """Let go of terms that have faded to nothing, and of agents that were not heard of for as long."""
    heard = {name: told.round for name, told in state.told.items()}
    for name, answer in state.answers.items():
        heard[name] = max(heard.get(name, 0), answer.round)
    answers = {name: answer for name, answer in state.answers.items() if not _is_faded(state, answer.round)}
    told = {name: told for name, told in state.told.items() if not _is_faded(state, heard[name])}
    if len(answers) == len(state.answers) and len(told) == len(state.told):
        return state
    return msgspec.structs.replace(state, answers=answers, told=told)


def _is_faded(state: State, since_round: int) -> bool:
    return _fading(state, since_round) < FORGOTTEN


def _fading(state: State, since_round: int) -> float:
    """1 for what came in this round, half for what came half_life_rounds ago."""
    return float(0.5 ** ((state.round - since_round) / state.config.half_life_rounds))


def _renew_basis(state: State) -> tuple[State, str]:
    """Basis 1 once the fleet has read enough; a new one when four times as much says that a scale is another."""
    if state.schema is None:
        return state, "no agent has answered yet"
    pooled = pooled_moments(state)
    if state.scaling is None:
        is_enough = np.min(pooled.n) >= ENOUGH_READINGS or np.max(pooled.n) >= ENOUGH_OF_ONE
        if not is_enough:
            return state, f"waiting for {ENOUGH_READINGS} readings of every input"
        return _with_basis(state, scaling.scaling(pooled), pooled), "first basis"
    # an input that was silent when the scale was made may be judged once there is enough of it
    grown = pooled.n >= REBASE_GROWTH * np.maximum(state.based_on, ENOUGH_READINGS / REBASE_GROWTH)
    new = scaling.scaling(pooled)
    ratio = np.maximum(new.scale / state.scaling.scale, state.scaling.scale / new.scale)
    if not np.any(grown & (ratio >= REBASE_RATIO)):
        return state, ""
    old, state = state.scaling, _with_basis(state, new, pooled)
    return msgspec.structs.replace(state, answers=_rebased(state, old, new)), "new basis: the fleet's scale has moved"


def _with_basis(state: State, new: Scaling, pooled: Moments) -> State:
    based_on = tuple(float(n) for n in pooled.n)
    return msgspec.structs.replace(state, basis=state.basis + 1, scaling=new, based_on=based_on)


def _rebased(state: State, old: Scaling, new: Scaling) -> dict[str, Answer]:
    """The answers on another basis. One that is not usable there is let go: its agent answers anew on the next round."""
    assert state.schema is not None
    Q, L, _ = _shape(state.schema)
    T, ratio = basis_change(old, new, Q, L)
    answers = {}
    for name, answer in state.answers.items():
        with np.errstate(over="ignore", invalid="ignore"):  # is_usable looks at what came of it
            term, noise_var = message.rebase(answer.term, T, ratio), ratio**2 * answer.noise_var
        if intake.is_usable(term, noise_var):
            answers[name] = msgspec.structs.replace(answer, term=term, noise_var=noise_var)
    return answers


def pooled_moments(state: State) -> Moments:
    """Moments of all agents' inputs together; agents in order of their names, so that the bits are always the same."""
    assert state.schema is not None
    pooled = scaling.empty_moments(len(state.schema.inputs))
    for name in sorted(state.told):
        pooled = scaling.merge(pooled, state.told[name].moments)
    return pooled


def factor(state: State, answer: Answer) -> float:
    """Ageing of a term: 1 when it answered this round, half after half_life_rounds without a new one."""
    return _fading(state, answer.round)


def model(state: State, at_ms: int) -> FleetModel:
    """What the fleet knows: the exact posterior of the shared weights from all terms, aged."""
    assert state.schema is not None
    assert state.scaling is not None
    Q, L, C = _shape(state.schema)
    names = sorted(state.answers)
    answers = [state.answers[name] for name in names]
    factors = [factor(state, answer) for answer in answers]
    terms = (message.scaled(a.term, f) for a, f in zip(answers, factors, strict=True))
    belief = aggregate.posterior(terms, Q, features.size(Q, L, C))
    noise, noise_frames = np.ones(Q), 0.0
    if answers:
        counts = np.array([f * a.count for a, f in zip(answers, factors, strict=True)])
        noise = aggregate.pooled_noise(np.array([a.noise_var for a in answers]), counts)
        noise_frames = float(np.sum(np.mean(counts, axis=1)))
    return FleetModel(
        at_ms=at_ms,
        round=state.round,
        origin=state.origin,
        basis=state.basis,
        schema=state.schema,
        centre=to_tensor(state.scaling.centre),
        scale=to_tensor(state.scaling.scale),
        precision=to_tensor(to_triangles(belief.precision)),
        shift=to_tensor(belief.shift),
        deviation_scale=to_tensor(default_phi(Q, L, C)),
        noise_variance=to_tensor(noise),
        noise_frames=noise_frames,
        included={
            name: Included(incarnation=a.incarnation, sequence=a.sequence, factor=f)
            for name, a, f in zip(names, answers, factors, strict=True)
        },
    )
