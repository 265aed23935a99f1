"""An agent's part in pFedGP: its private layer takes the fleet's lengthscale, and it tells how far its own steps go from there."""

from __future__ import annotations

import msgspec
import numpy as np

from edge_agent.state import Count, Effect, Publish, State, TuningArrived
from fleetgp import features, placement
from fleetgp.arrays import Array
from fleetgp.errors import BasisRefused, NumericalError, PeerError
from fleetgp.gp import personal
from fleetgp.gp import recent as recents
from fleetgp.gp.learner import Learner
from fleetgp.wire import proposal
from fleetgp.wire.convert import to_tensor
from fleetgp.wire.messages import Gradient, Tuning


def answer(state: State, event: TuningArrived, tuning: Tuning) -> tuple[State, list[Effect]]:
    """State and effects after the fleet's average; one that comes twice is answered once. Raises PeerError."""
    columns = placement.columns(features.shape(state.config.schema))
    if tuning.columns != columns:
        raise PeerError("shape", f"lengthscales of columns {tuning.columns[:10]}, not {columns}")
    value = proposal.arrays(tuning.values, {personal.NAME: (len(columns),)}, "values")[personal.NAME]
    if not np.all(np.abs(value) <= proposal.LARGEST_LOG):
        raise PeerError("range", "a lengthscale is beyond all sense")
    learner = state.learner
    if not isinstance(learner, Learner) or learner.basis.local is None:
        return state, []
    if state.averaged == (tuning.origin, tuning.step):
        return state, []
    state, refused = _taken(state, learner, value)
    state = msgspec.structs.replace(state, averaged=(tuning.origin, tuning.step))
    if len(learner.ring.inputs) < recents.LEAST_FRAMES:
        return state, refused
    assert isinstance(state.learner, Learner)
    return state, [*refused, _told(state, state.learner, event, tuning, value)]


def _taken(state: State, learner: Learner, value: Array) -> tuple[State, list[Effect]]:
    try:
        moved, shadow = personal.moved(learner, value), state.shadow
        if shadow is not None and isinstance(shadow.learner, Learner):
            shadow = msgspec.structs.replace(shadow, learner=personal.moved(shadow.learner, value))
    except BasisRefused as err:
        return state, [Count("basis_refused", 1, str(err))]
    return msgspec.structs.replace(state, learner=moved, shadow=shadow), []


def _told(state: State, learner: Learner, event: TuningArrived, tuning: Tuning, value: Array) -> Effect:
    try:
        way, readings = personal.climbed(learner, value)
    except NumericalError as err:
        return Count("tuning_numerical", 1, str(err))
    if not np.all(np.isfinite(way)):
        return Count("tuning_numerical", 1, "no number comes of the evidence at the fleet's lengthscale")
    nothing = to_tensor(np.zeros((len(readings), 0)))
    gradient = Gradient(
        at_ms=event.at_ms,
        agent=state.config.agent_id,
        incarnation=state.incarnation,
        sequence=tuning.step,
        origin=tuning.origin,
        step=tuning.step,
        precision=nothing,
        shift=nothing,
        constant=0.0,
        count=to_tensor(readings),
        slopes={personal.NAME: to_tensor(way)},
    )
    # not by way of the disk: should it be lost, the next average asks again
    return Publish("gradient", gradient, key="gradient")
