"""Samples, and frames made of them, for the tests of frames."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from edge_agent.frames import Frame, Frames, Sample, add

START = 1_772_615_730_000
TICK = 1000


def sample(at_ms: int, *pairs: tuple[int, float], received_ms: int | None = None) -> Sample:
    received = at_ms if received_ms is None else received_ms
    return Sample(at_ms, received, tuple(p for p, _ in pairs), tuple(v for _, v in pairs))


def feed(frames: Frames, samples: Iterable[Sample]) -> tuple[Frames, list[Frame], Counter[str]]:
    closed: list[Frame] = []
    counts: Counter[str] = Counter()
    for one in samples:
        frames, more, counted = add(frames, one)
        closed += more
        counts.update(counted)
    return frames, closed, counts
