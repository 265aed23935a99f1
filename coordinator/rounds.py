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
from fleetgp.errors import NumericalError, PeerError
from fleetgp.gp import aggregate, message
from fleetgp.gp.learner import basis_change, default_phi
from fleetgp.scaling import Moments
from fleetgp.wire import codec
from fleetgp.wire.convert import to_tensor, to_triangles
from fleetgp.wire.messages import FleetModel, Included, RoundNotice

ENOUGH_READINGS = 20
REBASE_GROWTH = 4.0
REBASE_RATIO = 1.25
FORGOTTEN = 1e-3


def init(config: CoordinatorConfig, at_ms: int) -> State:
    """A coordinator that has heard nobody yet; its first round opens at once."""
    return State(config=config, origin=at_ms, next_ms=at_ms)


def step(state: State, event: Event) -> tuple[State, list[Effect]]:
    """State and effects after one event."""
    match event:
        case Tick():
            return _tick(state, event.at_ms)
        case BootstrapArrived() | SummaryArrived():
            try:
                state = (
                    _take_moments(state, event) if isinstance(event, BootstrapArrived) else _take_answer(state, event)
                )
            except (PeerError, NumericalError) as err:
                code = err.code if isinstance(err, PeerError) else "indefinite"
                return state, [Count(code, event.agent_id, str(err))]
            return _note_bytes(state, event), []


def _take_moments(state: State, event: BootstrapArrived) -> State:
    bootstrap = intake.bootstrap(event.payload, event.agent_id)
    if state.schema is not None and bootstrap.schema.signature() != state.schema.signature():
        raise PeerError("other_schema", f"{event.agent_id} watches {bootstrap.schema.signature()}")
    known = state.told.get(event.agent_id)
    if known and (bootstrap.incarnation, bootstrap.sequence) <= (known.incarnation, known.sequence):
        raise PeerError("repeated", f"{event.agent_id} told {bootstrap.sequence} already")
    _check_room(state, event.agent_id)
    told = Told(bootstrap.incarnation, bootstrap.sequence, intake.moments(bootstrap))
    return msgspec.structs.replace(
        state, schema=state.schema or bootstrap.schema, told={**state.told, event.agent_id: told}
    )


def _take_answer(state: State, event: SummaryArrived) -> State:
    summary = intake.summary(event.payload, event.agent_id)
    if state.schema is None or (summary.origin, summary.basis) != (state.origin, state.basis):
        raise PeerError("stale_basis", f"{event.agent_id} is on basis {summary.origin}/{summary.basis}")
    if summary.signature != state.schema.signature():
        raise PeerError("other_schema", f"{event.agent_id} watches {summary.signature}")
    known = state.answers.get(event.agent_id)
    if known and (summary.incarnation, summary.sequence) <= (known.incarnation, known.sequence):
        raise PeerError("repeated", f"{event.agent_id} told {summary.sequence} already")
    _check_room(state, event.agent_id)
    Q, C, L = len(state.schema.channels), len(state.schema.covariates), state.schema.lags
    term, noise_var, count = intake.term(summary, Q, features.size(Q, L, C))
    answer = Answer(summary.incarnation, summary.sequence, state.round, term, noise_var, count)
    return msgspec.structs.replace(state, answers={**state.answers, event.agent_id: answer})


def _check_room(state: State, agent_id: str) -> None:
    if agent_id not in state.told and agent_id not in state.answers and len(state.told) >= state.config.most_agents:
        raise PeerError("too_many_agents", f"{state.config.most_agents} agents are known already")


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
    if state.open_round is not None and at_ms >= state.open_round.deadline_ms:
        state, effects = _close(state, state.open_round, at_ms)
    if state.open_round is None and at_ms >= state.next_ms:
        state, more = _open(state, at_ms)
        effects += more
    return state, effects


def _open(state: State, at_ms: int) -> tuple[State, list[Effect]]:
    span = round(state.config.round_s * 1000)
    # rounds keep to their grid; those that were slept through are not made up for
    next_ms = state.next_ms + span if at_ms < state.next_ms + span else at_ms + span
    deadline = at_ms + min(round(state.config.answer_s * 1000), span)
    number = state.round + 1
    state = msgspec.structs.replace(state, round=number, next_ms=next_ms, open_round=Round(at_ms, deadline))
    notice = RoundNotice(at_ms=at_ms, round=number, state="opened", basis=state.basis, deadline_ms=deadline)
    return state, [PublishRound(notice)]


def _close(state: State, current: Round, at_ms: int) -> tuple[State, list[Effect]]:
    state, note = _renew_basis(state)
    state = _forget(state)
    payload = codec.encode(model(state, at_ms)) if state.basis else b""
    known = sorted({*state.told, *state.answers})
    notice = RoundNotice(
        at_ms=at_ms,
        round=state.round,
        state="closed",
        basis=state.basis,
        deadline_ms=current.deadline_ms,
        answered=tuple(sorted(current.answered)),
        missing=tuple(name for name in known if name not in current.answered),
        included=tuple(sorted(state.answers)),
        bytes_received=current.bytes_received,
        bytes_sent=len(payload),
        seconds=(at_ms - current.opened_ms) / 1000,
        note=note,
    )
    state = msgspec.structs.replace(state, open_round=None)
    return state, [PublishModel(payload), PublishRound(notice)] if payload else [PublishRound(notice)]


def _renew_basis(state: State) -> tuple[State, str]:
    """Basis 1 once the fleet has read enough; a new one when four times as much says that the scale is another."""
    if state.schema is None:
        return state, "no agent has answered yet"
    pooled = pooled_moments(state)
    least = float(np.min(pooled.n))
    if least < ENOUGH_READINGS and float(np.max(pooled.n)) < 10 * ENOUGH_READINGS:
        return state, f"waiting for {ENOUGH_READINGS} readings of every input"
    total = float(np.sum(pooled.n))
    new = scaling.scaling(pooled)
    if state.scaling is None:
        return msgspec.structs.replace(state, basis=1, scaling=new, based_on=total), "first basis"
    ratio = np.maximum(new.scale / state.scaling.scale, state.scaling.scale / new.scale)
    if total < REBASE_GROWTH * state.based_on or float(np.max(ratio)) < REBASE_RATIO:
        return state, ""
    T, target_ratio = basis_change(state.scaling, new, len(state.schema.channels), state.schema.lags)
    answers = {
        name: msgspec.structs.replace(
            answer, term=message.rebase(answer.term, T, target_ratio), noise_var=target_ratio**2 * answer.noise_var
        )
        for name, answer in state.answers.items()
    }
    state = msgspec.structs.replace(state, basis=state.basis + 1, scaling=new, based_on=total, answers=answers)
    return state, "new basis: the fleet's scale has moved"


def _forget(state: State) -> State:
    """Let go of terms that have faded to nothing."""
    kept = {name: answer for name, answer in state.answers.items() if factor(state, answer) >= FORGOTTEN}
    return state if len(kept) == len(state.answers) else msgspec.structs.replace(state, answers=kept)


def pooled_moments(state: State) -> Moments:
    """Moments of all agents' inputs together; agents in order of their names, so that the bits are always the same."""
    assert state.schema is not None
    pooled = scaling.empty_moments(len(state.schema.inputs))
    for name in sorted(state.told):
        pooled = scaling.merge(pooled, state.told[name].moments)
    return pooled


def factor(state: State, answer: Answer) -> float:
    """Ageing of a term: 1 when it answered this round, half after half_life_rounds without a new one."""
    return float(0.5 ** ((state.round - answer.round) / state.config.half_life_rounds))


def model(state: State, at_ms: int) -> FleetModel:
    """What the fleet knows: the exact posterior of the shared weights from all terms, aged."""
    assert state.schema is not None
    assert state.scaling is not None
    Q, C, L = len(state.schema.channels), len(state.schema.covariates), state.schema.lags
    names = sorted(state.answers)
    answers = [state.answers[name] for name in names]
    factors = [factor(state, answer) for answer in answers]
    terms = (message.scaled(a.term, f) for a, f in zip(answers, factors, strict=True))
    belief = aggregate.posterior(terms, Q, features.size(Q, L, C))
    noise = np.ones(Q)
    if answers:
        noise = aggregate.pooled_noise(np.array([a.noise_var for a in answers]), np.array([a.count for a in answers]))
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
        noise_frames=float(sum(np.mean(a.count) for a in answers)),
        included={
            name: Included(incarnation=a.incarnation, sequence=a.sequence, factor=f)
            for name, a, f in zip(names, answers, factors, strict=True)
        },
    )
