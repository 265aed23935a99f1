"""What the dashboard saw at its last look into the store, as one frozen value."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from fleetgp.schema import Schema
from fleetgp.store.base import SeriesInfo, StoreInfo, Window
from fleetgp.wire.messages import AnomalyEvent, Health, RoundNotice, Status

_DIGITS = re.compile(r"([0-9]+)")


def in_order(names: Iterable[str]) -> list[str]:
    """Names once each as people sort them: pump-2 before pump-10."""

    def key(name: str) -> tuple[list[str | int], str]:
        parts = _DIGITS.split(name)  # text and digits in turn, text first
        return [int(part) if i % 2 else part for i, part in enumerate(parts)], name

    return sorted(set(names), key=key)


@dataclass(frozen=True)
class Problem:
    """Why there is nothing to see. missing: no such file (yet); unreadable: the store refused, ``detail`` says how."""

    kind: Literal["missing", "unreadable"]
    detail: str


@dataclass(frozen=True)
class View:
    """The store at one look.

    version: grows whenever something changed. looked_ms: when we looked, system clock. recent: per agent the newest
    prediction rows, in order, as they were stored. changes: rounds that tell of a change of the basis, newest first, also
    from before the oldest of rounds. noticed_ms: when an agent's newest frame was first seen here, system
    clock; only for frames that arrived while we watched.
    """

    version: int
    looked_ms: int
    location: str
    problem: Problem | None = None
    info: StoreInfo | None = None
    statuses: tuple[Status, ...] = ()
    healths: tuple[Health, ...] = ()
    events: tuple[AnomalyEvent, ...] = ()
    rounds: tuple[RoundNotice, ...] = ()
    changes: tuple[RoundNotice, ...] = ()
    readings: tuple[SeriesInfo, ...] = ()
    predictions: Mapping[str, SeriesInfo] = field(default_factory=dict)
    recent: Mapping[str, Window] = field(default_factory=dict)
    noticed_ms: Mapping[str, int] = field(default_factory=dict)

    @property
    def agents(self) -> tuple[str, ...]:
        """Every agent that ever said hello or predicted something, by name."""
        names = {status.name for status in self.statuses if status.role == "agent"}
        return tuple(in_order(names | set(self.predictions)))

    def status(self, name: str) -> Status | None:
        return next((status for status in self.statuses if status.name == name), None)

    def schema(self, agent: str) -> Schema | None:
        status = self.status(agent)
        return status.schema if status is not None else None

    @property
    def newest_ms(self) -> int | None:
        """Time of the newest frame of the fleet, stream clock."""
        return max((series.last_ms for series in self.predictions.values()), default=None)

    @property
    def is_empty(self) -> bool:
        """Whether nothing was stored yet that a page could show."""
        return not (self.statuses or self.predictions or self.rounds or self.readings)
