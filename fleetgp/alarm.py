"""From scores to alarms: one alarm an event, opened above a threshold, closed after calm.

The threshold is the set base or, on a stream whose ordinary frames are odder than the law admits, half as much again as
what 99.8 % of remembered frames reach. Of an event only its first loud frame is remembered, and clipped at twice the
threshold, so that an event, however loud, cannot lift the threshold out of sight of the next one; a stream that alarms
more than about three times in 1000 frames lifts it until it does not. What stays loud for longer than LASTING frames is
the new normal: from then on every frame is remembered, and calm is what is not loud.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from fleetgp.arrays import Array

MEMORY = 1000
ENOUGH = 200
QUANTILE = 0.998
MARGIN = 1.5
CLIP = 2.0
EVERY = 16
CALM_FRAMES = 5
CALM_SHARE = 0.5
LASTING = 250

Change = Literal["none", "opened", "going", "closed"]


class Alarm(NamedTuple):
    """recent [MEMORY] clipped scores, oldest overwritten; seen: frames remembered; frames: of the open event.

    calm: frames of the open event since it was last loud, or half as loud while it has not lasted.
    """

    recent: Array
    seen: int
    threshold: float
    is_open: bool
    calm: int
    frames: int


def init(base: float) -> Alarm:
    return Alarm(np.zeros(MEMORY), 0, base, False, 0, 0)


def step(alarm: Alarm, score: float, base: float) -> tuple[Alarm, Change]:
    """After one scored frame: the new state, and whether an event opened, goes on, or closed with this frame."""
    alarm = alarm._replace(threshold=max(base, alarm.threshold))
    threshold = alarm.threshold
    is_loud = score > threshold
    has_lasted = alarm.frames >= LASTING
    if not is_loud or not alarm.is_open or has_lasted:
        alarm = _remember(alarm, min(score, CLIP * threshold), base)
    if not alarm.is_open:
        return alarm._replace(is_open=is_loud, calm=0, frames=int(is_loud)), "opened" if is_loud else "none"
    is_calm = score < (threshold if has_lasted else CALM_SHARE * threshold)
    calm = alarm.calm + 1 if is_calm else 0
    if calm >= CALM_FRAMES:
        return alarm._replace(is_open=False, calm=0, frames=0), "closed"
    return alarm._replace(calm=calm, frames=alarm.frames + 1), "going"


def quiet(alarm: Alarm, scores: Sequence[float | None], base: float) -> tuple[Alarm, list[float]]:
    """Steps of a closed alarm as far as nothing opens it; None = a frame without a score, at which there is no step.

    Returns the alarm after them, and its threshold before each: as many as there were steps and frames without one.
    """
    recent, seen, threshold = alarm.recent.copy(), alarm.seen, alarm.threshold
    thresholds: list[float] = []
    for score in scores:
        before = threshold
        if score is not None:
            threshold = max(base, threshold)
            if score > threshold:
                return Alarm(recent, seen, before, False, alarm.calm, alarm.frames), thresholds
            recent[seen % MEMORY] = score
            seen += 1
            threshold = _drawn(recent, seen, threshold, base)
        thresholds.append(before)
    return Alarm(recent, seen, threshold, False, alarm.calm, alarm.frames), thresholds


def _remember(alarm: Alarm, score: float, base: float) -> Alarm:
    """The score put into memory, and now and then a new threshold drawn from it."""
    recent = alarm.recent.copy()
    recent[alarm.seen % MEMORY] = score
    seen = alarm.seen + 1
    return alarm._replace(recent=recent, seen=seen, threshold=_drawn(recent, seen, alarm.threshold, base))


def _drawn(recent: Array, seen: int, threshold: float, base: float) -> float:
    """The threshold after so many remembered scores: now and then a new one, drawn from them."""
    if seen < ENOUGH or seen % EVERY:
        return threshold
    kept = recent[: min(seen, MEMORY)]
    rank = int(QUANTILE * (len(kept) - 1))
    return max(base, MARGIN * float(np.partition(kept, rank)[rank]))
