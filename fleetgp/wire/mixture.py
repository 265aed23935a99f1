"""The fleet's model of mixed channels between its message and the mathematics: scale, shared values, belief, noise."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fleetgp import inducing
from fleetgp.arrays import Array
from fleetgp.errors import NumericalError, PeerError
from fleetgp.gp import position
from fleetgp.gp.aggregate import Belief
from fleetgp.gp.hierarchy import Shared
from fleetgp.scaling import Scaling
from fleetgp.schema import Schema
from fleetgp.wire.convert import from_triangles, to_array, to_tensor, to_triangles
from fleetgp.wire.knowledge import FURTHEST, LARGEST, Stamp
from fleetgp.wire.messages import FleetModel, Included

# logarithms of a deviation's scale and of a lengthscale's ratio beyond all sense
MOST_LOG = 20.0


class Mixture(NamedTuple):
    """What a FleetModel says of mixed channels. belief: all agents included; noise_var [Q]."""

    scaling: Scaling
    shared: Shared
    belief: Belief
    noise_var: Array
    noise_frames: float


def write(known: Mixture, schema: Schema, stamp: Stamp, included: dict[str, Included]) -> FleetModel:
    """The message of a model, from which ``read`` has it bit for bit. Raises LocalError ``finite``."""
    shared = known.shared
    F = known.belief.shift.shape[1]
    return FleetModel(
        at_ms=stamp.at_ms,
        round=stamp.round,
        origin=stamp.origin,
        basis=stamp.basis,
        schema=schema,
        centre=to_tensor(known.scaling.centre),
        scale=to_tensor(known.scaling.scale),
        precision=to_tensor(to_triangles(known.belief.precision)),
        shift=to_tensor(known.belief.shift),
        deviation_scale=to_tensor(np.full(F, float(np.exp(shared.log_phi)))),
        noise_variance=to_tensor(known.noise_var),
        noise_frames=known.noise_frames,
        included=included,
        inducing=to_tensor(shared.Zg),
        lengthscale=to_tensor(np.exp(shared.log_lengthscale)),
        columns=position.plan(schema, 0).columns,
        loadings=to_tensor(shared.Bg),
        log_lengthscale=to_tensor(shared.log_lengthscale),
        log_phi=to_tensor(shared.log_phi),
    )


def read(model: FleetModel, schema: Schema) -> Mixture:
    """The mathematics of a model for agents of this schema. Raises PeerError ``shape``, ``finite`` or ``range``."""
    plan = position.plan(schema, 0)
    Q, K, D = plan.channels, len(schema.inputs), len(plan.columns)
    F = plan.ranks.shared * plan.inducing
    if model.inducing is None or model.loadings is None or model.log_lengthscale is None or model.log_phi is None:
        raise PeerError(
            "shape", "mixed channels without loadings, inducing inputs, lengthscales or a deviation's scale"
        )
    scaling = Scaling(to_array(model.centre, (K,), "centre"), to_array(model.scale, (K,), "scale"))
    shared = Shared(
        to_array(model.loadings, (Q, plan.ranks.shared), "loadings"),
        to_array(model.inducing, (plan.inducing, D), "inducing"),
        to_array(model.log_lengthscale, (D,), "log_lengthscale"),
        to_array(model.log_phi, (), "log_phi"),
    )
    triangles = to_array(model.precision, (1, F * (F + 1) // 2), "precision")
    shift = to_array(model.shift, (1, F), "shift")
    noise_var = to_array(model.noise_variance, (Q,), "noise_variance")
    for positive in (scaling.scale, noise_var):
        if not np.all((positive >= 1 / LARGEST) & (positive <= LARGEST)):
            raise PeerError("range", "a scale or a variance of the model is not positive or beyond all sense")
    if not all(np.all(np.abs(numbers) <= LARGEST) for numbers in (scaling.centre, triangles, shift)):
        raise PeerError("range", f"a number of the model is beyond {LARGEST:g}")
    if not model.noise_frames >= 0:
        raise PeerError("range", f"a noise learnt from {model.noise_frames:g} frames")
    check_shared(shared, position.start(plan, scaling).lengthscale_g)
    return Mixture(scaling, shared, Belief(from_triangles(triangles, F), shift), noise_var, model.noise_frames)


def check_shared(shared: Shared, usual: Array) -> None:
    """Raise PeerError ``range`` where nothing can come of them; usual [D]: lengthscale of a position as wide as the scale says."""
    if not np.all(np.abs(shared.Zg) <= FURTHEST) or not np.all(np.abs(shared.Bg) <= np.exp(MOST_LOG)):
        raise PeerError("range", "a loading or an inducing input of the model is beyond all sense")
    if abs(float(shared.log_phi)) > MOST_LOG or not np.all(np.abs(shared.log_lengthscale - np.log(usual)) <= MOST_LOG):
        raise PeerError("range", "a lengthscale or the deviation's scale is beyond all sense")
    try:
        inducing.make("se", tuple(range(len(usual))), shared.Zg, np.exp(shared.log_lengthscale))
    except NumericalError as err:
        raise PeerError("range", f"no features come of the inducing inputs: {err}") from err
