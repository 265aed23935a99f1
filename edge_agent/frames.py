"""Readings to frames: all inputs of one tick of the schema's clock, in order, once.

Ticks are counted from the first reading's own time, so that a device whose clock ticks at :37 gets ticks at :37. Inputs
that come in messages of their own each keep a phase, their usual place within the tick: what jitters or drifts about it
never falls twice into one tick and not at all into the next. A frame closes when every input that is alive has arrived, or when time has passed it by: the stream's own time by one interval
and the lateness allowed, or, for live streams, the wall clock by the same. What comes after that is late: counted, not
learnt. Frames do not wait for an input that has been silent for long; should it speak after its frame has closed, its
reading counts for the next one. Pure: a frozen state, an event in, a state and what came of it out.
"""

from __future__ import annotations

import math

import msgspec
import numpy as np

from fleetgp.arrays import Array
from fleetgp.errors import ConfigError
from fleetgp.payloads.content import LARGEST

MOST_LATE = 600
SILENT_AFTER = 20
REMEMBERED = 32
LATE_RUN = 30
LATE_RUN_MS = 10_000
SKEW_SHARE = 0.05
PHASE_SHARE = 0.05
PHASE_WRAP = 0.6


class Sample(msgspec.Struct, frozen=True, array_like=True):
    """Values of some inputs at one time: positions among schema.inputs, values (NaN = said to be missing).

    A value beyond LARGEST counts as missing; the doors that readings come in by have told of it.
    """

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

    late_run, late_since_ms: samples in a row that the stream had passed by, and when the first of them was received.
    skew_ms: running mean of receive time minus device time. phase_ms [K]: running mean of how long after its tick an input
    comes, NaN until it does. pending: open frames by tick. closed: what had arrived [K] in the frames closed last.
    """

    interval_ms: int
    lateness_ms: int
    silent: Array
    phase_ms: Array
    anchor_ms: int | None = None
    next_tick: int = 0
    newest_ms: int = 0
    late_run: int = 0
    late_since_ms: int = 0
    skew_ms: float = 0.0
    pending: dict[int, Slot] = {}
    closed: dict[int, Array] = {}


Counts = dict[str, int]


def init(inputs: int, interval_ms: int, lateness_ms: int = 0) -> Frames:
    """No reading seen; lateness_ms 0 allows one interval. Raises ConfigError where it would keep too many frames open."""
    if not 0 <= lateness_ms <= MOST_LATE * interval_ms:
        raise ConfigError(
            "agent.lateness_s",
            f"needs 0 to {MOST_LATE} intervals of {interval_ms / 1000:g} s, is {lateness_ms / 1000:g} s",
        )
    return Frames(interval_ms, lateness_ms or interval_ms, np.zeros(inputs), np.full(inputs, np.nan))


def add(frames: Frames, sample: Sample) -> tuple[Frames, list[Frame], Counts]:
    """Take one sample in: the new state, the frames it closed, and what was counted: late, duplicate, clock_reset."""
    if frames.anchor_ms is None:
        frames = _anchored(frames, sample)
    frames, tick = _placed(frames, sample)
    frames = _followed(frames, sample, is_behind=tick < frames.next_tick or tick <= watermark(frames, frames.newest_ms))
    if frames.late_run >= LATE_RUN and sample.received_ms - frames.late_since_ms >= LATE_RUN_MS:
        # not a burst of old messages: the clock was set back for good, or a recording began anew; count again from here
        frames, rest = _close(frames, max(frames.pending, default=frames.next_tick))
        frames, _ = _placed(_anchored(frames, sample), sample)
        frames, closed, _ = _take(frames, sample, 0, sample.at_ms)
        return frames, rest + closed, {"clock_reset": 1}
    if tick >= frames.next_tick:
        return _take(frames, sample, tick, sample.at_ms)
    useful, counts = _belated(frames, sample, tick)
    if not useful.positions:
        return frames, [], counts
    # it counts for a later frame than its own, whose time it does not set
    nominal_ms = (frames.anchor_ms or 0) + frames.next_tick * frames.interval_ms
    frames, closed, more = _take(frames, useful, frames.next_tick, nominal_ms)
    return frames, closed, {key: counts.get(key, 0) + more.get(key, 0) for key in {**counts, **more}}


def pass_time(frames: Frames, now_ms: int) -> tuple[Frames, list[Frame]]:
    """Close, on a live stream, the frames that the wall clock has passed by."""
    limit = now_ms - frames.interval_ms - frames.lateness_ms
    overdue = [tick for tick, slot in frames.pending.items() if slot.received_ms <= limit]
    return _close(frames, max(overdue)) if overdue else (frames, [])


def _anchored(frames: Frames, sample: Sample) -> Frames:
    return msgspec.structs.replace(
        frames,
        anchor_ms=sample.at_ms,
        next_tick=0,
        newest_ms=sample.at_ms,
        late_run=0,
        skew_ms=float(sample.received_ms - sample.at_ms),
        phase_ms=np.full(len(frames.silent), np.nan),
        pending={},
        closed={},
    )


def _tick(frames: Frames, at_ms: float) -> int:
    """The tick nearest to a time."""
    return math.floor((at_ms - (frames.anchor_ms or 0)) / frames.interval_ms + 0.5)


def _placed(frames: Frames, sample: Sample) -> tuple[Frames, int]:
    """The tick of a sample, by the phase of the first of its inputs that keeps one, and the state with that followed."""
    phases = (frames.phase_ms[p] for p in sample.positions if frames.silent[p] < SILENT_AFTER)
    phase = next((float(known) for known in phases if not math.isnan(known)), None)
    tick, phase = phased(frames, sample.at_ms, phase)
    phase_ms = frames.phase_ms.copy()
    phase_ms[list(sample.positions)] = phase
    return msgspec.structs.replace(frames, phase_ms=phase_ms), tick


def phased(frames: Frames, at_ms: int, phase: float | None) -> tuple[int, float]:
    """The tick of a time by the phase that its input keeps, None = none yet; and that phase after it."""
    tick = _tick(frames, at_ms - (phase or 0.0))
    offset = float(at_ms - (frames.anchor_ms or 0) - tick * frames.interval_ms)
    phase = offset if phase is None else phase + PHASE_SHARE * (offset - phase)
    if abs(phase) > PHASE_WRAP * frames.interval_ms:  # drifted into the next tick: one is left out, or doubled, once
        phase -= math.copysign(frames.interval_ms, phase)
    return tick, phase


def watermark(frames: Frames, newest_ms: int) -> int:
    """The last tick that the stream's own time, this one, has passed by."""
    return _tick(frames, newest_ms - frames.interval_ms - frames.lateness_ms)


def _followed(frames: Frames, sample: Sample, *, is_behind: bool) -> Frames:
    """Count samples in a row that the stream had left behind: a clock set back sends nothing else."""
    if not is_behind:
        return msgspec.structs.replace(frames, late_run=0) if frames.late_run else frames
    since_ms = frames.late_since_ms if frames.late_run else sample.received_ms
    return msgspec.structs.replace(frames, late_run=frames.late_run + 1, late_since_ms=since_ms)


def _take(frames: Frames, sample: Sample, tick: int, at_ms: int) -> tuple[Frames, list[Frame], Counts]:
    """Put a sample into the open frame of this tick at this time, then close what need not wait any more."""
    slot, doubled = _filled(frames.pending.get(tick), sample, at_ms, len(frames.silent))
    frames = msgspec.structs.replace(
        frames,
        pending={**frames.pending, tick: slot},
        newest_ms=max(frames.newest_ms, sample.at_ms),
        skew_ms=frames.skew_ms + SKEW_SHARE * (sample.received_ms - sample.at_ms - frames.skew_ms),
    )
    frames, closed = _close(frames, _passed_by(frames))
    return frames, closed, {"duplicate": doubled} if doubled else {}


def _filled(slot: Slot | None, sample: Sample, at_ms: int, size: int) -> tuple[Slot, int]:
    if slot is None:
        slot = Slot(np.full(size, np.nan), np.zeros(size), at_ms, sample.received_ms)
        if len(set(sample.positions)) == len(sample.positions):  # the usual sample: nothing of it can be there already
            places = list(sample.positions)
            slot.values[places], slot.arrived[places] = sample.values, 1.0
            return slot, 0
    values, arrived = slot.values.copy(), slot.arrived.copy()
    doubled = 0
    for position, value in zip(sample.positions, sample.values, strict=True):
        if arrived[position]:
            doubled += 1
            continue
        values[position] = value
        arrived[position] = 1.0
    return Slot(values, arrived, min(slot.at_ms, at_ms), min(slot.received_ms, sample.received_ms)), doubled


def _belated(frames: Frames, sample: Sample, tick: int) -> tuple[Sample, Counts]:
    """What of a sample for a closed frame can still count, for the next one, and what was counted of the rest."""
    arrived = frames.closed.get(tick, np.zeros(len(frames.silent)))
    is_recent = frames.next_tick - tick <= 1 + frames.lateness_ms // frames.interval_ms
    counts: Counts = {}
    kept: list[int] = []
    for index, position in enumerate(sample.positions):
        if not arrived[position] and is_recent and frames.silent[position] >= SILENT_AFTER:
            kept.append(index)
            continue
        reason = "duplicate" if arrived[position] else "late"
        counts[reason] = counts.get(reason, 0) + 1
    positions = tuple(sample.positions[index] for index in kept)
    values = tuple(sample.values[index] for index in kept)
    return Sample(sample.at_ms, sample.received_ms, positions, values), counts


def _passed_by(frames: Frames) -> int:
    """The last tick that is to be closed now; below next_tick when none."""
    last = watermark(frames, frames.newest_ms)
    expected = frames.silent < SILENT_AFTER
    for tick in sorted(frames.pending):
        if tick <= last:
            continue
        # a complete frame waits for those before it, which may still be under way
        is_next = tick == max(last + 1, frames.next_tick)
        if not (is_next and bool(np.all(frames.pending[tick].arrived[expected] > 0))):
            break
        last = tick
    return last


def believed(values: Array) -> Array:
    """Values [...], NaN where they are beyond LARGEST."""
    return np.where(np.abs(values) <= LARGEST, values, np.nan)


def _close(frames: Frames, last: int) -> tuple[Frames, list[Frame]]:
    ticks = sorted(tick for tick in frames.pending if tick <= last)
    if not ticks:
        return frames, []
    closed = []
    silent, next_tick, arrived = frames.silent, frames.next_tick, dict(frames.closed)
    for tick in ticks:
        slot = frames.pending[tick]
        closed.append(Frame(slot.at_ms, tick, believed(slot.values), tick - next_tick))
        silent = np.where(slot.arrived > 0, 0.0, silent + 1)
        arrived[tick] = slot.arrived
        next_tick = tick + 1
    for tick in list(arrived)[:-REMEMBERED]:
        del arrived[tick]
    kept = {tick: slot for tick, slot in frames.pending.items() if tick > last}
    return msgspec.structs.replace(frames, pending=kept, next_tick=next_tick, silent=silent, closed=arrived), closed
