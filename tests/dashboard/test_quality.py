"""Coverage and skill against sums done by hand and against an independent computation."""

from __future__ import annotations

import numpy as np
import pytest

from dashboard.quality import channel_names, quality


def test_one_channel_by_hand():
    columns = {
        "t.mean": np.array([9.0, 1.0, 2.0, 5.0]),
        "t.low": np.array([0.0, 0.0, 1.0, 4.5]),
        "t.high": np.array([1.0, 2.0, 2.0, 5.5]),
        "t.observed": np.array([0.0, 2.0, 3.0, 5.0]),
    }
    found = quality(columns)
    # inside: 0 (edge), 2 (edge) and 5; 3 is above its band
    assert found.coverage == 3 / 4
    assert found.readings == 4
    # from the second frame on, errors are 1, 1, 0 and steps 2, 1, 2: sqrt(2/3) against sqrt(9/3); the scale cancels
    assert found.skill == pytest.approx(1 - np.sqrt(2 / 9), rel=1e-12)


def test_channels_are_pooled_in_their_own_scale():
    rng = np.random.default_rng(3)
    small, large = rng.normal(size=400).cumsum(), 1e5 * rng.normal(size=400).cumsum()
    columns = {}
    for name, values, noise in (("small", small, 0.2), ("large.one", large, 3e4)):
        mean = values + noise * rng.normal(size=400)
        columns |= {f"{name}.mean": mean, f"{name}.low": mean - noise, f"{name}.high": mean + noise}
        columns[f"{name}.observed"] = values
    own = naive = inside = 0.0
    for name in ("small", "large.one"):
        values, mean = columns[f"{name}.observed"], columns[f"{name}.mean"]
        variance = sum((v - sum(values) / 400) ** 2 for v in values) / 400
        own += sum((values[i] - mean[i]) ** 2 for i in range(1, 400)) / variance
        naive += sum((values[i] - values[i - 1]) ** 2 for i in range(1, 400)) / variance
        inside += sum(columns[f"{name}.low"][i] <= values[i] <= columns[f"{name}.high"][i] for i in range(400))
    found = quality(columns)
    assert found.skill == pytest.approx(1 - (own / naive) ** 0.5, rel=1e-9)  # order of summation
    assert found.coverage == pytest.approx(inside / 800, abs=1e-15)


def test_missing_readings_count_nowhere_and_the_last_known_one_is_repeated():
    nan = np.nan
    columns = {
        "t.mean": np.array([0.0, 7.0, 2.0, 4.0]),
        "t.low": np.array([-1.0, -1.0, -1.0, -1.0]),
        "t.high": np.array([1.0, 1.0, 5.0, 5.0]),
        "t.observed": np.array([0.0, nan, 3.0, 4.0]),
    }
    found = quality(columns)
    assert (found.coverage, found.readings) == (1.0, 3)
    assert found.skill == pytest.approx(1 - np.sqrt((1 + 0) / (9 + 1)), rel=1e-12)  # errors 1, 0; steps 3, 1


@pytest.mark.parametrize(
    "observed", [np.full(5, np.nan), np.full(5, 2.0)], ids=["nothing observed", "a reading that never changes"]
)
def test_no_scale_no_skill(observed: np.ndarray):
    columns = {"t.mean": np.zeros(5), "t.low": np.zeros(5), "t.high": np.ones(5), "t.observed": observed}
    found = quality(columns)
    assert found.skill is None
    assert found.coverage == (None if np.isnan(observed[0]) else 0.0)


def test_a_perfect_agent_saves_all_and_a_repeating_one_nothing():
    values = np.sin(np.arange(50.0))
    bands = {"t.low": values - 1, "t.high": values + 1, "t.observed": values}
    assert quality({"t.mean": values, **bands}).skill == 1.0
    repeating = np.concatenate([[0.0], values[:-1]])
    assert quality({"t.mean": repeating, **bands}).skill == pytest.approx(0.0, abs=1e-12)


def test_no_columns_at_all():
    assert quality({}).coverage is None


def test_a_channel_name_may_hold_dots():
    assert channel_names(["a.b.mean", "a.b.low", "score", "is_alarmed"]) == ["a.b"]
