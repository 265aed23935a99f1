"""What the coordinator itself learns when a round closes: scales of the blocks by EM, and centres by k-means."""

from __future__ import annotations

import msgspec
import numpy as np

from coordinator import fleet
from coordinator.state import State
from fleetgp import placement
from fleetgp.errors import NumericalError
from fleetgp.gp import hyper


def improve_scales(state: State) -> State:
    """One EM step of the blocks' prior variances; none where nobody answered, or where the sum of the terms has no inverse."""
    if state.scales is None or state.feature_map is None or not state.answers:
        return state
    squares = [
        (fleet.fading(state, answer.round), answer.deviation_square)
        for _, answer in sorted(state.answers.items())
        if answer.deviation_square is not None
    ]
    try:
        shared = hyper.shared_square(fleet.belief(state))
    except NumericalError:
        return state
    if not np.all(np.isfinite(shared)):
        return state
    return msgspec.structs.replace(state, scales=hyper.improve(state.scales, squares, shared, fleet.blocks(state)))


def move_centres(state: State) -> State:
    """One step of k-means with what agents told of their frames since the last close; which is forgotten with it."""
    if not state.sums:
        return state
    sums = [placement.bounded(state.sums[name]) for name in sorted(state.sums)]
    total = sums[0]
    for one in sums[1:]:
        total = placement.merge(total, one)
    frames = float(np.sum(total.frames))
    state = msgspec.structs.replace(state, sums={})
    if state.centres is None or not frames:
        return state
    return msgspec.structs.replace(
        state,
        centres=placement.step(state.centres, total),
        moves=state.moves + 1,
        told_frames=state.told_frames + frames,
    )
