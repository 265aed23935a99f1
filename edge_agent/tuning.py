"""An agent's part in the slow clock: what its recent frames say of a proposal for the fleet's basis.

Pure, bounded by the ring (512 frames), and apart from all else: no prediction and no summary depends on it. A proposal that
comes twice is answered once; one for another basis than the agent's is left.
"""

from __future__ import annotations

import msgspec
import numpy as np

from edge_agent import averaging, judging, sents
from edge_agent.judging import Proposed
from edge_agent.state import Count, Effect, Judged, Publish, Sent, State, TuningArrived
from fleetgp.errors import PeerError
from fleetgp.gp import aggregate, personal
from fleetgp.gp.aggregate import Belief
from fleetgp.gp.engine import Engine
from fleetgp.wire import codec, proposal
from fleetgp.wire.convert import to_tensor
from fleetgp.wire.messages import Gradient, Tuning

# beside the one that the proposal names: a step may be taken back, and its answer then is named again
REMEMBERED_ANSWERS = 4
# for a loss that is no number
MOST_TOLD_LOSS = 1e6


def answer(state: State, event: TuningArrived) -> tuple[State, list[Effect]]:
    """State and effects after a proposal; nothing of one that is for agents of another model."""
    parts = state.config.parts
    if not (parts.shared or parts.kernel):
        return state, []
    try:
        tuning = codec.decode(event.payload, Tuning)
        is_average = set(tuning.values) == {personal.NAME}
        if parts.kernel:
            return averaging.answer(state, event, tuning) if is_average else (state, [])
        if is_average:
            return state, []
        if not tuning.values:
            return _ended(state), []
        learner = state.learner
        if (
            learner is None
            or not judging.can_be_tuned(learner)
            or (tuning.origin, tuning.basis) != (state.origin, state.basis)
        ):
            told = f"the fleet's is {tuning.origin}/{tuning.basis}, this agent is on {state.origin}/{state.basis}"
            return state, [Count("tuning_other_basis", 1, told)]
        judged = _judged(state, tuning, learner)
        if judged is None:
            return state, []
        return _answered(state, event, tuning, judged, judging.read(tuning, state.config.schema, learner))
    except PeerError as err:
        return state, [Count(f"tuning_{err.code}", 1, err.detail)]


def _ended(state: State) -> State:
    return msgspec.structs.replace(state, tuning=None) if state.tuning is not None else state


def _judged(state: State, tuning: Tuning, learner: Engine) -> Judged | None:
    """What a step is judged by; None where this agent is not asked, has answered it, or has too few frames to say anything."""
    if tuning.asked and state.config.agent_id not in tuning.asked:
        return None
    known = state.tuning
    if known is not None and (known.origin, known.began) == (tuning.origin, tuning.began):
        return known if tuning.step > known.step else None
    recent = judging.recent(learner)
    return None if recent is None else Judged(tuning.origin, tuning.began, 0, recent)


def _answered(
    state: State, event: TuningArrived, tuning: Tuning, judged: Judged, proposed: Proposed
) -> tuple[State, list[Effect]]:
    term, constant = judging.tell(judged.recent, proposed)
    cavity = _cavity(state, tuning, judged, proposed)
    found = judging.judge(judged.recent, proposed, cavity) if cavity is not None else judging.NOTHING
    held_out = float(np.nansum(found.held_out))
    if not all(np.all(np.isfinite(part)) for part in (*term, *found.slopes.values(), np.array([constant, held_out]))):
        return state, [Count("tuning_numerical", 1, "no number comes of the evidence at a proposal")]
    precision, shift = proposal.belief_of(*term)
    gradient = Gradient(
        at_ms=event.at_ms,
        agent=state.config.agent_id,
        incarnation=state.incarnation,
        sequence=tuning.step,
        origin=tuning.origin,
        step=tuning.step,
        precision=precision,
        shift=shift,
        constant=constant,
        count=to_tensor(judged.recent.readings),
        slopes=proposal.told(found.slopes),
        held_out=held_out,
        held_out_count=float(np.sum(np.isfinite(found.held_out))),
        loss=_loss(state, proposed),
        has_deviation=state.config.parts.deviation,
    )
    sent = sents.remembered(
        judged.sent, sents.named(state, tuning.included), Sent(tuning.step, term), REMEMBERED_ANSWERS
    )
    judged = msgspec.structs.replace(judged, step=tuning.step, sent=sent)
    # not by way of the disk: should it be lost, the next proposal asks again
    return msgspec.structs.replace(state, tuning=judged), [Publish("gradient", gradient, key="gradient")]


def _cavity(state: State, tuning: Tuning, judged: Judged, proposed: Proposed) -> Belief | None:
    """The fleet's belief without this agent; None where it is not known."""
    if proposed.belief is None or state.config.agent_id not in tuning.included:
        return proposed.belief
    own = sents.term(judged.sent, sents.named(state, tuning.included))
    return aggregate.cavity(proposed.belief, own) if own is not None else None


def _loss(state: State, proposed: Proposed) -> float:
    """Of the worst channel, were the basis to move there now."""
    assert state.learner is not None
    lost = judging.loss(state.learner, proposed)
    return lost if np.isfinite(lost) else MOST_TOLD_LOSS
