"""The benchmark of learnt bases: its figures from made-up runs, whose gains are known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.stats

from benchmarks import basis
from benchmarks.basis import Learnt

GAINS = {"Aotizhongxin": 0.03, "Changping": 0.01, "Dingling": 0.02, "Wanliu": 0.04}


def run(by_agent: dict[str, float], tuning_bytes: int = 0) -> Learnt:
    def of(nll: float) -> dict[str, Any]:
        return {"nll": nll, "rmse": 0.5, "coverage90": 0.9}

    accuracy = {
        "overall": of(0.0),
        "agents": {name: of(nll) for name, nll in by_agent.items()},
        "channels": {"y": of(0)},
    }
    return Learnt(accuracy, 1000, tuning_bytes, 1.5, 7, ("round 9: new basis",), 2.0)


def test_gains_are_paired_over_stations_and_told_for_both_halves() -> None:
    learnt = {
        "learnt": run({name: 1.0 - gain for name, gain in GAINS.items()}, 50),
        "first": run(dict.fromkeys(GAINS, 1.0)),
        "wide": run(dict.fromkeys(GAINS, 0.97)),
        "linear": run(dict.fromkeys(GAINS, 0.99)),
    }
    figures = basis.figures(learnt)
    values = np.array(list(GAINS.values()))
    low = scipy.stats.t.interval(0.95, len(values) - 1, values.mean(), scipy.stats.sem(values))[0]
    expected = {
        "basis.nll_gain": 0.025,
        "basis.nll_gain_low": low,
        "basis.nll_gain_worst_station": 0.01,
        "basis.nll_gain_over_linear": 0.015,
        "basis.nll_gain_studied": 0.025,
        "basis.nll_gain_unseen": 0.025,
        "basis.nll_gain_wide": 0.03,
        "basis.bytes_share": 0.05,
        "basis.rounds": 7.0,
    }
    for name, value in expected.items():
        assert figures[name] == pytest.approx(value, abs=1e-12), name
    assert {row["station, channel"] for row in basis.rows(learnt)} == {*GAINS, "y"}
