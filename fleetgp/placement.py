"""Where inducing inputs go: k-means over the fleet by sums alone, and lengthscales from the fleet's moments.

An agent tells how many of its recent frames lie nearest to each centre, and their sum; a centre that fewer than LEAST_FRAMES
of one agent lie near is left out, for its sum would tell single readings. That is no more than this: the mean of a few frames
of a stream that stands still is near every one of them. No noise is added; who must hide levels as well sets no inducing
inputs, and then nothing of this is sent.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fleetgp import features, inducing
from fleetgp.arrays import Array
from fleetgp.features import PHASE_SD, Shape
from fleetgp.inducing import Inducing
from fleetgp.scaling import Scaling
from fleetgp.schema import Kernel

MOST_COLUMNS = 6
# of those that a choice by evidence may bring
MOST_CHOSEN = 24
# frames of one agent that a sum is made of at least
LEAST_FRAMES = 5
# of k-means where all frames are at hand
STEPS = 10
STARTING_WEIGHT = 1.0
MOST_WEIGHT = 5_000.0
# frames of one agent that count at most in a round, so that no agent places the centres alone
MOST_TOLD = 5_000.0
# standard deviation of a step of a channel, in those of the channel, where nothing better is known
STEP = 1 / 3
# standard deviations of the fleet beyond which no centre goes
REACH = 20.0


class Sums(NamedTuple):
    """frames [M]: how many lie nearest to each centre, total [M, D] their sum; in scaled inputs."""

    frames: Array
    total: Array


class Centres(NamedTuple):
    """place [M, D] in scaled inputs; weight [M]: frames they were learnt from, bounded so that they keep moving."""

    place: Array
    weight: Array


def start(size: int, columns: int) -> Centres:
    """Centres drawn as the fleet's moments say inputs lie: standard normal, the same for everybody."""
    return Centres(spread(size, columns), np.full(size, STARTING_WEIGHT))


def spread(size: int, columns: int, first: int = 1) -> Array:
    """Points [size, columns] spread as a standard normal, the same at every call; first: number of the first of them.

    Multiples of powers of the generalised golden ratio, modulo 1, fill a cube evenly (Roberts 2018), and pairs of uniform
    numbers are pairs of normal ones (Box and Muller 1958). numpy.random would do, but takes 2 MB of an agent's memory.
    """
    pairs = max(1, (columns + 1) // 2)
    golden = 2.0
    for _ in range(64):
        golden = (1.0 + golden) ** (1.0 / (2 * pairs + 1))
    number = np.arange(first, first + size, dtype=float)
    uniform = np.mod(0.5 + np.multiply.outer(number, golden ** -np.arange(1.0, 2 * pairs + 1)), 1.0)
    radius = np.sqrt(-2.0 * np.log1p(-uniform[:, :pairs]))
    angle = 2.0 * np.pi * uniform[:, pairs:]
    return np.concatenate((radius * np.cos(angle), radius * np.sin(angle)), axis=1)[:, :columns]


def assign(place: Array, X: Array, least: int = LEAST_FRAMES) -> Sums:
    """Sums of an agent's scaled inputs X [n, D] by nearest centre; those of fewer than ``least`` frames left out."""
    gap = X[:, None, :] - place[None, :, :]
    nearest = np.argmin(np.sum(gap * gap, axis=2), axis=1) if len(X) else np.zeros(0, dtype=int)
    count = np.bincount(nearest, minlength=len(place)).astype(float)
    total = np.zeros_like(place)
    np.add.at(total, nearest, X)
    told = count >= least
    return Sums(np.where(told, count, 0.0), np.where(told[:, None], total, 0.0))


def merge(a: Sums, b: Sums) -> Sums:
    return Sums(a.frames + b.frames, a.total + b.total)


def bounded(sums: Sums) -> Sums:
    """Sums as they count: of MOST_TOLD frames at most, none of them further out than REACH."""
    share = min(1.0, MOST_TOLD / max(float(np.sum(sums.frames)), 1.0))
    count = share * sums.frames
    limit = REACH * count[:, None]
    return Sums(count, np.clip(share * sums.total, -limit, limit))


def carried(centres: Centres, old: Scaling, new: Scaling) -> Centres:
    """Centres in another unit of the fleet; old, new: ``unit`` of before and after.

    They are a first guess there: where the scale has moved much they may all lie at one end of the frames.
    """
    place = (old.centre + old.scale * centres.place - new.centre) / new.scale
    return Centres(np.clip(place, -REACH, REACH), np.minimum(centres.weight, STARTING_WEIGHT))


def step(centres: Centres, sums: Sums) -> Centres:
    """One step of mini-batch k-means (Sculley 2010, with the sums of a round as its batch); empty centres split the fullest."""
    weight = np.minimum(centres.weight, MOST_WEIGHT)
    grown = weight + sums.frames
    place = (weight[:, None] * centres.place + sums.total) / grown[:, None]
    for empty in np.flatnonzero((sums.frames == 0) & (weight <= 2 * STARTING_WEIGHT)):
        fullest = int(np.argmax(grown))
        if sums.frames[fullest] < 4 * LEAST_FRAMES:
            break
        away = 0.1 * spread(1, place.shape[1], first=len(place) + 1 + int(empty))[0]
        place[empty] = place[fullest] + away
        grown[empty] = grown[fullest] = grown[fullest] / 2
        grown[empty] = min(grown[empty], 2 * STARTING_WEIGHT)
    return Centres(place, grown)


def fitted(size: int, X: Array, least: int = LEAST_FRAMES) -> Centres:
    """Centres after STEPS steps on frames that are all at hand; scaled inputs X [n, D]."""
    centres = start(size, X.shape[1])
    for _ in range(STEPS):
        centres = step(centres, assign(centres.place, X, least))
    return centres


def columns(shape: Shape) -> tuple[int, ...]:
    """Which of a frame's inputs the nonlinear part looks at, at most six: the first phase, then covariates, then lag 1.

    In more dimensions a few dozen inducing inputs are far from everything; those inputs stay in the linear part.
    """
    first, C = shape.lags * shape.channels, shape.covariates
    phase = range(first + C, first + C + min(2, shape.phases))
    wanted = (*phase, *range(first, first + C), *range(shape.channels))
    return wanted[:MOST_COLUMNS]


def unit(shape: Shape, scaling: Scaling, picked: tuple[int, ...] | None = None, step: Array | float = STEP) -> Scaling:
    """Centre and scale [D] of the columns that the nonlinear part looks at (picked, else ``columns``): what makes them
    standard for the fleet. step [Q]: standard deviation of a channel's steps, in that of the channel."""
    chosen = np.array(columns(shape) if picked is None else picked)
    whole = features.scale(shape, scaling)
    first = shape.lags * shape.channels + shape.covariates
    size = whole.scale.copy()
    size[first : first + shape.phases] = PHASE_SD
    inputs, is_step = chosen % shape.inputs, chosen >= shape.inputs
    steps = np.broadcast_to(step, shape.channels)[inputs % shape.channels]
    centre = np.where(is_step, 0.0, whole.centre[inputs])
    return Scaling(centre, np.where(is_step, steps, 1.0) * size[inputs])


def gap(inducing: Inducing, where: Array) -> Array:
    """Squared distance [n] of places [n, D], raw inputs of its columns, to the nearest inducing input, in lengthscales."""
    apart = (where[:, None, :] - inducing.Z[None, :, :]) / inducing.lengthscale
    return np.asarray(np.min(np.sum(apart * apart, axis=2), axis=1))


def place(kernel: Kernel, shape: Shape, scaling: Scaling, centres: Array) -> Inducing:
    """Inducing inputs at these scaled centres [M, D], with lengthscales from the fleet's moments."""
    return at(kernel, columns(shape), unit(shape, scaling), centres)


def at(kernel: Kernel, picked: tuple[int, ...], own: Scaling, centres: Array) -> Inducing:
    """Inducing inputs at centres [M, D] that are scaled by own [D]; picked [D]: which of a frame's inputs these are."""
    Z = own.centre + own.scale * centres
    return inducing.make(kernel, picked, Z, own.scale * lengthscale(len(picked)))


def lengthscale(columns: int) -> float:
    """Lengthscale of every scaled input: grows with the distance between typical points, which is as the root of D."""
    return 0.8 * float(np.sqrt(columns))
