"""A recorded stream with all that makes life hard, and what the brains alone make of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from edge_agent.state import AgentConfig
from fleetgp.recording import csv, spec
from fleetgp.wire.messages import AnomalyEvent, Prediction
from simulator.fleet import Plan, run

START_MS = 1_700_000_000_000

# two channels, one learnt as its logarithm, one covariate known ahead and one that is not
STREAM = """\
[stream]
interval = 1
lags = 2
phases = []
inducing = 0
[channels]
flow = { unit = "l/min" }
dust = { unit = "ug/m3", transform = "log1p" }
[covariates]
load = { known_ahead = true }
outside = {}
"""
SPEC = STREAM + '[time]\ncolumns = ["time"]\n'


def write_recording(path: Path, rows: int, seed: int = 0) -> Path:
    """A CSV file: correlated channels, cells and whole rows missing, one spike and one stretch that is off."""
    rng = np.random.default_rng(seed)
    level = rng.normal(0.0, 1.0, 4)
    lines = ["time,flow,dust,load,outside"]
    value = np.zeros(4)
    for row in range(rows):
        value = 0.7 * value + rng.normal(0.0, 0.3, 4)
        if rng.random() < 0.02:
            continue  # the device said nothing
        numbers = 5.0 + level + value
        numbers[0] += 0.8 * value[2] + (9.0 if rows // 2 <= row < rows // 2 + 3 else 0.0)
        numbers[1] = np.expm1(abs(numbers[1]) / 4)
        cells = [f"{number:.4f}" if rng.random() > 0.04 else "" for number in numbers]
        lines.append(f"{START_MS + 1000 * row},{','.join(cells)}")
    path.write_text("\n".join(lines) + "\n")
    return path


def write_spec(path: Path) -> Path:
    path.write_text(SPEC)
    return path


def by_the_brains(agent_id: str, recording: Path, spec_file: Path) -> tuple[list[Prediction], list[AnomalyEvent]]:
    """What the simulated fleet predicts and reports, each agent for itself: the truth about a process that does the same."""
    described = spec.load(spec_file)
    found: list[Prediction] = []
    plan = Plan(agent=AgentConfig(agent_id=agent_id, schema=described.schema, is_live=False))
    outcome = run({agent_id: csv.read(recording, described)}, plan, found.append)
    return found, outcome.events
