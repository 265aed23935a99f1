"""From scores to alarms: one alarm an event, opened above a threshold, closed after calm.

The threshold is the set base or, on a stream whose ordinary frames are odder than the law admits, half as much again as
what 99.5 % of recent frames reach. Scores enter that memory clipped at the threshold, so that one long event cannot lift
it out of sight, and a stream that alarms on more than 1 frame in 200 lifts it until it does not.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np

from fleetgp.arrays import Array

MEMORY = 1000
QUANTILE = 0.995
MARGIN = 1.5
EVERY = 16
CALM_FRAMES = 5
CALM_SHARE = 0.5

Change = Literal["none", "opened", "going", "closed"]


class Alarm(NamedTuple):
    """recent [MEMORY] clipped scores, oldest overwritten; seen: frames scored; calm: frames below since it was last loud."""

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
    recent = alarm.recent.copy()
    recent[alarm.seen % MEMORY] = min(score, alarm.threshold)
    seen = alarm.seen + 1
    threshold = alarm.threshold
    if seen % EVERY == 0 and seen >= 200:
        kept = recent[: min(seen, MEMORY)]
        rank = int(QUANTILE * (len(kept) - 1))
        threshold = max(base, MARGIN * float(np.partition(kept, rank)[rank]))
    if not alarm.is_open:
        is_loud = score > alarm.threshold
        return Alarm(recent, seen, threshold, is_loud, 0, int(is_loud)), "opened" if is_loud else "none"
    calm = alarm.calm + 1 if score < CALM_SHARE * alarm.threshold else 0
    if calm >= CALM_FRAMES:
        return Alarm(recent, seen, threshold, False, 0, 0), "closed"
    return Alarm(recent, seen, threshold, True, calm, alarm.frames + 1), "going"
