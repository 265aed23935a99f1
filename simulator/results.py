"""What a demo came to, read from the store alone."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np

from fleetgp.recording.streams import TOPIC
from fleetgp.schema import Schema
from fleetgp.store.base import Reader
from simulator.accuracy import Accuracy

ALL = 10**9
PARTS = ("mean", "low", "high", "observed")


@dataclass(frozen=True)
class Results:
    """The demo contract's figures; errors in scaled units as ``accuracy`` says. frames: messages the devices sent."""

    frames: int
    frames_lost: int
    predictions_stored: int
    rounds_closed: int
    agents: int
    coverage90: float | None
    rmse: float | None
    rmse_persistence: float | None
    agent_rss_mb: float | None
    bytes_per_round: float | None
    events: int
    event_agents: list[str]
    broker: str = ""
    dashboard_ok: bool = False

    def with_values(self, **values: Any) -> Results:
        return dataclasses.replace(self, **values)

    def as_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


NOTHING = Results(0, 0, 0, 0, 0, None, None, None, None, None, 0, [])


def results(reader: Reader, schema: Schema, sent: dict[str, int]) -> Results:
    """Figures of a store. sent: how many messages each device sent, numbered from 0."""
    stored = {info.name for info in reader.series("reading")}
    lost = 0
    for device, count in sent.items():
        known = set(reader.sequences(TOPIC + device)) if TOPIC + device in stored else set()
        lost += len(set(range(count)) - known)
    accuracy = Accuracy(schema)
    predictions = 0
    for info in reader.series("prediction"):
        predictions += info.rows
        columns = [f"{name}.{part}" for name in schema.channel_names for part in PARTS]
        window = reader.window("prediction", info.name, columns, info.first_ms, info.last_ms, ALL)
        values = np.stack([window.mean[column] for column in columns], axis=1)
        for frame in values.reshape(len(values), len(schema.channels), len(PARTS)):
            accuracy.add_frame(info.name, frame)
    overall = accuracy.report()["overall"]
    events = reader.events(limit=ALL)
    closed = [notice for notice in reader.rounds(limit=ALL) if notice.state == "closed"]
    paid = [notice.bytes_received + notice.bytes_sent for notice in closed if notice.answered]
    memory = [
        health.figures["rss_mb"] for health in reader.healths() if health.role == "agent" and "rss_mb" in health.figures
    ]
    return Results(
        frames=sum(sent.values()),
        frames_lost=lost,
        predictions_stored=predictions,
        rounds_closed=len(closed),
        agents=sum(status.role == "agent" for status in reader.statuses()),
        coverage90=overall["coverage90"],
        rmse=overall["rmse"],
        rmse_persistence=overall["rmse_persistence"],
        agent_rss_mb=round(max(memory), 1) if memory else None,
        bytes_per_round=round(float(np.mean(paid)), 1) if paid else None,
        events=len(events),
        event_agents=sorted({event.agent for event in events}),
    )
