"""pFedGP's part of the slow clock: lengthscales of private layers by federated averaging, of agents that share nothing else.

Every round that is due publishes the average; agents tell how far a few steps of their own go from it, and the next average is
the mean of that, weighted by their readings. No agent of it is waited for, nor part of the fleet's model.
"""

from __future__ import annotations

import msgspec
import numpy as np

from coordinator import fleet
from coordinator.state import Averaging, State, Told, Way
from coordinator.tuning import Turn
from fleetgp import features, placement, scaling
from fleetgp.arrays import Array
from fleetgp.errors import PeerError
from fleetgp.gp.personal import FURTHEST, NAME
from fleetgp.wire import codec, proposal
from fleetgp.wire.convert import to_array
from fleetgp.wire.messages import Gradient, Tuning

# readings of an agent before an average begins: a scale of fewer, which is where it begins, is a matter of chance
ENOUGH_READINGS = 200.0
MOST_READINGS = 1e6
# of a log lengthscale away from the rule of thumb
MOST_AWAY = float(np.log(50.0))
# averages after which half of a way is gone: every change of a kernel costs an agent some of its past
SETTLES = 5.0


def joined(state: State, agent_id: str, told: Told) -> State:
    """With one more agent, or newer moments of one."""
    average = state.averaging
    members = {**average.members, agent_id: told}
    return msgspec.structs.replace(state, averaging=msgspec.structs.replace(average, members=members))


def without(state: State, agent_id: str) -> State:
    average = state.averaging
    if agent_id not in average.members:
        return state
    members = {name: one for name, one in average.members.items() if name != agent_id}
    answers = {name: one for name, one in average.answers.items() if name != agent_id}
    left = msgspec.structs.replace(average, members=members, answers=answers)
    return msgspec.structs.replace(state, averaging=left)


def is_answer(state: State, message: Gradient) -> bool:
    """Whether it is about the average, not about a tuning of the fleet's basis."""
    return bool(state.averaging.members) and set(message.slopes) == {NAME}


def taken(state: State, agent_id: str, message: Gradient) -> State:
    """With one more answer. Raises PeerError as the door of tunings does, and ``not_asked`` for an agent that never told moments."""
    average = state.averaging
    if message.agent != agent_id:
        raise PeerError("other_agent", f"a message of {message.agent!r} came on the topic of {agent_id!r}")
    if agent_id not in average.members:
        raise PeerError("not_asked", f"{agent_id} was not asked")
    if average.values is None or (message.origin, message.step) != (state.origin, average.step):
        raise PeerError("stale_step", f"{agent_id} answers average {message.origin}/{message.step}, which is over")
    if agent_id in average.answers:
        raise PeerError("repeated", f"{agent_id} answered {message.step} already")
    assert state.schema is not None
    shapes = {NAME: average.values.shape}
    count = to_array(message.count, (len(state.schema.channels),), "count")
    way = proposal.arrays(message.slopes, shapes, "slopes")[NAME]
    readings = float(np.sum(count))
    if np.any(count < 0) or not 1 <= readings <= MOST_READINGS or not np.all(np.abs(way) <= FURTHEST):
        raise PeerError("range", f"{agent_id} sent a step that no readings lead to")
    answers = {**average.answers, agent_id: Way(readings, way)}
    member = msgspec.structs.replace(average.members[agent_id], round=state.round)
    return msgspec.structs.replace(
        state,
        averaging=msgspec.structs.replace(average, answers=answers, members={**average.members, agent_id: member}),
    )


def turn(state: State, at_ms: int) -> Turn:
    """After a round: the next average, where there are agents that want one and it is due."""
    state = _forget(state)
    average = state.averaging
    if not average.members or state.schema is None or state.tuning is not None:
        return Turn(state)
    middle = _rule(state)
    if middle is None or (
        average.values is not None and state.round < average.since_round + state.config.tuning_rounds
    ):
        return Turn(state)
    values = middle if average.values is None else mean(average, average.values, middle)
    step = state.steps + 1
    message = Tuning(
        at_ms=at_ms,
        origin=state.origin,
        basis=state.basis,
        step=step,
        began=step,
        values=proposal.told({NAME: values}),
        columns=placement.columns(features.shape(state.schema)),
    )
    average = Averaging(average.members, values, step, state.round, averages=average.averages + bool(average.answers))
    return Turn(msgspec.structs.replace(state, averaging=average, steps=step), payload=codec.encode(message))


def mean(average: Averaging, values: Array, middle: Array) -> Array:
    """On from values towards the mean of what the agents came to, weighted by readings: all of the way at first, ever less of
    it later, so that it settles. Names in order, so that the bits are always the same."""
    answers, share = average.answers, 1.0 / (1.0 + average.averages / SETTLES)
    readings = sum(one.readings for one in answers.values())
    if not readings:
        return values
    way = sum((one.readings * one.way for _, one in sorted(answers.items())), np.zeros_like(values))
    return np.asarray(np.clip(values + share * way / readings, middle - MOST_AWAY, middle + MOST_AWAY))


def _rule(state: State) -> Array | None:
    """Where an average begins: log of the rule of thumb in the members' scales; None while they have read too little."""
    assert state.schema is not None
    pooled = scaling.empty_moments(len(state.schema.inputs))
    for _, told in sorted(state.averaging.members.items()):
        pooled = scaling.merge(pooled, told.moments)
    if np.max(pooled.n) < ENOUGH_READINGS * len(state.averaging.members):
        return None
    unit = placement.unit(features.shape(state.schema), scaling.scaling(pooled))
    return np.asarray(np.log(unit.scale * placement.lengthscale(len(unit.scale))))


def _forget(state: State) -> State:
    """Let go of agents that were not heard of for long."""
    gone = [name for name, one in state.averaging.members.items() if fleet.is_faded(state, one.round)]
    for name in gone:
        state = without(state, name)
    return state
