"""The brain of an agent: ``step(state, event) -> (state, effects)``, pure, with time a field of events."""

from __future__ import annotations

import msgspec
import numpy as np

from edge_agent import frames as framing
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
)
from edge_agent.watch import watch
from fleetgp import alarm, calibrate, features, scaling
from fleetgp.errors import NumericalError, PeerError
from fleetgp.gp import aggregate, message
from fleetgp.gp import learner as learning
from fleetgp.scaling import Scaling
from fleetgp.schema import check
from fleetgp.wire import codec
from fleetgp.wire.convert import from_triangles, to_array, to_tensor, to_triangles
from fleetgp.wire.messages import Bootstrap, FleetModel, Summary

REMEMBERED_SUMMARIES = 8
# numbers of a model beyond which sums and products stop being finite
LARGEST = 1e30


def init(config: AgentConfig, at_ms: int) -> State:
    """An agent that knows nothing yet. Raises ConfigError where its schema cannot be watched."""
    schema = check(config.schema)
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
        case Tick():
            if not state.config.is_live:
                return state, []
            framed, closed = framing.pass_time(state.frames, event.at_ms)
            return _watch_all(msgspec.structs.replace(state, frames=framed), closed) if closed else (state, [])


def _take(state: State, event: Readings) -> tuple[State, list[Effect]]:
    effects: list[Effect] = []
    for sample in event.samples:
        framed, closed, counts = framing.add(state.frames, sample)
        effects += [Count(reason, number) for reason, number in counts.items()]
        state, more = _watch_all(msgspec.structs.replace(state, frames=framed), closed)
        effects += more
    return state, effects


def _watch_all(state: State, closed: list[framing.Frame]) -> tuple[State, list[Effect]]:
    effects: list[Effect] = []
    for frame in closed:
        try:
            state, more = watch(state, frame)
        except NumericalError as err:
            more = [Count("numerical", 1, str(err))]
        effects += more
    return state, effects


def _adopt(state: State, event: ModelArrived) -> tuple[State, list[Effect]]:
    """Take the fleet's knowledge in, with this agent's own part of it taken out."""
    try:
        model = codec.decode(event.payload, FleetModel)
        if model.schema.signature() != state.config.schema.signature():
            raise PeerError("other_schema", f"the fleet watches {model.schema.signature()}")
        if (model.origin, model.basis, model.round) == (state.origin, state.basis, state.round):
            return state, []  # a broker gives its retained message again after every reconnection
        new, knowledge, sent = _read_model(state, model)
    except PeerError as err:
        return state, [Count(f"model_{err.code}", 1, err.detail)]
    Q, L = len(state.config.schema.channels), state.config.schema.lags
    # useful from the first reading: the fleet's scale stands in for readings that were never made
    learner = state.learner or learning.alone(state.moments, Q, L)._replace(scaling=new)
    lags = np.where(np.isfinite(state.lags), state.lags, new.centre[:Q])
    age = np.where(np.isfinite(state.lags[0]), state.age, learning.MAX_AGE)
    covariates = np.where(np.isfinite(state.covariates), state.covariates, new.centre[Q:])
    state = msgspec.structs.replace(
        state,
        learner=learning.inform(learner, new, knowledge),
        lags=lags,
        age=age,
        covariates=covariates,
        origin=model.origin,
        basis=model.basis,
        round=model.round,
        sent=sent,
    )
    return state, []


def _read_model(state: State, model: FleetModel) -> tuple[Scaling, learning.Knowledge, tuple[Sent, ...]]:
    """Scaling, knowledge without the agent's own part, and its sent terms, all on the model's basis."""
    schema = state.config.schema
    Q, K = len(schema.channels), len(schema.inputs)
    F = features.size(Q, schema.lags, K - Q)
    new = Scaling(to_array(model.centre, (K,), "centre"), to_array(model.scale, (K,), "scale"))
    phi = to_array(model.deviation_scale, (F,), "deviation_scale")
    noise = to_array(model.noise_variance, (Q,), "noise_variance")
    triangles = to_array(model.precision, (Q, F * (F + 1) // 2), "precision")
    shift = to_array(model.shift, (Q, F), "shift")
    for positive in (new.scale, phi, noise):
        if not np.all((positive >= 1 / LARGEST) & (positive <= LARGEST)):
            raise PeerError("range", "a scale, deviation scale or noise variance is not positive or beyond all sense")
    if not all(np.all(np.abs(numbers) <= LARGEST) for numbers in (new.centre, triangles, shift)):
        raise PeerError("range", f"a number of the model is beyond {LARGEST:g}")
    belief = aggregate.Belief(from_triangles(triangles, F), shift)
    sent = state.sent
    if state.learner is not None and (model.origin, model.basis) != (state.origin, state.basis):
        T, ratio = learning.basis_change(state.learner.scaling, new, Q, schema.lags)
        sent = tuple(Sent(one.sequence, message.rebase(one.term, T, ratio)) for one in sent)
    own_weight = 1.0
    included = model.included.get(state.config.agent_id)
    if included is not None:
        if not 0 < included.factor <= 1:
            raise PeerError("range", f"a term is held at {included.factor:g} of its weight, not between 0 and 1")
        terms = {one.sequence: one.term for one in sent}
        if included.incarnation == state.incarnation and included.sequence in terms:
            belief = aggregate.cavity(belief, message.scaled(terms[included.sequence], included.factor))
        else:
            belief, own_weight = aggregate.halved(belief), 0.5
    noise_frames = min(model.noise_frames, learning.FLEET_NOISE_FRAMES)
    if noise_frames < learning.OWN_NOISE_FRAMES:  # nobody knows yet: what this agent thinks itself, at little weight
        noise_frames = learning.OWN_NOISE_FRAMES
        if state.learner is not None:
            _, ratio = learning.basis_change(state.learner.scaling, new, Q, schema.lags)
            noise = ratio**2 * state.learner.noise_var
    return new, learning.Knowledge(belief, phi, noise, noise_frames, own_weight), sent


def _answer(state: State, event: RoundOpened) -> tuple[State, list[Effect]]:
    """Answer a round: moments when they have doubled since they were last told, a summary once on the fleet's basis.

    A coordinator that counts rounds from the start again has lost its memory and needs the moments at once.
    """
    effects: list[Effect] = []
    total = float(np.max(state.moments.n, initial=0.0))
    sequence = state.sequence
    bootstrapped = state.bootstrapped
    is_forgotten = bool(state.round) and event.round <= state.round
    if total >= 2 * max(bootstrapped, 1.0) or (total and is_forgotten):
        sequence += 1
        bootstrapped = total
        effects.append(Publish("bootstrap", _bootstrap(state, event, sequence), is_durable=True, key="bootstrap"))
    sent = state.sent
    if state.basis and state.learner is not None and state.learner.frames:
        sequence += 1
        term = message.summarise(state.learner.statistics, state.learner.noise_var, state.learner.knowledge.phi)
        sent = (*sent, Sent(sequence, term))[-REMEMBERED_SUMMARIES:]
        effects.append(Publish("summary", _summary(state, event, sent[-1]), is_durable=True, key="summary"))
    return msgspec.structs.replace(state, sequence=sequence, bootstrapped=bootstrapped, sent=sent), effects


def _bootstrap(state: State, event: RoundOpened, sequence: int) -> Bootstrap:
    return Bootstrap(
        at_ms=event.at_ms,
        agent=state.config.agent_id,
        incarnation=state.incarnation,
        sequence=sequence,
        schema=state.config.schema,
        count=to_tensor(state.moments.n),
        mean=to_tensor(state.moments.mean),
        centred_square_sum=to_tensor(state.moments.centred_square_sum),
    )


def _summary(state: State, event: RoundOpened, sent: Sent) -> Summary:
    assert state.learner is not None
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
        count=to_tensor(state.learner.statistics.n),
        noise_variance=to_tensor(learning.own_noise(state.learner)),
    )
