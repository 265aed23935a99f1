"""What a frame costs: the engine against River's BayesianLinearRegression on the same features, and batches against frames.

River gets the features and targets that our engine computes, as dicts made before the clock runs; the engine has to make
its own from lags and covariates within the time that is counted. River's models of the first two runs forget nothing, while
the engine forgets and solves its posterior anew every 256 frames; that counts. Those of the third forget by the half-life of
the engine's long memory (``smoothing``), for which River inverts a matrix at every frame. The engine keeps two memories of
every channel, a long and a short one; River keeps one.

Batches are timed twice. The whole agent takes readings one by one, or FRAMES of them in one event, and gives predictions:
frames, scores, calibration and alarm are in it. The bare engine foresees and learns frames that were made ready before.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import islice
from statistics import median
from typing import Any, NamedTuple, Protocol

import numpy as np
from river.linear_model import BayesianLinearRegression

from benchmarks import agent_engine as engine
from benchmarks import agent_stream as stream
from benchmarks import agent_whole as whole
from edge_agent.state import State
from fleetgp.arrays import Array
from fleetgp.gp.learner import Learner
from fleetgp.schema import Schema

FRAMES = 256
WARM_BLOCKS = 4

FORGETTING_SHARE = 16  # one in so many frames goes to River that forgets, which is slow

# The runs, by name. ``law``: River gives a distribution, as the engine does; ``mean``: its bare mean, which is cheaper.
SINGLE, BATCH, RIVER_LAW, RIVER_MEAN = "single", "batch", "river law", "river mean"
RIVER_FORGETTING = "river forgetting"
AGENT_SINGLE, AGENT_BATCH = "agent single", "agent batch"


class Timing(NamedTuple):
    """seconds: median CPU seconds of a block of FRAMES frames by run. rmse: of scaled one-step means, by run.

    alarmed: frames that the agent took for an anomaly, which cost it more than others.
    """

    seconds: dict[str, float]
    rmse: dict[str, float]
    channels: int
    features: int
    repeats: int
    alarmed: int = 0

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
    schema, count = stream.schema(), WARM_BLOCKS + repeats
    values = np.array(list(islice(stream.frames(seed), count * FRAMES + schema.lags)))
    frames = engine.prepare(schema, values)
    fresh = engine.begin(schema, values[: WARM_BLOCKS * FRAMES])
    X = np.array([engine.features(fresh, frame) for frame in frames])
    Y = np.array([engine.target(fresh, frame) for frame in frames])
    blocks = [frames[i * FRAMES : (i + 1) * FRAMES] for i in range(count)]
    agents = _agents(schema, fresh, values)
    runs: dict[str, _Run] = {
        SINGLE: _Engine(engine.single, fresh, blocks),
        BATCH: _Engine(engine.batch, fresh, [engine.stacked(block) for block in blocks]),
        **agents,
        RIVER_LAW: _River(X, Y, has_law=True),
        RIVER_MEAN: _River(X, Y, has_law=False),
        RIVER_FORGETTING: _River(X, Y, has_law=True, half_life=engine.RULE.half_life, share=FORGETTING_SHARE),
    }
    for index in range(WARM_BLOCKS):
        for each in runs.values():
            each.run(index)
    for each in runs.values():
        each.said.clear()
    seconds = interleaved({name: partial(_after_warming, each) for name, each in runs.items()}, repeats)
    seconds[RIVER_FORGETTING] *= FORGETTING_SHARE
    truth = Y[WARM_BLOCKS * FRAMES :]
    # River that forgets is timed on fewer frames, of which no error could be compared with the others'
    rmse = {name: _rmse(each, truth) for name, each in runs.items() if name != RIVER_FORGETTING}
    alarmed = sum(one.is_alarmed for one in agents[AGENT_SINGLE].said)
    return Timing(seconds, rmse, Y.shape[1], X.shape[1], repeats, alarmed)


def _after_warming(each: _Run, index: int) -> None:
    each.run(WARM_BLOCKS + index)


def _rmse(each: _Run, truth: Array) -> float:
    return float(np.sqrt(np.mean((np.array(each.means()).reshape(truth.shape) - truth) ** 2)))


def _agents(schema: Schema, learner: Learner, values: Array) -> dict[str, _Agent]:
    """The whole agent on the stream's own readings, those of the first block and the lags before it already read."""
    L, Q = schema.lags, len(schema.channels)
    readings = whole.samples(schema, values)
    state = whole.begin(schema, learner, readings[: L + FRAMES])
    later = [readings[begin : begin + FRAMES] for begin in range(L + FRAMES, len(values), FRAMES)]
    last, unit = values[L - 1 : -1, :Q], learner.basis.scaling.scale[:Q]
    ways = {AGENT_SINGLE: whole.single, AGENT_BATCH: whole.batch}
    return {name: _Agent(step, state, [[], *later], last, unit) for name, step in ways.items()}


class _Run(Protocol):
    """What goes on from block to block. said: what it told of every frame since that was cleared; means: scaled steps in it."""

    said: list[Any]

    def run(self, index: int) -> None: ...

    def means(self) -> list[Any]: ...


class _Engine:
    """A learner that goes on from block to block, frame by frame or in batches."""

    def __init__(self, learn: Callable[[Any, Any], Any], learner: Any, blocks: Sequence[Any]) -> None:
        self.learn = learn
        self.learner = learner
        self.blocks = blocks
        self.said: list[Any] = []

    def run(self, index: int) -> None:
        self.learner, means = self.learn(self.learner, self.blocks[index])
        self.said += list(means)

    def means(self) -> list[Any]:
        return self.said


class _Agent:
    """An agent that goes on from block to block; ``last`` [n, Q]: readings before every frame, ``unit`` [Q] of its scale."""

    def __init__(
        self,
        step: Callable[..., tuple[State, whole.Said]],
        state: State,
        blocks: Sequence[Any],
        last: Array,
        unit: Array,
    ) -> None:
        self.step = step
        self.state = state
        self.blocks = blocks
        self.last = last
        self.unit = unit
        self.said: list[Any] = []

    def run(self, index: int) -> None:
        self.state, said = self.step(self.state, self.blocks[index])
        self.said += said

    def means(self) -> list[Any]:
        return whole.means(self.said, self.last[-len(self.said) :], self.unit)


class _River:
    """A model for every channel, all on the same features: X [n, F] as dicts, targets Y [n, Q] as plain numbers.

    half_life: frames after which the past counts half, infinite = nothing is forgotten; share: one in so many frames of a
    block is taken, the first of them.
    """

    def __init__(self, X: Array, Y: Array, *, has_law: bool, half_life: float = math.inf, share: int = 1) -> None:
        kept = 0.5 ** (1.0 / half_life)
        # River weighs what is new by 1 - smoothing: with beta its inverse, a frame counts one
        make = (
            partial(BayesianLinearRegression, beta=1 / (1 - kept), smoothing=kept)
            if kept < 1
            else BayesianLinearRegression
        )
        self.models = [make() for _ in range(Y.shape[1])]
        self.rows = [dict(enumerate(row)) for row in X.tolist()]
        self.targets = Y.tolist()
        self.has_law = has_law
        self.taken = FRAMES // share
        self.said: list[Any] = []

    def run(self, index: int) -> None:
        chosen = slice(index * FRAMES, index * FRAMES + self.taken)
        for x, targets in zip(self.rows[chosen], self.targets[chosen], strict=True):
            for model, y in zip(self.models, targets, strict=True):
                self.said.append(model.predict_one(x, with_dist=True).mu if self.has_law else model.predict_one(x))
                model.learn_one(x, y)

    def means(self) -> list[Any]:
        return self.said
