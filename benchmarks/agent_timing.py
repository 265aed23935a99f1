"""What a frame costs: the engine against River's BayesianLinearRegression on the same features, and batches against frames.

River gets the features and targets that our engine computes, as dicts made before the clock runs; the engine has to make
its own from lags and covariates within the time that is counted. River's models forget nothing (``smoothing`` would have
them invert a matrix at every frame), while the engine forgets and solves its posterior anew every 256 frames; that counts.
The engine keeps two memories of every channel, a long and a short one; River keeps one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import islice
from statistics import median
from typing import Any, NamedTuple

import numpy as np
from river.linear_model import BayesianLinearRegression

from benchmarks import agent_engine as engine
from benchmarks import agent_stream as stream
from fleetgp.arrays import Array

FRAMES = 256
WARM_BLOCKS = 4

# The runs, by name. ``law``: River gives a distribution, as the engine does; ``mean``: its bare mean, which is cheaper.
SINGLE, BATCH, RIVER_LAW, RIVER_MEAN = "single", "batch", "river law", "river mean"


class Timing(NamedTuple):
    """seconds: median CPU seconds of a block of FRAMES frames by run. rmse: of scaled one-step means, by run."""

    seconds: dict[str, float]
    rmse: dict[str, float]
    channels: int
    features: int
    repeats: int

    def ratio(self, slow: str, fast: str) -> float | None:
        """How many times faster ``fast`` is; None where one of the two was not run."""
        if slow not in self.seconds or fast not in self.seconds:
            return None
        return self.seconds[slow] / self.seconds[fast]

    def per_channel_us(self, run: str) -> float | None:
        """Microseconds for one channel of one frame."""
        return 1e6 * self.seconds[run] / FRAMES / self.channels if run in self.seconds else None


def interleaved(
    runs: Mapping[str, Callable[[int], None]], repeats: int, clock: Callable[[], float] = time.process_time
) -> dict[str, float]:
    """Median seconds by run. Each is called with 0, 1, ..., taking turns (A B A B ...), so that all meet the same machine.

    The clock counts the CPU time of this process alone: what other programs take from a shared machine is not in it.
    """
    taken: dict[str, list[float]] = {name: [] for name in runs}
    for index in range(repeats):
        for name, run in runs.items():
            begin_s = clock()
            run(index)
            taken[name].append(clock() - begin_s)
    return {name: median(values) for name, values in taken.items()}


def measure(repeats: int, seed: int) -> Timing:
    """Time all runs over the same ``repeats`` blocks of frames, after some blocks to warm up."""
    schema = stream.schema()
    values = np.array(list(islice(stream.frames(seed), (WARM_BLOCKS + repeats) * FRAMES + schema.lags)))
    frames = engine.prepare(schema, values)
    fresh = engine.begin(schema, values[: WARM_BLOCKS * FRAMES])
    X = np.array([engine.features(fresh, frame) for frame in frames])
    Y = np.array([engine.target(fresh, frame) for frame in frames])

    blocks = [frames[i * FRAMES : (i + 1) * FRAMES] for i in range(WARM_BLOCKS + repeats)]
    runs: dict[str, _Engine | _River] = {
        SINGLE: _Engine(engine.single, fresh, blocks),
        RIVER_LAW: _River(X, Y, has_law=True),
        RIVER_MEAN: _River(X, Y, has_law=False),
    }
    packed = [engine.stacked(block) for block in blocks]
    if engine.batch(fresh, packed[0]) is not None:
        runs[BATCH] = _Engine(engine.batch, fresh, packed)
    for index in range(WARM_BLOCKS):
        for each in runs.values():
            each.run(index)
    for each in runs.values():
        each.means.clear()
    seconds = interleaved({name: partial(_after_warming, each) for name, each in runs.items()}, repeats)
    truth = Y[WARM_BLOCKS * FRAMES :]
    rmse = {name: _rmse(np.array(each.means), truth) for name, each in runs.items()}
    return Timing(seconds, rmse, Y.shape[1], X.shape[1], repeats)


def _after_warming(each: _Engine | _River, index: int) -> None:
    each.run(WARM_BLOCKS + index)


def _rmse(means: Array, truth: Array) -> float:
    return float(np.sqrt(np.mean((means.reshape(truth.shape) - truth) ** 2)))


class _Engine:
    """A learner that goes on from block to block, frame by frame or in batches."""

    def __init__(self, learn: Callable[[Any, Any], Any], learner: Any, blocks: Sequence[Any]) -> None:
        self.learn = learn
        self.learner = learner
        self.blocks = blocks
        self.means: list[Any] = []

    def run(self, index: int) -> None:
        self.learner, means = self.learn(self.learner, self.blocks[index])
        self.means += list(means)


class _River:
    """A model for every channel, all on the same features: X [n, F] as dicts, targets Y [n, Q] as plain numbers."""

    def __init__(self, X: Array, Y: Array, *, has_law: bool) -> None:
        self.models = [BayesianLinearRegression() for _ in range(Y.shape[1])]
        self.rows = [dict(enumerate(row)) for row in X.tolist()]
        self.targets = Y.tolist()
        self.has_law = has_law
        self.means: list[float] = []

    def run(self, index: int) -> None:
        chosen = slice(index * FRAMES, (index + 1) * FRAMES)
        for x, targets in zip(self.rows[chosen], self.targets[chosen], strict=True):
            for model, y in zip(self.models, targets, strict=True):
                self.means.append(model.predict_one(x, with_dist=True).mu if self.has_law else model.predict_one(x))
                model.learn_one(x, y)
