"""What the coordinator does otherwise for a fleet of mixed channels: its basis, its model, and what it lets in.

The basis is the scale and the shared values of the latent functions. In another scale nothing that was told holds: of a shift
of readings a term says nothing. Agents tell anew on the next round, exactly, for their sums know of no loadings.
"""

from __future__ import annotations

import msgspec
import numpy as np

from coordinator import basis, fleet, intake
from coordinator.intake import Contents
from coordinator.state import State
from fleetgp import features, scaling
from fleetgp.arrays import Array
from fleetgp.errors import PeerError
from fleetgp.features import Basis
from fleetgp.gp import position
from fleetgp.gp.aggregate import Belief
from fleetgp.gp.hierarchy import Shared
from fleetgp.gp.message import Term
from fleetgp.scaling import Moments
from fleetgp.schema import Schema
from fleetgp.wire import mixture
from fleetgp.wire.convert import from_triangles, to_array
from fleetgp.wire.knowledge import Stamp
from fleetgp.wire.messages import FleetModel, Summary
from fleetgp.wire.mixture import Mixture

# standard deviations of the fleet's positions beyond which an agent means something else by its own: another unit, another
# beginning. Its readings would stretch the range until all others stand at one place of it.
FAR = 10.0
# frames of one agent beyond which a cycle need not be whole before there is a basis
MOST_AWAITED = 5_000.0
# a feature of a frame less the one before it is at most twice as long as either; and innovations have at the least this
# share of the noise, where errors go on as they may at most
MOST_GAIN = 4.0 / (1.0 - 0.98**2)


def renew(state: State) -> tuple[State, str]:
    """The state on the basis that it should be on, and a word on why it is a new one."""
    assert state.schema is not None
    far = elsewhere(state)
    pooled = basis.pooled_moments(_without_position(state, far))
    said = _said(state, far)
    if state.feature_map is None or state.mixture is None:
        begun, note = _first(state, state.schema, pooled)
        return begun, "; ".join(filter(None, (note, said)))
    unit = basis.moved_scaling(state, state.feature_map, pooled)
    if unit is None:
        return state, said
    Q = len(state.schema.channels)
    ratio = (state.feature_map.scaling.scale / unit.scale)[:Q]
    plan, old = position.plan(state.schema, 0), state.mixture
    start, before = position.start(plan, unit), position.start(plan, state.feature_map.scaling)
    # what was learnt of a lengthscale holds in the other unit too
    log_lengthscale = old.log_lengthscale + np.log(start.lengthscale_g / before.lengthscale_g)
    shared = old._replace(Bg=ratio[:, None] * old.Bg, Zg=start.Zg, log_lengthscale=log_lengthscale)
    state = msgspec.structs.replace(
        state,
        basis=state.basis + 1,
        feature_map=state.feature_map._replace(scaling=unit),
        mixture=shared,
        based_on=basis.counts(pooled),
        answers={},
    )
    return state, "; ".join(filter(None, ("new basis: the fleet's scale has moved", said)))


def elsewhere(state: State) -> tuple[str, ...]:
    """Agents whose position lies far from the fleet's, by name: from where the basis is, unless that holds for most of them, or
    from where the agent in the middle is. None where positions are of a circle, which has no range."""
    assert state.schema is not None
    if not state.schema.position or state.schema.position_period:
        return ()
    at = len(state.schema.channels)
    told = {name: one.moments for name, one in sorted(state.told.items()) if one.moments.n[at] > 1}
    spots = {name: (float(m.mean[at]), float(np.sqrt(m.centred_square_sum[at] / m.n[at]))) for name, m in told.items()}
    if state.feature_map is not None:
        unit = state.feature_map.scaling
        far = _far(spots, float(unit.centre[at]), float(unit.scale[at]))
        if 2 * len(far) <= len(spots):
            return far
    moving = sorted((sd, centre) for centre, sd in spots.values() if sd > 0)
    if not moving:
        return ()
    sd, centre = moving[(len(moving) - 1) // 2]
    return _far(spots, centre, sd)


def _far(spots: dict[str, tuple[float, float]], centre: float, sd: float) -> tuple[str, ...]:
    return tuple(name for name, (mean, own) in spots.items() if max(abs(mean - centre), own) > FAR * sd)


def _without_position(state: State, names: tuple[str, ...]) -> State:
    """The state as if these agents had told nothing of their position."""
    if not names:
        return state
    assert state.schema is not None
    kept = np.arange(len(state.schema.inputs)) < len(state.schema.channels)
    told = dict(state.told)
    for name in names:
        moments = Moments(*(np.where(kept, part, 0.0) for part in told[name].moments))
        told[name] = msgspec.structs.replace(told[name], moments=moments)
    return msgspec.structs.replace(state, told=told)


def _said(state: State, far: tuple[str, ...]) -> str:
    """Said whenever such an agent has told anew where it stands."""
    names = [name for name in far if state.told[name].round == state.round]
    if not names:
        return ""
    assert state.schema is not None
    return f"{state.schema.position} of {', '.join(names)} lies far from the fleet's and does not count: another unit?"


def _first(state: State, schema: Schema, pooled: Moments) -> tuple[State, str]:
    if np.min(pooled.n) < basis.ENOUGH_READINGS and np.max(pooled.n) < basis.ENOUGH_OF_ONE:
        return state, f"waiting for {basis.ENOUGH_READINGS} readings of every input"
    # the mean of less than a cycle is no mean
    wanted = min((schema.cycle_s or 0.0) / schema.interval_s, MOST_AWAITED)
    if max(float(np.max(told.moments.n)) for told in state.told.values()) < wanted:
        return state, f"waiting for a whole cycle of one agent, {wanted:.0f} frames"
    plan, unit = position.plan(schema, 0), scaling.scaling(pooled)
    state = msgspec.structs.replace(
        state,
        basis=state.basis + 1,
        feature_map=Basis(features.shape(schema), unit),
        mixture=position.shared(plan, position.start(plan, unit)),
        based_on=basis.counts(pooled),
    )
    return state, "first basis"


def belief(state: State, shared: Shared) -> Belief:
    """Posterior of the shared weights."""
    return fleet.posterior(state, np.ones((1, shared.Bg.shape[1] * len(shared.Zg))))


def model(state: State, at_ms: int) -> FleetModel:
    """What is published."""
    assert state.schema is not None
    assert state.feature_map is not None
    assert state.mixture is not None
    known = Mixture(state.feature_map.scaling, state.mixture, belief(state, state.mixture), *fleet.noise(state))
    stamp = Stamp(at_ms, state.round, state.origin, state.basis)
    return mixture.write(known, state.schema, stamp, fleet.included(state))


def contents(message: Summary, shared: Shared) -> Contents:
    """What a summary says. Raises PeerError ``shape``, ``finite``, ``negative``, ``range`` or ``indefinite``."""
    Q, size = len(shared.Bg), shared.Bg.shape[1] * len(shared.Zg)
    triangles = to_array(message.precision, (1, size * (size + 1) // 2), "precision")
    shift = to_array(message.shift, (1, size), "shift")
    noise_var, count = intake.noise_and_count(message, Q)
    if not np.all(np.abs(shift) <= intake.LARGEST):
        raise PeerError("range", f"{message.agent} sent numbers that no readings lead to")
    precision = from_triangles(triangles, size)
    intake.check_precision(message.agent, precision, None)
    if np.linalg.eigvalsh(precision)[0, -1] > _most(shared, noise_var, count):
        raise PeerError("range", f"{message.agent} claims to know more than its frames can tell")
    return Contents(Term(precision, shift), noise_var, count, None, None)


def _most(shared: Shared, noise_var: Array, count: Array) -> float:
    """The most that so many frames of this noise can say of one weight."""
    told = MOST_GAIN * count * np.sum(shared.Bg**2, axis=1) / noise_var
    return 1e-6 + (1.0 + 1e-6) * float(np.sum(told))
