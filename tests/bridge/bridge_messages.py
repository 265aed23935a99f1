"""Messages as a bridge receives them."""

from __future__ import annotations

from dataclasses import dataclass

from fleetgp.wire.messages import (
    AnomalyEvent,
    ChannelPrediction,
    Health,
    Message,
    Prediction,
    RoundNotice,
    Status,
)

NOW_MS = 1_770_000_000_000  # 2026-02-02


@dataclass(frozen=True)
class Mail:
    """One message off the line."""

    topic: str
    payload: bytes
    is_retained: bool = False
    received_ms: int = NOW_MS


PREDICTION = Prediction(
    at_ms=NOW_MS - 300,
    agent="pump-1",
    sequence=7,
    channels={
        "t": ChannelPrediction(mean=20.0, low=19.0, high=21.5, observed=20.25, z=0.5),
        "p": ChannelPrediction(mean=1013.0, low=1010.0, high=1016.0),
    },
    score=1.5,
    threshold=8.0,
    is_alarmed=True,
)
EVENT = AnomalyEvent(
    at_ms=NOW_MS, agent="pump-1", event_id="e1", state="opened", start_ms=NOW_MS, peak_score=9.0, peak_ms=NOW_MS
)
STATUS = Status(at_ms=NOW_MS, name="pump-1", role="agent", is_online=True, instance="7f3a")
HEALTH = Health(at_ms=NOW_MS - 50, name="pump-1", role="agent", figures={"rss_mb": 31.5, "frames": 12.0})
SERVICE_STATUS = Status(at_ms=NOW_MS, name="coordinator", role="coordinator", is_online=False)
SERVICE_HEALTH = Health(at_ms=NOW_MS, name="coordinator", role="coordinator", figures={"round": 3.0})
ROUND = RoundNotice(at_ms=NOW_MS, round=3, state="closed", basis=1, answered=("pump-1",))

# kind of topic -> every message that is stored from it
OURS: dict[str, tuple[str, Message]] = {
    "predictions": ("fleetgp/home/agents/pump-1/predictions", PREDICTION),
    "events": ("fleetgp/home/agents/pump-1/events", EVENT),
    "status": ("fleetgp/home/agents/pump-1/status", STATUS),
    "health": ("fleetgp/home/agents/pump-1/health", HEALTH),
    "service status": ("fleetgp/home/services/coordinator/status", SERVICE_STATUS),
    "service health": ("fleetgp/home/services/coordinator/health", SERVICE_HEALTH),
    "round": ("fleetgp/home/fleet/round", ROUND),
}
