"""Many usual readings at once are the same as one after another, to the last bit; what is not usual is left alone."""

from __future__ import annotations

import numpy as np
from frame_streams import START, TICK, feed, sample
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_agent import usual
from edge_agent.frames import REMEMBERED, Frame, Frames, Sample, add, init
from fleetgp.wire.freeze import freeze

K = 3
DRIFT_MS = 20
NAN = float("nan")


def whole(at_ms: int, value: float, received_ms: int | None = None) -> Sample:
    return sample(at_ms, *((k, value + k) for k in range(K)), received_ms=received_ms)


def mixed(frames: Frames, samples: list[Sample]) -> tuple[Frames, list[Frame], int]:
    """As the agent does it: usual ones where there are any, then one. The last: how many were taken as usual."""
    closed, index, quick = [], 0, 0
    while index < len(samples):
        frames, more = usual.take(frames, samples, index)
        closed += more
        index, quick = index + len(more), quick + len(more)
        if index < len(samples):
            frames, more, _ = add(frames, samples[index])
            closed += more
            index += 1
    return frames, closed, quick


def plain(frames: list[Frame]) -> list[tuple[int, int, int, bytes]]:
    return [(f.at_ms, f.tick, f.gap, f.values.tobytes()) for f in frames]


@st.composite
def streams(draw: st.DrawFn) -> list[Sample]:
    """A device that drifts and jitters, with holes, doubles, parts, others' order, old readings and values beyond all reason."""
    made: list[Sample] = []
    tick = 0
    for number in range(draw(st.integers(1, 60))):
        kind = draw(st.sampled_from(["usual"] * 12 + ["hole", "again", "part", "turned", "old", "beyond", "clock"]))
        tick += 2 if kind == "hole" else 0 if kind == "again" else -4 if kind == "old" else 1
        at_ms = START + tick * TICK + number * DRIFT_MS + draw(st.integers(-300, 300))
        one = whole(at_ms, float(number), at_ms + draw(st.integers(0, 50)))
        if kind == "part":
            one = sample(at_ms, (0, 1.0))
        elif kind == "turned":
            one = sample(at_ms, (2, 1.0), (0, 2.0), (1, NAN))
        elif kind == "beyond":
            one = sample(at_ms, (0, 1e300), (1, NAN), (2, float("-inf")))
        elif kind == "clock":
            one = whole(at_ms, float(number), at_ms + 20_000)
        made.append(one)
        tick += 4 if kind == "old" else 0
    return made


@settings(max_examples=200, deadline=None, derandomize=True)
@given(streams(), st.sampled_from([0, 1, 3000]))
def test_the_same_frames_and_state_as_one_after_another(samples: list[Sample], lateness_ms: int) -> None:
    frames = init(K, TICK, lateness_ms)
    expected, closed, _ = feed(frames, samples)
    found, quickly, _ = mixed(frames, samples)
    assert plain(quickly) == plain(closed)
    assert freeze(found) == freeze(expected)


def test_a_stream_that_drifts_through_whole_ticks_is_the_same() -> None:
    samples = [whole(START + n * (TICK + DRIFT_MS), float(n)) for n in range(400)]
    expected, closed, _ = feed(init(K, TICK), samples)
    found, quickly, quick = mixed(init(K, TICK), samples)
    assert plain(quickly) == plain(closed)
    assert freeze(found) == freeze(expected)
    assert quick > 350


def test_complete_readings_in_time_are_all_taken_but_the_first() -> None:
    samples = [whole(START + n * TICK, float(n)) for n in range(100)]
    frames, closed, quick = mixed(init(K, TICK), samples)
    assert quick == 99
    assert [frame.tick for frame in closed] == list(range(100))
    assert np.array_equal(closed[50].values, [50.0, 51.0, 52.0])
    assert list(frames.closed) == list(range(100 - REMEMBERED, 100))


def test_a_clock_that_was_set_back_for_good_is_followed_all_the_same() -> None:
    samples = [whole(START + n * TICK, float(n)) for n in range(50)]
    samples += [whole(START - 100_000 + n * TICK, float(n), START + (50 + n) * TICK) for n in range(80)]
    expected, closed, counts = feed(init(K, TICK), samples)
    found, quickly, _ = mixed(init(K, TICK), samples)
    assert counts["clock_reset"] == 1
    assert plain(quickly) == plain(closed)
    assert freeze(found) == freeze(expected)
