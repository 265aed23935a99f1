"""Figures of accuracy against sums written out by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetgp.schema import Channel, Schema
from fleetgp.wire.messages import ChannelPrediction, Prediction
from simulator.accuracy import Accuracy

MODEST = settings(max_examples=40, deadline=None, derandomize=True)
SCHEMA = Schema(channels=(Channel(name="a"), Channel(name="dust", transform="log1p")))
NAN = math.nan


def prediction(agent: str, **channels: tuple[float, float, float, float | None]) -> Prediction:
    laws = {
        name: ChannelPrediction(mean=mean, low=low, high=high, observed=seen)
        for name, (mean, low, high, seen) in channels.items()
    }
    return Prediction(at_ms=0, agent=agent, sequence=0, channels=laws, score=0.0, threshold=8.0)


def test_figures_are_what_they_come_to_by_hand() -> None:
    """Two agents, one channel missing at times, one in logarithms; each number below is written out."""
    accuracy = Accuracy(SCHEMA)
    # the first reading of each agent and channel has nothing before it: it counts for neither error
    accuracy.add(prediction("p", a=(0.0, -1.0, 1.0, 10.0), dust=(0.0, 0.0, 0.0, math.expm1(1.0))))
    accuracy.add(prediction("p", a=(11.0, 10.5, 11.5, 12.0), dust=(math.expm1(1.5), 0.0, 9.0, math.expm1(2.0))))
    accuracy.add(prediction("p", a=(12.0, 11.0, 13.0, 13.0), dust=(1.0, 0.0, 9.0, None)))
    accuracy.add(prediction("p", a=(13.0, 12.0, 14.0, None), dust=(math.expm1(4.0), 60.0, 90.0, math.expm1(4.0))))
    accuracy.add(prediction("q", a=(0.0, 0.0, 0.0, 20.0)))
    accuracy.add(prediction("q", a=(20.0, 19.0, 19.5, 18.0)))
    # a: observed 12, 13, 18: mean 43/3; errors 1, 1, -2; steps 2, 1, -2; covered: no, yes (at its edge), no
    sd_a = math.sqrt((12**2 + 13**2 + 18**2) / 3 - (43 / 3) ** 2)
    # dust in logarithms: observed 2, 4: sd 1; errors .5, 0; steps 1, 2 (over the hole); covered: yes, no
    sd_dust = 1.0
    report: Any = accuracy.report()
    a, dust = report["channels"]["a"], report["channels"]["dust"]
    assert (a["n"], dust["n"]) == (3, 2)
    assert a["rmse"] == pytest.approx(math.sqrt(6 / 3) / sd_a)
    assert a["rmse_persistence"] == pytest.approx(math.sqrt(9 / 3) / sd_a)
    assert a["coverage90"] == pytest.approx(1 / 3)
    assert dust["rmse"] == pytest.approx(math.sqrt(0.25 / 2) / sd_dust)
    assert dust["rmse_persistence"] == pytest.approx(math.sqrt(5 / 2) / sd_dust)
    assert dust["coverage90"] == pytest.approx(1 / 2)
    p, q = report["agents"]["p"], report["agents"]["q"]
    assert (p["n"], q["n"]) == (4, 1)
    assert p["rmse"] == pytest.approx(math.sqrt((2 / sd_a**2 + 0.25) / 4))
    assert q["rmse"] == pytest.approx(2 / sd_a)
    overall = report["overall"]
    assert overall["n"] == 5
    assert overall["rmse"] == pytest.approx(math.sqrt((6 / sd_a**2 + 0.25) / 5))
    assert overall["rmse_persistence"] == pytest.approx(math.sqrt((9 / sd_a**2 + 5) / 5))
    assert overall["coverage90"] == pytest.approx(2 / 5)


def test_nothing_observed_gives_no_figures_rather_than_zeros() -> None:
    accuracy = Accuracy(SCHEMA)
    accuracy.add(prediction("p", a=(0.0, -1.0, 1.0, None)))
    report: Any = accuracy.report()
    assert {"n", "rmse", "rmse_persistence", "coverage90", "nll", "crps", "coverage50"} <= set(report["overall"])
    for found in (report["overall"], report["agents"]["p"], report["channels"]["a"]):
        assert {value for name, value in found.items() if name not in ("n", "n_law", "original")} == {None}
        assert (found["n"], found["n_law"]) == (0, 0)
    assert report["channels"]["a"]["original"]["rmse"] is None


def test_a_channel_that_never_varies_is_measured_in_its_own_unit() -> None:
    accuracy = Accuracy(SCHEMA)
    for _ in range(4):
        accuracy.add(prediction("p", a=(5.5, 5.0, 6.0, 5.0)))
    report: Any = accuracy.report()
    assert report["channels"]["a"]["rmse"] == pytest.approx(0.5)
    assert report["channels"]["a"]["rmse_persistence"] == 0.0


def test_a_reading_that_cannot_be_learnt_counts_as_missing() -> None:
    """log1p of -5 is no number; it must not turn every figure into one that is none."""
    accuracy = Accuracy(SCHEMA)
    for seen in (1.0, -5.0, 1.0, 2.0):
        accuracy.add_frame("p", np.array([[1.0, 0.0, 2.0, 1.0], [1.0, 0.0, 3.0, seen]]))
    report: Any = accuracy.report()
    assert report["channels"]["dust"]["n"] == 2
    assert math.isfinite(report["overall"]["rmse"])


def test_a_large_offset_costs_no_accuracy() -> None:
    """Sums of squares about the first value: a spread of 1 at a level of 1e9 is still a spread of 1 (to 1e-6)."""
    rng = np.random.default_rng(1)
    values = rng.standard_normal(500)
    figures = []
    for offset in (0.0, 1e9):
        accuracy = Accuracy(Schema(channels=(Channel(name="a"),)))
        for value in values:
            accuracy.add_frame("p", np.array([[offset, offset - 1, offset + 1, offset + value]]))
        report: Any = accuracy.report()
        figures.append(report["overall"]["rmse"])
    assert figures[1] == pytest.approx(figures[0], rel=1e-6)


@MODEST
@given(st.lists(st.tuples(st.sampled_from("pqr"), st.floats(-10, 10) | st.just(NAN), st.floats(-10, 10)), max_size=40))
def test_figures_agree_with_a_plain_loop(frames: list[tuple[str, float, float]]) -> None:
    """An independent reading of the definition, one list of errors after another."""
    accuracy = Accuracy(Schema(channels=(Channel(name="a"),)))
    last: dict[str, float] = {}
    errors, steps, seen_values, covered = [], [], [], []
    for agent, seen, mean in frames:
        accuracy.add_frame(agent, np.array([[mean, mean - 1, mean + 1, seen]]))
        if math.isnan(seen):
            continue
        if agent in last:
            errors.append(seen - mean)
            steps.append(seen - last[agent])
            seen_values.append(seen)
            covered.append(mean - 1 <= seen <= mean + 1)
        last[agent] = seen
    found: Any = accuracy.report()
    assert found["overall"]["n"] == len(errors)
    if len(errors) and np.std(seen_values) > 1e-3:  # below, rounding decides whether a channel varied
        sd = np.std(seen_values)
        assert found["overall"]["rmse"] == pytest.approx(np.sqrt(np.mean(np.square(errors))) / sd, rel=1e-6, abs=1e-9)
        assert found["overall"]["rmse_persistence"] == pytest.approx(
            np.sqrt(np.mean(np.square(steps))) / sd, rel=1e-6, abs=1e-9
        )
        assert found["overall"]["coverage90"] == pytest.approx(np.mean(covered))
