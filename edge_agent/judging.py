"""What a step of a tuning is judged by, for both engines: the agent's recent frames, and what they say of a proposal."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fleetgp.arrays import Array
from fleetgp.gp import mixed_recent, moves
from fleetgp.gp import recent as recents
from fleetgp.gp.aggregate import Belief
from fleetgp.gp.engine import Engine
from fleetgp.gp.message import Term
from fleetgp.gp.mixed_recent import MixedRecent
from fleetgp.gp.mixed_state import Mixed
from fleetgp.gp.recent import Recent
from fleetgp.schema import Schema
from fleetgp.wire import mixed_proposal, proposal
from fleetgp.wire.messages import Tuning

Frames = Recent | MixedRecent
Proposed = proposal.Proposed | mixed_proposal.Proposed


class Judgement(NamedTuple):
    """Gradient of the evidence by name; held_out [n, Q]: log density of frames held out, NaN where nothing was learnt."""

    slopes: dict[str, Array]
    held_out: Array


NOTHING = Judgement({}, np.zeros((0, 0)))


def can_be_tuned(engine: Engine) -> bool:
    """Whether the engine is on a basis that has something to learn by gradients."""
    return isinstance(engine, Mixed) or engine.basis.shared is not None


def recent(engine: Engine) -> Frames | None:
    """The frames at hand; None where they are too few to say anything."""
    if isinstance(engine, Mixed):
        mixed = mixed_recent.recent(engine)
        return mixed if len(mixed.X) >= mixed_recent.LEAST_FRAMES else None
    found = recents.recent(engine)
    return found if len(found.inputs) >= recents.LEAST_FRAMES else None


def read(tuning: Tuning, schema: Schema, engine: Engine) -> Proposed:
    """Raises PeerError where the proposal is none for agents of this schema."""
    if isinstance(engine, Mixed):
        return mixed_proposal.read(tuning, engine.known.shared, engine.start.lengthscale_g)
    return proposal.read(tuning, schema)


def tell(frames: Frames, proposed: Proposed) -> tuple[Term, float]:
    """The term of the shared weights on a proposal's values, and the constant of the evidence in nats."""
    if isinstance(frames, MixedRecent):
        assert isinstance(proposed, mixed_proposal.Proposed)
        return mixed_recent.tell(frames, proposed.shared)
    assert isinstance(proposed, proposal.Proposed)
    return recents.tell(frames, proposed.shared)


def judge(frames: Frames, proposed: Proposed, cavity: Belief) -> Judgement:
    """cavity: the fleet's belief without this agent."""
    if isinstance(frames, MixedRecent):
        assert isinstance(proposed, mixed_proposal.Proposed)
        found = mixed_recent.judge(frames, proposed.shared, cavity)
        return Judgement(mixed_proposal.values(found.slope), found.held_out)
    assert isinstance(proposed, proposal.Proposed)
    judged = recents.judge(frames, proposed.shared, cavity)
    slopes = {proposal.INDUCING: judged.inducing, proposal.LOG_LENGTHSCALE: judged.log_lengthscale}
    return Judgement(slopes, judged.held_out)


def loss(engine: Engine, proposed: Proposed) -> float:
    """Of the worst channel, were the basis to move there now, in shares of the noise; not finite where no number comes of it."""
    if isinstance(engine, Mixed):
        assert isinstance(proposed, mixed_proposal.Proposed)
        return mixed_recent.loss(engine, proposed.shared)
    assert isinstance(proposed, proposal.Proposed)
    return float(np.max(moves.loss(engine, engine.basis._replace(shared=proposed.shared))))
