"""Simulated devices: made again from their seed, each at its own levels, with the dynamics and the fault they claim."""

from __future__ import annotations

import numpy as np
import pytest

from simulator.devices import LEVEL, LEVEL_SPREAD, PULL_SCALED, STEP_SD, Device, Fault


def readings(device: Device, count: int) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    return np.array([device.read() for _ in range(count)])


def test_a_stream_can_be_made_again_and_two_seeds_differ() -> None:
    assert np.array_equal(readings(Device("a", 7), 50), readings(Device("b", 7), 50))
    assert not np.array_equal(readings(Device("a", 7), 50), readings(Device("a", 8), 50))


def test_devices_pull_back_to_levels_of_their_own() -> None:
    for seed in range(3):
        device = Device("a", seed)
        seen = readings(device, 4000)
        # means of an autoregression of 4000 steps: sd of a step / (1 - 0.6) / sqrt(4000), five of them
        assert np.all(np.abs(seen.mean(axis=0) - device.level) < 5 * STEP_SD / 0.4 / np.sqrt(4000))
    levels = np.array([Device("a", seed).level for seed in range(300)])
    np.testing.assert_allclose(levels.mean(axis=0), LEVEL, atol=4 * np.max(LEVEL_SPREAD) / np.sqrt(300))
    np.testing.assert_allclose(levels.std(axis=0), LEVEL_SPREAD, rtol=0.2)  # 1 / sqrt(2 * 300), four of them


def test_the_dynamics_are_what_the_table_says() -> None:
    """Least squares on a long stream gives the pull matrix back; steps have the sd they claim."""
    device = Device("a", 3)
    deviation = readings(device, 30_000) - device.level
    before, after = deviation[:-1], deviation[1:]
    found, *_ = np.linalg.lstsq(before, after, rcond=None)
    scaled = found.T * STEP_SD[None, :] / STEP_SD[:, None]
    np.testing.assert_allclose(scaled, PULL_SCALED * STEP_SD[None, :] / STEP_SD[:, None], atol=0.03)  # 5 / sqrt(30000)
    np.testing.assert_allclose((after - before @ found).std(axis=0), STEP_SD, rtol=0.03)


def test_a_fault_is_on_when_it_says_and_nothing_else_changes() -> None:
    fault = Fault(tick=30, channel=2, size=12.0, frames=5, period=60)
    difference = readings(Device("a", 5, fault), 160) - readings(Device("a", 5), 160)
    on = [*range(30, 35), *range(90, 95), *range(150, 155)]
    assert np.flatnonzero(np.any(difference != 0, axis=1)).tolist() == on
    assert np.all(difference[:, [0, 1, 3]] == 0)
    assert difference[on, 2] == pytest.approx(12.0 * STEP_SD[2], abs=1e-4)  # readings are rounded to four places
