"""The fleet's model between its message and the mathematics: basis, belief, scales of the blocks, noise."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fleetgp import features, inducing, placement
from fleetgp.arrays import Array
from fleetgp.errors import PeerError
from fleetgp.features import Basis
from fleetgp.gp.aggregate import Belief
from fleetgp.inducing import Inducing
from fleetgp.scaling import Scaling
from fleetgp.schema import Schema
from fleetgp.wire.convert import from_triangles, to_array
from fleetgp.wire.messages import FleetModel

# numbers of a model beyond which sums and products stop being finite
LARGEST = 1e30


class Published(NamedTuple):
    """What a FleetModel says. belief: all agents included; prior_var, deviation_var [Q, F]; noise_var [Q]; centres [M, D]."""

    basis: Basis
    belief: Belief
    prior_var: Array
    deviation_var: Array
    noise_var: Array
    noise_frames: float
    centres: Array | None


def read(model: FleetModel, schema: Schema) -> Published:
    """The mathematics of a model for agents of this schema. Raises PeerError ``shape``, ``finite`` or ``range``."""
    shape = features.shape(schema)
    Q, K = shape.channels, shape.channels + shape.covariates
    scaling = Scaling(to_array(model.centre, (K,), "centre"), to_array(model.scale, (K,), "scale"))
    basis = Basis(shape, scaling, _inducing(model, schema))
    F = basis.size
    if model.deviation_variance is None:
        deviation_var = np.tile(to_array(model.deviation_scale, (F,), "deviation_scale"), (Q, 1))
    else:
        deviation_var = to_array(model.deviation_variance, (Q, F), "deviation_variance")
    prior_var = np.ones((Q, F))
    if model.prior_variance is not None:
        prior_var = to_array(model.prior_variance, (Q, F), "prior_variance")
    noise_var = to_array(model.noise_variance, (Q,), "noise_variance")
    triangles = to_array(model.precision, (Q, F * (F + 1) // 2), "precision")
    shift = to_array(model.shift, (Q, F), "shift")
    for positive in (scaling.scale, prior_var, deviation_var, noise_var):
        if not np.all((positive >= 1 / LARGEST) & (positive <= LARGEST)):
            raise PeerError("range", "a scale or a variance of the model is not positive or beyond all sense")
    if not all(np.all(np.abs(numbers) <= LARGEST) for numbers in (scaling.centre, triangles, shift)):
        raise PeerError("range", f"a number of the model is beyond {LARGEST:g}")
    belief = Belief(from_triangles(triangles, F), shift)
    return Published(basis, belief, prior_var, deviation_var, noise_var, model.noise_frames, _centres(model, schema))


def _inducing(model: FleetModel, schema: Schema) -> Inducing | None:
    if model.inducing is None or model.lengthscale is None:
        return None
    D, inputs = len(model.columns), features.shape(schema).inputs
    if not (0 < D <= placement.MOST_COLUMNS and all(0 <= column < inputs for column in model.columns)):
        raise PeerError("range", f"inducing inputs look at columns {model.columns}, a frame has {inputs}")
    Z = to_array(model.inducing, (schema.inducing, D), "inducing")
    lengthscale = to_array(model.lengthscale, (D,), "lengthscale")
    if not np.all((lengthscale >= 1 / LARGEST) & (lengthscale <= LARGEST)) or not np.all(np.abs(Z) <= LARGEST):
        raise PeerError("range", "an inducing input or lengthscale is not positive or beyond all sense")
    return inducing.make(schema.kernel, model.columns, Z, lengthscale)


def _centres(model: FleetModel, schema: Schema) -> Array | None:
    if model.centres is None or not schema.inducing:
        return None
    columns = placement.columns(features.shape(schema))
    centres = to_array(model.centres, (schema.inducing, len(columns)), "centres")
    if not np.all(np.abs(centres) <= LARGEST):
        raise PeerError("range", f"a centre is beyond {LARGEST:g}")
    return centres
