"""Sensors at any place within the tick, jittering and drifting: each reading in a frame of its own."""

from __future__ import annotations

import numpy as np
import pytest
from frame_streams import START, TICK, feed, sample

from edge_agent.frames import SILENT_AFTER, init


@pytest.mark.parametrize("phase_ms", [-500, -400, -100, 0, 250, 450, 499, 500])
@pytest.mark.parametrize("jitter_ms", [0, 40, 150])
def test_no_reading_is_lost_whatever_its_place_within_the_tick(phase_ms: int, jitter_ms: int) -> None:
    """Two sensors of one beat at any distance, each jittering: each reading ends in a frame of its own, none is doubled."""
    rng = np.random.default_rng(1)
    count = 400
    samples = [sample(START, (0, 0.0))]
    samples += [
        sample(START + k * TICK + shift + int(rng.integers(-jitter_ms, jitter_ms + 1)), (position, float(k)))
        for k in range(1, count)
        for position, shift in ((0, 0), (1, phase_ms))
    ]
    _, closed, counts = feed(init(2, TICK), sorted(samples, key=lambda one: one.at_ms))
    assert counts == {}
    for position in (0, 1):
        values = [frame.values[position] for frame in closed[2:]]
        assert values == [values[0] + k for k in range(len(values))]
        assert len(values) > count - 6


@pytest.mark.parametrize("phase_ms", [0, 300, 480, 500])
def test_a_sensor_that_was_restarted_may_come_back_at_another_place_within_the_tick(phase_ms: int) -> None:
    rng = np.random.default_rng(3)
    samples = [sample(START + k * TICK, (0, float(k))) for k in range(300)]
    for k in [*range(1, 50), *range(50 + SILENT_AFTER + 5, 300)]:
        at_ms = START + k * TICK + (0 if k < 50 else phase_ms) + int(rng.integers(-100, 101))
        samples.append(sample(at_ms, (1, float(k))))
    _, closed, counts = feed(init(2, TICK), sorted(samples, key=lambda one: one.at_ms))
    heard = {frame.values[1] for frame in closed}
    assert len(set(map(float, range(80, 295))) - heard) <= 1
    assert counts.total() <= 1


@pytest.mark.parametrize("period_ms", [999, 1001, 997.3, 1002.9])
def test_a_beat_that_drifts_loses_no_more_than_it_must(period_ms: float) -> None:
    """A clock that runs a little fast or slow passes a whole tick now and then: one reading, or one gap, each time."""
    rng = np.random.default_rng(2)
    count = 4000
    samples = [sample(START + round(k * period_ms) + int(rng.integers(0, 80)), (0, float(k))) for k in range(count)]
    _, closed, counts = feed(init(1, TICK), samples)
    passed = abs(period_ms - TICK) * count / TICK
    assert sum(frame.gap for frame in closed) <= (passed + 1 if period_ms > TICK else 0)
    assert counts.total() <= (passed + 1 if period_ms < TICK else 0)
