"""The fleet's model between its message and the mathematics: basis, belief, scales of the blocks, noise."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fleetgp import features, inducing, placement
from fleetgp.arrays import Array
from fleetgp.errors import NumericalError, PeerError
from fleetgp.features import Basis
from fleetgp.gp.aggregate import Belief
from fleetgp.inducing import Inducing
from fleetgp.scaling import Scaling
from fleetgp.schema import Schema
from fleetgp.wire.convert import from_triangles, to_array, to_tensor, to_triangles
from fleetgp.wire.messages import FleetModel, Included, Tensor

# numbers of a model beyond which sums and products stop being finite
LARGEST = 1e30
# inducing inputs lie a few scales from the centre of inputs, and may be that much further out
FURTHEST = 1e3 * LARGEST


class Published(NamedTuple):
    """What a FleetModel says. belief: all agents included; prior_var, deviation_var [Q, F]; noise_var [Q]; centres [M, D]."""

    basis: Basis
    belief: Belief
    prior_var: Array
    deviation_var: Array
    noise_var: Array
    noise_frames: float
    centres: Array | None


class Stamp(NamedTuple):
    """Which model of which coordinator this is: UTC ms, number of the round, (origin, basis) of the basis."""

    at_ms: int
    round: int
    origin: int
    basis: int


def write(known: Published, schema: Schema, stamp: Stamp, included: dict[str, Included]) -> FleetModel:
    """The message of a model, from which ``read`` has it bit for bit; local inducing inputs are nobody else's and stay out.

    Raises LocalError ``finite``.
    """
    scaling, shared = known.basis.scaling, known.basis.shared
    return FleetModel(
        at_ms=stamp.at_ms,
        round=stamp.round,
        origin=stamp.origin,
        basis=stamp.basis,
        schema=schema,
        centre=to_tensor(scaling.centre),
        scale=to_tensor(scaling.scale),
        precision=to_tensor(to_triangles(known.belief.precision)),
        shift=to_tensor(known.belief.shift),
        deviation_scale=to_tensor(known.deviation_var.mean(axis=0)),
        noise_variance=to_tensor(known.noise_var),
        noise_frames=known.noise_frames,
        included=included,
        prior_variance=to_tensor(known.prior_var),
        deviation_variance=to_tensor(known.deviation_var),
        inducing=to_tensor(shared.Z) if shared is not None else None,
        lengthscale=to_tensor(shared.lengthscale) if shared is not None else None,
        columns=shared.columns if shared is not None else (),
        centres=to_tensor(known.centres) if known.centres is not None else None,
    )


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
    if not model.noise_frames >= 0:
        raise PeerError("range", f"a noise learnt from {model.noise_frames:g} frames")
    belief = Belief(from_triangles(triangles, F), shift)
    return Published(basis, belief, prior_var, deviation_var, noise_var, model.noise_frames, _centres(model, schema))


def _inducing(model: FleetModel, schema: Schema) -> Inducing | None:
    if model.inducing is None and model.lengthscale is None:
        return None
    if model.inducing is None or model.lengthscale is None or not schema.inducing:
        raise PeerError(
            "shape", "inducing inputs without lengthscales, lengthscales without inputs, or some of no use here"
        )
    check_columns(model.columns, schema)
    lengthscale = to_array(model.lengthscale, (len(model.columns),), "lengthscale")
    return inducing_inputs(model.inducing, lengthscale, model.columns, schema)


def check_columns(columns: tuple[int, ...], schema: Schema) -> None:
    """Raise PeerError ``range`` where inducing inputs cannot look at these inputs of a frame."""
    size = features.shape(schema).inputs
    # numbers from size on are differences of two inputs (``inducing.picked``)
    is_sound = all(0 <= column < size * (size + 1) and column % size != column // size - 1 for column in columns)
    if not (0 < len(columns) <= placement.MOST_CHOSEN and is_sound):
        raise PeerError("range", f"inducing inputs look at columns {columns[:10]}, a frame has {size}")


def inducing_inputs(inputs: Tensor, lengthscale: Array, columns: tuple[int, ...], schema: Schema) -> Inducing:
    """Inducing inputs [M, D] and lengthscale [D] that a peer told. Raises PeerError ``shape``, ``finite`` or ``range``."""
    Z = to_array(inputs, (schema.inducing, len(columns)), "inducing")
    if not np.all((lengthscale >= 1 / FURTHEST) & (lengthscale <= FURTHEST)) or not np.all(np.abs(Z) <= FURTHEST):
        raise PeerError("range", "an inducing input or lengthscale is not positive or beyond all sense")
    try:
        # inputs that stand twice are told apart by the kernel's own jitter, which makes any of them a sound basis
        return inducing.make(schema.kernel, columns, Z, lengthscale)
    except NumericalError as err:
        raise PeerError("range", f"no features come of the inducing inputs: {err}") from err


def _centres(model: FleetModel, schema: Schema) -> Array | None:
    if model.centres is None or not schema.inducing:
        return None
    columns = placement.columns(features.shape(schema))
    centres = to_array(model.centres, (schema.inducing, len(columns)), "centres")
    if not np.all(np.abs(centres) <= LARGEST):
        raise PeerError("range", f"a centre is beyond {LARGEST:g}")
    return centres
