"""What a forecast's mean is made of: base, what the fleet knows, what this agent does otherwise, its private layer.

The weights of the shared features are w = v + d with v ~ N(m, S) from the fleet without this agent and d ~ N(0, Phi). Given
w, d says nothing of the readings, so E[d | all] = Phi (S + Phi)^-1 (E[w | all] - m) whatever E[w | all] was made of: a long
or a short memory, an exact solution or updates since (models.md section 4). A forecast is linear in the weights, and so is
each of its parts.
"""

from __future__ import annotations

import numpy as np

from fleetgp.arrays import Array
from fleetgp.gp import tail
from fleetgp.gp.learner import Forecast, Learner

LAYERS = ("base", "shared", "deviation", "local")


def split(learner: Learner, forecast: Forecast) -> Forecast:
    """The forecast of one frame with its layers [Q, 4] told; learner: the one that it was made by."""
    F, x = learner.basis.size, forecast.features
    share = tail.share_of_long(learner.tail.tracks)[:, None]
    long, short = learner.base.mean
    weights = share * long + (1.0 - share) * short  # [Q, F + F_local]
    deviation = _deviation(learner, weights[:, :F]) @ x[:F]
    local = weights[:, F:] @ x[F:]
    return forecast._replace(layers=_summed(learner, forecast, deviation, local))


def readouts(learner: Learner, features: Array) -> Array:
    """R [2, Q, n, F + F_local] for frames' features [n, F + F_local]: deviation = R[0] (w - m), local layer = R[1] w."""
    F = learner.basis.size
    R = np.zeros((2, len(learner.unit), *features.shape))
    R[0, :, :, :F] = (features[:, :F] * _deviation_var(learner)[:, None, :]) @ learner.before.precision[:, :F, :F]
    R[1, :, :, F:] = features[:, F:]
    return R


def told(learner: Learner, forecast: Forecast, tracks: Array, read: Array) -> Forecast:
    """Forecasts of n frames with their layers [n, Q, 4]; tracks [n, T, Q]: before each; read [n, 2, T, Q]: R w, likewise."""
    F = learner.basis.size
    share = tail.share_of_long(tracks)[:, None, :]
    deviation, local = np.moveaxis(share * read[:, :, 0] + (1.0 - share) * read[:, :, 1], 1, 0)
    # R[0] m, for the shift is the precision times m
    deviation = deviation - forecast.features[:, :F] @ (_deviation_var(learner) * learner.before.shift[:, :F]).T
    return forecast._replace(layers=_summed(learner, forecast, deviation, local))


def of_one_who_is_alone(layers: Array) -> Array:
    """Layers [..., 4] of an agent that has heard of no fleet: what it took for the fleet's is its own."""
    base, shared, deviation, local = np.moveaxis(layers, -1, 0)
    return np.stack((base, np.zeros_like(shared), shared + deviation, local), axis=-1)


def _summed(learner: Learner, forecast: Forecast, deviation: Array, local: Array) -> Array:
    """Layers [..., Q, 4] in transformed units, of two of them [..., Q] in scaled steps; the rest of the mean is shared."""
    base, unit = forecast.inputs.last, learner.unit
    deviation, local = unit * deviation, unit * local
    return np.stack((base, forecast.mean - base - deviation - local, deviation, local), axis=-1)


def _deviation(learner: Learner, weights: Array) -> Array:
    """E d [Q, F] of weights w [Q, F]; precision: of w before the agent's own data, (S + Phi)^-1."""
    F = learner.basis.size
    apart = (weights - learner.before.mean[:, :F])[..., None]
    return np.asarray(_deviation_var(learner) * (learner.before.precision[:, :F, :F] @ apart)[..., 0])


def _deviation_var(learner: Learner) -> Array:
    """Phi [Q, F] as it is inside the prior: in a covariance intersection the agent's own layers count half."""
    return learner.knowledge.deviation_var / learner.knowledge.own_weight
