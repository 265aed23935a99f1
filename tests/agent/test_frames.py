"""Readings to frames, against a reference that sees everything at once, and laws that hold for any stream."""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import pairwise

import numpy as np
import pytest
from frame_streams import START, TICK, feed, sample
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_agent.frames import LATE_RUN, MOST_LATE, REMEMBERED, SILENT_AFTER, Frame, Sample, add, init, pass_time
from fleetgp.errors import ConfigError
from fleetgp.wire.freeze import freeze

MODEST = settings(max_examples=50, deadline=None, derandomize=True)


def plain(frames: Iterable[Frame]) -> list[tuple[int, int, tuple[float, ...], int]]:
    """Frames as plain values, -1e9 for NaN, so that they can be compared."""
    return [(f.at_ms, f.tick, tuple(np.nan_to_num(f.values, nan=-1e9)), f.gap) for f in frames]


def reference(samples: list[Sample], inputs: int, interval_ms: int) -> list[tuple[int, int, tuple[float, ...], int]]:
    """All readings sorted into ticks of their own time at once: what frames must come to, whatever the order."""
    ticks: dict[int, dict[int, float]] = {}
    begun: dict[int, int] = {}
    for one in samples:
        tick = math.floor((one.at_ms - samples[0].at_ms) / interval_ms + 0.5)
        ticks.setdefault(tick, {}).update(zip(one.positions, one.values, strict=True))
        begun[tick] = min(begun.get(tick, one.at_ms), one.at_ms)
    order = sorted(ticks)
    gaps = [0] + [b - a - 1 for a, b in pairwise(order)]
    return [
        (begun[tick], tick, tuple(ticks[tick].get(k, -1e9) for k in range(inputs)), gap)
        for tick, gap in zip(order, gaps, strict=True)
    ]


@st.composite
def streams(draw: st.DrawFn) -> tuple[int, int, list[Sample]]:
    """(interval, lateness, samples in the order of their own times): 3 inputs each at its phase, jitter, holes.

    Phase and jitter are each below a quarter of a tick, so that every reading is nearest to its own tick. Fewer frames than make an input count as silent, so that every frame waits for every input.
    """
    interval_ms = draw(st.sampled_from([2, 7, 1000, 3_600_000]))
    lateness_ms = draw(st.integers(1, 4 * interval_ms))
    most = (interval_ms - 1) // 4
    phases = [0, draw(st.integers(-most, most)), draw(st.integers(-most, most))]
    readings = [sample(START, (0, 0.5))]
    for tick in range(1, SILENT_AFTER - 2):
        for position in range(3):
            if draw(st.integers(0, 3)):
                at_ms = START + tick * interval_ms + phases[position] + draw(st.integers(-most, most))
                readings.append(sample(at_ms, (position, float(3 * tick + position))))
    return interval_ms, lateness_ms, sorted(readings, key=lambda one: one.at_ms)


def shaken(samples: list[Sample], draw: st.DataObject, lateness_ms: int) -> list[Sample]:
    """The samples in the order of their arrival, each up to the lateness after its own time; the first stays first."""
    delays = draw.draw(st.lists(st.integers(0, lateness_ms), min_size=len(samples), max_size=len(samples)))
    late = sorted(zip(samples[1:], delays[1:], strict=True), key=lambda pair: pair[0].at_ms + pair[1])
    return [samples[0], *(one for one, _ in late)]


def flush(interval_ms: int, lateness_ms: int) -> Sample:
    """A reading so far ahead that everything before it must have closed."""
    return sample(START + 1000 * interval_ms + 10 * lateness_ms, (0, 0.0))


@MODEST
@given(streams(), st.data())
def test_any_order_within_the_lateness_gives_the_same_frames(
    stream: tuple[int, int, list[Sample]], data: st.DataObject
) -> None:
    interval_ms, lateness_ms, samples = stream
    frames = init(3, interval_ms, lateness_ms)
    _, closed, counts = feed(frames, [*shaken(samples, data, lateness_ms), flush(interval_ms, lateness_ms)])
    assert plain(closed) == reference(samples, 3, interval_ms)
    assert counts == {}


@MODEST
@given(streams(), st.data())
def test_duplicates_change_nothing_and_are_counted_one_by_one(
    stream: tuple[int, int, list[Sample]], data: st.DataObject
) -> None:
    """QoS 1 brings messages twice: some at once, some after their frame has closed, some changed by their sender."""
    interval_ms, lateness_ms, samples = stream
    arrivals = shaken(samples, data, lateness_ms)
    again = data.draw(st.lists(st.integers(0, len(arrivals) - 1), max_size=12, unique=True))
    doubled = list(arrivals)
    for index in again:
        one = arrivals[index]
        twin = sample(one.at_ms, (one.positions[0], one.values[0] + 0.25))
        place = next(i for i, known in enumerate(doubled) if known is one)
        doubled.insert(data.draw(st.integers(place + 1, len(doubled))), twin)
    _, closed, counts = feed(init(3, interval_ms, lateness_ms), [*doubled, flush(interval_ms, lateness_ms)])
    assert plain(closed) == reference(samples, 3, interval_ms)
    assert counts == ({"duplicate": len(again)} if again else {})


@MODEST
@given(st.integers(0, 3), st.integers(1, 14), st.integers(1, 3))
def test_what_comes_after_its_frame_has_closed_is_counted_late_and_not_learnt(
    lateness_ticks: int, tick: int, position: int
) -> None:
    lateness_ms = lateness_ticks * TICK
    readings = [sample(START + k * TICK, *((p, 10.0 * k + p) for p in range(4))) for k in range(19)]
    whole = readings[tick]
    kept = [(p, v) for p, v in zip(whole.positions, whole.values, strict=True) if p != position]
    late = sample(whole.at_ms, (position, whole.values[position]))
    delay = max(lateness_ticks, 1) + 3  # a tick for the frame itself and one for rounding beyond what is allowed
    order = [*readings[:tick], sample(whole.at_ms, *kept), *readings[tick + 1 :]]
    order.insert(tick + delay, late)
    _, closed, counts = feed(init(4, TICK, lateness_ms), order[: tick + delay + 1])
    assert counts == {"late": 1}
    assert math.isnan(closed[tick].values[position])
    assert sum(np.isfinite(frame.values).sum() for frame in closed[: tick + 1]) == 4 * (tick + 1) - 1


@pytest.mark.parametrize(("after_ms", "tick"), [(-499, None), (499, None), (500, 1), (501, 1), (1499, 1), (1500, 2)])
def test_a_reading_belongs_to_the_nearest_tick(after_ms: int, tick: int | None) -> None:
    """Told apart at exactly half the interval; the first reading's own time is tick 0, of which there is one reading."""
    first = START + 370
    frames, closed, counts = feed(init(1, TICK), [sample(first, (0, 1.0)), sample(first + after_ms, (0, 2.0))])
    _, more = pass_time(frames, first + 10**6)
    assert [frame.tick for frame in closed + more] == ([0] if tick is None else [0, tick])
    assert counts == ({"duplicate": 1} if tick is None else {})


def test_ticks_without_any_reading_are_told_as_a_gap() -> None:
    ticks = [0, 1, 2, 7, 8, 20, 100_000_000, 100_000_009]
    _, closed, _ = feed(init(1, TICK), [sample(START + k * TICK, (0, float(k))) for k in ticks])
    assert [(frame.tick, frame.gap) for frame in closed] == [
        (0, 0),
        (1, 0),
        (2, 0),
        (7, 4),
        (8, 0),
        (20, 11),
        (100_000_000, 99_999_979),
    ]  # the newest is still open


def test_a_complete_frame_closes_with_its_last_reading() -> None:
    frames = init(2, TICK)
    for tick in range(5):
        frames, closed, _ = add(frames, sample(START + tick * TICK, (0, 1.0)))
        assert closed == []
        frames, closed, _ = add(frames, sample(START + tick * TICK + 300, (1, 2.0)))
        assert [frame.tick for frame in closed] == [tick]


def test_a_complete_frame_waits_for_the_one_before_it() -> None:
    """Frames close in order: what may still come for an older frame is waited for."""
    frames = init(2, TICK, 2 * TICK)
    frames, closed, _ = feed(frames, [sample(START, (0, 0.0), (1, 0.0)), sample(START + TICK, (0, 1.0))])
    frames, more, _ = add(frames, sample(START + 2 * TICK, (0, 2.0), (1, 2.0)))
    assert [frame.tick for frame in closed + more] == [0]
    frames, more, _ = add(frames, sample(START + TICK, (1, 1.0)))
    assert [frame.tick for frame in more] == [1, 2]


def test_a_channel_that_never_arrives_stops_no_frame() -> None:
    """First every frame waits for it as long as late readings may come; once it is known silent, none waits at all."""
    frames = init(2, TICK)
    behind = []
    for tick in range(SILENT_AFTER + 30):
        frames, closed, _ = add(frames, sample(START + tick * TICK, (0, float(tick))))
        behind.append(tick - frames.next_tick + 1)
        assert all(math.isnan(frame.values[1]) for frame in closed)
    assert max(behind) == 2  # one interval and the lateness of one interval
    assert set(behind[SILENT_AFTER + 3 :]) == {0}


@pytest.mark.parametrize("phase_ms", [-499, -300, -1, 0, 1, 300, 499])
def test_a_channel_that_comes_back_is_heard_again_whatever_its_phase(phase_ms: int) -> None:
    """After a long silence a channel speaks again, before or after the others within the tick: at most one is lost."""
    back = SILENT_AFTER + 10
    samples = [sample(START + tick * TICK, (0, float(tick))) for tick in range(back + 20)]
    samples += [sample(START + tick * TICK + phase_ms, (1, float(tick))) for tick in range(back, back + 20)]
    _, closed, counts = feed(init(2, TICK), sorted(samples, key=lambda one: one.at_ms))
    heard = [frame for frame in closed if frame.tick > back + 1]
    assert len(heard) >= 15
    assert [frame.values[1] for frame in heard] == [float(frame.tick) for frame in heard]
    assert counts.total() <= 1


@pytest.mark.parametrize("period", [SILENT_AFTER - 1, SILENT_AFTER, SILENT_AFTER + 1, 30, 61])
@pytest.mark.parametrize("phase_ms", [-400, -1, 0, 1, 250, 499])
def test_no_reading_of_a_slow_sensor_is_lost(period: int, phase_ms: int) -> None:
    """A thermometer that speaks every half minute beside a meter that speaks every second: each value counts once.

    It counts for the frame of its time or, where that one had closed without waiting, for the next; time goes forward.
    """
    count = 8
    samples = [sample(START + tick * TICK, (0, float(tick))) for tick in range(period * count)]
    slow = [sample(START + k * period * TICK + phase_ms, (1, float(k * period))) for k in range(1, count)]
    _, closed, counts = feed(init(2, TICK), sorted(samples + slow, key=lambda one: one.at_ms))
    found = {frame.values[1]: frame.tick for frame in closed if not math.isnan(frame.values[1])}
    assert list(found) == [float(k * period) for k in range(1, count)]
    assert all(tick - value in (0, 1) for value, tick in found.items())
    assert all(a.at_ms < b.at_ms for a, b in pairwise(closed))
    assert counts == {}


@pytest.mark.parametrize("ahead_ms", [5 * TICK, 200 * TICK, 86_400_000 * 365 * 70])
def test_one_wrong_time_far_ahead_costs_a_while_and_not_the_stream(ahead_ms: int) -> None:
    samples = [sample(START + tick * TICK, (0, float(tick))) for tick in range(300)]
    rogue = sample(START + 100 * TICK + ahead_ms, (0, -1.0), received_ms=START + 100 * TICK)
    frames, closed, counts = feed(init(1, TICK), [*samples[:100], rogue, *samples[100:]])
    known = {frame.at_ms: frame.values[0] for frame in closed}
    missed = [one for one in samples if known.get(one.at_ms) != one.values[0]]
    assert len(missed) <= min(ahead_ms // TICK + 1, LATE_RUN)
    assert counts["late"] + counts["duplicate"] <= LATE_RUN
    assert closed[-1].at_ms == samples[-1].at_ms
    assert frames.skew_ms == pytest.approx(0.0, abs=1.0)  # told as it is now, not as the rogue made it look


@pytest.mark.parametrize("back_ms", [3600_000, 40 * TICK, 12 * TICK + 400])
def test_a_clock_set_back_for_good_is_followed(back_ms: int) -> None:
    before = [sample(START + tick * TICK, (0, float(tick)), (1, 0.0)) for tick in range(100)]
    # a frame that is still open when the clock is set back
    half = sample(START + 100 * TICK, (0, 100.0))
    after = [
        sample(START + tick * TICK - back_ms, (0, float(tick)), (1, 0.0), received_ms=START + tick * TICK)
        for tick in range(101, 201)
    ]
    _, closed, counts = feed(init(2, TICK), [*before, half, *after])
    values = [frame.values[0] for frame in closed]
    lost = set(map(float, range(201))) - set(values)
    assert len(values) == len(set(values))
    assert 100.0 in values  # what was accepted is not lost
    assert len(lost) <= min(LATE_RUN, back_ms // TICK + 1)
    assert counts["clock_reset"] == (back_ms > LATE_RUN * TICK)
    assert values[-1] == 200.0


@pytest.mark.parametrize("count", [LATE_RUN, 200, 1000])
def test_a_burst_of_old_messages_is_no_clock_set_back(count: int) -> None:
    """After a reconnection a broker delivers whatever was not acknowledged again, all at once: nothing is learnt twice."""
    samples = [sample(START + tick * TICK, (0, float(tick))) for tick in range(1100)]
    now_ms = START + 1100 * TICK
    burst = [
        sample(one.at_ms, (0, one.values[0]), received_ms=now_ms + index) for index, one in enumerate(samples[-count:])
    ]
    rest = [sample(START + tick * TICK, (0, float(tick))) for tick in range(1100, 1150)]
    _, closed, counts = feed(init(1, TICK), [*samples, *burst, *rest])
    assert [frame.values[0] for frame in closed] == [float(tick) for tick in range(1150)]
    assert counts.total() == count
    assert counts["duplicate"] >= min(count, REMEMBERED)
    assert counts["clock_reset"] == 0


def test_a_recording_played_again_is_followed_again() -> None:
    samples = [sample(START + hour * 3_600_000, (0, float(hour))) for hour in range(200)]
    _, closed, counts = feed(init(1, 3_600_000), [*samples, *samples])
    assert counts["clock_reset"] == 1
    assert [frame.values[0] for frame in closed[200:]] == [float(hour) for hour in range(LATE_RUN - 1, 200)]


ANY_SAMPLES = st.lists(
    st.builds(
        lambda at, lag, positions: sample(START + at, *((p, 1.0) for p in positions), received_ms=START + max(at, lag)),
        st.one_of(st.integers(0, 40_000), st.integers(-(10**9), 10**9), st.integers(0, 200).map(lambda k: 1000 * k)),
        st.integers(0, 60_000),
        st.sets(st.integers(0, 2), min_size=1).map(sorted),
    ),
    max_size=120,
)


@MODEST
@given(ANY_SAMPLES, st.sampled_from([1, 7, 1000]), st.integers(0, 5000), st.data())
def test_laws_of_any_stream(samples: list[Sample], interval_ms: int, lateness_ms: int, data: st.DataObject) -> None:
    """Every reading ends in one frame or one counter; frames go forward; what is open is bounded; the past is not touched."""
    frames = init(3, interval_ms, min(lateness_ms, MOST_LATE * interval_ms))
    bound = frames.lateness_ms // interval_ms + 4
    sent = taken = counted = 0
    next_tick = -(10**15)
    for one in samples:
        before, frozen = frames, freeze(frames)
        frames, closed, counts = add(frames, one)
        if data.draw(st.integers(0, 9)) == 0:
            frames, more = pass_time(frames, one.received_ms)
            closed = closed + more
        assert freeze(before) == frozen
        sent += len(one.positions)
        counted += counts.get("late", 0) + counts.get("duplicate", 0)
        taken += sum(int(np.isfinite(frame.values).sum()) for frame in closed)
        open_values = sum(int(np.isfinite(slot.values).sum()) for slot in frames.pending.values())
        assert taken + open_values + counted == sent
        assert len(frames.pending) <= bound
        assert len(frames.closed) <= REMEMBERED
        if not counts.get("clock_reset"):
            ticks = [frame.tick for frame in closed]
            assert ticks == sorted(set(ticks))
            assert all(tick >= next_tick for tick in ticks)
        next_tick = frames.next_tick
        assert all(frame.gap >= 0 for frame in closed)


def test_wall_time_closes_what_the_stream_does_not() -> None:
    """A live stream that stops: its last frames close an interval and the lateness after they were received."""
    frames = init(2, TICK, 3 * TICK)
    frames, closed, _ = feed(frames, [sample(START, (0, 1.0), received_ms=START + 70)])
    assert closed == []
    due_ms = START + 70 + TICK + 3 * TICK
    same, closed = pass_time(frames, due_ms - 1)
    assert same is frames
    assert closed == []
    frames, closed = pass_time(frames, due_ms)
    assert [(frame.tick, frame.values[0]) for frame in closed] == [(0, 1.0)]
    assert pass_time(frames, due_ms + 10**12) == (frames, [])
    frames, closed, counts = add(frames, sample(START + 10, (1, 2.0)))
    assert counts == {"late": 1}


def test_wall_time_that_jumps_closes_in_order() -> None:
    frames, _, _ = feed(init(2, TICK, 9 * TICK), [sample(START + k * TICK, (0, float(k))) for k in (0, 3, 1, 2)])
    _, closed = pass_time(frames, START + 10**9)
    assert [(frame.tick, frame.gap) for frame in closed] == [(0, 0), (1, 0), (2, 0), (3, 0)]


def test_a_reading_said_to_be_missing_has_arrived() -> None:
    """null is an answer: the frame need not wait for it, and a value that comes after it is a duplicate."""
    frames, closed, counts = feed(init(2, TICK), [sample(START, (0, 1.0)), sample(START, (1, math.nan))])
    assert [frame.tick for frame in closed] == [0]
    _, _, counts = add(frames, sample(START + 1, (1, 5.0)))
    assert counts == {"duplicate": 1}


def test_a_lateness_that_would_keep_too_many_frames_open_is_refused() -> None:
    init(1, TICK, MOST_LATE * TICK)
    for lateness_ms in (MOST_LATE * TICK + 1, -1):
        with pytest.raises(ConfigError, match=r"agent\.lateness_s"):
            init(1, TICK, lateness_ms)
