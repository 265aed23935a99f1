"""Percentiles of lateness against numpy's."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_bridge.lateness import Lateness


@given(st.lists(st.floats(0.02, 1e6), min_size=1, max_size=300), st.sampled_from([0.5, 0.9, 0.99, 1.0]))
def test_a_percentile_is_that_of_numpy_within_a_bin(late_ms: list[float], share: float) -> None:
    lateness = Lateness()
    for value in late_ms:
        lateness.add(value)
    truth = float(np.quantile(late_ms, share, method="inverted_cdf"))
    assert truth * 0.999999 <= lateness.percentile(share) <= truth * 1.024
    assert lateness.max_ms == max(late_ms)
    assert lateness.count == len(late_ms)


def test_what_came_in_time_is_not_late_and_what_never_came_has_no_lateness() -> None:
    lateness = Lateness()
    assert lateness.figures() == {"count": 0, "p50_ms": 0.0, "p99_ms": 0.0, "max_ms": 0.0}
    for _ in range(99):
        lateness.add(0.0)
    lateness.add(4.0)
    assert lateness.figures() == {"count": 100, "p50_ms": 0.0, "p99_ms": 0.0, "max_ms": 4.0}


def test_a_lateness_of_days_is_told_as_what_it_was() -> None:
    lateness = Lateness()
    lateness.add(1e12)
    assert lateness.percentile(0.5) == pytest.approx(1e8, rel=0.03)
    assert lateness.max_ms == 1e12
