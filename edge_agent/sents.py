"""What an agent sent, and how it takes itself out again of what the fleet says: for summaries in models, and answers in tunings."""

from __future__ import annotations

from collections.abc import Mapping

from edge_agent.state import Sent, State
from fleetgp.arrays import Array
from fleetgp.errors import PeerError
from fleetgp.gp import aggregate, message
from fleetgp.gp.aggregate import Belief
from fleetgp.gp.message import Term
from fleetgp.wire.messages import Included


def named(state: State, included: Mapping[str, Included]) -> int:
    """Which of this agent's terms a belief holds; 0 = none that it knows of."""
    own = included.get(state.config.agent_id)
    return own.sequence if own is not None and own.incarnation == state.incarnation else 0


def term(sent: tuple[Sent, ...], sequence: int) -> Term | None:
    """What was sent under this number, where it is remembered."""
    return next((one.term for one in sent if one.sequence == sequence), None)


def remembered(sent: tuple[Sent, ...], named: int, new: Sent, most: int) -> tuple[Sent, ...]:
    """What may be named later: the newest, most >= 2 of them, and the one that is named now."""
    older, newest = sent[: 1 - most], sent[1 - most :]
    return (*(one for one in older if one.sequence == named), *newest, new)


def without_own(belief: Belief, prior_var: Array, included: Included | None, own: Term | None) -> tuple[Belief, float]:
    """The fleet's belief without this agent's own term, and the weight at which its own part then counts.

    included: at what weight the belief holds its term, None = it does not; own: that term, None = no longer known, so that fleet
    and agent count half. Raises PeerError ``range`` where it is held at no possible weight.
    """
    if included is None:
        return belief, 1.0
    if not 0 < included.factor <= 1:
        raise PeerError("range", f"a term is held at {included.factor:g} of its weight, not between 0 and 1")
    if own is None:
        return aggregate.halved(belief, prior_var), 0.5
    return aggregate.cavity(belief, message.scaled(own, included.factor)), 1.0
