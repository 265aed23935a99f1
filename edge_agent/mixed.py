"""An agent of mixed channels and its fleet: what the fleet knows is taken in, with this agent's own part of it taken out."""

from __future__ import annotations

from typing import NamedTuple

import msgspec
import numpy as np

from edge_agent import sents
from edge_agent.state import Sent, Shadow, State
from fleetgp.arrays import Array
from fleetgp.gp import message, mixed, mixed_solve, position
from fleetgp.gp.engine import Engine
from fleetgp.gp.learner import FLEET_NOISE_FRAMES, OWN_NOISE_FRAMES
from fleetgp.gp.mixed_state import Known, Mixed
from fleetgp.scaling import Scaling
from fleetgp.wire import mixture
from fleetgp.wire.messages import FleetModel
from fleetgp.wire.mixture import Mixture


class Adopted(NamedTuple):
    """What an agent is with a model's knowledge; centre [K]: the fleet's, of its inputs."""

    learner: Mixed
    shadow: Shadow | None
    sent: tuple[Sent, ...]
    centre: Array


def adopted(state: State, model: FleetModel, named: int) -> Adopted:
    """named: which of the agent's summaries the model holds. Raises PeerError where the model cannot be used."""
    published = mixture.read(model, state.config.schema)
    learner, shadow = _of(state.learner), state.shadow
    sent = state.sent
    if (model.origin, model.basis) != (state.origin, state.basis):
        sent = _moved_terms(sent, learner, published)
    known = _without_own(model, published, sent, state.config.agent_id, named)
    if shadow is not None:
        shadow = msgspec.structs.replace(
            shadow, learner=_informed(state, _of(shadow.learner), published.scaling, known)
        )
    return Adopted(_informed(state, learner, published.scaling, known), shadow, sent, published.scaling.centre)


def _of(engine: Engine | None) -> Mixed | None:
    assert engine is None or isinstance(engine, Mixed)
    return engine


def _informed(state: State, learner: Mixed | None, scaling: Scaling, known: Known) -> Mixed:
    if learner is None:
        config = state.config
        return mixed.knowing(position.plan(config.schema, config.local_inducing, config.parts), scaling, known)
    if not state.basis:
        return mixed.joining(learner, scaling, known)
    return mixed.inform(learner, scaling, known)


def _moved_terms(sent: tuple[Sent, ...], learner: Mixed | None, published: Mixture) -> tuple[Sent, ...]:
    """The terms that were sent, on other shared values; none in another unit, in which the coordinator has none either."""
    if learner is None or not all(map(np.array_equal, learner.scaling, published.scaling)):
        return ()
    T = mixed_solve.change(learner.known.shared, published.shared, learner.plan.kernel)
    return tuple(Sent(one.sequence, message.rebase(one.term, T, np.ones(1))) for one in sent)


def _without_own(model: FleetModel, published: Mixture, sent: tuple[Sent, ...], agent_id: str, named: int) -> Known:
    """What the fleet knows without this agent. Raises PeerError ``range`` where its part is held at no possible weight."""
    own, included = sents.term(sent, named), model.included.get(agent_id)
    belief, own_weight = sents.without_own(published.belief, np.ones_like(published.belief.shift), included, own)
    noise_var, frames = published.noise_var, min(published.noise_frames, FLEET_NOISE_FRAMES)
    if frames < OWN_NOISE_FRAMES:  # nobody knows yet
        noise_var, frames = np.full_like(noise_var, position.NOISE), mixed.NOISE_FRAMES
    return Known(published.shared, belief, noise_var, frames, own_weight)
