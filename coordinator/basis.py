"""The fleet's basis: when there is a first one, when it is renewed, and how what was told is carried over.

Basis 1 is linear, once the fleet has read enough. Inducing inputs join it where k-means has found where frames lie; they
are placed anew where frames have come to lie elsewhere, if little is lost by it. The scale is renewed where it has moved.
"""

from __future__ import annotations

import msgspec
import numpy as np

from coordinator import fleet, intake
from coordinator.state import Answer, State
from fleetgp import features, inducing, placement, scaling
from fleetgp.arrays import Array
from fleetgp.features import BLOCKS, PRIOR_SD, Basis
from fleetgp.gp import message, moves
from fleetgp.inducing import Inducing
from fleetgp.placement import Centres
from fleetgp.scaling import Moments, Scaling

# readings of every input before there is a basis; or so many of one, where another never arrives
ENOUGH_READINGS = 20
ENOUGH_OF_ONE = 200
# how much more readings a new basis needs, and by what factor a scale must differ
REBASE_GROWTH = 4.0
REBASE_RATIO = 1.25
# rounds in which the centres moved, and frames for each of them, before inducing inputs are placed there
PLACE_MOVES = 5
PLACE_FRAMES = 10
# mean squared distance of centres to the nearest inducing input, in lengthscales, from which these are placed anew
PLACE_GAP = 0.25
# or of inducing inputs that gradients have moved away from the centres already
TUNED_GAP = 1.0
INDUCING = BLOCKS.index("inducing")
# of the weight of a term whose features were projected, where nothing is lost by it
MOST_KEPT = 1.0 - 1e-9


def pooled_moments(state: State) -> Moments:
    """Moments of all agents' inputs together; agents in order of their names, so that the bits are always the same."""
    assert state.schema is not None
    pooled = scaling.empty_moments(len(state.schema.inputs))
    for name in sorted(state.told):
        pooled = scaling.merge(pooled, state.told[name].moments)
    return pooled


def renew(state: State) -> tuple[State, str]:
    """The state on the basis that it should be on, and a word on why it is a new one."""
    if state.schema is None:
        return state, "no agent has answered yet"
    pooled = pooled_moments(state)
    if state.feature_map is None:
        return _first(state, pooled)
    new, note = state, ""
    unit = moved_scaling(state, state.feature_map, pooled)
    if unit is not None:
        new, note = _rescaled(state, state.feature_map, unit, pooled), "new basis: the fleet's scale has moved"
    placed, left = _placed(state, new, pooled)
    if placed is not new:
        is_first = state.feature_map.shared is None
        what = "inducing inputs are placed" if is_first else "inducing inputs are placed anew"
        new, note = placed, f"{note}; {what}" if note else f"new basis: {what}"
    if new is state:
        return state, ""
    assert new.feature_map is not None
    answers = _rebased(state, state.feature_map, new.feature_map, left)
    return msgspec.structs.replace(new, basis=state.basis + 1, answers=answers), note


def tuned(state: State, new: Basis, loss: float) -> State:
    """The state on a basis that was learnt by gradients; loss: of the way there, in shares of the noise."""
    assert state.feature_map is not None
    answers = _rebased(state, state.feature_map, new, kept(loss))
    readings = float(np.max(pooled_moments(state).n))
    return msgspec.structs.replace(
        state, basis=state.basis + 1, feature_map=new, answers=answers, placed_on=readings, is_tuned=True
    )


def kept(loss: float) -> float:
    """What is left of the weight of a term that is projected, by what is lost in shares of the noise.

    Below 1 always, by which a term that was projected once is known.
    """
    return min(1.0 / (1.0 + loss), MOST_KEPT)


def _first(state: State, pooled: Moments) -> tuple[State, str]:
    assert state.schema is not None
    if np.min(pooled.n) < ENOUGH_READINGS and np.max(pooled.n) < ENOUGH_OF_ONE:
        return state, f"waiting for {ENOUGH_READINGS} readings of every input"
    shape, M = features.shape(state.schema), state.schema.inducing
    state = msgspec.structs.replace(
        state,
        basis=state.basis + 1,
        feature_map=Basis(shape, scaling.scaling(pooled)),
        based_on=counts(pooled),
        centres=placement.start(M, len(placement.columns(shape))) if M else None,
    )
    return state, "first basis"


def moved_scaling(state: State, old: Basis, pooled: Moments) -> Scaling | None:
    """Another scaling, where four times as many readings say that a scale is another."""
    # an input that was silent when the scale was made may be judged once there is enough of it
    grown = pooled.n >= REBASE_GROWTH * np.maximum(state.based_on, ENOUGH_READINGS / REBASE_GROWTH)
    new = scaling.scaling(pooled)
    ratio = np.maximum(new.scale / old.scaling.scale, old.scaling.scale / new.scale)
    return new if np.any(grown & (ratio >= REBASE_RATIO)) else None


def _rescaled(state: State, old: Basis, new: Scaling, pooled: Moments) -> State:
    """On another scaling; inducing inputs, which are in raw units, stay as they are."""
    centres = state.centres
    if centres is not None:
        centres = placement.carried(centres, placement.unit(old.shape, old.scaling), placement.unit(old.shape, new))
    feature_map = old._replace(scaling=new)
    return msgspec.structs.replace(state, feature_map=feature_map, based_on=counts(pooled), centres=centres)


def _placed(state: State, new: State, pooled: Moments) -> tuple[State, float]:
    """``new`` with other inducing inputs, where they are due, and what is kept of the weight of a term; else the same, 1."""
    assert state.schema is not None
    assert new.feature_map is not None
    if new.centres is None or not _is_settled(state):
        return new, 1.0
    basis, readings = new.feature_map, float(np.max(pooled.n))
    if basis.shared is not None and basis.shared.columns != placement.columns(basis.shape):
        return new, 1.0  # they look at something else than the centres do
    if basis.shared is not None and not _is_elsewhere(state, basis, basis.shared, new.centres, readings):
        return new, 1.0
    shared = placement.place(state.schema.kernel, basis.shape, basis.scaling, new.centres.place)
    if basis.shared is not None and state.is_tuned:  # what was learnt of lengthscales holds elsewhere too
        shared = inducing.make(shared.kernel, shared.columns, shared.Z, basis.shared.lengthscale)
    left = 1.0
    if basis.shared is not None:
        loss = estimated_loss(state, basis.shared, shared, new)
        if not loss <= moves.MOST_LOSS:  # nor where no number comes of it
            return new, 1.0
        left = kept(loss)
    return msgspec.structs.replace(
        new, feature_map=basis._replace(shared=shared), placed_on=readings, tuned_on=0.0
    ), left


def _is_settled(state: State) -> bool:
    assert state.schema is not None
    return state.moves >= PLACE_MOVES and state.told_frames >= PLACE_FRAMES * state.schema.inducing


def _is_elsewhere(state: State, basis: Basis, shared: Inducing, centres: Centres, readings: float) -> bool:
    """Whether four times as many readings have moved the centres away from the inducing inputs."""
    if readings < REBASE_GROWTH * state.placed_on:
        return False
    apart = placement.gap(shared, _raw(basis, centres))
    return float(np.average(apart, weights=centres.weight)) > (TUNED_GAP if state.is_tuned else PLACE_GAP)


def estimated_loss(state: State, old: Inducing, new: Inducing, after: State) -> float:
    """Variance that other inducing inputs lose of the function, in shares of the noise, of the worst channel.

    ``moves.loss``, over the centres by their weight instead of an agent's frames. after: centres and scaling from now on.
    """
    assert state.scales is not None
    assert state.feature_map is not None
    assert after.feature_map is not None
    assert after.centres is not None
    basis = after.feature_map
    inputs = np.zeros((len(after.centres.weight), basis.shape.inputs))
    inputs[:, list(new.columns)] = _raw(basis, after.centres)
    gone = inducing.features(old, inputs) @ inducing.transfer(old, new).T - inducing.features(new, inputs)
    mean = float(np.average(np.sum(gone**2, axis=1), weights=after.centres.weight))
    variance = (state.scales.shared + state.scales.deviation)[:, INDUCING] * PRIOR_SD["inducing"] ** 2
    ratio = (state.feature_map.scaling.scale / basis.scaling.scale)[: basis.shape.channels]
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):  # the caller looks at what came of it
        return float(np.max(variance * mean / (ratio**2 * fleet.noise(state)[0])))


def _raw(basis: Basis, centres: Centres) -> Array:
    """Centres [M, D] in raw inputs of their columns."""
    unit = placement.unit(basis.shape, basis.scaling)
    return np.asarray(unit.centre + unit.scale * centres.place)


def _rebased(state: State, old: Basis, new: Basis, left: float) -> dict[str, Answer]:
    """The answers on another basis. One that is not usable there is let go: its agent answers anew on the next round.

    Of features that are new nobody knows anything: their terms are 0, and their deviation is what is expected of it.
    No term is projected twice: an agent that missed the basis between would map its own straight from the first to the
    last, which is another matrix, and what it took out would be none of what is inside.
    """
    assert state.scales is not None
    T, ratio = moves.change(old, new)
    is_first = old.shared is None and new.shared is not None
    answers = {}
    for name, answer in state.answers.items():
        if left < 1.0 and answer.kept < 1.0:
            continue
        with np.errstate(over="ignore", invalid="ignore"):  # is_usable looks at what came of it
            term, noise_var = message.rebase(answer.term, T, ratio), ratio**2 * answer.noise_var
        if not intake.is_usable(term, noise_var):
            continue
        square = answer.deviation_square
        if square is not None and is_first:
            square = np.where(np.arange(len(BLOCKS)) == INDUCING, state.scales.deviation, square)
        answers[name] = msgspec.structs.replace(
            answer, term=term, noise_var=noise_var, deviation_square=square, kept=answer.kept * left
        )
    return answers


def counts(pooled: Moments) -> tuple[float, ...]:
    return tuple(float(n) for n in pooled.n)
