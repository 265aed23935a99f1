"""What an agent's recent frames say of the shared values of mixed channels: message, constant, slope, and how well they foresee.

The exact side of the slow clock for mixed channels (models.md section 4, "Objective"): frames so far apart that what they err
by hardly goes on; what the agent keeps to itself stays while a tuning is under way.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec
import numpy as np

from fleetgp import inducing
from fleetgp.arrays import Array
from fleetgp.gp import hierarchy, mixed_climb, mixed_solve, mixing, slopes, tail, tune
from fleetgp.gp.aggregate import Belief
from fleetgp.gp.hierarchy import Own, Shared
from fleetgp.gp.message import Term
from fleetgp.gp.mixed_state import Mixed
from fleetgp.gp.mixing import Mixing
from fleetgp.gp.position import Plan
from fleetgp.gp.recent import HELD_OUT

# below so many frames their evidence is that of chance
LEAST_FRAMES = 30


class MixedRecent(msgspec.Struct, frozen=True, tag="ilmm"):
    """Frames, oldest first: positions X [n, D], scaled readings Y [n, Q], NaN where missing; own values with the noise of one
    frame; degrees [Q] of the law's tail."""

    X: Array
    Y: Array
    own: Own
    plan: Plan
    degrees: Array

    @property
    def taught(self) -> int:
        """How many frames teach; the rest are held out."""
        return len(self.X) - int(HELD_OUT * len(self.X))

    @property
    def readings(self) -> Array:
        """How many readings teach [Q]."""
        return np.asarray(np.sum(np.isfinite(self.Y[: self.taught]), axis=0).astype(float))


class Judgement(NamedTuple):
    """Slope of the evidence of the frames that teach, and log density of the others [n, Q] in nats, NaN where missing."""

    slope: Shared
    held_out: Array


def recent(learner: Mixed) -> MixedRecent:
    """The frames in a learner's ring."""
    learner = mixed_solve.folded(learner)
    X, Y = mixed_climb.thinned(learner)
    own = learner.own._replace(log_noise_var=np.log(learner.noise_var))
    return MixedRecent(X, Y, own, learner.plan, learner.tail.degrees)


def tell(recent: MixedRecent, shared: Shared) -> tuple[Term, float]:
    """Its term of the shared weights on these values, and the constant of its evidence in nats."""
    n = recent.taught
    mix = _mixing(recent, shared)
    told = mixing.summarise(mix, mixing.summed(mix, recent.X[:n], recent.Y[:n]))
    return told.term, told.constant


def judge(recent: MixedRecent, shared: Shared, cavity: Belief) -> Judgement:
    """cavity: the fleet's belief on these values without this agent. One lengthscale for all columns; inducing inputs stay."""
    n, kernel = recent.taught, recent.plan.kernel
    frames = slopes.frames(recent.X[:n], recent.Y[:n])
    _, slope = tune.gradient(shared, recent.own, frames, tune.cavity(cavity), kernel)
    slope = slope._replace(log_lengthscale=np.full_like(slope.log_lengthscale, slope.log_lengthscale.sum()))
    mix = _mixing(recent, shared)
    weights = mixing.condition(mix, mixing.summed(mix, recent.X[:n], recent.Y[:n]), cavity)
    law = mixing.predict(mix, weights, recent.X[n:])
    # the noise is learnt as a variance
    factor = (recent.degrees - 2.0) / recent.degrees
    variance = np.diagonal(law.cov, axis1=1, axis2=2) * factor
    density = tail.log_density((recent.Y[n:] - law.mean) ** 2 / variance, recent.degrees, tail.log_norm(recent.degrees))
    return Judgement(slope, density - 0.5 * np.log(variance))


def loss(learner: Mixed, shared: Shared) -> float:
    """Variance that the sums of what left the ring would lose, in shares of the noise, of the worst channel."""
    old, ring = learner.mix.shared, learner.ring
    new = _mixing(recent(learner), shared).shared
    if (
        not len(ring.x)
        or np.max(learner.gone.sums.statistics.n) <= 0
        or np.array_equal(old.lengthscale, new.lengthscale)
    ):
        return 0.0
    gone = inducing.features(old, ring.x) @ inducing.transfer(old, new).T - inducing.features(new, ring.x)
    size = np.sum(learner.mix.Bg**2, axis=1) + learner.mix.phi * np.sum(learner.mix.Bd**2, axis=1)
    return float(np.max(np.mean(np.sum(gone**2, axis=1)) * size / learner.noise_var))


def _mixing(recent: MixedRecent, shared: Shared) -> Mixing:
    return hierarchy.mixing(shared, recent.own, recent.plan.kernel)
