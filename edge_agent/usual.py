"""The usual readings: complete ones, a tick after the other and in time. What ``frames.add`` makes of each, of many at once.

A device that says all its inputs in one message sends nothing else. Every such reading closes its own frame at once, so
that of all that ``frames`` keeps only a phase, a time and a running mean go on from one to the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

import msgspec
import numpy as np

from edge_agent.frames import REMEMBERED, SKEW_SHARE, Frame, Frames, Sample, believed, phased, watermark


class Progress(NamedTuple):
    """What goes on from reading to reading: the phase that all inputs keep, the newest time and the mean skew."""

    phase: float
    newest_ms: int
    skew_ms: float


def take(frames: Frames, samples: Sequence[Sample], begin: int = 0) -> tuple[Frames, list[Frame]]:
    """The state after the usual readings that these go on with from ``begin``, and the frames they closed, one each: maybe none."""
    K = len(frames.silent)
    if len(samples[begin].positions) != K or not _is_even(frames):
        return frames, []
    everything, first, tick = tuple(range(K)), frames.next_tick, frames.next_tick
    after = Progress(float(frames.phase_ms[0]), frames.newest_ms, frames.skew_ms)
    for sample in islice(samples, begin, None):
        if sample.positions != everything or len(sample.values) != K:
            break
        own, phase = phased(frames, sample.at_ms, after.phase)
        if own != tick or own <= watermark(frames, after.newest_ms):
            break
        skew_ms = after.skew_ms + SKEW_SHARE * (sample.received_ms - sample.at_ms - after.skew_ms)
        after = Progress(phase, max(after.newest_ms, sample.at_ms), skew_ms)
        tick += 1
    if tick == first:
        return frames, []
    taken = samples[begin : begin + tick - first]
    values = believed(np.array([sample.values for sample in taken], dtype=float))
    closed = [Frame(sample.at_ms, first + k, row, 0) for k, (sample, row) in enumerate(zip(taken, values, strict=True))]
    return _after(frames, after, tick), closed


def _is_even(frames: Frames) -> bool:
    """Whether nothing waits, and all inputs came last time and keep one phase."""
    if frames.anchor_ms is None or frames.pending or frames.silent.any():
        return False
    return bool((frames.phase_ms == frames.phase_ms[0]).all())


def _after(frames: Frames, progress: Progress, next_tick: int) -> Frames:
    whole = np.ones(len(frames.silent))
    closed = {**frames.closed, **dict.fromkeys(range(max(frames.next_tick, next_tick - REMEMBERED), next_tick), whole)}
    return msgspec.structs.replace(
        frames,
        phase_ms=np.full(len(frames.silent), progress.phase),
        newest_ms=progress.newest_ms,
        skew_ms=progress.skew_ms,
        late_run=0,
        next_tick=next_tick,
        closed={tick: closed[tick] for tick in list(closed)[-REMEMBERED:]},
    )
