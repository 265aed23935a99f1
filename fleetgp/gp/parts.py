"""The ablations in the streaming engine: a learner in which parts of the model are switched off (``fleetgp.models``).

No deviation: its prior variance is NO_DEVIATION, in what an agent predicts and in what it tells. No private layer: no local
features. Without the fleet: the priors of a learner that knows of no fleet; the fleet's inducing features are an own copy
then, placed among the agent's own frames, or none.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fleetgp.features import Basis, Shape
from fleetgp.gp import hyper, moves
from fleetgp.gp import learner as learning
from fleetgp.gp.learner import Knowledge, Learner
from fleetgp.models import Parts
from fleetgp.scaling import Moments
from fleetgp.schema import Kernel


class Sizes(NamedTuple):
    """Inducing inputs that an agent places itself: shared = its own copy of the fleet's, local; 0 = none."""

    shared: int
    local: int


def sizes(parts: Parts, inducing: int, local: int) -> Sizes:
    """What an agent of these parts places itself; inducing: of the schema, local: of the agent's settings."""
    return Sizes(inducing if parts.deviation and not parts.shared else 0, local if parts.local else 0)


def known(knowledge: Knowledge, parts: Parts) -> Knowledge:
    """The fleet's knowledge as an agent of these parts takes it."""
    if parts.deviation or not parts.shared:
        return knowledge
    return knowledge._replace(deviation_var=np.full_like(knowledge.deviation_var, hyper.NO_DEVIATION))


def begun(moments: Moments, shape: Shape, parts: Parts) -> Learner:
    """A lone learner on its own basis, scaled by its own first readings."""
    learner = learning.on_moments(moments, shape)
    knowledge = known(learner.knowledge, parts)
    return learner if knowledge is learner.knowledge else learning.knowing(learner.basis, knowledge)


def is_missing(basis: Basis, wanted: Sizes) -> bool:
    """Whether a layer that the agent places itself is still to come."""
    return bool((wanted.shared and basis.shared is None) or (wanted.local and basis.local is None))


def place(learner: Learner, wanted: Sizes, kernel: Kernel) -> Learner:
    """Give a learner the layers that are missing, among the frames in its ring: of all it learnt these alone teach them."""
    learner = learning.folded(learner)
    if not is_missing(learner.basis, wanted) or not len(learner.ring.inputs):
        return learner
    basis, knowledge = learner.basis, learner.knowledge
    if wanted.shared and basis.shared is None:
        basis = basis._replace(shared=moves.among_own(learner, wanted.shared, kernel))
        knowledge = learning.alone(basis).knowledge
    if wanted.local and basis.local is None:
        basis = basis._replace(local=moves.among_own(learner, wanted.local, kernel))
    return learning.inform(moves.move(learner, basis), knowledge)


def switched(learner: Learner, parts: Parts, wanted: Sizes, is_of_fleet: bool) -> Learner:
    """The learner with the layers that these parts have no use for let go, which is exact, and their priors.

    is_of_fleet: it is on the fleet's basis. Its deviation, where there was none before, has the first guess until the fleet's
    next model says more.
    """
    basis = learner.basis
    if not parts.shared and not wanted.shared:
        basis = basis._replace(shared=None)
    if not wanted.local:
        basis = basis._replace(local=None)
    knowledge = learning.alone(basis).knowledge
    if parts.shared and is_of_fleet:
        had_none = np.all(learner.knowledge.deviation_var <= hyper.NO_DEVIATION)
        guess = knowledge.deviation_var
        knowledge = learner.knowledge._replace(deviation_var=guess) if had_none else learner.knowledge
    return learning.inform(moves.dropped(learner, basis), known(knowledge, parts))
