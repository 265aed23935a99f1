"""What a frame is foreseen from: held inputs and their indicators, phases of the calendar, readings beyond all sense."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import pairwise

import msgspec
import numpy as np
import pytest
from agent_streams import MIXED, START, TICK, TWO, ar_rows, config, counts, feed, fresh, mixed_rows, predictions, run
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_agent import agent
from edge_agent.frames import Sample
from edge_agent.state import Effect, Publish, Readings, State
from fleetgp import features
from fleetgp.arrays import Array
from fleetgp.gp import learner as learning
from fleetgp.schema import Channel, Covariate, Schema
from fleetgp.wire import codec
from fleetgp.wire.freeze import freeze

MODEST = settings(max_examples=15, deadline=None, derandomize=True)
DAY_MS = 86_400_000
HOSTILE = (1e16, -1e16, 1e150, 1e300, -1.7e308, math.inf, -math.inf, 5e-324, 0.0, 1e15, -1e15)


def inputs_of(state: State) -> Array:
    """Inputs [n, D] that the learnt frames were foreseen from, oldest first."""
    assert state.learner is not None
    return learning.folded(state.learner).ring.inputs


def held_of(state: State) -> Array:
    """Indicators [n, Q + C] of held inputs, frame by frame."""
    schema = state.config.schema
    return inputs_of(state)[:, -len(schema.inputs) :]


def test_indicators_say_which_inputs_were_held_over() -> None:
    """Frame by frame, from what came and what did not, in a second bookkeeping of this test's own."""
    rows = [row.copy() for row in mixed_rows(3, 120)]
    rows[0][:] = [20.0, 5.0, 0.0, 0.0]
    for row in rows[1:]:
        row[0] = row[0] if math.isfinite(row[0]) else 20.0  # one channel always comes, so that every frame is learnt
    expected, lags = [], []
    for before, now in pairwise(rows):
        was = np.isnan(before)
        # the set point of a frame is known ahead where it came; else the one of the frame before, where that came
        is_held = np.array([was[0], was[1], was[2], math.isnan(now[3]) and was[3]])
        expected.append(is_held.astype(float))
        lags.append(before[0])
    state, effects = feed(fresh(MIXED, alarm_score=300.0), rows)
    assert len(predictions(effects)) == 119
    assert np.array_equal(held_of(state), np.array(expected))
    assert np.array_equal(inputs_of(state)[:, 0], np.array(lags))


def test_a_held_input_keeps_its_last_value_never_zero() -> None:
    rows = [row.copy() for row in ar_rows(4, 60)]
    for row in rows[40:50]:
        row[1] = math.nan
    state, _ = feed(fresh(), rows)
    lag_of_b = inputs_of(state)[:, 1]
    assert np.all(lag_of_b[40:50] == rows[39][1])
    assert np.array_equal(held_of(state)[:, 1], np.array([40 <= k < 50 for k in range(59)], dtype=float))


@pytest.mark.parametrize("away", [2, 3])
def test_a_covariate_that_stays_away_costs_what_it_knew_and_no_more(away: int) -> None:
    """Weather tells nothing and the set point all: without it the error grows to what it told, and the band with it."""
    rng = np.random.default_rng(5)
    rows = []
    for row in ar_rows(6, 1200):
        weather, setpoint = rng.standard_normal(2)
        rows.append(np.array([row[0] + 2.0 * setpoint, np.exp(0.3 * row[1]), weather, setpoint]))
    for row in rows[600:]:
        row[away] = math.nan
    _, effects = feed(fresh(MIXED), rows)
    made = predictions(effects)
    assert len(made) == 1199

    def error(part: Sequence[object]) -> float:
        found = [p.channels["a"].observed - p.channels["a"].mean for p in part]  # type: ignore[attr-defined]
        return float(np.sqrt(np.mean(np.square(found))))

    assert error(made[300:599]) < 1.3  # innovations of sd 1 and what learning costs
    # without a set point the reading is an innovation of sd 1, and twice a standard normal on top of either reading
    assert error(made[900:]) < (1.3 if away == 2 else math.sqrt(1 + 4 + 4) * 1.1)
    inside = [p.channels["a"].low <= (p.channels["a"].observed or 0.0) <= p.channels["a"].high for p in made[900:]]
    assert np.mean(inside) == pytest.approx(0.9, abs=0.06)  # three standard errors of 300


@pytest.mark.parametrize("lag", [0, 7])
def test_a_channel_that_stays_away_leaves_the_other_as_it_was(lag: int) -> None:
    """Two independent channels: what is said of one does not get worse for the other's silence, to a tenth."""
    rows = [row.copy() for row in ar_rows(7 + lag, 900)]
    _, whole = feed(fresh(), rows)
    for row in rows[500:]:
        row[1] = math.nan
    state, effects = feed(fresh(), rows)
    error = [
        float(np.sqrt(np.mean([(p.channels["a"].observed - p.channels["a"].mean) ** 2 for p in predictions(e)[500:]])))  # type: ignore[operator]
        for e in (whole, effects)
    ]
    assert error[1] < 1.1 * error[0]
    assert state.age[1] == 400


def daily(agent_id: str = "pump", **changes: object) -> Schema:
    return Schema(channels=(Channel(name="load"),), interval_s=600.0, phases=(86_400.0,), harmonics=2, **changes)  # type: ignore[arg-type]


def utc(*when: int) -> int:
    return round(datetime(*when, tzinfo=UTC).timestamp() * 1000)  # type: ignore[misc]


def test_phases_are_those_of_utc_on_both_sides_of_midnight() -> None:
    """By the calendar's own arithmetic: 23:50 is ten minutes short of a turn, midnight is none, and 00:10 is ten on."""
    midnight = utc(2026, 3, 29)  # the night in which clocks change in Europe: no UTC clock does
    at_ms = [midnight - 600_000, midnight, midnight + 600_000, midnight + DAY_MS]
    found = features.phases(np.array(at_ms, dtype=float), daily())
    turn = [-1 / 144, 0.0, 1 / 144, 0.0]
    expected = [[f(2 * math.pi * h * t) for h in (1, 2) for f in (math.cos, math.sin)] for t in turn]
    np.testing.assert_allclose(found, expected, atol=1e-9)
    weekly = msgspec.structs.replace(daily(), phases=(7 * 86_400.0,))
    thursday = np.array([utc(1970, 1, 1), utc(2026, 3, 26), utc(2026, 3, 29, 12)], dtype=float)
    assert datetime.fromtimestamp(thursday[1] / 1000, UTC).weekday() == 3
    np.testing.assert_allclose(
        features.phases(thursday, weekly)[:, :2],
        [[1, 0], [1, 0], [math.cos(math.pi), math.sin(math.pi)]],
        atol=1e-9,
    )


def through(schema: Schema, first_ms: int, values: Sequence[float], **changes: object) -> tuple[State, list[Effect]]:
    state = agent.init(config(schema, **changes), first_ms)
    samples = tuple(
        Sample(first_ms + k * schema.interval_ms, first_ms + k * schema.interval_ms, (0,), (value,))
        for k, value in enumerate(values)
    )
    return run(state, [Readings(first_ms, samples)])


def test_an_agent_foresees_frames_by_the_phase_of_their_own_time() -> None:
    first_ms = utc(2026, 3, 28, 18)
    values = [10.0 + math.sin(0.1 * k) for k in range(80)]
    state, _ = through(daily(), first_ms, values, alarm_score=300.0)
    told = inputs_of(state)[:, 2:6]  # after two lags
    for k, row in enumerate(told, 1):
        when = datetime.fromtimestamp((first_ms + 600_000 * k) / 1000, UTC)
        turn = (when.hour * 3600 + when.minute * 60 + when.second) / 86_400
        assert row[:2] == pytest.approx([math.cos(2 * math.pi * turn), math.sin(2 * math.pi * turn)], abs=1e-9)
    assert len(told) == 79


def test_what_happens_at_midnight_every_day_is_foreseen_by_phases() -> None:
    """A rise through the night that lags cannot know: white noise about the day's curve; the best error is the noise, 0.3."""
    rng = np.random.default_rng(9)
    count = 144 * 14
    first_ms = utc(2026, 3, 20, 7)
    turn = ((first_ms + 600_000 * np.arange(count)) % DAY_MS) / DAY_MS
    values = 10 + 2 * np.cos(2 * np.pi * turn) + np.sin(4 * np.pi * turn) + 0.3 * rng.standard_normal(count)

    def error(schema: Schema) -> float:
        _, effects = through(schema, first_ms, values.tolist())
        made = predictions(effects)[144 * 10 :]
        return float(np.sqrt(np.mean([(p.channels["load"].observed - p.channels["load"].mean) ** 2 for p in made])))  # type: ignore[operator]

    with_phases, without = error(daily()), error(msgspec.structs.replace(daily(), phases=()))
    assert with_phases < 0.33
    assert with_phases < 0.95 * without


@pytest.mark.parametrize("is_live", [True, False])
@pytest.mark.parametrize("schema", [TWO, MIXED], ids=["two", "mixed"])
@MODEST
@given(data=st.data())
def test_no_reading_whatever_makes_an_agent_raise_or_say_what_is_no_number(
    schema: Schema, is_live: bool, data: st.DataObject
) -> None:
    """Beyond what the doors let in: it counts as missing. All that is said can be encoded and no frame is lost."""
    rows = [row.copy() for row in (ar_rows if schema is TWO else mixed_rows)(data.draw(st.integers(0, 5)), 40)]
    for _ in range(data.draw(st.integers(1, 12))):
        row = rows[data.draw(st.integers(0, 39))]
        row[data.draw(st.integers(0, len(row) - 1))] = data.draw(st.sampled_from(HOSTILE))
    samples = tuple(
        Sample(START + k * TICK, START + k * TICK, tuple(range(len(row))), tuple(map(float, row)))
        for k, row in enumerate(rows)
    )
    state, effects = run(fresh(schema, is_live=is_live, warmup_frames=2), [Readings(START, samples)])
    assert set(counts(effects)) <= {"outside_transform"}
    assert state.frame_count == 40
    for effect in effects:
        if isinstance(effect, Publish):
            codec.encode(effect.message)  # raises LocalError on NaN or infinity
    freeze(state)


def test_a_covariate_of_no_size_at_all_is_as_good_as_none() -> None:
    """A covariate that never moves, at the edge of what doors let in, changes nothing of what is foreseen to a digit in 1e6."""
    schema = Schema(channels=TWO.channels, covariates=(Covariate(name="flat"),))
    rows = list(ar_rows(3, 200))
    _, without = feed(fresh(), rows)
    _, effects = feed(fresh(schema), [np.append(row, 1e15) for row in rows])
    for one, other in zip(predictions(effects), predictions(without), strict=True):
        assert one.channels["a"].mean == pytest.approx(other.channels["a"].mean, rel=1e-6)
