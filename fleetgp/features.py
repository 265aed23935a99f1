"""Feature maps: the linear block of bias, lags, covariates, calendar phases and indicators of held inputs; inducing blocks.

The inputs of a frame [D], D = L Q + C + P + H, in transformed units: lag 1 of all Q channels, lag 2, ..., C covariates,
P sines and cosines of the calendar, and H = Q + C indicators that are 1 where an input had to be held over. Features
[F + F_local]: the bias, the scaled inputs, shared inducing features; then those of the agent's local layer.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fleetgp import inducing
from fleetgp.arrays import Array
from fleetgp.inducing import Inducing
from fleetgp.scaling import Scaling
from fleetgp.schema import Schema

BLOCKS = ("bias", "lags", "covariates", "phases", "held", "inducing", "local")
# Prior standard deviation of each block's weights, per standard deviation of its input: weights are whitened, so the
# features carry it. A step from the last reading is mostly small and mostly shared out among few inputs.
PRIOR_SD = {
    "bias": 0.5, "lags": 0.25, "covariates": 0.15, "phases": 0.3, "held": 0.1, "inducing": 0.2, "local": 0.2,
}  # fmt: skip
SHARED_VAR, LOCAL_VAR = PRIOR_SD["inducing"] ** 2, PRIOR_SD["local"] ** 2
PHASE_SD = float(np.sqrt(0.5))


class Shape(NamedTuple):
    """Numbers of channels Q, lags L, covariates C and phase columns P."""

    channels: int
    lags: int
    covariates: int
    phases: int = 0

    @property
    def inputs(self) -> int:
        """D, length of a frame's inputs."""
        return (self.lags + 1) * self.channels + 2 * self.covariates + self.phases

    @property
    def linear(self) -> int:
        """Features of the linear block."""
        return 1 + self.inputs


class Basis(NamedTuple):
    """A feature map. scaling [Q + C] of channels and covariates; shared: inducing inputs of the fleet; local: of this agent."""

    shape: Shape
    scaling: Scaling
    shared: Inducing | None = None
    local: Inducing | None = None

    @property
    def size(self) -> int:
        """F, features of the shared layer."""
        return self.shape.linear + (len(self.shared.Z) if self.shared else 0)

    @property
    def local_size(self) -> int:
        return len(self.local.Z) if self.local else 0


class Line(NamedTuple):
    """The linear block: slope [D] times what inputs [D] are above centre [D]."""

    centre: Array
    slope: Array


def shape(schema: Schema) -> Shape:
    return Shape(len(schema.channels), schema.lags, len(schema.covariates), 2 * schema.harmonics * len(schema.phases))


def blocks(shape: Shape, inducing: int = 0, local: int = 0) -> Array:
    """Index into BLOCKS of every feature [F + F_local]; doubles, as arrays of state are."""
    sizes = (1, shape.lags * shape.channels, shape.covariates, shape.phases, shape.channels + shape.covariates)
    return np.repeat(np.arange(len(BLOCKS)), (*sizes, inducing, local)).astype(float)


def phases(at_ms: Array, schema: Schema) -> Array:
    """Sines and cosines [n, P] of the calendar at UTC times [n], harmonics 1, 2, ... of each period in turn."""
    turns = [np.multiply.outer(np.mod(at_ms, 1000 * period) / (1000 * period), np.arange(1, schema.harmonics + 1))
             for period in schema.phases]  # fmt: skip
    if not turns:
        return np.zeros((len(at_ms), 0))
    angle = 2 * np.pi * np.concatenate(turns, axis=1)
    return np.stack((np.cos(angle), np.sin(angle)), axis=2).reshape(len(at_ms), -1)


def scale(basis_shape: Shape, scaling: Scaling) -> Scaling:
    """Centre and scale of every input of a frame [D]; phases and indicators stay as they are."""
    Q, L, C, P = basis_shape
    held = Q + C
    centre = np.concatenate((np.tile(scaling.centre[:Q], L), scaling.centre[Q:], np.zeros(P + held)))
    size = np.concatenate((np.tile(scaling.scale[:Q], L), scaling.scale[Q:], np.ones(P + held)))
    return Scaling(centre, size)


def line(basis: Basis) -> Line:
    """The linear block of a basis, ready for many frames."""
    scaled, sd = scale(basis.shape, basis.scaling), _sd(basis.shape)
    return Line(scaled.centre, sd / scaled.scale)


def features(basis: Basis, inputs: Array, line_: Line | None = None) -> Array:
    """Features [n, F + F_local] of frames' inputs [n, D], or [F + F_local] of one frame's [D]; line_: ``line(basis)``, once made."""
    centre, slope = line_ or line(basis)
    D, F = basis.shape.inputs, basis.size
    result = np.empty((*inputs.shape[:-1], F + basis.local_size))
    result[..., 0] = PRIOR_SD["bias"]
    np.multiply(inputs - centre, slope, out=result[..., 1 : D + 1])
    if basis.shared:
        np.multiply(inducing.features(basis.shared, inputs), PRIOR_SD["inducing"], out=result[..., D + 1 : F])
    if basis.local:
        np.multiply(inducing.features(basis.local, inputs), PRIOR_SD["local"], out=result[..., F:])
    return result


def residual(basis: Basis, features: Array) -> Array:
    """What the inducing features of shared and local layer cannot express [..., 2], per unit of weight variance; features [..., F]."""
    F, linear = basis.size, basis.shape.linear
    shared = inducing.residual(features[..., linear:F], SHARED_VAR) if basis.shared else np.zeros(features.shape[:-1])
    local = inducing.residual(features[..., F:], LOCAL_VAR) if basis.local else np.zeros(features.shape[:-1])
    return np.array((shared, local)) if features.ndim == 1 else np.stack((shared, local), axis=-1)


def change(old: Basis, new: Basis) -> Array:
    """T [F_new, F_old] (local features included) with features_new = T features_old: exact for the linear block.

    The bias feature is the constant p_0, a feature j is p_j times its scaled input x_j: x_new = (s x_old + c - c') / s',
    so T scales each feature and moves it by a multiple of the bias. Inducing blocks: the projection of models.md
    section 3, the identity where the inducing inputs stay, nothing where there were none.
    """
    T = np.zeros((new.size + new.local_size, old.size + old.local_size))
    D = old.shape.inputs
    was, is_ = scale(old.shape, old.scaling), scale(new.shape, new.scaling)
    T[0, 0] = 1.0
    T[np.arange(1, D + 1), np.arange(1, D + 1)] = was.scale / is_.scale
    T[1 : D + 1, 0] = _sd(old.shape) * ((was.centre - is_.centre) / is_.scale) / PRIOR_SD["bias"]
    _carry(T[D + 1 : new.size, D + 1 : old.size], old.shared, new.shared)
    _carry(T[new.size :, old.size :], old.local, new.local)
    return T


def _carry(block: Array, old: Inducing | None, new: Inducing | None) -> None:
    if old is None or new is None or old.columns != new.columns:
        return
    block[:] = np.eye(len(new.Z)) if same(old, new) else inducing.transfer(old, new)


def same(old: Inducing | None, new: Inducing | None) -> bool:
    """Whether two inducing blocks are one."""
    if old is None or new is None:
        return old is new
    return (old.kernel, old.columns) == (new.kernel, new.columns) and (
        np.array_equal(old.Z, new.Z) and np.array_equal(old.lengthscale, new.lengthscale)
    )


def _sd(basis_shape: Shape) -> Array:
    """Prior standard deviation of the weight of each input [D]."""
    Q, L, C, P = basis_shape
    names = (("lags", L * Q), ("covariates", C), ("phases", P), ("held", Q + C))
    return np.concatenate([np.full(n, PRIOR_SD[name]) for name, n in names])
