"""The shared hyperparameters that a tuning steps in: inducing inputs and the log lengthscale, both in the fleet's scaled inputs.

All that a tuning must know of what its values mean is here.
"""

from __future__ import annotations

import msgspec
import numpy as np

from coordinator import basis as moving
from coordinator import fleet, intake, mixed_proposals
from coordinator.state import Chosen, State
from fleetgp import inducing, placement
from fleetgp.arrays import Array
from fleetgp.features import BLOCKS, Basis
from fleetgp.gp import hyper, recent
from fleetgp.gp.aggregate import Belief
from fleetgp.inducing import Inducing
from fleetgp.scaling import Scaling
from fleetgp.wire.messages import Gradient
from fleetgp.wire.proposal import INDUCING, LOG_LENGTHSCALE

# standard deviations of the priors: of the log of a lengthscale about the rule of thumb, of an inducing input about where it
# began, in scaled inputs. Weak: a few frames outweigh them.
LENGTHSCALE_SD = 1.0
DRIFT = 1.0
# beyond these no frames are, and no lengthscale differs from a constant or from noise
MOST_LOG_LENGTHSCALE = float(np.log(50.0))


def can_begin(state: State) -> bool:
    """Whether the live basis has values to step in."""
    return state.mixture is not None or (state.feature_map is not None and state.feature_map.shared is not None)


def channels(state: State) -> int:
    assert state.schema is not None
    return len(state.schema.channels)


def least_frames(state: State) -> int:
    """Frames below which an agent has nothing to say."""
    return mixed_proposals.LEAST_FRAMES if state.mixture is not None else recent.LEAST_FRAMES


def variances(state: State) -> tuple[Array, Array]:
    """Prior variances [Q, F] of the shared weights and of an agent's deviation, on the live basis."""
    if state.mixture is not None:
        return np.ones(mixed_proposals.size(state)), np.ones(mixed_proposals.size(state))
    return fleet.variances(state)


def start(state: State) -> dict[str, Array]:
    """The values of the live basis."""
    if state.mixture is not None:
        return mixed_proposals.start(state)
    shared, unit = _shared(state), _unit(state)
    return {
        INDUCING: (shared.Z - unit.centre) / unit.scale,
        LOG_LENGTHSCALE: np.log(shared.lengthscale / unit.scale),
    }


def written(state: State, values: dict[str, Array]) -> dict[str, Array]:
    """Values in transformed units, as they travel."""
    if state.mixture is not None:  # in the unit that they travel in
        return values
    unit = _unit(state)
    return {
        INDUCING: unit.centre + unit.scale * values[INDUCING],
        LOG_LENGTHSCALE: values[LOG_LENGTHSCALE] + np.log(unit.scale),
    }


def scaled_slopes(state: State, slopes: dict[str, Array]) -> dict[str, Array]:
    """Slopes for values in transformed units as those for scaled ones."""
    if state.mixture is not None:  # in the unit that they travel in
        return slopes
    return {INDUCING: slopes[INDUCING] * _unit(state).scale, LOG_LENGTHSCALE: slopes[LOG_LENGTHSCALE]}


def basis(state: State, values: dict[str, Array]) -> Basis:
    """The basis that these values make. Raises NotPositiveDefinite or NotFinite where they make none."""
    assert state.feature_map is not None
    shared, raw = _shared(state), written(state, values)
    made = inducing.make(shared.kernel, shared.columns, raw[INDUCING], np.exp(raw[LOG_LENGTHSCALE]))
    return state.feature_map._replace(shared=made)


def is_for_joiners(values: dict[str, Array]) -> bool:
    """Whether agents that know their own frames foresee hardly better by what is shared, and those that join do."""
    return mixed_proposals.is_of(values)


def columns(state: State) -> tuple[int, ...]:
    if state.mixture is not None:
        return mixed_proposals.columns(state)
    return _shared(state).columns


def log_prior(values: dict[str, Array], middle: dict[str, Array]) -> tuple[float, dict[str, Array]]:
    """Log prior density of values up to a constant, and its slope; middle: where they began."""
    if mixed_proposals.is_of(values):
        return mixed_proposals.log_prior(values, middle)
    away = values[INDUCING] - middle[INDUCING]
    Z, length = middle[INDUCING], values[LOG_LENGTHSCALE]
    apart = length - np.log(placement.lengthscale(Z.shape[1]))
    value = -0.5 * float(np.sum(away**2)) / DRIFT**2 - 0.5 * float(np.sum(apart**2)) / LENGTHSCALE_SD**2
    return value, {INDUCING: -away / DRIFT**2, LOG_LENGTHSCALE: -apart / LENGTHSCALE_SD**2}


def bounded(values: dict[str, Array]) -> dict[str, Array]:
    """Values held where frames can be, and where lengthscales make sense."""
    if mixed_proposals.is_of(values):
        return mixed_proposals.bounded(values)
    most = MOST_LOG_LENGTHSCALE
    return {
        INDUCING: np.clip(values[INDUCING], -placement.REACH, placement.REACH),
        LOG_LENGTHSCALE: np.clip(values[LOG_LENGTHSCALE], -most, most),
    }


def improved(values: dict[str, Array], prior_var: Array, belief: Belief) -> Array:
    """Prior variance [Q, F] after an EM step for inducing features: a smoother function has larger weights."""
    if mixed_proposals.is_of(values):
        return prior_var
    size = len(values[INDUCING])
    scale = hyper.improve_block(prior_var[:, -1], hyper.shared_square(belief)[:, -size:])
    return np.concatenate((prior_var[:, :-size], np.tile(scale[:, None], (1, size))), axis=1)


def tuned(state: State, place: Chosen) -> State:
    """The state on the basis of a step."""
    if state.mixture is not None:
        return mixed_proposals.tuned(state, place.values, place.loss)
    return moving.tuned(with_scales(state, place.prior_var), basis(state, place.values), place.loss)


def check_precision(state: State, message: Gradient, precision: Array, deviation_var: Array) -> None:
    """Raise PeerError ``range`` or ``indefinite`` where a term's precision [Q, F, F] is none that an agent can have."""
    most = intake.most_deviation(message.has_deviation, deviation_var) if state.mixture is None else None
    intake.check_precision(message.agent, precision, most)


def with_scales(state: State, prior_var: Array) -> State:
    """The state with the scale of inducing features that a tuning came to."""
    assert state.scales is not None
    is_inducing = np.arange(len(BLOCKS)) == BLOCKS.index("inducing")
    shared = np.where(is_inducing, prior_var[:, -1:], state.scales.shared)
    return msgspec.structs.replace(state, scales=state.scales._replace(shared=shared))


def _shared(state: State) -> Inducing:
    assert state.feature_map is not None
    assert state.feature_map.shared is not None
    return state.feature_map.shared


def _unit(state: State) -> Scaling:
    assert state.feature_map is not None
    return placement.unit(state.feature_map.shape, state.feature_map.scaling, _shared(state).columns)
