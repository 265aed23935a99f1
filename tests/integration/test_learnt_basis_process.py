"""The slow clock between programs: proposals and gradients cross a real broker, a kill is survived, and a recording says it all."""

from __future__ import annotations

import signal
from pathlib import Path

import numpy as np
import pytest
from bench import FLEET, Bench, desk_at
from test_recorded_fleet import again, recorded, start_recorder

from broker_bridge.broker import EmbeddedBroker
from fleetgp.wire import topics
from fleetgp.wire.messages import Gradient, Tuning
from simulator.run_recorded import totals

pytestmark = pytest.mark.broker

STREAM = """\
[stream]
interval = 60
lags = 1
phases = []
inducing = 6
[channels]
y = {}
[covariates]
u = { known_ahead = true }
"""
FRAMES = 320
AGENTS = ("pump-1", "pump-2")
BEGIN_MS = 1_772_600_000_000


def wave(seed: int) -> list[dict[str, float]]:
    """As many minutes of a stream that follows a quick wave of its covariate."""
    rng = np.random.default_rng(seed)
    u, noise = rng.uniform(-2, 2, FRAMES), 0.1 * rng.standard_normal(FRAMES)
    return [
        {"time": BEGIN_MS + 60_000 * t, "y": float(np.sin(4 * u[t]) + noise[t]), "u": float(u[t])}
        for t in range(FRAMES)
    ]


@pytest.mark.slow
def test_proposals_and_gradients_cross_a_broker_and_a_kill(
    any_broker: EmbeddedBroker, bench: Bench, tmp_path: Path
) -> None:
    file, proposed = tmp_path / "fleet.mcap", topics.fleet_wide(FLEET, "tuning")
    recorder = start_recorder(bench, any_broker.url, file)
    with desk_at(bench.url, tmp_path) as desk:
        desk.until(file.exists, 15.0)
        quick = {"coordinator__round_s": 1, "coordinator__answer_s": 0.4}
        coordinator = bench.start("coordinator", **quick)
        for name in AGENTS:
            bench.agent(name, STREAM, agent__clock="recording")
        desk.until(lambda: all(desk.is_online(name) for name in AGENTS), 20.0)
        for seed, name in enumerate(AGENTS):
            for row in wave(seed):
                desk.say(f"sensors/{name}", row)

        def step() -> int:
            return max((one.step for one in desk.of(Tuning, proposed) if one.values), default=0)

        desk.until(lambda: step() >= 3, 60.0)
        coordinator.kill()
        bench.start("coordinator", **quick)
        reached = step()
        desk.until(lambda: step() >= reached + 2, 60.0)
        for name in AGENTS:
            told = desk.of(Gradient, topics.agent(FLEET, name, "gradient"))
            assert len({one.step for one in told}) == len(told)
            assert any(one.slopes and one.held_out_count for one in told)
            assert all(one.seconds > 0 for one in told)
            health = desk.health(name)
            assert health is not None
            assert health.figures["tuning_steps"] >= 1
            assert not [reason for reason in health.dropped if reason.startswith("tuning")]
    recorder.stop(signal.SIGINT)
    total = totals(again(recorded(file)))
    # agents on a recording's clock learn many frames at once, here others than there: the last digits of what they foresee differ
    assert total["predictions"].is_alike, total["predictions"].first
    for kind in ("models", "notices"):
        assert set(total[kind].counts) == {"same"}, total[kind].first
        assert total[kind].is_alike
