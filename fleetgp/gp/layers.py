"""What a forecast's mean is made of: base, what the fleet knows, what this agent does otherwise, its private layer.

The weights of the shared features are w = v + d with v ~ N(m, S) from the fleet without this agent and d ~ N(0, Phi). Given
w, d says nothing of the readings, so E[d | all] = Phi (S + Phi)^-1 (E[w | all] - m) whatever E[w | all] was made of: a long
or a short memory, an exact solution or updates since (models.md section 4). A forecast is linear in the weights, and so is
each of its parts.

The forecast is a step from the last reading. So that a level can be told of it, there is also the pull of what the fleet
knows: by how much of a distance the shared linear block would take the channel back in one frame, all else as it is. Where
the other layers push by p a frame, they keep the channel p / pull from where the fleet alone would have it.
"""

from __future__ import annotations

import numpy as np

from fleetgp.arrays import Array
from fleetgp.gp import tail
from fleetgp.gp.learner import Forecast, Learner


def split(learner: Learner, forecast: Forecast) -> Forecast:
    """The forecast of one frame with its layers told [Q, 5]: base, shared, deviation, local; pull. learner: its maker."""
    F, x = learner.basis.size, forecast.features
    share = tail.share_of_long(learner.tail.tracks)[:, None]
    long, short = learner.base.mean
    weights = share * long + (1.0 - share) * short  # [Q, F + F_local]
    own = _deviation(learner, weights[:, :F])
    local = weights[:, F:] @ x[F:]
    Q, L, *_ = learner.basis.shape
    shared, slope = weights[:, 1 : L * Q + 1] - own[:, 1 : L * Q + 1], learner.line.slope[: L * Q]
    pull = -learner.unit * np.einsum(
        "qlq,lq->q", shared.reshape(Q, L, Q), slope.reshape(L, Q)
    )  # each channel's own lags
    return forecast._replace(layers=_summed(learner, forecast, own @ x[:F], local, pull))


def readouts(learner: Learner, features: Array) -> Array:
    """R [3, Q, n, F + F_local] for frames' features [n, F + F_local]: deviation, local layer and pull are R w - c."""
    F, var, C = learner.basis.size, _deviation_var(learner), learner.before.precision
    C, lags = C[:, :F, :F], _lags(learner)
    R = np.zeros((3, len(learner.unit), *features.shape))
    R[0, :, :, :F] = (features[:, :F] * var[:, None, :]) @ C
    R[1, :, :, F:] = features[:, F:]
    R[2, :, :, :F] = ((lags * var)[:, None, :] @ C) - lags[:, None, :]
    return R


def told(learner: Learner, forecast: Forecast, tracks: Array, read: Array) -> Forecast:
    """Forecasts of n frames with their layers [n, Q, 5]; tracks [n, T, Q]: before each; read [n, 3, T, Q]: R w, likewise."""
    share = tail.share_of_long(tracks)[:, None, :]
    deviation, local, pull = np.moveaxis(share * read[:, :, 0] + (1.0 - share) * read[:, :, 1], 1, 0)
    # c, for the shift is the precision times m
    F = learner.basis.size
    apart = _deviation_var(learner) * learner.before.shift[:, :F]
    deviation = deviation - forecast.features[:, :F] @ apart.T
    return forecast._replace(
        layers=_summed(learner, forecast, deviation, local, pull - np.sum(apart * _lags(learner), axis=1))
    )


def of_one_who_is_alone(layers: Array) -> Array:
    """Layers [..., 5] of an agent that has heard of no fleet: what it took for the fleet's is its own, and nothing pulls."""
    base, shared, deviation, local, pull = np.moveaxis(layers, -1, 0)
    return np.stack((base, np.zeros_like(shared), shared + deviation, local, np.zeros_like(pull)), axis=-1)


def _summed(learner: Learner, forecast: Forecast, deviation: Array, local: Array, pull: Array) -> Array:
    """Layers [..., Q, 5] in transformed units, of two of them [..., Q] in scaled steps; the rest of the mean is shared."""
    base, unit = forecast.inputs.last, learner.unit
    result = np.empty((*base.shape, 5))
    result[..., 0], result[..., 4] = base, pull
    result[..., 2], result[..., 3] = unit * deviation, unit * local
    result[..., 1] = forecast.mean - base - result[..., 2] - result[..., 3]
    return result


def _lags(learner: Learner) -> Array:
    """What one more in all lags of a channel itself adds to its features [Q, F], in steps of its own scale."""
    Q, L, *_ = learner.basis.shape
    result = np.zeros((Q, learner.basis.size))
    for q in range(Q):
        columns = slice(q, L * Q, Q)
        result[q, 1:][columns] = learner.unit[q] * learner.line.slope[columns]
    return result


def _deviation(learner: Learner, weights: Array) -> Array:
    """E d [Q, F] of weights w [Q, F]; precision: of w before the agent's own data, (S + Phi)^-1."""
    F = learner.basis.size
    apart = (weights - learner.before.mean[:, :F])[..., None]
    return np.asarray(_deviation_var(learner) * (learner.before.precision[:, :F, :F] @ apart)[..., 0])


def _deviation_var(learner: Learner) -> Array:
    """Phi [Q, F] as it is inside the prior: in a covariance intersection the agent's own layers count half."""
    return learner.knowledge.deviation_var / learner.knowledge.own_weight
