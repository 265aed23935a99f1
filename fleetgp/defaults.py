"""The settings of a stream, chosen from its first readings by stated rules. docs/defaults.md tells them to owners.

- interval: the slowest channel's median gap between readings, so that most frames are full; a channel 60 times slower than
  the quickest does not count, nor one with fewer than 4 gaps where others have more. A median within 10 % of 1, 2, 5, 10,
  15, 20, 30 s or min, 1, 2, 3, 4, 6, 8, 12 h or 1 d is taken for it where gaps of that length really occur (between the
  10th and 90th percentile) or 1 % would not tell them apart; otherwise it is the median itself to three digits.
- lags: for every channel the order 1 to 4 of an autoregression with the least BIC (Schwarz 1978), all fitted to the same
  frames; the median over channels, rounded up; 2 where no channel has 20 such frames.
- phases: the calendar's, for they cannot be seen in minutes: the day for intervals of 1 min to 6 h, the week for 15 min to
  1 d. One more where a period of whole intervals is plainly seen (``rhythm``) and is a nice one.
- harmonics: 3, fewer where the interval is too long to tell them apart.
- inducing: 24; with 4 channels or more so many that there are at most 60 features, 0 where there is no room.
Where the precision of all weights would not fit a message, lags go first, then phases; inducing inputs take what is left.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import msgspec
import numpy as np

from fleetgp import rhythm
from fleetgp.arrays import Array
from fleetgp.columns import First, sort_out
from fleetgp.errors import ConfigError
from fleetgp.schema import MAX_PHASES, MAX_PRECISION, Schema
from fleetgp.wanted import HARMONICS, KERNEL, Wanted, span

NICE_S = (
    *(0.1, 0.2, 0.5),
    *(float(n) for n in (1, 2, 5, 10, 15, 20, 30)),
    *(60.0 * n for n in (1, 2, 5, 10, 15, 20, 30)),
    *(3600.0 * n for n in (1, 2, 3, 4, 6, 8, 12)),
    86400.0,
)
NEAR, SAME = 0.10, 0.01
ENOUGH_GAPS = 4
TOO_SLOW = 60.0

MOST_LAGS = 4
LAGS = 2
LEAST_FRAMES = 20
LEAST_RESIDUE = 1e-9  # of the variance: what is foreseen better than this is foreseen perfectly

DAY_S, WEEK_S = 86400.0, 7 * 86400.0
DAY_FROM_TO = (60.0, 6 * 3600.0)
WEEK_FROM_TO = (900.0, DAY_S)

INDUCING = 24
MOST_FEATURES = 60
MANY_CHANNELS = 4


# how the note of an agent begins that says what was chosen, and is no trouble
CHOSEN = "chosen: "


class Choice(msgspec.Struct, frozen=True):
    """A whole schema, and a sentence on each thing that was chosen. origin: whose choice it is."""

    schema: Schema
    reasons: tuple[str, ...] = ()
    origin: Literal["owner", "readings", "fleet"] = "readings"


class _Told(NamedTuple):
    """A value that was chosen and why; no reason where the owner gave it."""

    value: float
    reasons: tuple[str, ...]


def choose(said: Wanted, names: Sequence[str], devices: Sequence[First]) -> Choice:
    """Complete what the owner said from first readings.

    names [K]: of the columns of every device's values; where the owner named inputs, those inputs are among them.
    Raises ConfigError where nothing can be chosen (no two readings at different times, no column that changes) or where
    what comes of it is no schema.
    """
    reasons: tuple[str, ...] = ()
    if not said.open:
        return Choice(said.schema(), (), "owner")
    if not said.channels:
        channels, covariates, reasons = sort_out(names, devices)
        said = msgspec.structs.replace(said, channels=channels, covariates=covariates)
    columns = [names.index(item.name) for item in said.channels]
    readings = []
    for one in devices:
        in_order = np.argsort(one.times_ms, kind="stable")
        readings.append(First(one.times_ms[in_order], _transformed(one.values[in_order][:, columns], said)))
    interval_s, why_interval = _interval(said, readings)
    frames = [_frames(one, interval_s) for one in readings]
    lags, why_lags = _lags(said, frames)
    phases, why_phases = _phases(said, frames, interval_s)
    rest = Schema(channels=said.channels, interval_s=interval_s, lags=int(lags), phases=phases, kernel=KERNEL)
    rest = msgspec.structs.replace(rest, harmonics=_harmonics(interval_s, phases if said.phases is None else ()))
    draft, why_fit = _fitted(said, _draft(said, rest))
    room = _room(draft)
    schema = said.filled(msgspec.structs.replace(draft, inducing=int(room.value)))
    why_room = room.reasons if said.inducing is None else ()
    return Choice(schema, (*reasons, *why_interval, *why_lags, *why_phases, *why_fit, *why_room))


def _transformed(values: Array, said: Wanted) -> Array:
    """Channels [n, Q] in the unit that is learnt, NaN outside a transform's domain."""
    result = np.array(values, dtype=float)
    for q, channel in enumerate(said.channels):
        if channel.transform == "log1p":
            result[:, q] = np.log1p(np.where(result[:, q] > -1, result[:, q], np.nan))
    return result


# --- interval ---------------------------------------------------------------------------------------------------------
def _interval(said: Wanted, readings: Sequence[First]) -> _Told:
    if said.interval_s is not None:
        return _Told(said.interval_s, ())
    gaps = {channel.name: _gaps_s(readings, q) for q, channel in enumerate(said.channels)}
    told = {name: found for name, found in gaps.items() if len(found)}
    if not told:
        problem = (
            'no channel has readings at two times, so it cannot be told; state it, e.g. [stream] interval = "1min"'
        )
        raise ConfigError("stream.interval", problem)
    reasons = []
    sure = {name: found for name, found in told.items() if len(found) >= ENOUGH_GAPS} or told
    quickest = min(float(np.median(found)) for found in sure.values())
    counted = {name: found for name, found in sure.items() if np.median(found) <= TOO_SLOW * quickest}
    for name in gaps.keys() - counted.keys():
        reasons.append(f"interval: {name} is not counted, it comes too seldom beside the others")
    slowest = max(counted, key=lambda name: float(np.median(counted[name])))
    found = counted[slowest]
    interval_s, how = snapped(found)
    others = len(counted) > 1 and any(np.median(one) < 0.9 * np.median(found) for one in counted.values())
    who = f"readings of {slowest}, the slowest channel," if others else "the readings"
    sentence = (
        f"interval {span(interval_s)}: {who} come every {np.median(found):.6g} s (median of {len(found)} gaps){how}"
    )
    return _Told(interval_s, (sentence, *sorted(reasons)))


def _gaps_s(readings: Sequence[First], channel: int) -> Array:
    """Seconds between readings of one channel at different times, of all devices."""
    gaps = [np.empty(0)]
    for one in readings:
        times_ms = one.times_ms[np.isfinite(one.values[:, channel])]
        gaps.append(np.diff(np.unique(times_ms)) / 1000)
    return np.concatenate(gaps)


def snapped(gaps_s: Array) -> tuple[float, str]:
    """The interval that gaps [n] stand for, in seconds, and a few words where it is not their median."""
    median = float(np.median(gaps_s))
    low, high = np.quantile(gaps_s, (0.1, 0.9))
    nice = min(NICE_S, key=lambda one: abs(math.log(median / one)))
    off = abs(median / nice - 1)
    if off <= SAME or (off <= NEAR and low <= nice <= high):
        return nice, "" if off < 1e-3 else f", taken for {span(nice)}"
    rounded = max(0.001, float(f"{median:.3g}"))
    return round(rounded, 3), ""


# --- frames and lags ----------------------------------------------------------------------------------------------------
def _frames(first: First, interval_s: float) -> Array:
    """Readings on a regular clock [T, Q], the first of each tick, NaN where there is none; at most n ticks behind a gap."""
    ticks = np.floor((first.times_ms - first.times_ms[:1]) / (1000 * interval_s) + 0.5).astype(int)
    # a long hole says nothing: shorten it, but keep what stands on either side apart
    longest = MOST_LAGS + 1
    steps = np.minimum(np.diff(ticks, prepend=ticks[:1]), longest)
    ticks = np.maximum.accumulate(np.cumsum(np.maximum(steps, 0)))
    frames = np.full((int(ticks[-1]) + 1 if len(ticks) else 0, first.values.shape[1]), np.nan)
    for tick, values in zip(ticks, first.values, strict=True):
        frames[tick] = np.where(np.isfinite(frames[tick]), frames[tick], values)
    return frames


def _lags(said: Wanted, frames: Sequence[Array]) -> _Told:
    if said.lags is not None:
        return _Told(said.lags, ())
    orders = [order(one[:, q]) for q in range(len(said.channels)) for one in frames]
    known = [found for found in orders if found]
    if not known:
        return _Told(LAGS, (f"lags {LAGS}: too few readings in a row to tell, {LAGS} is usual",))
    lags = math.ceil(float(np.median(known)))
    return _Told(
        lags, (f"lags {lags}: so many past frames foresee the next one best (median of {len(known)} BIC choices)",)
    )


def order(x: Array) -> int:
    """Order 1 to 4 of an autoregression of x [T] with the least BIC; 0 where too few frames stand in a row or x is still."""
    if len(x) <= MOST_LAGS:
        return 0
    window = np.lib.stride_tricks.sliding_window_view(x, MOST_LAGS + 1)
    window = window[np.all(np.isfinite(window), axis=1)]
    n = len(window)
    if n < LEAST_FRAMES:
        return 0
    # newest first, about their mean and in units of their spread: the condition of the solve is then the series' own
    spread = float(np.std(window))
    if spread <= 1e-12 * float(np.max(np.abs(window))):
        return 0
    y, *past = ((window - np.mean(window)) / spread).T[::-1]
    floor = LEAST_RESIDUE * n
    scores = []
    for p in range(1, MOST_LAGS + 1):
        X = np.column_stack((np.ones(n), *past[:p]))
        rest = y - X @ np.linalg.lstsq(X, y, rcond=None)[0]
        scores.append(n * math.log(max(float(rest @ rest), floor) / n) + (p + 1) * math.log(n))
    return 1 + int(np.argmin(scores))


# --- phases, harmonics, inducing inputs -----------------------------------------------------------------------------------
def _phases(said: Wanted, frames: Sequence[Array], interval_s: float) -> tuple[tuple[float, ...], tuple[str, ...]]:
    if said.phases is not None:
        return said.phases, ()
    phases, reasons = [], []
    for word, period, (low, high) in (("day", DAY_S, DAY_FROM_TO), ("week", WEEK_S, WEEK_FROM_TO)):
        if low <= interval_s <= high:
            phases.append(period)
            reasons.append(
                f"phases {span(period)}: frames of {span(low)} to {span(high)} mostly follow the {word}; a rule of the "
                "calendar, the first readings are too few to see it"
            )
    seen = rhythm.visible([one[:, q] for one in frames for q in range(one.shape[1])], interval_s)
    if seen and seen not in phases and len(phases) < MAX_PHASES:
        phases.append(seen)
        reasons.append(
            f"phases {span(seen)}: the first readings repeat every {span(seen)}, at least {rhythm.TIMES} times"
        )
    if not phases:
        reasons.append(f"phases none: at {span(interval_s)} a frame none of the calendar's is usual, and none is seen")
    return tuple(phases), tuple(reasons)


def _harmonics(interval_s: float, phases: tuple[float, ...]) -> int:
    """As many as differ between frames: the quickest wave has two frames at least."""
    return max(1, min([HARMONICS, *(int(period / (2 * interval_s)) for period in phases)]))


def _draft(said: Wanted, rest: Schema) -> Schema:
    """With no inducing inputs yet, and not checked: it may still be too large."""
    return msgspec.structs.replace(
        rest,
        covariates=said.covariates,
        harmonics=rest.harmonics if said.harmonics is None else said.harmonics,
        inducing=said.inducing or 0,
        kernel=said.kernel or rest.kernel,
    )


def _fitted(said: Wanted, draft: Schema) -> tuple[Schema, tuple[str, ...]]:
    """Fewer lags, then fewer phases, until the precision of all weights fits a message; what the owner gave stays."""
    before = draft
    while draft.precision_size > MAX_PRECISION and said.lags is None and draft.lags > 1:
        draft = msgspec.structs.replace(draft, lags=draft.lags - 1)
    while draft.precision_size > MAX_PRECISION and said.phases is None and draft.phases:
        draft = msgspec.structs.replace(draft, phases=draft.phases[:-1])
    if draft == before:
        return draft, ()
    kept = f"lags {draft.lags}, phases {', '.join(map(span, draft.phases)) or 'none'}"
    return draft, (f"{kept} after all: {len(draft.channels)} channels are too many for more",)


def _room(draft: Schema) -> _Told:
    """Inducing inputs that there is room for beside the features of a draft without any."""
    used = draft.feature_count - draft.inducing
    most = INDUCING if len(draft.channels) < MANY_CHANNELS else min(INDUCING, max(0, MOST_FEATURES - used))
    count = most
    while count and msgspec.structs.replace(draft, inducing=count).precision_size > MAX_PRECISION:
        count -= 1
    if count == INDUCING:
        return _Told(count, (f"inducing {count}: the usual number, beside {used} other features",))
    word = "room for so many" if count else "no room"
    return _Told(count, (f"inducing {count}: {used} other features leave {word} below {MOST_FEATURES}",))
