"""Simulated presses: four channels that follow one cycle of a minute, each press a little differently. Pure.

All presses share the shape of a stroke, as machines of one kind do; each is stronger or weaker at it, a little early or late,
has one habit of its own somewhere in the cycle, and errs by what goes on for a few seconds. What a press reads is fixed by
its seed, its clock and the number of readings before.
"""

from __future__ import annotations

import numpy as np

from fleetgp.arrays import Array
from fleetgp.schema import Channel, Schema
from simulator.devices import Fault

CYCLE_S = 60.0
CHANNELS = (
    Channel(name="force", unit="kN"),
    Channel(name="stroke", unit="mm"),
    Channel(name="oil_pressure", unit="bar"),
    Channel(name="current", unit="A"),
)
LEVEL = np.array([40.0, 120.0, 90.0, 18.0])
# how far a channel goes in a stroke, and what it errs by
SWING = np.array([160.0, 200.0, 60.0, 22.0])
NOISE_SD = np.array([3.0, 4.0, 1.5, 0.6])
PERSISTENCE = 0.6
# how devices differ: of a swing, of a cycle, of a swing
STRENGTH_SD, SHIFT_SD, HABIT = 0.12, 0.015, 0.12
HABIT_WIDTH = 0.04


def _bump(phase: Array | float, centre: float, width: float) -> Array:
    """1 at the centre of a cycle's phase, smooth and periodic."""
    gap = (np.asarray(phase) - centre + 0.5) % 1.0 - 0.5
    return np.asarray(np.exp(-0.5 * (gap / width) ** 2))


def stroke(phase: float) -> Array:
    """What every press does at a phase of the cycle [4], in swings."""
    down, hold, up = _bump(phase, 0.30, 0.07), _bump(phase, 0.45, 0.10), _bump(phase, 0.72, 0.08)
    return np.array(
        [0.3 * down + hold, down + 0.9 * hold + 0.4 * up, 0.5 * down + hold - 0.3 * up, 0.8 * down + 0.3 * hold + up]
    )


class Press:
    """One press; ``read`` gives its next reading [4]."""

    channels = CHANNELS

    def __init__(self, name: str, seed: int, fault: Fault | None = None) -> None:
        self.name = name
        self.fault = fault
        own, self._rng = np.random.default_rng(seed).spawn(2)
        self.level: Array = LEVEL + 0.05 * SWING * own.standard_normal(4)
        self._strength = 1.0 + STRENGTH_SD * own.standard_normal(4)
        self._shift = SHIFT_SD * float(own.standard_normal())
        self._habit = HABIT * own.standard_normal(4), float(own.random())
        self._error: Array = np.zeros(4)
        self.tick = 0

    def read(self, at_s: float) -> Array:
        """The reading at this time of its clock, in the channels' units; each call is the next tick."""
        phase = at_s / CYCLE_S % 1.0
        size, where = self._habit
        mean = self._strength * stroke(phase + self._shift) + size * _bump(phase, where, HABIT_WIDTH)
        self._error = PERSISTENCE * self._error + np.sqrt(1 - PERSISTENCE**2) * self._rng.standard_normal(4)
        reading = self.level + SWING * mean + NOISE_SD * self._error
        if self.fault is not None and self.fault.is_on(self.tick):
            reading[self.fault.channel] += self.fault.size * NOISE_SD[self.fault.channel]
        self.tick += 1
        return np.asarray(np.round(reading, 3))


def schema(interval_s: float = 1.0) -> Schema:
    """What an agent of such a press watches."""
    return Schema(
        channels=CHANNELS, interval_s=interval_s, lags=1, phases=(CYCLE_S,), harmonics=1, inducing=20, mixing="ilmm"
    )
