"""Interval, lags, phases and inducing inputs against streams whose truth is known."""

from __future__ import annotations

import numpy as np
import pytest
from first_readings import autoregression, device, named, told

from fleetgp.columns import First
from fleetgp.defaults import choose, order, snapped
from fleetgp.errors import ConfigError
from fleetgp.runtime.spec import parse_span
from fleetgp.schema import MAX_PRECISION, Channel, Covariate, Schema
from fleetgp.wanted import Wanted, span


def interval_of(*devices: First, names: tuple[str, ...] = ("a",)) -> float:
    return choose(named(*names), names, devices).schema.interval_s


# --- interval ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("seconds", [0.1, 0.5, 1, 2, 5, 10, 15, 30, 60, 300, 600, 900, 1800, 3600, 86400, 180, 7, 2400])
def test_a_regular_stream_has_its_own_interval(seconds: float) -> None:
    t = seconds * np.arange(60)
    choice = choose(named("a"), ("a",), [device(t, np.sin(t))])
    assert choice.schema.interval_s == seconds
    assert told(choice.reasons, "interval") == (
        f"interval {span(seconds)}: the readings come every {seconds:g} s (median of 59 gaps)"
    )


@pytest.mark.parametrize("seconds", [1.0, 5.0, 60.0])
def test_jitter_of_a_tenth_and_holes_do_not_hide_the_interval(seconds: float) -> None:
    for seed in range(20):
        rng = np.random.default_rng(seed)
        ticks = np.flatnonzero(rng.random(300) > 0.2)
        assert interval_of(device(seconds * (ticks + 0.05 * rng.standard_normal(len(ticks))), ticks % 7)) == seconds


def test_a_steady_interval_that_is_nearly_nice_is_kept_and_one_within_its_jitter_is_not() -> None:
    """1.04 s on the dot would slip one tick in 25 against a clock of 1 s."""
    rng = np.random.default_rng(1)
    assert snapped(np.full(100, 1.04)) == (1.04, "")
    assert snapped(1.04 + 0.1 * rng.standard_normal(100)) == (1.0, ", taken for 1s")
    assert snapped(np.full(100, 1.004))[0] == 1.0
    assert snapped(np.full(100, 1.2345))[0] == 1.23


def test_of_two_rates_the_slower_one_fills_frames() -> None:
    quick, slow = np.arange(300.0), 5.0 * np.arange(60) + 0.3
    times = np.sort(np.concatenate((quick, slow)))
    a = np.where(np.isin(times, quick), times % 11, np.nan)
    b = np.where(np.isin(times, slow), times % 13, np.nan)
    choice = choose(named("a", "b"), ("a", "b"), [device(times, a, b)])
    assert choice.schema.interval_s == 5.0
    assert told(choice.reasons, "interval").startswith(
        "interval 5s: readings of b, the slowest channel, come every 5 s"
    )
    # a covariate that is told of once in a while is held: it slows nobody down
    said = Wanted(channels=(Channel(name="a"),), covariates=(Covariate(name="b"),))
    assert choose(said, ("a", "b"), [device(times, a, b)]).schema.interval_s == 1.0


def test_a_channel_that_hardly_ever_comes_is_not_counted() -> None:
    times = np.arange(400.0)
    b = np.where(times % 130 == 0, times, np.nan)
    choice = choose(named("a", "b"), ("a", "b"), [device(times, times % 7, b)])
    assert choice.schema.interval_s == 1.0
    assert any("b is not counted" in reason for reason in choice.reasons)


def test_devices_are_counted_each_by_itself_and_in_the_order_of_time() -> None:
    """The hole between two devices, or between two rows in the wrong order, is no gap."""
    t = 60.0 * np.arange(20)
    assert interval_of(device(t, t % 7), device(t + 1e6, t % 9)) == 60.0
    shuffled = np.random.default_rng(0).permutation(np.repeat(t, 2))
    assert interval_of(device(shuffled, shuffled % 7)) == 60.0


def test_without_two_times_nothing_can_be_chosen() -> None:
    for times in ([0.0], [5.0, 5.0, 5.0]):
        with pytest.raises(ConfigError, match=r"stream\.interval: no channel has readings at two times"):
            interval_of(device(np.array(times), np.arange(len(times))))


# --- lags -------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("weights", "p"), [((0.8,), 1), ((1.0,), 1), ((1.2, -0.6), 2), ((0.5, -0.4, 0.5), 3), ((0.4, -0.3, 0.3, 0.4), 4)]
)
def test_lags_are_the_order_of_the_stream(weights: tuple[float, ...], p: int) -> None:
    """BIC finds the true order with a probability that goes to one (Hannan and Quinn 1979)."""
    rng = np.random.default_rng(7)
    found = [order(autoregression(rng, weights, 400)) for _ in range(60)]
    assert np.mean(np.array(found) == p) > 0.9
    t = np.arange(400.0)
    columns = [autoregression(rng, weights, 400) * scale + 1000 for scale in (1e-6, 1.0, 1e6)]
    choice = choose(named("a", "b", "c"), ("a", "b", "c"), [device(t, *columns)])
    assert choice.schema.lags == p
    assert told(choice.reasons, f"lags {p}:")


def test_a_hole_is_not_taken_for_a_step() -> None:
    """An oscillation cut into runs: joined, their ends would be jumps that no order foresees."""
    rng = np.random.default_rng(3)
    x = autoregression(rng, (1.2, -0.6), 400)
    t = np.arange(400.0) + 5000.0 * (np.arange(400) // 40)
    assert choose(named("a"), ("a",), [device(t, x)]).schema.lags == 2


def test_where_lags_cannot_be_told_they_are_two() -> None:
    t = np.arange(12.0)
    for x in (t % 5, np.full(12, 3.0)):
        choice = choose(named("a"), ("a",), [device(t, x)])
        assert choice.schema.lags == 2
        assert "too few readings" in told(choice.reasons, "lags 2")
    assert order(np.full(300, 0.1)) == 0  # a channel that stands still has no say
    assert order(np.sin(np.arange(300) / 5)) == 2  # foreseen perfectly from two, and from no fewer


# --- phases -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("interval", "phases"),
    [
        ("30s", ""), ("1min", "1d"), ("10min", "1d"), ("15min", "1d 7d"), ("1h", "1d 7d"), ("6h", "1d 7d"),
        ("8h", "7d"), ("1d", "7d"), ("2d", ""),
    ],
)  # fmt: skip
def test_the_calendar_gives_day_and_week_by_the_interval(interval: str, phases: str) -> None:
    step = parse_span(interval, "", "")
    x = autoregression(np.random.default_rng(2), (0.7,), 300)
    choice = choose(named("a"), ("a",), [device(step * np.arange(300), x)])
    assert choice.schema.phases == tuple(parse_span(word, "", "") for word in phases.split())
    for word in phases.split():
        assert "a rule of the calendar" in told(choice.reasons, f"phases {word}")
    # waves that no frame can tell apart are not asked for
    assert all(period / choice.schema.harmonics >= 2 * step for period in choice.schema.phases)


def test_a_cycle_on_the_clock_is_seen() -> None:
    rng = np.random.default_rng(4)
    t = np.arange(400.0)
    pulse = 20.0 * (t % 60 < 20)
    columns = [pulse + rng.normal(0, 2, 400), np.roll(pulse, 7) + 0.05 * t + rng.normal(0, 2, 400)]
    choice = choose(named("a", "b"), ("a", "b"), [device(t, *columns)])
    assert choice.schema.phases == (60.0,)
    assert told(choice.reasons, "phases 1min") == "phases 1min: the first readings repeat every 1min, at least 5 times"


# --- inducing ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("channels", [1, 3, 4, 6, 8, 12, 20, 40, 56])
@pytest.mark.parametrize("covariates", [0, 4, 10])
def test_inducing_inputs_fill_the_room_below_sixty_features(channels: int, covariates: int) -> None:
    said = Wanted(
        channels=tuple(Channel(name=f"c{q}") for q in range(channels)),
        covariates=tuple(Covariate(name=f"x{c}") for c in range(covariates)),
        lags=2 if channels < 40 else None,
    )
    names = tuple(item.name for item in said.inputs)
    rng = np.random.default_rng(5)
    schema = choose(said, names, [device(60.0 * np.arange(100), *rng.normal(size=(len(names), 100)))]).schema
    assert schema.precision_size <= MAX_PRECISION
    Q, C = channels, covariates
    others = 1 + schema.lags * Q + C + 2 * 3 * len(schema.phases) + (Q + C)
    expected = 24 if Q < 4 else min(24, max(0, 60 - others))
    assert schema.inducing == expected


# --- what the owner said --------------------------------------------------------------------------------------------------
def test_what_the_owner_said_stands_and_is_not_explained() -> None:
    t = 5.0 * np.arange(100)
    said = named("a", interval_s=60.0, phases=(), kernel="matern32", harmonics=5)
    choice = choose(said, ("b", "a"), [device(t, np.zeros(100), t % 7)])
    schema = choice.schema
    assert (schema.interval_s, schema.phases, schema.kernel, schema.harmonics) == (60.0, (), "matern32", 5)
    assert [reason.split()[0] for reason in choice.reasons] == ["lags", "inducing"]
    whole = named("a", interval_s=60.0, lags=3, phases=(86400.0,), inducing=4)
    assert choose(whole, ("a",), []).reasons == ()
    assert choose(whole, ("a",), []).schema == Schema(
        channels=(Channel(name="a"),), interval_s=60.0, lags=3, phases=(86400.0,), inducing=4
    )


def test_what_the_owner_said_may_not_fit_the_readings_and_is_named() -> None:
    t = 60.0 * np.arange(100)
    with pytest.raises(ConfigError, match=r"stream\.phases: a period needs two intervals"):
        choose(named("a", phases=(60.0,)), ("a",), [device(t, t % 7)])


def test_a_channel_learnt_as_logarithm_is_looked_at_as_such() -> None:
    """What grows by factors is an AR(1) in its logarithm only."""
    rng = np.random.default_rng(6)
    x = np.expm1(np.abs(5 + autoregression(rng, (0.9,), 400)))
    said = Wanted(channels=(Channel(name="a", transform="log1p"),))
    x[10] = -5.0  # outside the transform's domain: no reading
    assert choose(said, ("a",), [device(np.arange(400.0), x)]).schema.lags == 1
