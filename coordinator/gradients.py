"""The coordinator's door for answers to a proposal: checked before they can touch the tuning.

What is let in can pull a step astray, but by no more than an agent of its readings may, and never stop a round from closing.
"""

from __future__ import annotations

import msgspec
import numpy as np

from coordinator import intake, proposals
from coordinator.state import Ascent, Choice, Evidence, State
from fleetgp.errors import PeerError
from fleetgp.gp.message import Term
from fleetgp.wire import proposal
from fleetgp.wire.convert import from_triangles, to_array
from fleetgp.wire.messages import Gradient

# nats of one reading where no shared weight has a part: no density is higher, for no noise is below 1e-4 of a channel's scale
MOST_NATS = 10.0
LEAST_NATS = -1e6
# nats of one reading for a standard deviation of an input, or for a factor e of a lengthscale
MOST_SLOPE = 1e4
MOST_READINGS = 1e6


def taken(state: State, agent_id: str, message: Gradient) -> State:
    """The state with one more answer to the tuning, or the choice, that is under way.

    Raises PeerError; codes beside those of any message: ``other_agent``, ``stale_step`` (of an earlier proposal, or when nothing
    is proposed), ``not_asked``, ``repeated``.
    """
    if message.agent != agent_id:
        raise PeerError("other_agent", f"a message of {message.agent!r} came on the topic of {agent_id!r}")
    tune = state.tuning or state.choice
    if tune is None or not tune.asked or (message.origin, message.step) != (state.origin, tune.step):
        raise PeerError("stale_step", f"{agent_id} answers proposal {message.origin}/{message.step}, which is over")
    if tune.asked and agent_id not in tune.asked:
        raise PeerError("not_asked", f"{agent_id} was not asked")
    if agent_id in tune.answers:
        raise PeerError("repeated", f"{agent_id} answered {message.step} already")
    answers = {**tune.answers, agent_id: _evidence(state, tune, message)}
    tune = msgspec.structs.replace(tune, answers=answers)
    if isinstance(tune, Choice):
        return msgspec.structs.replace(state, choice=tune)
    return msgspec.structs.replace(state, tuning=tune)


def _evidence(state: State, tune: Ascent | Choice, message: Gradient) -> Evidence:
    """What a message says. Raises PeerError ``shape``, ``finite``, ``negative``, ``range`` or ``indefinite``."""
    Q, F = tune.deviation_var.shape
    precision = from_triangles(to_array(message.precision, (Q, F * (F + 1) // 2), "precision"), F)
    shift = to_array(message.shift, (Q, F), "shift")
    count = to_array(message.count, (proposals.channels(state),), "count")
    if np.any(count < 0) or message.loss < 0 or message.held_out_count < 0:
        raise PeerError("negative", f"{message.agent} sent a negative count or loss")
    readings, others = float(np.sum(count)), message.held_out_count
    is_sound = (
        1 <= readings <= MOST_READINGS
        and np.all(np.abs(shift) <= intake.LARGEST)
        and LEAST_NATS * readings <= message.constant <= MOST_NATS * readings
        and others <= MOST_READINGS
        and LEAST_NATS * others <= message.held_out <= MOST_NATS * others
        and abs(message.log_prior) <= abs(LEAST_NATS)
    )
    if not is_sound:
        raise PeerError("range", f"{message.agent} sent an evidence that no readings lead to")
    proposals.check_precision(state, message, precision, tune.deviation_var)
    slopes = {}
    if message.slopes:
        shapes = {name: value.shape for name, value in tune.values.items()}
        slopes = proposals.scaled_slopes(state, proposal.arrays(message.slopes, shapes, "slopes"))
        if not all(np.all(np.abs(slope) <= MOST_SLOPE * readings) for slope in slopes.values()):
            raise PeerError("range", f"{message.agent} sent a gradient that no readings lead to")
    return Evidence(
        message.step,
        message.incarnation,
        Term(precision, shift),
        message.constant,
        message.log_prior,
        readings,
        slopes,
        message.held_out,
        message.held_out_count,
        message.loss,
    )
