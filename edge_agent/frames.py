"""Readings to frames: all inputs of one tick of the schema's clock, in order, once.

Ticks are counted from the first reading's own time, so that a device whose clock ticks at :37 gets ticks at :37. A frame
closes when every input that is alive has arrived, or when time has passed it by: the stream's own time by one interval
and the lateness allowed, or, for live streams, the wall clock by the same. What comes after that is late: counted, not
learnt. Pure: a frozen state, an event in, a state and what came of it out.
"""

from __future__ import annotations

import msgspec
import numpy as np

from fleetgp.arrays import Array

MAX_PENDING = 64
SILENT_AFTER = 20
LATE_RUN = 30
SKEW_SHARE = 0.05


class Sample(msgspec.Struct, frozen=True, array_like=True):
    """Values of some inputs at one time: positions among schema.inputs, values (NaN = said to be missing)."""

    at_ms: int
    received_ms: int
    positions: tuple[int, ...]
    values: tuple[float, ...]


class Slot(msgspec.Struct, frozen=True, array_like=True):
    """A frame being filled: values [K] (NaN until or unless observed), arrived [K] 0 or 1, times of its first sample."""

    values: Array
    arrived: Array
    at_ms: int
    received_ms: int


class Frame(msgspec.Struct, frozen=True, array_like=True):
    """A closed frame: values [K], NaN where missing. gap: ticks without any reading just before it."""

    at_ms: int
    tick: int
    values: Array
    gap: int


class Frames(msgspec.Struct, frozen=True):
    """anchor_ms: time of tick 0. next_tick: lowest tick still open. silent [K]: frames since each input last arrived.

    late_run: late samples in a row, a long run of which means that the device's clock was set back. skew_ms: running mean of
    receive time minus device time.
    """

    interval_ms: int
    lateness_ms: int
    silent: Array
    anchor_ms: int | None = None
    next_tick: int = 0
    newest_ms: int = 0
    late_run: int = 0
    skew_ms: float = 0.0
    pending: dict[int, Slot] = {}


Counts = dict[str, int]


def init(inputs: int, interval_ms: int, lateness_ms: int = 0) -> Frames:
    """No reading seen; lateness_ms 0 allows one interval."""
    return Frames(interval_ms=interval_ms, lateness_ms=lateness_ms or interval_ms, silent=np.zeros(inputs))


def add(frames: Frames, sample: Sample) -> tuple[Frames, list[Frame], Counts]:
    """Take one sample in: the new state, the frames it closed, and what was counted: late, duplicate, clock_reset."""
    skew = sample.received_ms - sample.at_ms
    if frames.anchor_ms is None:
        frames = _anchored(frames, sample, skew)
    counts: Counts = {}
    tick = _tick(frames, sample.at_ms)
    if tick < frames.next_tick:
        if frames.late_run + 1 < LATE_RUN:
            return msgspec.structs.replace(frames, late_run=frames.late_run + 1), [], {"late": len(sample.positions)}
        # the clock was set back for good, or a recording began anew: start counting again from here
        counts["clock_reset"] = 1
        frames = _anchored(frames, sample, skew)
        tick = 0
    slot = frames.pending.get(tick)
    slot, doubled = _filled(slot, sample, len(frames.silent))
    if doubled:
        counts["duplicate"] = doubled
    frames = msgspec.structs.replace(
        frames,
        pending={**frames.pending, tick: slot},
        newest_ms=max(frames.newest_ms, sample.at_ms),
        late_run=0,
        skew_ms=frames.skew_ms + SKEW_SHARE * (skew - frames.skew_ms),
    )
    frames, closed = _close(frames, _passed_by(frames))
    return frames, closed, counts


def pass_time(frames: Frames, now_ms: int) -> tuple[Frames, list[Frame]]:
    """Close, on a live stream, the frames that the wall clock has passed by."""
    limit = now_ms - frames.interval_ms - frames.lateness_ms
    overdue = [tick for tick, slot in frames.pending.items() if slot.received_ms <= limit]
    return _close(frames, max(overdue)) if overdue else (frames, [])


def _anchored(frames: Frames, sample: Sample, skew: int) -> Frames:
    return msgspec.structs.replace(
        frames, anchor_ms=sample.at_ms, next_tick=0, newest_ms=sample.at_ms, late_run=0, skew_ms=float(skew), pending={}
    )


def _tick(frames: Frames, at_ms: int) -> int:
    return (at_ms - (frames.anchor_ms or 0) + frames.interval_ms // 2) // frames.interval_ms


def _filled(slot: Slot | None, sample: Sample, size: int) -> tuple[Slot, int]:
    if slot is None:
        slot = Slot(np.full(size, np.nan), np.zeros(size), sample.at_ms, sample.received_ms)
    values, arrived = slot.values.copy(), slot.arrived.copy()
    doubled = 0
    for position, value in zip(sample.positions, sample.values, strict=True):
        if arrived[position]:
            doubled += 1
            continue
        values[position] = value
        arrived[position] = 1.0
    return Slot(values, arrived, min(slot.at_ms, sample.at_ms), min(slot.received_ms, sample.received_ms)), doubled


def _passed_by(frames: Frames) -> int:
    """The last tick that is to be closed now, -1 when none."""
    last = _tick(frames, frames.newest_ms - frames.interval_ms - frames.lateness_ms)
    expected = frames.silent < SILENT_AFTER
    for tick in sorted(frames.pending):
        if tick <= last:
            continue
        # a complete frame waits for those before it, which may still be under way
        is_next = tick == max(last + 1, frames.next_tick)
        if not (is_next and bool(np.all(frames.pending[tick].arrived[expected] > 0))):
            break
        last = tick
    if len(frames.pending) > MAX_PENDING:
        last = max(last, sorted(frames.pending)[-MAX_PENDING])
    return last


def _close(frames: Frames, last: int) -> tuple[Frames, list[Frame]]:
    ticks = sorted(tick for tick in frames.pending if tick <= last)
    if not ticks:
        return frames, []
    closed = []
    silent, next_tick = frames.silent, frames.next_tick
    for tick in ticks:
        slot = frames.pending[tick]
        closed.append(Frame(slot.at_ms, tick, slot.values, tick - next_tick))
        silent = np.where(slot.arrived > 0, 0.0, silent + 1)
        next_tick = tick + 1
    kept = {tick: slot for tick, slot in frames.pending.items() if tick > last}
    return msgspec.structs.replace(frames, pending=kept, next_tick=next_tick, silent=silent), closed
