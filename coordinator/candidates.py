"""What the nonlinear part of the basis may look at: a few candidates, between which the evidence of the agents' recent frames decides.

The first inducing inputs look at the clock and at covariates, for want of anything better. Candidates look at the channels
themselves, at how they changed last, and from further off: with a long lengthscale a few dozen inducing inputs are nearly
all products of two inputs. None of them is fitted to a target, so that as many frames as there are can judge between them.
"""

from __future__ import annotations

import numpy as np

from coordinator.state import Candidate
from fleetgp import inducing, placement
from fleetgp.arrays import Array
from fleetgp.features import Basis, Shape
from fleetgp.inducing import Inducing
from fleetgp.schema import Schema

# lengthscales of the candidates, in those of the rule of thumb
NEAR, FAR = 1.6, 2.5
# a channel's steps vary by more than what of them is not foreseen
MORE = 1.5


def columns(schema: Schema, shape: Shape, live: Inducing) -> tuple[tuple[int, ...], ...]:
    """What candidates look at beside the live columns: the clock, the last readings and their last steps; none where that is
    nothing new, or more than one kernel can take."""
    clock = _clock(schema, shape)
    levels = (*clock, *range(shape.channels))
    steps = tuple(inducing.difference(q, shape.channels + q, shape.inputs) for q in range(shape.channels))
    found = ((*levels, *steps) if shape.lags > 1 else levels,)
    return tuple(one for one in found if len(one) <= placement.MOST_CHOSEN and not set(one) <= set(live.columns))


def candidates(schema: Schema, basis: Basis, noise_var: Array) -> tuple[Candidate, ...]:
    """The live inducing inputs first; noise_var [Q] of the fleet, in squared scales: nearly the square of a channel's step."""
    live, step = basis.shared, MORE * np.sqrt(noise_var)
    assert live is not None
    found = [Candidate("as it is", live)]
    for picked in columns(schema, basis.shape, live):
        is_of_steps = picked[-1] >= basis.shape.inputs
        name = "the last readings and their last steps" if is_of_steps else "the last readings"
        for factor in (NEAR, FAR) if is_of_steps else (NEAR,):
            word = f"{name}, from {factor:g} times the usual distance"
            found.append(_spread(word, basis, live, picked, step, factor))
    return tuple(found)


def _clock(schema: Schema, shape: Shape) -> tuple[int, ...]:
    """Columns that are known before a frame: the first phase, and covariates known ahead. Other covariates stay in the linear
    part: what one season shows of them does not hold in the next."""
    before = shape.lags * shape.channels
    ahead = (before + c for c, covariate in enumerate(schema.covariates) if covariate.known_ahead)
    first = before + shape.covariates
    return (*range(first, first + min(2, shape.phases)), *ahead)


def _spread(name: str, basis: Basis, live: Inducing, columns: tuple[int, ...], step: Array, factor: float) -> Candidate:
    """Inducing inputs spread as the fleet's moments say inputs lie: at long lengthscales k-means finds no better places."""
    unit = placement.unit(basis.shape, basis.scaling, columns, step)
    Z = unit.centre + unit.scale * placement.spread(len(live.Z), len(columns))
    length = factor * placement.lengthscale(len(columns)) * unit.scale
    return Candidate(name, inducing.make(live.kernel, columns, Z, length))
