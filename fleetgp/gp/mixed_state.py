"""What a learner of mixed channels is made of. No behaviour."""

from __future__ import annotations

from typing import NamedTuple

import msgspec
import numpy as np

from fleetgp.arrays import Array
from fleetgp.gp import joint
from fleetgp.gp.aggregate import Belief
from fleetgp.gp.chain import Chain, Past
from fleetgp.gp.hierarchy import Own, Shared, Start
from fleetgp.gp.joint import Correlation
from fleetgp.gp.mixing import Mixing, Posterior
from fleetgp.gp.position import Plan
from fleetgp.gp.tail import Tail
from fleetgp.scaling import Scaling


class Known(NamedTuple):
    """What comes from outside an agent's own data: shared values, and the fleet's belief without the agent on them.

    noise_guess [Q] of frames one by one, worth noise_frames; own_weight: 1/2 in a covariance intersection.
    """

    shared: Shared
    belief: Belief
    noise_guess: Array
    noise_frames: float
    own_weight: float


class Row(NamedTuple):
    """One learnt frame that is yet to go into the ring: what ``Chain`` keeps of it, each without its first axis."""

    x: Array
    earlier: Array
    y: Array
    before: Array
    ticks: Array
    weights: Array


class Told(NamedTuple):
    """How one learnt frame was foreseen: errors, squares [Q] and scales [G, Q] as in ``ring.Row``."""

    errors: Array
    squares: Array
    scales: Array


class Climbing(NamedTuple):
    """How far the agent's own values are learnt: at: frames after which to go on; steps, slopes [k, P]: of the curvature."""

    at: float
    steps: Array
    slopes: Array


NOT_YET = Climbing(24.0, np.zeros((0, 0)), np.zeros((0, 0)))


class Mixed(msgspec.Struct, frozen=True, tag="ilmm"):
    """gone: frames that left the ring; weights: after all that was learnt; rho [Q]; spare [2]: mean of what both bases cannot
    express; fresh: frames since the last solution, told: since the last refresh; earlier [D]: position of the last frame, NaN where none is kept; frames: learnt in all."""

    plan: Plan
    scaling: Scaling
    start: Start
    known: Known
    own: Own
    mix: Mixing
    gone: Past
    ring: Chain
    weights: Posterior
    rho: Array
    spare: Array
    tail: Tail
    correlation: Correlation
    climbing: Climbing
    earlier: Array
    fresh: tuple[Row, ...] = ()
    told: tuple[Told, ...] = ()
    frames: int = 0

    @property
    def unit(self) -> Array:
        """Scale [Q] of the channels."""
        return self.scaling.scale[: self.plan.channels]

    @property
    def centre(self) -> Array:
        return self.scaling.centre[: self.plan.channels]

    @property
    def noise_var(self) -> Array:
        """Variance [Q] of what a channel errs by at one frame, scaled: of the innovations and of what goes on."""
        return np.asarray(self.mix.noise_var / (1.0 - self.rho**2))


class Guess(NamedTuple):
    """A law of the next frame: mean, scale [Q] and degrees [Q] of each channel, correlation [Q, Q] of all.

    rows [Q, W]: of the weights, less what the last errors hold of them; reach: rows times their covariance; variance [Q]:
    squared scale before the tail's factor, scaled; noise [Q] of the innovations; parts [Q, 4]:
    a base and what shared, deviation and local layer add to it, in transformed units; layers: as told, where asked for. The
    rest is what a Row keeps.
    """

    mean: Array
    scale: Array
    degrees: Array
    correlation: Array
    rows: Array
    reach: Array
    variance: Array
    noise: Array
    parts: Array
    x: Array
    earlier: Array
    ticks: Array
    before: Array
    layers: Array | None = None

    @property
    def sd(self) -> Array:
        """Standard deviation [Q] in transformed units."""
        return np.asarray(self.scale * np.sqrt(self.degrees / (self.degrees - 2.0)))

    @property
    def covariance(self) -> Array:
        """Squared-scale matrix [Q, Q] of the joint law of all channels, in transformed units."""
        return joint.covariance(self.correlation, self.scale)
