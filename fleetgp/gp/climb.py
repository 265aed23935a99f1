"""Steps uphill on a smooth function that is dear to evaluate: limited-memory quasi-Newton, of which no step goes down.

Nocedal and Wright 2006, algorithms 7.4 and 7.5, with a backtracking line search. What is known of the curvature is kept from
call to call, for the functions of two rounds are much alike.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from fleetgp.arrays import Array
from fleetgp.errors import NotFinite

Evaluate = Callable[[Array], tuple[float, Array]]
MEMORY = 12
# the first step moves no entry by more than this
FIRST = 0.1
# later ones by no more than this
MOST = 1.0
# a step must bring this share of what the slope promises
ARMIJO = 1e-4
SHRINK = 0.3


@dataclass
class Curvature:
    """Differences of places and of slopes of the last steps, oldest first."""

    steps: list[Array] = field(default_factory=list)
    slopes: list[Array] = field(default_factory=list)

    def learn(self, step: Array, slope: Array) -> None:
        """slope: how much the downward slope grew along the step; one that did not grow teaches nothing."""
        if step @ slope <= 1e-10 * float(np.linalg.norm(step) * np.linalg.norm(slope)):
            return
        self.steps, self.slopes = [*self.steps, step][-MEMORY:], [*self.slopes, slope][-MEMORY:]

    def direction(self, slope: Array) -> Array:
        """Where to go [P] from a place with this upward slope [P]."""
        if not self.steps:
            return slope * min(1.0, FIRST / max(float(np.max(np.abs(slope), initial=0.0)), 1e-300))
        q, shares = slope.copy(), []
        for s, y in zip(reversed(self.steps), reversed(self.slopes), strict=True):
            shares.append((s @ q) / (s @ y))
            q -= shares[-1] * y
        s, y = self.steps[-1], self.slopes[-1]
        q *= (s @ y) / (y @ y)
        for s, y, share in zip(self.steps, self.slopes, reversed(shares), strict=True):
            q += (share - (y @ q) / (s @ y)) * s
        return np.asarray(q * min(1.0, MOST / max(float(np.max(np.abs(q), initial=0.0)), 1e-300)))


def climb(evaluate: Evaluate, x: Array, curvature: Curvature, evaluations: int) -> tuple[Array, float]:
    """The best place found in so many evaluations beginning at x [P], and its value; curvature learns.

    Raises NotFinite where value or slope are no number at x itself; elsewhere such a place is not gone to.
    """
    value, slope = evaluate(x)
    if not (np.isfinite(value) and np.all(np.isfinite(slope))):
        raise NotFinite("the evidence or its gradient is not a number where the climb begins")
    left = evaluations - 1
    direction, length = curvature.direction(slope), 1.0
    while left > 0:
        left -= 1
        there, there_slope = evaluate(x + length * direction)
        is_number = np.isfinite(there) and bool(np.all(np.isfinite(there_slope)))
        if is_number and there >= value + ARMIJO * length * float(slope @ direction):
            curvature.learn(length * direction, slope - there_slope)
            x, value, slope = x + length * direction, there, there_slope
            direction, length = curvature.direction(slope), 1.0
        else:
            length *= SHRINK
    return x, value
