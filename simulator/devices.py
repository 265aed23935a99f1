"""Simulated devices: four channels that pull back to a level of the device's own, and one fault on request. Pure.

All devices share their dynamics, as machines of one kind do; each has its own levels. What a device reads is fixed by its
seed and the tick, so that a stream can be made again.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fleetgp.arrays import Array
from fleetgp.schema import Channel, Schema

CHANNELS = (
    Channel(name="temperature", unit="°C"),
    Channel(name="pressure", unit="bar"),
    Channel(name="vibration", unit="mm/s"),
    Channel(name="current", unit="A"),
)
LEVEL = np.array([58.0, 6.2, 2.4, 11.0])
LEVEL_SPREAD = np.array([4.0, 0.5, 0.4, 1.5])
STEP_SD = np.array([0.30, 0.05, 0.12, 0.25])

# what is left of a deviation from the level one step later, and what it does to the other channels
PULL = np.array(
    [
        [0.60, 0.00, 0.05, 0.15],
        [0.00, 0.45, 0.00, 0.05],
        [0.00, 0.00, 0.35, 0.10],
        [0.00, 0.00, 0.00, 0.50],
    ]
)
PULL_SCALED = STEP_SD[:, None] * PULL / STEP_SD[None, :]


@dataclass(frozen=True)
class Fault:
    """A loose contact: one channel is off for a few frames, first at ``tick`` and again after every ``period`` frames.

    size: how far off, in standard deviations of the channel's own steps.
    """

    tick: int
    channel: int = 0
    size: float = 12.0
    frames: int = 5
    period: int = 180

    def is_on(self, tick: int) -> bool:
        return tick >= self.tick and (tick - self.tick) % self.period < self.frames


class Device:
    """One device; ``read`` gives its next reading [4]."""

    channels = CHANNELS

    def __init__(self, name: str, seed: int, fault: Fault | None = None) -> None:
        self.name = name
        self.fault = fault
        level_rng, self._rng = np.random.default_rng(seed).spawn(2)
        self.level: Array = LEVEL + LEVEL_SPREAD * level_rng.standard_normal(len(LEVEL))
        self._deviation: Array = np.zeros(len(LEVEL))
        self.tick = 0

    def read(self, at_s: float = 0.0) -> Array:
        """The next reading, in the channels' units, whatever its clock says."""
        self._deviation = PULL_SCALED @ self._deviation + STEP_SD * self._rng.standard_normal(len(LEVEL))
        reading = self.level + self._deviation
        if self.fault is not None and self.fault.is_on(self.tick):
            reading[self.fault.channel] += self.fault.size * STEP_SD[self.fault.channel]
        self.tick += 1
        return np.asarray(np.round(reading, 4))


def schema(interval_s: float = 1.0) -> Schema:
    """What an agent of such a device watches."""
    return Schema(channels=CHANNELS, interval_s=interval_s)
