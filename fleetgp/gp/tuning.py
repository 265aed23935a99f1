"""The server's side of learning hyperparameters: messages added, gradients added, one Adam step a round, and taken back if worse.

numpy only. A round: the server tells shared values and the belief; every client improves what it keeps, and answers with its
message, its evidence's gradient for what is shared, and its log prior (models.md section 4, "Objective").
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from fleetgp.gp import ascent, mixing
from fleetgp.gp.aggregate import Belief
from fleetgp.gp.ascent import Momentum
from fleetgp.gp.hierarchy import Shared, Start, shared_log_prior
from fleetgp.gp.mixing import Message

RATE = 0.3
# the rate after each round, as a share of the one before, and after a step that was taken back
DECAY = 0.92
BACK = 0.5


class Answer(NamedTuple):
    """What a client sends in a round: its message, the slope of its evidence for what is shared, its own log prior."""

    message: Message
    slope: Shared
    log_prior: float

    @property
    def numbers(self) -> int:
        """Doubles on the wire: half of the symmetric precision is enough."""
        F = self.message.term.shift.size
        return F * (F + 1) // 2 + F + sum(part.size for part in self.slope) + 2


class Place(NamedTuple):
    """Where a round was: shared values, the score there, and from where a step goes on."""

    shared: Shared
    score: float
    belief: Belief
    slope: Shared
    moments: Momentum


class Server(NamedTuple):
    """shared: what clients use next; belief: what they know of the fleet; best: the best round so far; is_back: the last
    round was worse, and clients go back to what they kept in the best one."""

    shared: Shared
    belief: Belief
    moments: Momentum
    rate: float
    best: Place | None = None
    is_back: bool = False


class Told(NamedTuple):
    """What a round told: the summed evidence with all priors in nats, clients refused by name and why, whether it was taken back."""

    score: float
    refused: dict[str, str]
    is_taken_back: bool


def init(shared: Shared, rate: float = RATE) -> Server:
    """Before the first round; nobody knows anything of the shared weights."""
    size = shared.Bg.shape[1] * len(shared.Zg)
    return Server(shared, mixing.posterior((), size), ascent.still(shared._asdict()), rate)


def step(server: Server, answers: Mapping[str, Answer], start: Start) -> tuple[Server, Told]:
    """After a round with these answers, by client."""
    refused = {name: why for name, answer in sorted(answers.items()) if (why := fault(answer))}
    heard = [answer for name, answer in sorted(answers.items()) if name not in refused]
    belief = mixing.posterior((answer.message for answer in heard), server.belief.shift.shape[1])
    prior, slope = shared_log_prior(server.shared, start)
    score = mixing.evidence((answer.message for answer in heard), belief) + prior
    score += sum(answer.log_prior for answer in heard)
    slope = Shared(*(sum(parts, first) for first, *parts in zip(slope, *(a.slope for a in heard), strict=True)))
    place = Place(server.shared, score, belief, slope, server.moments)
    # with somebody refused the sum is of fewer clients and no measure
    is_worse = server.best is not None and not refused and not score >= server.best.score
    rate = server.rate * (BACK if is_worse else DECAY)
    if is_worse and server.best is not None:
        place = server.best
    moved, moments = ascent.step(place.shared._asdict(), place.slope._asdict(), place.moments, rate)
    return Server(Shared(**moved), place.belief, moments, rate, place, is_worse), Told(score, refused, is_worse)


def fault(answer: Answer) -> str:
    """Why an answer cannot be used; "" where it can."""
    if not all(np.all(np.isfinite(part)) for part in answer.slope):
        return "gradient is not finite"
    if not all(np.all(np.isfinite(part)) for part in (*answer.message.term, answer.message.constant, answer.log_prior)):
        return "message is not finite"
    return ""
