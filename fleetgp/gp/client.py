"""A client's side of learning hyperparameters: a few steps uphill for what it keeps, then its message and gradient."""

from __future__ import annotations

import numpy as np

from fleetgp.arrays import Array
from fleetgp.gp import aggregate, hierarchy, laplace, mixing, slopes, tune
from fleetgp.gp.aggregate import Belief
from fleetgp.gp.climb import Curvature, climb
from fleetgp.gp.hierarchy import Own, Shared, Start, own_log_prior
from fleetgp.gp.mixing import Message, Mixing, Posterior
from fleetgp.gp.tuning import Answer

EVALUATIONS = 8


class Client:
    """One client: inputs X [n, D], readings Y [n, Q] (NaN = missing) and what it keeps; nothing of these leaves it."""

    def __init__(self, X: Array, Y: Array, own: Own, start: Start) -> None:
        self.X, self.Y = X, Y
        self.own, self.start = own, start
        self._frames = slopes.frames(X, Y)
        self._curvature = Curvature()
        self._sent: Message | None = None
        self._best: tuple[Own, Message | None] = (own, None)

    def answer(self, shared: Shared, belief: Belief, *, is_back: bool, evaluations: int = EVALUATIONS) -> Answer:
        """One round: climb, then tell. is_back: the last round was worse, and counts as not having been."""
        if is_back:
            self.own, self._sent = self._best
        else:
            self._best = (self.own, self._sent)
        before = tune.cavity(self.cavity(belief))
        evidence = tune.OwnEvidence(shared, self.own, self._frames, before, self.start)
        best, _ = climb(evidence, tune.packed(self.own), self._curvature, evaluations)
        self.own = tune.unpacked(best, self.own)
        _, slope = tune.gradient(shared, self.own, self._frames, before, *self.start.kernels)
        return Answer(self.tell(shared), slope, own_log_prior(self.own, self.start)[0])

    def tell(self, shared: Shared) -> Message:
        """Its message at what it keeps now."""
        mix = self.mixing(shared)
        self._sent = mixing.summarise(mix, mixing.summed(mix, self.X, self.Y))
        return self._sent

    def learn(self, X: Array, Y: Array) -> None:
        """These frames instead of those before; what it keeps stays."""
        self.X, self.Y, self._frames = X, Y, slopes.frames(X, Y)

    def cavity(self, belief: Belief) -> Belief:
        """The fleet's belief without what this client sent to it."""
        return aggregate.cavity(belief, self._sent.term) if self._sent else belief

    def go_back(self) -> None:
        """To what it kept in the best round."""
        self.own, self._sent = self._best

    def mixing(self, shared: Shared) -> Mixing:
        return hierarchy.mixing(shared, self.own, *self.start.kernels)

    def posterior(self, shared: Shared, belief: Belief) -> Posterior:
        """All its weights: belief and shared values of the round in which it told its last message."""
        mix = self.mixing(shared)
        return mixing.condition(mix, mixing.summed(mix, self.X, self.Y), self.cavity(belief))

    def members(
        self, shared: Shared, belief: Belief, rng: np.random.Generator, count: int = laplace.MEMBERS
    ) -> list[tuple[Mixing, Posterior]]:
        """Models and weights for draws of what it keeps: how sure it may be of loadings, lengthscale and noise.

        Inducing inputs are no hyperparameters of the process, but of how it is approximated: they stay.
        """
        before = self.cavity(belief)
        evidence = tune.OwnEvidence(shared, self.own, self._frames, tune.cavity(before), self.start)
        sizes = [value.size for value in self.own]
        is_varied = np.repeat([name != "Zi" for name in self.own._fields], sizes)
        places = laplace.draws(
            lambda flat: evidence(flat)[1], tune.packed(self.own), np.flatnonzero(is_varied), count, rng
        )
        made = []
        for place in places:
            mix = hierarchy.mixing(shared, tune.unpacked(place, self.own), *self.start.kernels)
            made.append((mix, mixing.condition(mix, mixing.summed(mix, self.X, self.Y), before)))
        return made
