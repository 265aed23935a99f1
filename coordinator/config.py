"""Settings to a coordinator's configuration."""

from __future__ import annotations

from coordinator.state import CoordinatorConfig
from fleetgp.runtime.settings import Settings


def coordinator_config(settings: Settings) -> CoordinatorConfig:
    return CoordinatorConfig(
        round_s=settings.number("coordinator.round_s"),
        answer_s=settings.number("coordinator.answer_s"),
        half_life_rounds=float(settings.whole("coordinator.half_life_rounds")),
    )
