"""The stream that the agent's benchmark makes itself: six coupled channels, four covariates, a frame a minute."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator

import numpy as np

from fleetgp.arrays import Array
from fleetgp.runtime.spec import read_wanted
from fleetgp.schema import Schema

START_MS = 1_700_000_000_000
DAY_FRAMES = 1440
BLOCK = 256
# 57 features that are shared with the fleet: 1 bias + 12 lags + 4 covariates + 6 of the day + 10 that say what was held over + 24 inducing inputs
STREAM = """\
[stream]
interval = "1min"
lags = 2
phases = ["1d"]
harmonics = 3
inducing = 24
kernel = "se"
[channels]
flow = { unit = "l/min" }
pressure = { unit = "bar" }
temperature = { unit = "°C" }
current = { unit = "A" }
level = { unit = "m" }
vibration = { unit = "mm/s" }
[covariates]
valve = { known_ahead = true }
speed = { known_ahead = true }
outside = {}
supply = {}
"""
# channel by channel: usual value, swing of the day, standard deviation of what is new in a frame
USUAL = np.array([40.0, 6.0, 55.0, 12.0, 2.0, 3.0])
SWING = np.array([4.0, 0.3, 5.0, 1.0, 0.2, 0.3])
NEW_SD = np.array([0.5, 0.06, 0.3, 0.15, 0.02, 0.1])
KEPT = 0.85  # share of a deviation that is still there a frame later
COUPLED = 0.08  # of the neighbour's deviation, in its own standard deviations
DRIVEN = 0.2  # new standard deviations by one unit of a covariate
HELD = 0.995  # chance that a set point stays; share of the others that does
SETPOINTS = 2


def schema() -> Schema:
    return read_wanted(tomllib.loads(STREAM), "benchmarks/agent_stream.py").schema()


def frames(seed: int) -> Iterator[Array]:
    """Values [Q + C] of frame after frame, channels first, for ever; the same for the same seed."""
    rng = np.random.default_rng(seed)
    Q = len(USUAL)
    A = KEPT * np.eye(Q) + COUPLED * np.roll(np.eye(Q), 1, axis=1)
    drive = DRIVEN * rng.normal(size=(Q, 4))
    away, covariates = np.zeros(Q), np.zeros(4)
    tick = 0
    while True:
        new = rng.standard_normal((BLOCK, Q + 4))
        is_set = rng.random((BLOCK, SETPOINTS)) > HELD
        for row, change in zip(new, is_set, strict=True):
            free = HELD * covariates[SETPOINTS:] + np.sqrt(1 - HELD**2) * row[Q + SETPOINTS :]
            covariates = np.concatenate((np.where(change, row[Q : Q + SETPOINTS], covariates[:SETPOINTS]), free))
            # in new standard deviations; the covariates bend, so that the nonlinear part has something to learn
            away = A @ away + drive @ np.tanh(covariates) + row[:Q]
            swing = SWING * np.sin(2 * np.pi * tick / DAY_FRAMES + np.arange(Q))
            yield np.concatenate((USUAL + swing + NEW_SD * away, covariates))
            tick += 1
