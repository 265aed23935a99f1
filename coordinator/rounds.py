"""The brain of the coordinator: ``step(state, event) -> (state, effects)``.

Delivery is at least once and in any order, so every message is taken by (incarnation, sequence) and only when it is newer
than what its agent said before. A round closes at its deadline with whoever answered, none included; an agent that did not
answer is represented by its last term, which fades with the rounds it misses.
"""

from __future__ import annotations

import msgspec
import numpy as np

from coordinator import averaging, basis, choosing, closing, fleet, gradients, intake, mixed, tuning
from coordinator.state import (
    Answer,
    BootstrapArrived,
    CoordinatorConfig,
    Count,
    Effect,
    Event,
    GradientArrived,
    PublishModel,
    PublishRound,
    PublishTuning,
    Round,
    State,
    SummaryArrived,
    Tick,
    Told,
)
from fleetgp.errors import PeerError
from fleetgp.gp import hyper
from fleetgp.wire import codec
from fleetgp.wire.messages import Bootstrap, Gradient, RoundNotice, Summary


def init(config: CoordinatorConfig, at_ms: int) -> State:
    """A coordinator that has heard nobody yet; its first round opens at once."""
    return State(config=config, origin=at_ms, next_ms=at_ms)


def step(state: State, event: Event) -> tuple[State, list[Effect]]:
    """State and effects after one event; the very same state where nothing came of it."""
    match event:
        case Tick():
            return _tick(state, event.at_ms)
        case BootstrapArrived() | SummaryArrived() | GradientArrived():
            try:
                after = _taken(state, event)
            except PeerError as err:
                return state, [Count(err.code, event.agent_id, str(err))]
            return _note_bytes(after, event), []


def _taken(state: State, event: BootstrapArrived | SummaryArrived | GradientArrived) -> State:
    match event:
        case BootstrapArrived():
            return _take_moments(state, event.agent_id, event.payload)
        case SummaryArrived():
            return _take_answer(state, event.agent_id, event.payload)
        case GradientArrived():
            message = codec.decode(event.payload, Gradient)
            if averaging.is_answer(state, message):
                return averaging.taken(state, event.agent_id, message)
            return gradients.taken(state, event.agent_id, message)


def _take_moments(state: State, agent_id: str, payload: bytes) -> State:
    bootstrap = intake.bootstrap(payload, agent_id)
    known = state.told.get(agent_id) or state.averaging.members.get(agent_id)
    _check_newer(bootstrap, known)
    schema = state.schema
    if schema is None or bootstrap.schema.signature() != schema.signature():
        if {*_names(state), *state.averaging.members} - {agent_id}:
            raise _other_schema(agent_id, bootstrap.schema.signature())
        # nobody else is in the fleet: what it watches is for this agent to say, also when it changes its mind
        schema = intake.common(bootstrap.schema)
        state = _begun_anew(state, len(schema.channels))
    found = intake.moments(bootstrap)
    if not np.any(found.n):
        return _without(state, agent_id)
    _check_room(state, agent_id)
    told = Told(bootstrap.incarnation, bootstrap.sequence, state.round, found)
    if not bootstrap.has_summary:
        state = msgspec.structs.replace(_without(state, agent_id), schema=schema)
        return averaging.joined(state, agent_id, told)
    state = averaging.without(state, agent_id)
    return msgspec.structs.replace(state, schema=schema, told={**state.told, agent_id: told})


def _without(state: State, agent_id: str) -> State:
    """Without an agent that takes its leave, and what was told by it."""
    told = {name: one for name, one in state.told.items() if name != agent_id}
    answers = {name: one for name, one in state.answers.items() if name != agent_id}
    sums = {name: one for name, one in state.sums.items() if name != agent_id}
    return averaging.without(msgspec.structs.replace(state, told=told, answers=answers, sums=sums), agent_id)


def _take_answer(state: State, agent_id: str, payload: bytes) -> State:
    summary = intake.summary(payload, agent_id)
    if (
        state.schema is None
        or state.feature_map is None
        or (summary.origin, summary.basis) != (state.origin, state.basis)
    ):
        raise PeerError("stale_basis", f"{agent_id} is on basis {summary.origin}/{summary.basis}")
    if summary.signature != state.schema.signature():
        raise _other_schema(agent_id, summary.signature)
    _check_newer(summary, state.answers.get(agent_id))
    _check_room(state, agent_id)
    if state.mixture is not None:
        said = mixed.contents(summary, state.mixture)
    else:
        said = intake.contents(summary, state.schema, fleet.variances(state)[1])
    answer = Answer(
        summary.incarnation,
        summary.sequence,
        state.round,
        said.term,
        said.noise_var,
        said.frames,
        said.deviation_square,
    )
    # what it told of its frames earlier in this round is in its newer sums again
    sums = {name: one for name, one in state.sums.items() if name != agent_id}
    if said.sums is not None:
        sums[agent_id] = said.sums
    return msgspec.structs.replace(state, answers={**state.answers, agent_id: answer}, sums=sums)


def _begun_anew(state: State, channels: int) -> State:
    """Nothing known of anybody, on no basis; numbers of rounds, bases and proposals go on."""
    return State(
        config=state.config,
        origin=state.origin,
        basis=state.basis,
        round=state.round,
        open_round=state.open_round,
        next_ms=state.next_ms,
        scales=hyper.start(channels),
        steps=state.steps,
    )


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
    known = {*_names(state), *state.averaging.members}
    if agent_id in known:
        return
    if len(known) >= state.config.most_agents:
        raise PeerError("too_many_agents", f"{state.config.most_agents} agents are known already")


def _names(state: State) -> set[str]:
    return {*state.told, *state.answers}


def _note_bytes(state: State, event: BootstrapArrived | SummaryArrived | GradientArrived) -> State:
    current = state.open_round
    if current is None:
        return state
    is_no_answer = event.agent_id in current.answered or isinstance(event, GradientArrived)
    answered = current.answered if is_no_answer else (*current.answered, event.agent_id)
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
    state, note = _renewed(_forget(state))
    turned = tuning.turn(state, at_ms) if choosing.is_over(state) else choosing.turn(state, at_ms)
    if not turned.payload:  # one proposal at a time
        averaged = averaging.turn(turned.state, at_ms)
        turned = turned._replace(state=averaged.state, payload=averaged.payload)
    state = turned.state
    payload = b""
    if state.feature_map is not None:
        payload = codec.encode(fleet.model(state, at_ms) if state.mixture is None else mixed.model(state, at_ms))
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
        bytes_sent=len(payload) + len(turned.payload),
        seconds=max(0, at_ms - current.opened_ms) / 1000,
        note="; ".join(filter(None, (note, turned.note))),
        gain=turned.gain,
    )
    effects: list[Effect] = [PublishModel(payload)] if payload else []
    # an agent must be on the basis that is tuned before it can answer
    effects += [PublishTuning(turned.payload)] if turned.payload else []
    return msgspec.structs.replace(state, open_round=None), [*effects, PublishRound(notice)]


def _renewed(state: State) -> tuple[State, str]:
    """What is learnt when a round closes, and a word on a new basis."""
    if state.schema is not None and state.schema.is_mixed:
        return mixed.renew(state)
    state = closing.move_centres(closing.improve_scales(state))
    if choosing.is_asking(state):  # candidates are judged on one basis; a few rounds later it may change
        return state, ""
    new, note = basis.renew(state)
    return choosing.carried(state, new), note


def _forget(state: State) -> State:
    """Let go of terms that have faded to nothing, and of agents that were not heard of for as long."""
    heard = {name: told.round for name, told in state.told.items()}
    for name, answer in state.answers.items():
        heard[name] = max(heard.get(name, 0), answer.round)
    answers = {name: answer for name, answer in state.answers.items() if not fleet.is_faded(state, answer.round)}
    told = {name: told for name, told in state.told.items() if not fleet.is_faded(state, heard[name])}
    if len(answers) == len(state.answers) and len(told) == len(state.told):
        return state
    return msgspec.structs.replace(state, answers=answers, told=told)
