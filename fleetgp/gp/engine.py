"""One face for both engines: channels each for itself from what came before, or mixed at a position.

An agent asks here and nowhere else which of the two it has.
"""

from __future__ import annotations

import numpy as np

from fleetgp import features
from fleetgp.arrays import Array
from fleetgp.gp import layers, mixed, mixed_solve, moves, parts, position
from fleetgp.gp import learner as learning
from fleetgp.gp.learner import Forecast, Forgetting, Inputs, Learner
from fleetgp.gp.message import Term
from fleetgp.gp.mixed_state import Guess, Mixed
from fleetgp.gp.parts import Sizes
from fleetgp.models import Parts
from fleetgp.scaling import Moments
from fleetgp.schema import Kernel, Schema

Engine = Learner | Mixed
Law = Forecast | Guess


def begun(moments: Moments, schema: Schema, local: int, wanted: Parts) -> Engine:
    """A lone engine scaled by its own first readings; local: inducing inputs of an agent's private layer."""
    if schema.is_mixed:
        return mixed.on_moments(moments, position.plan(schema, local, wanted))
    return parts.begun(moments, features.shape(schema), wanted)


def foresee(engine: Engine, inputs: Inputs) -> Law:
    """The law of the next frame, from what was known before it."""
    return mixed.foresee(engine, inputs) if isinstance(engine, Mixed) else learning.foresee(engine, inputs)


def learn(engine: Engine, law: Law, observed: Array, rule: Forgetting) -> Engine:
    """After one frame that this engine foresaw: observed [Q] in transformed units, NaN = missing or not to be learnt."""
    if isinstance(engine, Mixed):
        assert isinstance(law, Guess)
        return mixed.learn(engine, law, observed, rule)
    assert isinstance(law, Forecast)
    return learning.learn(engine, law, observed, rule)


def passed(engine: Engine, law: Law) -> Engine:
    """After a frame that is not learnt."""
    return mixed.passed(engine, law) if isinstance(engine, Mixed) and isinstance(law, Guess) else engine


def settle(engine: Engine, law: Law, level: Array, rule: Forgetting) -> Engine:
    """After a place of rest that is no reading; what looks at a position alone learns nothing of it."""
    if isinstance(engine, Mixed):
        return engine
    assert isinstance(law, Forecast)
    return learning.settle(engine, law, level, rule)


def rescale(engine: Engine, moments: Moments) -> Engine:
    """Without a fleet: a new scale where it would differ by a quarter."""
    return mixed.rescale(engine, moments) if isinstance(engine, Mixed) else moves.rescale(engine, moments)


def learns_steps(engine: Engine) -> bool:
    """Whether it learns steps from the last reading: the step to a first reading is from a place nobody saw."""
    return isinstance(engine, Learner)


def is_missing(engine: Engine, wanted: Sizes) -> bool:
    """Whether own layers are still to be placed, once it is known where frames lie."""
    return isinstance(engine, Learner) and parts.is_missing(engine.basis, wanted)


def place(engine: Engine, wanted: Sizes, kernel: Kernel) -> Engine:
    """With the layers that are missing."""
    return parts.place(engine, wanted, kernel) if isinstance(engine, Learner) else engine


def split(engine: Engine, law: Law) -> Law:
    """The law with its layers told [Q, 5]: base, shared, deviation, local; pull."""
    if isinstance(law, Guess):
        return law._replace(layers=mixed.split(law))
    assert isinstance(engine, Learner)
    return layers.split(engine, law)


def folded(engine: Engine) -> Engine:
    """The fresh frames moved into the sums; what is foreseen stays as it is."""
    return mixed_solve.folded(engine) if isinstance(engine, Mixed) else learning.folded(engine)


def summary(engine: Engine) -> tuple[Term, Array | None]:
    """What an agent tells the fleet, and the mean square of its deviation by block where that is known."""
    return (mixed.summary(engine), None) if isinstance(engine, Mixed) else learning.summary(engine)


def counts(engine: Engine) -> Array:
    """Frames [Q] behind what was learnt of each channel, faded."""
    if isinstance(engine, Mixed):
        return mixed_solve.total(engine).sums.statistics.n
    return np.asarray(learning.total(engine).n[learning.LONG])


def own_noise(engine: Engine) -> Array:
    """Noise variance [Q] by an agent's own frames alone, so that no guess is counted twice."""
    return mixed_solve.own_noise(engine) if isinstance(engine, Mixed) else learning.own_noise(engine)


def has_local(engine: Engine) -> bool:
    """Whether there is a private layer."""
    return engine.plan.ranks.local > 0 if isinstance(engine, Mixed) else engine.basis.local is not None


def frames_at_hand(engine: Engine) -> int:
    """Frames in the ring."""
    return len(engine.ring.x) if isinstance(engine, Mixed) else len(engine.ring.inputs)
