"""Whose a message is: topics to devices. A topic of JSON objects is a device; topics of single values are channels of one.

``esp/attic/temperature`` and ``esp/attic/humidity`` are two channels of the device ``esp/attic``. A last level that only
says that a value follows (``state``, ``value``) names no channel, and the level that says which kind of entity it is
(``sensor``, ``binary_sensor``) no device: ``node/sensor/air/state`` is the channel ``air`` of ``node``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from fleetgp.recording.csv import usable

Kind = Literal["object", "scalar"]
Levels = tuple[str, ...]

VALUE_LEVELS = ("state", "value")
ENTITY_LEVELS = (
    "sensor", "binary_sensor", "switch", "number", "light", "climate", "fan", "cover", "input_number", "input_boolean",
)  # fmt: skip
OURS = "sensors"  # where ``fleetgp devices`` publishes


def grouped(topics: Mapping[str, Kind]) -> dict[Levels, dict[str, str]]:
    """By device, named by the levels of its topic: its topics and the channel that each carries, "" = fields of objects."""
    found: dict[Levels, dict[str, str]] = {}
    for topic, kind in topics.items():
        device, channel = _parts(topic, kind)
        found.setdefault(device, {})[topic] = channel
    return found


def _parts(topic: str, kind: Kind) -> tuple[Levels, str]:
    levels = tuple(level for level in topic.split("/") if level)
    if kind == "object" or not levels:
        return levels, ""
    if levels[-1] in VALUE_LEVELS and len(levels) > 1:
        levels = levels[:-1]
        *parent, channel = levels
        if len(parent) > 1 and parent[-1] in ENTITY_LEVELS:
            parent = parent[:-1]
        return tuple(parent), channel
    return levels[:-1], levels[-1]


def ids(devices: Sequence[Levels], fallback: str) -> list[str]:
    """An id for each device: the levels that tell it from the others, all of them where it is alone.

    fallback: of one whose channels have no level above them.
    """
    inner = [levels[1:] if levels[:1] == (OURS,) and len(levels) > 1 else levels for levels in devices]
    common = _common(inner)
    return [
        usable("-".join(level for level in levels if level not in common) or "-".join(levels) or fallback)
        for levels in inner
    ]


def _common(devices: Iterable[Levels]) -> set[str]:
    sets = [set(levels) for levels in devices]
    return set.intersection(*sets) if len(sets) > 1 else set()
