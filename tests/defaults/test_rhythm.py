"""A period is seen where there is one on the clock, and not where there is none."""

from __future__ import annotations

import numpy as np
import pytest
from first_readings import autoregression

from fleetgp.rhythm import correlations, period, visible

T = np.arange(400)


@pytest.mark.parametrize("frames", [8, 10, 12.5, 20, 30, 45.3, 60])
def test_a_wave_in_as_much_noise_is_placed_within_two_percent(frames: float) -> None:
    for seed in range(10):
        rng = np.random.default_rng(seed)
        x = np.sin(2 * np.pi * T / frames + seed) + rng.normal(0, 0.5, 400) + 0.02 * T
        assert period(x) == pytest.approx(frames, rel=0.02)


@pytest.mark.parametrize(
    "weights", [(), (0.5,), (0.9,), (1.0,), (1.2, -0.6), (1.5, -0.8)], ids=lambda weights: str(len(weights))
)
def test_noise_of_any_colour_has_none(weights: tuple[float, ...]) -> None:
    rng = np.random.default_rng(11)
    assert np.mean([period(autoregression(rng, weights, 400)) > 0 for _ in range(200)]) <= 0.01


def test_a_swing_that_forgets_when_it_began_is_no_calendar() -> None:
    """Poles of radius 0.97 (a coherence of 40 frames, two and a half of its waves): left to lags."""
    rng = np.random.default_rng(12)
    found = [visible([autoregression(rng, (1.8, -0.95), 400) for _ in range(3)], 1.0) for _ in range(60)]
    assert sum(one is not None for one in found) <= 1


def test_it_is_to_be_seen_five_times_and_to_be_a_nice_one() -> None:
    def wave(frames: float, n: int = 400) -> list[np.ndarray]:
        return [np.sin(2 * np.pi * np.arange(n) / frames)]

    assert visible(wave(60), 1.0) == 60.0
    assert visible(wave(60), 10.0) == 600.0
    assert visible(wave(60, 290), 1.0) is None
    assert visible(wave(47), 1.0) is None  # of no clock
    assert visible(wave(5), 1.0) is None  # lags do that
    assert visible([*wave(60), *(np.random.default_rng(k).normal(size=400) for k in range(3))], 1.0) is None
    assert visible([], 1.0) is None


def test_missing_frames_do_not_hide_it_and_still_series_have_none() -> None:
    rng = np.random.default_rng(13)
    x = np.sin(2 * np.pi * T / 30)
    assert visible([np.where(rng.random(400) < 0.15, np.nan, x)], 1.0) == 30.0
    assert visible([np.where(rng.random(400) < 0.5, np.nan, x)], 1.0) is None
    for still in (np.full(400, 0.1), 1e9 + 3.0 * T, np.full(400, np.nan)):
        assert visible([still], 1.0) is None


def test_correlations_are_those_of_the_definition() -> None:
    rng = np.random.default_rng(14)
    x = rng.normal(size=100).cumsum()
    x[[3, 50]] = np.nan
    known = np.isfinite(x)
    line = np.polyval(np.polyfit(np.flatnonzero(known), x[known], 1), np.arange(100))
    y = x - line
    variance = np.nanmean(y**2)
    expected = [np.nanmean(y[: 100 - k] * y[k:]) / variance for k in range(81)]
    np.testing.assert_allclose(correlations(x), expected, atol=1e-10)
