"""One alarm an event, however long; a threshold that heavy tails lift and single events do not."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetgp import alarm
from fleetgp.alarm import CALM_FRAMES, CALM_SHARE, CLIP, LASTING, MARGIN, MEMORY, Alarm
from fleetgp.score import score

BASE = 8.0
RARE = settings(max_examples=40, deadline=None, derandomize=True)


def run(scores: np.ndarray | list[float], state: Alarm | None = None, base: float = BASE) -> tuple[list[str], Alarm]:
    """What each frame changed, and the state after the last."""
    state = state or alarm.init(base)
    changes = []
    for value in scores:
        state, change = alarm.step(state, float(value), base)
        changes.append(change)
    return changes, state


def calm_state(frames: int = 2 * MEMORY) -> Alarm:
    """After a long ordinary stream."""
    rng = np.random.default_rng(0)
    return run(rng.exponential(1 / np.log(10), frames))[1]


def test_a_burst_is_one_event_from_its_first_loud_frame_to_the_last_of_the_calm() -> None:
    changes, state = run([1.0] * 10 + [9.0] + [20.0] * 6 + [1.0] * 20)
    assert changes == ["none"] * 10 + ["opened"] + ["going"] * (6 + CALM_FRAMES - 1) + ["closed"] + ["none"] * 15
    assert not state.is_open


def test_short_lulls_do_not_split_an_event() -> None:
    changes, _ = run(([30.0] + [1.0] * (CALM_FRAMES - 1)) * 10)
    assert changes.count("opened") == 1
    assert "closed" not in changes


def test_an_event_that_sinks_below_the_threshold_goes_on_until_it_is_calm() -> None:
    """Hysteresis: between half the threshold and the threshold nothing opens and nothing closes."""
    between = [BASE * (CALM_SHARE + 0.1)] * 30
    assert set(run(between)[0]) == {"none"}
    assert run([9.0, *between])[0] == ["opened"] + ["going"] * 30


def test_a_score_at_the_threshold_is_not_above_it() -> None:
    assert run([BASE])[0] == ["none"]
    assert run([np.nextafter(BASE, 9)])[0] == ["opened"]


@RARE
@given(st.lists(st.sampled_from([0.0, 3.9, 4.0, 7.9, 8.1, 15.0, 100.0, 1e6]), max_size=120), st.floats(0.1, 50))
def test_events_open_before_they_go_on_and_close_before_the_next(scores: list[float], base: float) -> None:
    """The changes read (opened going* closed | none)*, and frames counts the open event's."""
    state, frames = alarm.init(base), 0
    for value in scores:
        before = state
        state, change = alarm.step(state, value, base)
        frames = {"none": 0, "opened": 1, "going": frames + 1, "closed": 0}[change]
        assert change in (("going", "closed") if before.is_open else ("none", "opened"))
        assert state.is_open == (change in ("opened", "going"))
        assert state.frames == frames
        if change == "opened":
            assert value > base


@RARE
@given(st.integers(0, 10**6), st.integers(1, 1500), st.floats(0.5, 20))
def test_memory_is_bounded_and_the_threshold_never_below_its_base(seed: int, frames: int, base: float) -> None:
    """Whatever comes, for as long as it comes: a fixed number of clipped, finite scores."""
    rng = np.random.default_rng(seed)
    state = alarm.init(base)
    for value in np.abs(rng.standard_cauchy(frames)) * 10 ** rng.uniform(-1, 3):
        before = state
        state, _ = alarm.step(state, min(float(value), 1e6), base)
        assert state.threshold >= base
        # one clipped score at most goes in, so at most so much can come out
        assert state.threshold <= MARGIN * CLIP * before.threshold
    assert state.recent.shape == (MEMORY,)
    assert np.all(np.isfinite(state.recent))


def test_a_base_that_is_raised_holds_at_once() -> None:
    changes, state = run([10.0] * 3, calm_state(), base=12.0)
    assert changes == ["none"] * 3
    assert state.threshold == 12.0


@pytest.mark.parametrize("frames", [1, 20, 60, 200, LASTING])
@pytest.mark.parametrize("loudness", [9.0, 500.0, 1e6])
def test_one_event_however_loud_does_not_lift_the_threshold(frames: int, loudness: float) -> None:
    """The next event, right after the calm, is seen as the first one was."""
    changes, state = run([loudness] * frames + [1.0] * 50, calm_state())
    assert changes.count("opened") == changes.count("closed") == 1
    assert state.threshold == BASE
    assert run([BASE + 1], state)[0] == ["opened"]


def test_what_lasts_becomes_the_new_normal_and_is_forgotten_again() -> None:
    """Loud for good: one event, closed in the end; back to the old normal, the threshold comes down within a memory."""
    changes, lifted = run([500.0] * 1000, calm_state())
    assert changes.count("opened") == changes.count("closed") == 1
    assert LASTING < changes.index("closed") < 2 * LASTING
    assert 500 < lifted.threshold <= MARGIN * 500
    assert run([0.5] * (MEMORY + 16), lifted)[1].threshold == BASE


def test_a_stream_that_turns_noisier_for_good_stops_alarming() -> None:
    rng = np.random.default_rng(2)
    scores = [score(z) for z in 6 * rng.standard_normal((3000, 4))]
    changes, state = run(scores, calm_state())
    assert changes[:5].count("opened") == 1
    later, _ = run([score(z) for z in 6 * rng.standard_normal((3000, 4))], state)
    assert later.count("opened") <= 12


@pytest.mark.parametrize("tail", ["laplace", "t(3)", "cauchy", "three times too wide"])
def test_heavy_tails_alarm_on_about_one_percent_of_frames_at_most_in_the_long_run(tail: str) -> None:
    """Scores by the Gaussian law of streams that are not: at most 0.5 % of frames open an event, 2 % lie in one.

    The threshold stands above the third largest of 1000 scores by half, so events are rarer than 0.3 % but for chance:
    18 of 6000, within three standard deviations 31, rarer with lighter tails. Each lasts at least five frames.
    """
    rng = np.random.default_rng(3)
    n = 12_000
    z = {
        "laplace": rng.laplace(size=(n, 4)),
        "t(3)": rng.standard_t(3, (n, 4)),
        "cauchy": rng.standard_cauchy((n, 4)),
        "three times too wide": 3 * rng.standard_normal((n, 4)),
    }[tail]
    scores = np.minimum([score(row) for row in z], 1e6)
    _, state = run(scores[: n // 2])
    changes, _ = run(scores[n // 2 :], state)
    assert changes.count("opened") <= 0.005 * n / 2
    assert changes.count("opened") + changes.count("going") <= 0.02 * n / 2


def test_ordinary_streams_do_not_alarm_and_keep_the_base() -> None:
    """-log10 of a uniform probability: above 8 once in 10^8 frames."""
    rng = np.random.default_rng(4)
    changes, state = run(-np.log10(rng.uniform(size=20_000)))
    assert set(changes) == {"none"}
    assert state.threshold == BASE


def test_rare_outliers_each_alarm() -> None:
    """One loud frame in 500 is what an alarm is for: every one is told, the threshold stays."""
    changes, state = run(([0.5] * 499 + [50.0]) * 10, calm_state())
    assert changes.count("opened") == 10
    assert state.threshold == BASE


def test_frequent_outliers_lift_the_threshold_above_themselves() -> None:
    """One loud frame in 50, 20 in 1000, is how the stream is: after three memories it no longer alarms."""
    changes, state = run(([0.5] * 49 + [50.0]) * 60, calm_state())
    assert state.threshold > 50
    assert "opened" not in changes[-1000:]
    assert changes.count("opened") < 30


@pytest.mark.parametrize("seed", range(4))
def test_quiet_steps_are_single_steps_up_to_the_first_that_alarms(seed: int) -> None:
    rng = np.random.default_rng(seed)
    told = [None if rng.random() < 0.1 else float(v) for v in rng.exponential(2.0, 1500)]
    found, thresholds = alarm.quiet(alarm.init(BASE), told, BASE)
    state, expected = alarm.init(BASE), []
    for value in told:
        after, change = (state, "none") if value is None else alarm.step(state, value, BASE)
        if change != "none":
            break
        expected.append(state.threshold)
        state = after
    assert thresholds == expected
    assert len(expected) < 1500
    np.testing.assert_array_equal(found.recent, state.recent)
    assert found[1:] == state[1:]


def test_quiet_steps_take_a_base_that_was_raised_in_between() -> None:
    found, thresholds = alarm.quiet(alarm.init(BASE), [1.0, None, 12.0, 16.0], 15.0)
    assert thresholds == [BASE, 15.0, 15.0]
    assert (found.threshold, found.seen, found.is_open) == (15.0, 2, False)
