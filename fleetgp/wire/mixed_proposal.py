"""A proposal of the slow clock for mixed channels: loadings, one lengthscale, the scale of the deviation."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fleetgp.arrays import Array
from fleetgp.errors import PeerError
from fleetgp.gp.aggregate import Belief
from fleetgp.gp.hierarchy import Shared
from fleetgp.wire import proposal
from fleetgp.wire.convert import from_triangles, to_array
from fleetgp.wire.knowledge import LARGEST
from fleetgp.wire.messages import Tuning
from fleetgp.wire.mixture import check_shared

LOADINGS, LOG_LENGTHSCALE, LOG_PHI = "loadings", proposal.LOG_LENGTHSCALE, "log_phi"


class Proposed(NamedTuple):
    """What a proposal says: shared values, and the fleet's belief on recent frames; None = nothing is known of it yet."""

    shared: Shared
    belief: Belief | None


def values(shared: Shared) -> dict[str, Array]:
    """What is proposed of shared values; inducing inputs stay where they are."""
    return {LOADINGS: shared.Bg, LOG_LENGTHSCALE: shared.log_lengthscale, LOG_PHI: shared.log_phi}


def shared(values: dict[str, Array], like: Shared) -> Shared:
    """Shared values with what was proposed in them."""
    return Shared(values[LOADINGS], like.Zg, values[LOG_LENGTHSCALE], values[LOG_PHI])


def read(tuning: Tuning, live: Shared, usual: Array) -> Proposed:
    """live: the agent's shared values; usual [D]: lengthscale at first. Raises PeerError ``shape``, ``finite`` or ``range``."""
    shapes = {name: value.shape for name, value in values(live).items()}
    made = shared(proposal.arrays(tuning.values, shapes, "values"), live)
    check_shared(made, usual)
    if tuning.precision is None or tuning.shift is None:
        return Proposed(made, None)
    F = live.Bg.shape[1] * len(live.Zg)
    triangles = to_array(tuning.precision, (1, F * (F + 1) // 2), "precision")
    shift = to_array(tuning.shift, (1, F), "shift")
    if not all(np.all(np.abs(numbers) <= LARGEST) for numbers in (triangles, shift)):
        raise PeerError("range", f"a number of the belief is beyond {LARGEST:g}")
    return Proposed(made, Belief(from_triangles(triangles, F), shift))
