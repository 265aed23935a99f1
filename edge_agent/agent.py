"""The brain of an agent: ``step(state, event) -> (state, effects)``, pure, with time a field of events."""

from __future__ import annotations

import msgspec
import numpy as np

from edge_agent import frames as framing
from edge_agent import mixed, sents, tuning, usual
from edge_agent.many import watch_many
from edge_agent.state import (
    AgentConfig,
    Count,
    Effect,
    Event,
    ModelArrived,
    Publish,
    Readings,
    RoundOpened,
    Sent,
    State,
    Tick,
    TuningArrived,
)
from edge_agent.watch import watch_each
from fleetgp import alarm, calibrate, placement, scaling
from fleetgp.arrays import Array
from fleetgp.errors import BasisRefused, ConfigError, NumericalError, PeerError
from fleetgp.features import Basis
from fleetgp.gp import engine, message, moves, parts
from fleetgp.gp import learner as learning
from fleetgp.gp.engine import Engine
from fleetgp.gp.learner import Learner
from fleetgp.scaling import Moments
from fleetgp.schema import check
from fleetgp.wire import codec, knowledge
from fleetgp.wire.convert import to_tensor, to_triangles
from fleetgp.wire.knowledge import Published
from fleetgp.wire.messages import Bootstrap, FleetModel, Summary

# Beside the summary that the model in use names. The next model names that one again or a newer one: the last that reached
# the coordinator. Should more than so many be under way, half of all terms is taken instead, and nothing counts twice.
REMEMBERED_SUMMARIES = 3
# frames of a recording that are watched at once, where there are so many
BATCH_FRAMES = 8


def init(config: AgentConfig, at_ms: int) -> State:
    """An agent that knows nothing yet. Raises ConfigError where its schema cannot be watched."""
    schema = check(config.schema)
    if schema.is_mixed and config.parts.kernel:
        raise ConfigError("agent.model", f'{config.model} is not for mixing = "ilmm"; "local-only" comes nearest')
    Q, C = len(schema.channels), len(schema.covariates)
    return State(
        config=config,
        incarnation=at_ms,
        frames=framing.init(Q + C, schema.interval_ms, config.lateness_ms),
        moments=scaling.empty_moments(Q + C),
        lags=np.full((schema.lags, Q), np.nan),
        age=np.zeros(Q),
        resolution=np.full(Q, np.inf),
        covariates=np.full(C, np.nan),
        covariate_age=np.zeros(C),
        calibration=calibrate.init(Q),
        alarm=alarm.init(config.alarm_score),
    )


def step(state: State, event: Event) -> tuple[State, list[Effect]]:
    """State and effects after one event. An event that no number comes of is counted and leaves the state as it was."""
    try:
        return _step(state, event)
    except NumericalError as err:
        return state, [Count("numerical", 1, str(err))]


def _step(state: State, event: Event) -> tuple[State, list[Effect]]:
    match event:
        case Readings():
            return _take(state, event)
        case ModelArrived():
            return _adopt(state, event)
        case RoundOpened():
            return _answer(state, event)
        case TuningArrived():
            return tuning.answer(state, event)
        case Tick():
            if not state.config.is_live:
                return state, []
            framed, closed = framing.pass_time(state.frames, event.at_ms)
            return _watch_all(msgspec.structs.replace(state, frames=framed), closed) if closed else (state, [])


def _take(state: State, event: Readings) -> tuple[State, list[Effect]]:
    effects: list[Effect] = []
    closed: list[framing.Frame] = []
    framed, samples, index = state.frames, event.samples, 0
    while index < len(samples):
        framed, more = usual.take(framed, samples, index)
        closed += more
        index += len(more)
        if index == len(samples):
            break
        framed, more, counts = framing.add(framed, samples[index])
        index += 1
        if counts:  # what was counted comes between what was predicted before it and after
            state, published = _watch_all(state, closed)
            effects += [*published, *(Count(reason, number) for reason, number in counts.items())]
            closed = []
        closed += more
    state, published = _watch_all(msgspec.structs.replace(state, frames=framed), closed)
    return state, effects + published


def _watch_all(state: State, closed: list[framing.Frame]) -> tuple[State, list[Effect]]:
    if not state.config.is_live and len(closed) >= BATCH_FRAMES and not state.config.schema.is_mixed:
        return watch_many(state, closed)
    return watch_each(state, closed)


def _adopt(state: State, event: ModelArrived) -> tuple[State, list[Effect]]:
    """Take the fleet's knowledge in, with this agent's own part of it taken out; nothing where it learns without the fleet."""
    schema = state.config.schema
    if not state.config.parts.shared:
        return state, []
    try:
        model = codec.decode(event.payload, FleetModel)
        if model.schema.signature() != schema.signature():
            raise PeerError("other_schema", f"the fleet watches {model.schema.signature()}")
        if (model.origin, model.basis, model.round) == (state.origin, state.basis, state.round):
            return state, []  # a broker gives its retained message again after every reconnection
        if schema.is_mixed:
            return _taken(state, model, mixed.adopted(state, model, sents.named(state, model.included))), []
        published = knowledge.read(model, schema)
        is_moved = (model.origin, model.basis) != (state.origin, state.basis)
        sent = _moved_terms(state, published.basis) if is_moved else state.sent
        known = parts.known(_without_own(state, model, published, sent), state.config.parts)
    except PeerError as err:
        return state, [Count(f"model_{err.code}", 1, err.detail)]
    learner, effects = _informed(_learner(state.learner), published.basis, known)
    shadow = state.shadow
    if shadow is not None:
        shadow = msgspec.structs.replace(shadow, learner=_informed(_learner(shadow.learner), published.basis, known)[0])
    state = msgspec.structs.replace(
        _stood_in(state, published.basis.scaling.centre),
        learner=learner,
        shadow=shadow,
        origin=model.origin,
        basis=model.basis,
        round=model.round,
        sent=sent,
        named=sents.named(state, model.included),
        centres=np.zeros((0, 0)) if published.centres is None else published.centres,
    )
    return state, effects


def _learner(engine: Engine | None) -> Learner | None:
    """The engine of channels that are not mixed."""
    assert engine is None or isinstance(engine, Learner)
    return engine


def _taken(state: State, model: FleetModel, known: mixed.Adopted) -> State:
    """The state of an agent of mixed channels with what it took in."""
    return msgspec.structs.replace(
        _stood_in(state, known.centre),
        learner=known.learner,
        shadow=known.shadow,
        origin=model.origin,
        basis=model.basis,
        round=model.round,
        sent=known.sent,
        named=sents.named(state, model.included),
    )


def _stood_in(state: State, centre: Array) -> State:
    """Useful from the first reading: the fleet's centre [Q + C] stands in for readings that were never made."""
    Q = len(state.age)
    return msgspec.structs.replace(
        state,
        lags=np.where(np.isfinite(state.lags), state.lags, centre[:Q]),
        age=np.where(np.isfinite(state.lags[0]), state.age, learning.MAX_AGE),
        covariates=np.where(np.isfinite(state.covariates), state.covariates, centre[Q:]),
        covariate_age=np.where(np.isfinite(state.covariates), state.covariate_age, learning.MAX_AGE),
    )


def _informed(learner: Learner | None, basis: Basis, known: learning.Knowledge) -> tuple[Learner, list[Effect]]:
    """A learner with the fleet's knowledge, on its basis."""
    if learner is None:
        return learning.knowing(basis, known), []
    basis = basis._replace(local=learner.basis.local)
    if moves.is_same(learner.basis, basis):
        return learning.inform(learner, known), []
    try:
        return learning.inform(moves.move(learner, basis), known), []
    except BasisRefused as err:
        return learning.inform(moves.restart(learner, basis), known), [Count("basis_refused", 1, str(err))]


def _moved_terms(state: State, basis: Basis) -> tuple[Sent, ...]:
    """The terms that were sent, on another basis."""
    learner = _learner(state.learner)
    if learner is None:
        return state.sent
    T, ratio = moves.change(learner.basis, basis)
    return tuple(Sent(one.sequence, message.rebase(one.term, T, ratio)) for one in state.sent)


def _without_own(state: State, model: FleetModel, published: Published, sent: tuple[Sent, ...]) -> learning.Knowledge:
    """What the fleet knows without this agent. Raises PeerError ``range`` where its part is held at no possible weight."""
    own = sents.term(sent, sents.named(state, model.included))
    included = model.included.get(state.config.agent_id)
    belief, own_weight = sents.without_own(published.belief, published.prior_var, included, own)
    noise_var, noise_frames = published.noise_var, min(published.noise_frames, learning.FLEET_NOISE_FRAMES)
    if noise_frames < learning.OWN_NOISE_FRAMES:  # nobody knows yet: what this agent thinks itself, at little weight
        noise_frames = learning.OWN_NOISE_FRAMES
        learner = _learner(state.learner)
        if learner is not None:
            _, ratio = moves.change(learner.basis, published.basis)
            noise_var = ratio**2 * learner.noise_var[learning.LONG]
    return learning.Knowledge(belief, published.prior_var, published.deviation_var, noise_var, noise_frames, own_weight)


def _answer(state: State, event: RoundOpened) -> tuple[State, list[Effect]]:
    """Answer a round: moments when they have doubled since they were last told, a summary once on the fleet's basis.

    A coordinator that counts rounds from the start again has lost its memory and needs the moments at once. An agent that
    learns without the fleet answers nothing, but takes its leave where it was in the fleet before.
    """
    of = state.config.parts
    if not (of.shared or of.kernel):
        return _leave(state, event) if state.bootstrapped else (state, [])
    effects: list[Effect] = []
    total = float(np.max(state.moments.n, initial=0.0))
    sequence = state.sequence
    bootstrapped = state.bootstrapped
    is_forgotten = bool(state.round) and event.round <= state.round
    if total >= 2 * max(bootstrapped, 1.0) or (total and is_forgotten):
        sequence += 1
        bootstrapped = total
        told = _bootstrap(state, event, sequence, state.moments)
        effects.append(Publish("bootstrap", told, is_durable=True, key="bootstrap"))
    sent = state.sent
    if of.shared and state.basis and state.learner is not None and state.learner.frames:
        sequence += 1
        folded = engine.folded(state.learner)  # once, for all that is told of it
        term, square = engine.summary(folded)
        sent = sents.remembered(sent, state.named, Sent(sequence, term), REMEMBERED_SUMMARIES)
        # not by way of the disk: should it be lost, the next round asks again
        effects.append(Publish("summary", _summary(state, event, folded, sent[-1], square), key="summary"))
    return msgspec.structs.replace(state, sequence=sequence, bootstrapped=bootstrapped, sent=sent), effects


def _leave(state: State, event: RoundOpened) -> tuple[State, list[Effect]]:
    """Moments of no reading: the coordinator then forgets this agent, and waits for it no longer."""
    sequence = state.sequence + 1
    told = _bootstrap(state, event, sequence, scaling.empty_moments(len(state.moments.n)))
    effect = Publish("bootstrap", told, is_durable=True, key="bootstrap")
    return msgspec.structs.replace(state, sequence=sequence, bootstrapped=0.0), [effect]


def _bootstrap(state: State, event: RoundOpened, sequence: int, moments: Moments) -> Bootstrap:
    return Bootstrap(
        at_ms=event.at_ms,
        agent=state.config.agent_id,
        incarnation=state.incarnation,
        sequence=sequence,
        schema=state.config.schema,
        count=to_tensor(moments.n),
        mean=to_tensor(moments.mean),
        centred_square_sum=to_tensor(moments.centred_square_sum),
        has_summary=state.config.parts.shared,
    )


def _summary(state: State, event: RoundOpened, folded: Engine, sent: Sent, square: Array | None) -> Summary:
    """folded: the engine with its fresh frames in its statistics."""
    sums = _nearest(state, folded)
    has_deviation = state.config.parts.deviation
    return Summary(
        at_ms=event.at_ms,
        agent=state.config.agent_id,
        incarnation=state.incarnation,
        sequence=sent.sequence,
        round=event.round,
        origin=state.origin,
        basis=state.basis,
        signature=state.config.schema.signature(),
        precision=to_tensor(to_triangles(sent.term.precision)),
        shift=to_tensor(sent.term.shift),
        count=to_tensor(engine.counts(folded)),
        noise_variance=to_tensor(engine.own_noise(folded)),
        deviation_square=to_tensor(square) if has_deviation and square is not None else None,
        has_deviation=has_deviation,
        cluster_count=None if sums is None else to_tensor(sums.frames),
        cluster_sum=None if sums is None else to_tensor(sums.total),
    )


def _nearest(state: State, learner: Engine) -> placement.Sums | None:
    """Recent frames by the centre they lie nearest to, where the fleet looks for places of inducing inputs."""
    if not len(state.centres) or not isinstance(learner, Learner):
        return None
    shape = learner.basis.shape
    inputs = learner.ring.inputs[:, list(placement.columns(shape))]
    return placement.assign(state.centres, scaling.apply(placement.unit(shape, learner.basis.scaling), inputs))
