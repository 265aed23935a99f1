"""What an agent says of a frame before it sees it: from the past alone, from the first frame on, finite whatever comes."""

from __future__ import annotations

import math

import msgspec
import numpy as np
import pytest
from agent_streams import (
    MIXED,
    START,
    TWO,
    ar_rows,
    counts,
    feed,
    fresh,
    law,
    mixed_rows,
    predictions,
    readings,
    run,
    sample,
)
from agent_streams import learnt as frames_learnt
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_agent.state import Publish, Readings, State
from edge_agent.watch import backward, forward
from fleetgp.schema import Channel, Schema
from fleetgp.wire import codec
from fleetgp.wire.freeze import freeze
from fleetgp.wire.messages import Prediction

MODEST = settings(max_examples=40, deadline=None, derandomize=True)
READING = st.one_of(st.floats(-1e15, 1e15), st.just(math.nan), st.floats(-50, 50))


@pytest.fixture(scope="module")
def learnt() -> State:
    """An agent that has seen 150 frames of the schema MIXED."""
    state, _ = feed(fresh(MIXED), mixed_rows(3, 150))
    return state


def only(state: State, row: list[float], tick: int = 150) -> Prediction:
    _, effects = run(state, [readings(tick, row)])
    (prediction,) = predictions(effects)
    return prediction


@MODEST
@given(a=READING, dust=READING, weather=READING)
def test_a_prediction_never_uses_the_frame_it_is_of(learnt: State, a: float, dust: float, weather: float) -> None:
    """Whatever the frame holds, what was said of it is the same to the last bit; a known set point is held fixed."""
    base = only(learnt, [20.0, 5.0, 0.0, 0.7])
    other = only(learnt, [a if math.isfinite(a) else 1.0, dust, weather, 0.7])
    for name in ("a", "dust"):
        assert law(other.channels[name]) == law(base.channels[name])
    assert (other.threshold, other.sequence, other.at_ms) == (base.threshold, base.sequence, base.at_ms)


def test_what_is_known_ahead_counts_from_its_own_frame_and_other_covariates_one_later(learnt: State) -> None:
    low, high = only(learnt, [20.0, 5.0, 0.0, -1.0]), only(learnt, [20.0, 5.0, 0.0, 1.0])
    moved = high.channels["a"].mean - low.channels["a"].mean
    assert 2.0 < moved < 6.0  # a follows its set point twofold: 4, of which 150 frames against a prior leave a part
    # the set point of a frame where none came is the last one known
    silent = only(learnt, [20.0, 5.0, 0.0, math.nan])
    held = only(learnt, [20.0, 5.0, 0.0, float(learnt.covariates[1])])
    assert law(silent.channels["a"]) == law(held.channels["a"])
    # the weather of this frame counts for the next
    after = [run(learnt, [readings(150, [20.0, 5.0, weather, 0.0])])[0] for weather in (-3.0, 3.0)]
    later = [only(state, [20.0, 5.0, 0.0, 0.0], 151) for state in after]
    assert later[0].channels["a"].mean != later[1].channels["a"].mean


def test_the_second_frame_is_predicted_by_persistence() -> None:
    """Nothing is known but one reading: it is the prediction, exactly (log1p and back costs a rounding)."""
    _, effects = feed(fresh(MIXED), [[20.25, 12.5, 1.0, 0.5], [21.0, 13.0, 1.0, 0.5]])
    (prediction,) = predictions(effects)
    assert prediction.sequence == 0
    assert prediction.channels["a"].mean == 20.25
    assert prediction.channels["dust"].mean == pytest.approx(12.5, rel=1e-14)
    for channel in prediction.channels.values():
        assert channel.low < channel.mean < channel.high


def test_no_prediction_before_every_channel_was_seen_or_the_wait_is_over() -> None:
    nan = math.nan
    _, effects = feed(fresh(), [[1.0, nan], [1.1, nan], [1.2, 5.0], [1.0, 5.1]])
    assert [p.sequence for p in predictions(effects)] == [0]
    state, effects = feed(fresh(warmup_frames=6), [[1.0 + 0.1 * k, nan] for k in range(10)])
    assert len(predictions(effects)) == 4
    assert predictions(effects)[0].channels["b"].observed is None
    # and a channel that comes only then is predicted by its first reading from the next frame on
    _, effects = feed(state, [[2.0, 40.0], [2.0, 40.0]], 10)
    assert predictions(effects)[1].channels["b"].mean == pytest.approx(40.0, abs=0.5)


def test_the_first_reading_stands_for_all_lags_before_it() -> None:
    """Lags that were never seen must not look like a jump: with 4 lags, after frame one the prediction is flat."""
    schema = msgspec.structs.replace(TWO, lags=4)
    _, effects = feed(fresh(schema), [[300.0, -7.0], [300.0, -7.0], [300.0, -7.0]])
    for prediction in predictions(effects):
        assert prediction.channels["a"].mean == pytest.approx(300.0, abs=1e-9)
        assert prediction.channels["b"].mean == pytest.approx(-7.0, abs=1e-9)


def test_every_prediction_has_the_next_number_also_over_frames_with_nothing_in_them() -> None:
    rows = [row if k % 7 else np.full(2, math.nan) for k, row in enumerate(ar_rows(1, 60))]
    state, effects = feed(fresh(), rows)
    made = predictions(effects)
    assert [p.sequence for p in made] == list(range(len(made)))
    assert len(made) == 60 - 9 - 1  # all but the empty ones and the first
    assert state.frame_count == 60


def test_frames_with_nothing_in_them_teach_nothing_and_widen_the_band() -> None:
    state, effects = feed(fresh(), ar_rows(2, 100))
    nothing = [np.full(2, math.nan)] * 12
    after, effects = feed(state, nothing, 100)
    assert effects == []
    assert np.array_equal(frames_learnt(after), frames_learnt(state))
    assert np.all(after.moments.n == state.moments.n)
    row = [20.0, 5.0]
    sure, unsure = only(state, row, 100).channels["a"], only(after, row, 112).channels["a"]
    # as wide as what the channel varies by at all, which is 1.7 times what is left of it a tick later
    assert unsure.high - unsure.low > 1.5 * (sure.high - sure.low)


def test_missing_ticks_are_the_same_as_empty_frames() -> None:
    """Nothing came, or something came that held nothing: the next frame is foreseen alike."""
    rows = list(ar_rows(4, 80))
    state, _ = feed(fresh(), rows)
    empty, _ = feed(state, [np.full(2, math.nan)] * 5, 80)
    # the tick after the hole is told apart only once time has passed it by: one reading more closes it
    _, over_hole = feed(state, [[21.0, 4.0], [21.0, 4.0]], 85)
    _, over_empty = feed(empty, [[21.0, 4.0]], 85)
    for name in ("a", "b"):
        hole, filled = predictions(over_hole)[0].channels[name], predictions(over_empty)[0].channels[name]
        # the same lags and the same age; five steps more of fading the past are within a part in a thousand
        assert law(hole) == pytest.approx(law(filled), rel=1e-3)


def test_one_missing_channel_leaves_the_others_whole() -> None:
    rows = list(ar_rows(5, 100))
    for row in rows[50:]:
        row[1] = math.nan
    state, effects = feed(fresh(), rows)
    last = predictions(effects)[-1]
    assert last.channels["b"].observed is None
    assert last.channels["b"].z is None
    assert last.channels["a"].observed == rows[-1][0]
    assert frames_learnt(state)[0] > frames_learnt(state)[1] + 45


def test_a_reading_outside_the_transform_is_missing_and_is_told() -> None:
    """log1p of -5 is no number: counted by name, not learnt, not shown as observed; the others go on."""
    rows = list(mixed_rows(6, 40))
    rows[30] = np.array([20.0, -5.0, 0.0, 0.0])
    _, effects = feed(fresh(MIXED), rows)
    assert counts(effects) == {"outside_transform": 1}
    shown = next(p for p in predictions(effects) if p.at_ms == START + 30_000)
    assert shown.channels["dust"].observed is None
    assert shown.channels["a"].observed == 20.0


@MODEST
@given(st.floats(-0.999, 1e15))
def test_log1p_there_and_back(value: float) -> None:
    # one rounding of the logarithm, times its size: eps * (1 + log(1 + x)) relative to 1 + x
    assert backward("log1p", forward("log1p", value)) == pytest.approx(value, rel=1e-14, abs=1e-15 * 40)


@pytest.mark.parametrize("value", [-1.0, -1.5, -1e15, math.nan])
def test_log1p_has_no_value_there(value: float) -> None:
    assert math.isnan(forward("log1p", value))


def test_a_log1p_band_stays_where_readings_can_be() -> None:
    rng = np.random.default_rng(7)
    schema = Schema(channels=(Channel(name="dust", transform="log1p"),))
    _, effects = feed(fresh(schema), [[value] for value in rng.exponential(0.05, 200)])
    for prediction in predictions(effects):
        assert prediction.channels["dust"].low > -1.0


@MODEST
@given(st.lists(st.tuples(READING, READING, READING, READING), min_size=1, max_size=50))
def test_whatever_sensors_say_everything_said_is_finite(rows: list[tuple[float, float, float, float]]) -> None:
    """Up to 1e15 in either direction, from the first frame on, with holes: every effect can be encoded, none is lost."""
    state, effects = feed(fresh(MIXED, warmup_frames=2), [list(row) for row in rows])
    for effect in effects:
        if isinstance(effect, Publish):
            codec.encode(effect.message)  # raises LocalError on NaN or infinity
    assert "numerical" not in counts(effects)
    assert state.frame_count == len(rows)
    freeze(state)


@pytest.mark.parametrize("value", [0.0, 1e-15, 1e15, -1e15, 21.5])
def test_a_stream_that_never_varies_is_predicted_with_a_band(value: float) -> None:
    _, effects = feed(fresh(), [[value, -value]] * 100)
    last = predictions(effects)[-1].channels["a"]
    assert last.mean == pytest.approx(value, rel=1e-9)
    assert last.low <= value <= last.high
    assert last.low < last.high


def test_one_extreme_reading_does_not_spoil_what_was_learnt() -> None:
    """1e15 in the middle of 20: an alarm, two frames with it in their lags, then all is as before."""
    rows = list(ar_rows(8, 200))
    _, calm = feed(fresh(), rows)
    struck = [row.copy() for row in rows]
    struck[150][0] = 1e15
    _, effects = feed(fresh(), struck)
    for then, now in zip(predictions(calm)[165:], predictions(effects)[165:], strict=True):
        # the alarmed frames taught nothing and the conformal radius moved by one error of 250
        assert now.channels["a"].mean == pytest.approx(then.channels["a"].mean, abs=0.3)
        assert now.channels["a"].high - now.channels["a"].low < 2 * (then.channels["a"].high - then.channels["a"].low)


def test_the_intervals_hold_what_they_promise() -> None:
    """Nine in ten readings of ordinary devices fall inside the band; 2.5 points are three standard errors of 4 x 900."""
    inside = total = 0
    for seed in range(4):
        _, effects = feed(fresh(), ar_rows(seed, 500))
        for prediction in predictions(effects)[49:]:
            for channel in prediction.channels.values():
                assert channel.observed is not None
                inside += channel.low <= channel.observed <= channel.high
                total += 1
    assert inside / total == pytest.approx(0.9, abs=0.025)


def test_predictions_beat_persistence_on_what_can_be_learnt() -> None:
    """A channel that pulls back by a half: the best error is 1, persistence's sqrt(4/3) = 1.155 in innovations' units."""
    _, effects = feed(fresh(), ar_rows(11, 1500))
    made = predictions(effects)[500:]
    error = np.array([p.channels["a"].observed - p.channels["a"].mean for p in made], dtype=float)
    rmse = float(np.sqrt(np.mean(error**2)))
    assert rmse < 1.08  # 1 plus two standard errors of an RMSE over 1000 frames (0.045), plus what learning costs


def test_inputs_in_messages_of_their_own_make_the_same_predictions() -> None:
    """One message a channel or one for all: frames, and so predictions, are the same."""
    rows = list(ar_rows(12, 80))
    _, together = feed(fresh(), rows)
    apart = []
    for tick, row in enumerate(rows):
        whole = sample(tick, row)
        apart += [
            Readings(whole.at_ms, (msgspec.structs.replace(whole, positions=(k,), values=(float(row[k]),)),))
            for k in (1, 0)
        ]
    _, effects = run(fresh(), apart)
    assert effects == together
