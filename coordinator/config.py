"""Settings to a coordinator's configuration."""

from __future__ import annotations

from coordinator.state import CoordinatorConfig
from fleetgp.runtime.settings import Settings

# what a coordinator publishes follows from these and from what it hears; its status tells them
TOLD = (
    "coordinator.round_s",
    "coordinator.answer_s",
    "coordinator.half_life_rounds",
    "coordinator.tuning",
    "coordinator.tuning_rounds",
)


def coordinator_config(settings: Settings) -> CoordinatorConfig:
    return CoordinatorConfig(
        round_s=settings.number("coordinator.round_s"),
        answer_s=settings.number("coordinator.answer_s"),
        half_life_rounds=float(settings.whole("coordinator.half_life_rounds")),
        tuning=settings.text("coordinator.tuning") == "on",
        tuning_rounds=settings.whole("coordinator.tuning_rounds"),
    )
