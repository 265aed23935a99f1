"""A fleet whose rule of thumb is wrong: steps are a quick wave of one covariate, and the first lengthscale is far too long.

Real brains on a simulated clock; a tuning of the basis is under way or over, as asked for.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from coordinator import state as coordination
from edge_agent.state import AgentConfig
from fleetgp.recording.csv import Record
from fleetgp.schema import Channel, Covariate, Schema
from fleetgp.wire.messages import Prediction
from simulator.fleet import Fleet, Plan

SCHEMA = Schema(
    channels=(Channel(name="y"),),
    covariates=(Covariate(name="u", known_ahead=True),),
    interval_s=60.0,
    lags=1,
    inducing=12,
)
AGENTS = ("a", "b", "c")
TICK_MS, ROUND_FRAMES = 60_000, 12
WAVES = 4.0


def wave(seed: int, count: int) -> list[Record]:
    """y follows half of its last value and a wave of u, with a noise of a tenth."""
    rng = np.random.default_rng(seed)
    u, noise, y, rows = rng.uniform(-2, 2, count), 0.1 * rng.standard_normal(count), 0.0, []
    for t in range(count):
        y = 0.5 * y + float(np.sin(WAVES * u[t]) + noise[t])
        rows.append(Record(t * TICK_MS, (y, float(u[t]))))
    return rows


def fleet(heard: Callable[[Prediction], None], *, tuning: bool = True, rounds: int = 1) -> Fleet:
    """No agent has read anything yet. rounds: to a step of a tuning."""
    agent = AgentConfig(agent_id="any", schema=SCHEMA, is_live=False, local_inducing=0)
    return Fleet(Plan(agent=agent, round_ms=ROUND_FRAMES * TICK_MS, tuning=tuning, tuning_rounds=rounds), heard)


def read(fleet: Fleet, first: int, last: int) -> None:
    """Frames of all agents from one number up to before another."""
    rows = [wave(seed, last)[first:] for seed in range(len(AGENTS))]
    for moment in zip(*rows, strict=True):
        for name, record in zip(AGENTS, moment, strict=True):
            fleet.read(name, record)


def tuned(state: coordination.State | None) -> coordination.Ascent:
    """The tuning under way."""
    assert state is not None
    assert state.tuning is not None
    return state.tuning
