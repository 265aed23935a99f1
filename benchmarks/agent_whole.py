"""The one place of this benchmark that knows how the whole agent is called: readings in, predictions out, as its service does."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from benchmarks import agent_engine as engine
from benchmarks import agent_stream as stream
from edge_agent import agent
from edge_agent.frames import Sample
from edge_agent.state import AgentConfig, Effect, Publish, Readings, State
from fleetgp.arrays import Array
from fleetgp.gp.learner import Learner
from fleetgp.schema import Schema
from fleetgp.wire.messages import Prediction

# what an agent says of a block of frames
Said = list[Prediction]


def samples(schema: Schema, values: Array) -> list[Sample]:
    """A complete reading for every row of values [n, Q + C]."""
    positions, interval = tuple(range(values.shape[1])), schema.interval_ms
    times = [stream.START_MS + interval * t for t in range(len(values))]
    return [Sample(at, at, positions, tuple(row)) for at, row in zip(times, values.tolist(), strict=True)]


def begin(schema: Schema, learner: Learner, read: Sequence[Sample]) -> State:
    """An agent of a fleet that has read these samples, and has this learner. It reads a recording: no wall clock closes frames."""
    config = AgentConfig(agent_id="bench", schema=schema, is_live=False, forgetting=engine.RULE)
    state, _ = agent.step(agent.init(config, stream.START_MS), Readings(read[-1].at_ms, tuple(read)))
    return msgspec.structs.replace(state, learner=learner, basis=1, round=1)


def single(state: State, block: Sequence[Sample]) -> tuple[State, Said]:
    """Readings one by one, each with its prediction before the next: the agent, and what it predicted."""
    said: Said = []
    for sample in block:
        state, effects = agent.step(state, Readings(sample.at_ms, (sample,)))
        said += _predictions(effects)
    return state, said


def batch(state: State, block: Sequence[Sample]) -> tuple[State, Said]:
    """The same as ``single``, all readings in one event."""
    state, effects = agent.step(state, Readings(block[-1].at_ms if block else 0, tuple(block)))
    return state, _predictions(effects)


def _predictions(effects: list[Effect]) -> Said:
    messages = (effect.message for effect in effects if isinstance(effect, Publish))
    return [message for message in messages if isinstance(message, Prediction)]


def means(said: Said, last: Array, unit: Array) -> list[Array]:
    """Scaled steps [Q] that were predicted, from the readings last [n, Q] before each frame; unit [Q]."""
    told = [[channel.mean for channel in one.channels.values()] for one in said]
    return list((np.array(told).reshape(last.shape) - last) / unit)
