"""Recordings of simulated devices, in memory and as files, for the tests of the simulator."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from edge_agent.state import AgentConfig
from fleetgp.recording.csv import Record
from fleetgp.wire.messages import Prediction
from simulator.devices import CHANNELS, Device, schema
from simulator.fleet import Outcome, Plan, run

START = 1_772_615_730_000
TICK = 1000

SPEC = """
[time]
columns = ["time"]
[stream]
interval = "1s"
lags = 2
phases = []
inducing = 0
[channels]
temperature = {}
pressure = {}
vibration = {}
current = {}
"""


def records(device: Device, first: int, count: int) -> Iterator[Record]:
    """Readings of a device from its ``first`` tick on."""
    for tick in range(first, first + count):
        yield Record(START + tick * TICK, tuple(map(float, device.read())))


def plan(round_ms: int = 10_000, **changes: object) -> Plan:
    return Plan(agent=AgentConfig(agent_id="any", schema=schema()), round_ms=round_ms, **changes)  # type: ignore[arg-type]


def predicted(recordings: Mapping[str, Iterator[Record]], chosen: Plan) -> tuple[list[Prediction], Outcome]:
    made: list[Prediction] = []
    outcome = run(recordings, chosen, made.append)
    return made, outcome


def write_csv(path: Path, rows: Iterator[Record]) -> Path:
    lines = [",".join(["time", *(channel.name for channel in CHANNELS)])]
    lines += [",".join([str(row.at_ms), *map(str, row.values)]) for row in rows]
    path.write_text("\n".join(lines) + "\n")
    return path
