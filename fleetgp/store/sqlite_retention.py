"""How long what a store holds is kept: by kind of series, and for raw rows, minutes and hours apart."""

from __future__ import annotations

from dataclasses import dataclass

from fleetgp.errors import ConfigError
from fleetgp.runtime.settings import Settings
from fleetgp.store.base import Kind


@dataclass(frozen=True)
class Kept:
    """Days of each series' own time that its raw rows and its rollups of a minute and of an hour are kept."""

    raw_days: float
    minute_days: float
    hour_days: float


@dataclass(frozen=True)
class Retention:
    """What is kept of each kind of series, and days that events and rounds are kept; 0: whatever their age."""

    reading: Kept
    prediction: Kept
    health: Kept
    event_days: float = 0.0
    round_days: float = 0.0

    def of(self, kind: Kind) -> Kept:
        return {"reading": self.reading, "prediction": self.prediction, "health": self.health}[kind]


def same_for_all(raw_days: float, rollup_days: float, hour_days: float = 0.0) -> Retention:
    """All kinds alike. Hours are kept as long as minutes at least. Raises ConfigError for days that make no sense."""
    if not raw_days > 0:
        raise ConfigError("store.raw_days", f"is {raw_days}; raw rows must be kept for more than 0 days")
    if not rollup_days >= raw_days:
        raise ConfigError(
            "store.rollup_days", f"is {rollup_days}; rollups must be kept as long as raw rows ({raw_days})"
        )
    kept = Kept(raw_days, rollup_days, max(hour_days, rollup_days))
    return Retention(kept, kept, kept)


def retention(settings: Settings) -> Retention:
    """What the settings say. Raises ConfigError where rollups would go before the raw rows they are made of."""
    raw, minutes, hours = (settings.number(f"store.{name}_days") for name in ("raw", "rollup", "hour"))
    reading = same_for_all(raw, minutes, hours).reading

    def kept(kind: str, raw_days: float, minute_days: float) -> Kept:
        if minute_days < raw_days:
            raise ConfigError(
                f"store.{kind}_days", f"is {raw_days:g}; its rollups are kept for {minute_days:g} days, which is less"
            )
        return Kept(raw_days, minute_days, max(hours, minute_days))

    prediction = settings.number("store.prediction_days") or raw
    health = settings.number("store.health_days") or raw
    return Retention(
        reading,
        kept("prediction", prediction, settings.number("store.prediction_rollup_days") or max(minutes, prediction)),
        kept("health", health, max(minutes, health)),
        settings.number("store.event_days"),
        settings.number("store.round_days"),
    )
