"""Rounds of learning played through in one process: what a broker would carry is passed by hand, and counted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from fleetgp.arrays import Array
from fleetgp.gp import mixing, tuning
from fleetgp.gp.aggregate import Belief
from fleetgp.gp.client import EVALUATIONS, Client
from fleetgp.gp.hierarchy import Shared, Start
from fleetgp.gp.mixing import Law, Posterior

ROUNDS = 20


class Fleet(NamedTuple):
    """A fleet that has learnt. scores: of each round, nats; numbers: doubles that a client sent in a round; refused: by name."""

    shared: Shared
    belief: Belief
    clients: Mapping[str, Client]
    scores: tuple[float, ...]
    taken_back: int
    numbers: int
    refused: dict[str, str]

    def posterior(self, name: str) -> Posterior:
        return self.clients[name].posterior(self.shared, self.belief)

    def law(self, name: str, X: Array, *, is_noisy: bool = True, seed: int = 0) -> Law:
        """The law of each frame of a client at X [n, D], uncertainty of its hyperparameters included; seed: of their draws."""
        members = self.clients[name].members(self.shared, self.belief, np.random.default_rng(seed))
        return mixing.averaged([mixing.predict(mix, weights, X, is_noisy=is_noisy) for mix, weights in members])


def learn(
    clients: Mapping[str, Client], shared: Shared, start: Start, rounds: int = ROUNDS, evaluations: int = EVALUATIONS
) -> Fleet:
    """So many rounds from these first values; what the best of them knew. At least one round."""
    server, scores, back, refused = tuning.init(shared), [], 0, dict[str, str]()
    for _ in range(max(rounds, 1)):
        answers = {
            name: client.answer(server.shared, server.belief, is_back=server.is_back, evaluations=evaluations)
            for name, client in clients.items()
        }
        server, told = tuning.step(server, answers, start)
        scores.append(told.score)
        back += told.is_taken_back
        refused |= told.refused
    if server.is_back:
        for client in clients.values():
            client.go_back()
    best = server.best or tuning.Place(server.shared, scores[-1], server.belief, shared, server.moments)
    numbers = max((answer.numbers for answer in answers.values()), default=0)
    return Fleet(best.shared, best.belief, clients, tuple(scores), back, numbers, refused)


def summed(known: Fleet) -> Fleet:
    """All clients' messages anew at the hyperparameters that are known, and their sum: one exact round."""
    messages = [client.tell(known.shared) for _, client in sorted(known.clients.items())]
    return known._replace(belief=mixing.posterior(messages, known.belief.shift.shape[1]))
