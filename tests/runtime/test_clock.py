"""Clocks: time that never runs backwards, and one that tests move by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetgp.runtime.clock import FakeClock, SteadyWall, SystemClock


def test_a_wall_clock_that_runs_well_is_told_as_it_is() -> None:
    steady = SteadyWall()
    assert [steady.read(1000.0 * second, float(second)) for second in (5, 6, 7)] == [5000, 6000, 7000]


def test_a_wall_clock_set_back_goes_on_at_half_speed_until_it_has_caught_up() -> None:
    """Set back by 4 s: 8 s later the two agree again, and no two readings in between share a time."""
    steady = SteadyWall()
    steady.read(100_000.0, 10.0)
    told = [steady.read(96_000.0 + 1000.0 * second, 10.0 + second) for second in range(1, 10)]
    assert told == [100_500, 101_000, 101_500, 102_000, 102_500, 103_000, 103_500, 104_000, 105_000]


def test_a_wall_clock_set_forward_is_followed_at_once() -> None:
    steady = SteadyWall()
    assert steady.read(0.0, 0.0) == 0
    assert steady.read(1.7e12, 1.0) == 1_700_000_000_000


@given(st.lists(st.tuples(st.floats(-1e13, 1e13), st.floats(0, 1e6)), max_size=30))
def test_time_never_runs_backwards(steps: list[tuple[float, float]]) -> None:
    steady, at_s, told = SteadyWall(), 0.0, []
    for wall_ms, passed_s in steps:
        at_s += passed_s
        told.append(steady.read(wall_ms, at_s))
    assert told == sorted(told)


def test_the_system_clock_tells_utc_milliseconds() -> None:
    clock = SystemClock()
    first, second = clock.now_ms(), clock.now_ms()
    assert 1_577_836_800_000 < first <= second  # after 2020
    assert clock.monotonic_s() <= clock.monotonic_s()


def test_a_fake_clock_moves_only_when_told() -> None:
    clock = FakeClock(at_ms=1000)
    assert (clock.now_ms(), clock.monotonic_s()) == (1000, 0.0)
    clock.advance(2.5)
    assert (clock.now_ms(), clock.monotonic_s()) == (3500, 2.5)
    for _ in range(1000):
        clock.advance(0.0004)  # rounding does not add up
    assert clock.now_ms() == 3900
    with pytest.raises(ValueError, match="go back"):
        clock.advance(-1)


def test_nanoseconds_are_the_same_time_told_finer() -> None:
    """Two messages within one millisecond keep their order and their distance."""
    steady = SteadyWall()
    assert steady.read_ns(1_700_000_000_123_456_789, 1.0) == 1_700_000_000_123_456_789
    assert steady.read_ns(1_700_000_000_123_456_000, 1.0) == 1_700_000_000_123_456_789
    fake = FakeClock(at_ms=1000)
    fake.advance(0.000_25)
    assert (fake.now_ns(), fake.now_ms()) == (1_000_250_000, 1000)
    clock = SystemClock()
    first, second = clock.now_ns(), clock.now_ns()
    assert first <= second
    assert clock.now_ms() * 1_000_000 <= clock.now_ns()
