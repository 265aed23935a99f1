"""A state under other settings than it was made by: what was learnt is kept, as far as another model has a use for it."""

from __future__ import annotations

from typing import NamedTuple

import msgspec
import numpy as np

from edge_agent.state import AgentConfig, Shadow, State
from edge_agent.watch import LOCAL_FRAMES
from fleetgp.gp import engine, mixed, parts, position
from fleetgp.gp.engine import Engine
from fleetgp.gp.mixed_state import Mixed


class Remodelled(NamedTuple):
    """said: what became of what was learnt, in a sentence; "" where the model is the same."""

    state: State
    said: str


def under(state: State, config: AgentConfig) -> Remodelled:
    """The state under these settings from here on; its schema is the same."""
    old = state.config
    frames = msgspec.structs.replace(state.frames, lateness_ms=config.lateness_ms)
    state = msgspec.structs.replace(state, config=config, frames=frames)
    if old.model == config.model:
        return Remodelled(state, "")
    changed = _of_fleet(state) if config.parts.shared else _by_itself(state)
    if config.parts.shared != old.parts.shared and (config.parts.shared or config.parts.kernel):
        changed = msgspec.structs.replace(
            changed, bootstrapped=0.0
        )  # told anew at once, as of an agent of another kind
    return Remodelled(changed, _said(state, changed, old))


def _of_fleet(state: State) -> State:
    """What the fleet said is taken in again as soon as it is heard: of another model it leaves other things out."""
    return msgspec.structs.replace(_switched(state), round=0, tuning=None)


def _by_itself(state: State) -> State:
    """Nothing of the fleet's is used any more. What was told stays known, for a leave is still to be taken."""
    changed = _switched(state)
    return msgspec.structs.replace(
        changed, origin=0, basis=0, round=0, sent=(), named=0, centres=np.zeros((0, 0)), tuning=None
    )


def _switched(state: State) -> State:
    if state.learner is None:
        return state
    shadow = state.shadow
    if shadow is not None:
        shadow = Shadow(_learner(state, shadow.learner), shadow.moments, shadow.lead)
    return msgspec.structs.replace(state, learner=_learner(state, state.learner), shadow=shadow)


def _learner(state: State, learner: Engine) -> Engine:
    """With the layers of the model in use; those that are missing are placed if there are frames enough in the ring."""
    config = state.config
    if isinstance(learner, Mixed):
        return mixed.switched(learner, position.plan(config.schema, config.local_inducing, config.parts))
    learner = parts.switched(learner, config.parts, config.own_sizes, is_of_fleet=state.basis > 0)
    if learner.frames < LOCAL_FRAMES:
        return learner
    return parts.place(learner, config.own_sizes, config.schema.kernel)


def _said(before: State, after: State, old: AgentConfig) -> str:
    new = after.config
    words = [f"agent.model was {old.model} and is {new.model}: what was learnt is kept"]
    if before.learner is not None and after.learner is not None:
        was, now = engine.has_local(before.learner), engine.has_local(after.learner)
        if was and not now:
            words.append("its private part is let go")
        if now and not was:
            words.append(f"a private part begins with the last {engine.frames_at_hand(after.learner)} frames")
    if old.parts.shared and not new.parts.shared:
        forgets = "" if new.parts.kernel else ", and the fleet forgets this agent"
        words.append(f"what the fleet knew is not used any more{forgets}")
    return "; ".join(words)
