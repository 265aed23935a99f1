"""A proposal of the slow clock and the answer to it, between their messages and the mathematics."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fleetgp import features
from fleetgp.arrays import Array
from fleetgp.errors import PeerError
from fleetgp.gp.aggregate import Belief
from fleetgp.inducing import Inducing
from fleetgp.schema import Schema
from fleetgp.wire.convert import from_triangles, to_array, to_tensor, to_triangles
from fleetgp.wire.knowledge import LARGEST, check_columns, inducing_inputs
from fleetgp.wire.messages import Tensor, Tuning

INDUCING, LOG_LENGTHSCALE = "inducing", "log_lengthscale"
# log of a lengthscale in the unit of its inputs, of any sense
LARGEST_LOG = 700.0


class Proposed(NamedTuple):
    """What a proposal says: inducing inputs, and the fleet's belief on recent frames; None = nothing is known of it yet."""

    shared: Inducing
    belief: Belief | None


def told(values: dict[str, Array]) -> dict[str, Tensor]:
    """Arrays by name, as they travel. Raises LocalError ``finite``."""
    return {name: to_tensor(value) for name, value in values.items()}


def belief_of(precision: Array, shift: Array) -> tuple[Tensor, Tensor]:
    """A belief or term [Q, F, F], [Q, F] as it travels."""
    return to_tensor(to_triangles(precision)), to_tensor(shift)


def arrays(tensors: dict[str, Tensor], shapes: dict[str, tuple[int, ...]], what: str) -> dict[str, Array]:
    """Arrays of exactly these names and shapes. Raises PeerError ``shape``, ``finite`` or ``range``."""
    if tensors.keys() != shapes.keys():
        raise PeerError("shape", f"{what} are {', '.join(sorted(tensors))[:100]}, not {', '.join(sorted(shapes))}")
    result = {name: to_array(tensors[name], shape, f"{what} {name}") for name, shape in shapes.items()}
    if not all(np.all(np.abs(one) <= LARGEST) for one in result.values()):
        raise PeerError("range", f"{what} hold a number beyond {LARGEST:g}")
    return result


def read(tuning: Tuning, schema: Schema) -> Proposed:
    """The mathematics of a proposal for agents of this schema. Raises PeerError ``shape``, ``finite`` or ``range``."""
    check_columns(tuning.columns, schema)
    D = len(tuning.columns)
    values = arrays(tuning.values, {INDUCING: (schema.inducing, D), LOG_LENGTHSCALE: (D,)}, "values")
    if not np.all(np.abs(values[LOG_LENGTHSCALE]) <= LARGEST_LOG):
        raise PeerError("range", "a lengthscale is beyond all sense")
    lengthscale = np.exp(values[LOG_LENGTHSCALE])
    shared = inducing_inputs(tuning.values[INDUCING], lengthscale, tuning.columns, schema)
    if tuning.precision is None or tuning.shift is None:
        return Proposed(shared, None)
    Q, F = len(schema.channels), features.shape(schema).linear + schema.inducing
    triangles = to_array(tuning.precision, (Q, F * (F + 1) // 2), "precision")
    shift = to_array(tuning.shift, (Q, F), "shift")
    if not all(np.all(np.abs(numbers) <= LARGEST) for numbers in (triangles, shift)):
        raise PeerError("range", f"a number of the belief is beyond {LARGEST:g}")
    return Proposed(shared, Belief(from_triangles(triangles, F), shift))
