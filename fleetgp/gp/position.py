"""Where in a cycle, or along a range, a frame stands: the inputs of mixed channels, and where their inducing inputs lie.

A position in a cycle is a point on the circle of radius 1, cosine and sine of the phase. A squared exponential of one
lengthscale over these two is the periodic kernel exactly: |x - x'|^2 = 4 sin^2(pi (t - t') / T) (MacKay 1998, section 5).
The cycle is the clock's, or that of a covariate which begins anew after a period, such as an angle.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fleetgp import features
from fleetgp.arrays import Array
from fleetgp.gp.hierarchy import Own, Ranks, Shared, Start
from fleetgp.gp.ring import SIZE
from fleetgp.models import Parts, parts
from fleetgp.placement import spread
from fleetgp.scaling import Scaling
from fleetgp.schema import Kernel, Schema

# lengthscales at first, in radii of the circle or standard deviations of a position: shared functions are smoother
SHARED_LENGTH, OWN_LENGTH = 0.7, 0.5
# inducing inputs of a range lie up to so many standard deviations from its middle: a uniform one ends at 1.73
REACH = 1.9
PHI = 0.3
LOCAL_START = 0.4
NOISE = 0.3
# frames of the ring cover so many cycles at least
CYCLES = 4


WHOLE = parts("full")


class Plan(NamedTuple):
    """What is fixed by a schema. columns: which of a frame's inputs are the position, twice where one is a
    place on the circle; inducing M, own Mi: inducing inputs of
    the shared and the local layer; turn: radians from one frame to the next, 0 for a position that is not the
    clock's; period: where such a position begins anew, 0 = nowhere."""

    channels: int
    columns: tuple[int, ...]
    inducing: int
    own: int
    ranks: Ranks
    kernel: Kernel
    turn: float
    period: float = 0.0

    @property
    def is_circle(self) -> bool:
        return bool(self.turn or self.period)

    @property
    def stride(self) -> int:
        """Every how many frames one is kept in a ring, so that its SIZE frames cover CYCLES cycles."""
        return max(1, math.ceil(CYCLES * 2 * math.pi / (self.turn * SIZE))) if self.turn else 1


def plan(schema: Schema, own: int, wanted: Parts = WHOLE) -> Plan:
    """own: inducing inputs of an agent's local layer; wanted: parts of the model, the ranks of all others are 0."""
    shape = features.shape(schema)
    first = shape.lags * shape.channels
    turn = 0.0
    columns: tuple[int, ...] = (first, first) if schema.position_period else (first,)
    if schema.cycle_s:
        turn = 2 * math.pi * schema.interval_s / schema.cycle_s
        columns = (first + shape.covariates, first + shape.covariates + 1)
    shared, deviation, local = schema.ranks
    is_local = wanted.local and own > 0
    ranks = Ranks(shared * wanted.shared, deviation * wanted.deviation, local * is_local)
    return Plan(
        shape.channels, columns, schema.inducing, max(own, 1), ranks, schema.kernel, turn, schema.position_period
    )


def of(plan: Plan, inputs: Array) -> Array:
    """The position [D] that a frame's inputs stand at."""
    x = inputs.take(list(plan.columns))
    if not plan.period:
        return x
    angle = 2 * math.pi * x[0] / plan.period
    return np.array([np.cos(angle), np.sin(angle)])


def back(plan: Plan, x: Array, ticks: Array) -> Array:
    """Positions [..., 2] in the cycle so many ticks [...] before positions x [..., 2]."""
    angle = -plan.turn * ticks
    cos, sin = np.cos(angle), np.sin(angle)
    return np.stack((cos * x[..., 0] - sin * x[..., 1], sin * x[..., 0] + cos * x[..., 1]), axis=-1)


def start(plan: Plan, scaling: Scaling) -> Start:
    """Inducing inputs, and where hyperparameters start; scaling: of the position, where it is a covariate's."""
    centre, unit = np.zeros(1), np.ones(1)
    if not plan.is_circle:
        centre, unit = scaling.centre[plan.channels :], scaling.scale[plan.channels :]
    D = len(plan.columns)
    return Start(
        _grid(plan, plan.inducing, centre, unit),
        _grid(plan, plan.own, centre, unit),
        np.full(D, SHARED_LENGTH) * unit,
        np.full(D, OWN_LENGTH) * unit,
        np.full(plan.channels, NOISE),
        phi=PHI,
        kernel=plan.kernel,
    )


def _grid(plan: Plan, size: int, centre: Array, unit: Array) -> Array:
    if plan.is_circle:
        angle = 2 * math.pi * np.arange(size) / size
        return np.stack((np.cos(angle), np.sin(angle)), axis=1)
    return np.asarray(centre + unit * np.linspace(-REACH, REACH, size)[:, None])


def shared(plan: Plan, start: Start) -> Shared:
    """Shared values before a fleet has said any; loadings as if drawn from their prior, the same for everybody."""
    Bg = _loadings(plan.channels, plan.ranks.shared, 1)
    return Shared(Bg, start.Zg, np.log(start.lengthscale_g), np.asarray(math.log(start.phi)))


def own(plan: Plan, start: Start) -> Own:
    """An agent's own values at first."""
    Q, ranks = plan.channels, plan.ranks
    Bd = _loadings(Q, ranks.deviation, 1 + Q)
    Bl = LOCAL_START * _loadings(Q, ranks.local, 1 + 2 * Q)
    return Own(Bd, Bl, start.Zi, np.log(start.lengthscale_i), np.log(start.noise_var))


def _loadings(channels: int, rank: int, first: int) -> Array:
    """Loadings [Q, R] whose columns have the length that the prior N(0, 1 / R) expects; each latent goes another way."""
    ways, _ = np.linalg.qr(spread(channels, channels, first))
    return np.asarray(ways[:, :rank] * math.sqrt(channels / max(rank, 1)), dtype=float)
