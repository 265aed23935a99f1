"""The last frames as they were, bounded and never sent: what a change of basis is made exact with (models.md section 3)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fleetgp.arrays import Array

SIZE = 512


class Row(NamedTuple):
    """One learnt frame: inputs [D], its features [F + F_local], targets [Q] in transformed units, weights [Q], 0 = not learnt.

    errors [Q]: of the forecast, in scales of its law; squares [Q]: the same squared, before the tail's factor; NaN where
    nothing was learnt. scales [G, Q]: the tail's factors then.
    """

    inputs: Array
    features: Array
    targets: Array
    weights: Array
    errors: Array
    squares: Array
    scales: Array


class Ring(NamedTuple):
    """Oldest first: inputs [n, D], targets [n, Q], weights [n, Q]; kept [T, n]: what each memory has not forgotten of them."""

    inputs: Array
    targets: Array
    weights: Array
    kept: Array


def empty(inputs: int, channels: int, tracks: int) -> Ring:
    return Ring(np.zeros((0, inputs)), np.zeros((0, channels)), np.zeros((0, channels)), np.ones((tracks, 0)))


def joined(ring: Ring, inputs: Array, targets: Array, weights: Array) -> Ring:
    """The newest SIZE frames, of which these [n, ...] are the last."""
    new = min(len(inputs), SIZE)
    old = slice(max(len(ring.inputs) + new - SIZE, 0), None)
    # what is left out is left out first: a view of the newest would keep the others in memory
    return Ring(
        np.concatenate((ring.inputs[old], inputs[-new:])),
        np.concatenate((ring.targets[old], targets[-new:])),
        np.concatenate((ring.weights[old], weights[-new:])),
        np.concatenate((ring.kept[:, old], np.ones((len(ring.kept), new))), axis=1),
    )


def decay(ring: Ring, factor: Array) -> Ring:
    """Forget as the statistics do: factor [T]."""
    return ring._replace(kept=factor[:, None] * ring.kept)


def stacked(rows: tuple[Row, ...]) -> tuple[Array, Array, Array, Array]:
    """Inputs [n, D], features [n, F + F_local], targets [n, Q] and weights [n, Q] of rows; a target not learnt is 0."""
    # several times as fast as an array of a list of arrays
    inputs, x, targets, weights = (
        np.concatenate(column).reshape(len(rows), -1) for column in list(zip(*rows, strict=True))[:4]
    )
    return inputs, x, np.where(weights > 0, targets, 0.0), weights
