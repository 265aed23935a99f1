"""What a recording without a spec holds: which columns are its time, and which are numbers.

Time is the first of these whose cells can be read as times that go forward: a column called datetime, timestamp, time, ts or
date; columns called year, month, day, hour, ...; any column of dates. Numbers are the columns that all files have and in
whose first rows nearly every cell is one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fleetgp.errors import PeerError, RecordingError
from fleetgp.recording import csv
from fleetgp.recording.spec import CALENDAR, TimeSpec

ROWS = 400
NAMES = ("datetime", "date_time", "timestamp", "time", "ts", "date")
FORMATS = (
    "",  # ISO 8601, or a count since 1970
    "%d.%m.%Y %H:%M:%S", "%d.%m.%Y %H:%M", "%d.%m.%Y",
    "%Y/%m/%d %H:%M:%S", "%Y/%m/%d %H:%M", "%Y/%m/%d",
    "%d/%m/%Y %H:%M:%S", "%d/%m/%Y %H:%M", "%d/%m/%Y",
    "%m/%d/%Y %H:%M:%S", "%m/%d/%Y %H:%M", "%m/%d/%Y",
)  # fmt: skip
READABLE = 0.95
FORWARD = 0.5  # of the steps: a date beside a clock of its own stands still in most of them
MOST_WORDS = 0.05


class Discovered(NamedTuple):
    """time: how to read it. columns: of numbers, in the first file's order. reasons: what was left out, and why."""

    time: TimeSpec
    columns: tuple[str, ...]
    reasons: tuple[str, ...]


class Top(NamedTuple):
    """The first rows of one file."""

    path: Path
    header: list[str]
    rows: list[list[str]]

    def cells(self, name: str) -> list[str]:
        index = self.header.index(name)
        return [row[index].strip() for row in self.rows if len(row) > index]


def discover(paths: Sequence[Path], time: TimeSpec | None = None) -> Discovered:
    """time: where a spec says it. Raises RecordingError where a file cannot be read, or no time or no number is found."""
    tops = [Top(path, *csv.peek(path, ROWS)) for path in paths]
    common = [name for name in dict.fromkeys(tops[0].header) if name and all(name in top.header for top in tops)]
    reasons: list[str] = []
    if time is None:
        time, why = _time(tops, common)
        reasons.append(why)
    columns: list[str] = []
    for name in dict.fromkeys(name for top in tops for name in top.header if name):
        if name in time.columns:
            continue
        why = "not every file has it" if name not in common else _no_number(name, tops)
        if why:
            reasons.append(f"left out {name}: {why}")
        else:
            columns.append(name)
    if not columns:
        raise RecordingError(f"{paths[0]} has no column of numbers beside its time; it has {', '.join(tops[0].header)}")
    return Discovered(time, tuple(columns), tuple(reasons))


def _no_number(name: str, tops: Sequence[Top]) -> str:
    """Why a column holds no numbers worth reading; "" where it does."""
    if name.lower() in CALENDAR:
        return "it is part of the calendar, which the time holds already"
    cells = [cell for top in tops for cell in top.cells(name) if cell.lower() not in csv.MISSING]
    words = [cell for cell in cells if not csv.is_number(cell)]
    if len(words) > MOST_WORDS * len(cells):
        return f"it is text, such as {words[0]!r:.30}"
    return ""


def _time(tops: Sequence[Top], common: Sequence[str]) -> tuple[TimeSpec, str]:
    for columns in _candidates(tops, common):
        fitting = [
            form for form in FORMATS[: len(FORMATS) if len(columns) == 1 else 1] if _is_time(tops, columns, form)
        ]
        if not fitting:
            continue
        if len(fitting) > 1 and "/" in fitting[-1]:
            raise RecordingError(
                f"{tops[0].path}: the times in {columns[0]!r} can be read as {fitting[0]} and as {fitting[-1]}; say which in "
                'a spec (--spec): [time] format = "..."'
            )
        how = f" as {fitting[0]}" if fitting[0] else ""
        return TimeSpec(
            columns=columns, format=fitting[0]
        ), f"time {', '.join(columns)}{how}: in UTC where no zone is named"
    raise RecordingError(
        f"{tops[0].path} has no column of times that go forward, among {', '.join(tops[0].header[:20])}; describe it in a "
        'spec (--spec), e.g. [time] columns = ["timestamp"]'
    )


def _candidates(tops: Sequence[Top], common: Sequence[str]) -> Iterator[tuple[str, ...]]:
    lower = {name.lower(): name for name in reversed(common)}
    for name in NAMES:
        if name in lower:
            yield (lower[name],)
    known = 0
    while known < len(CALENDAR) and CALENDAR[known] in lower:
        known += 1
    if known >= 3:
        yield tuple(lower[name] for name in CALENDAR[:known])
    for name in common:  # a column of another name must look like dates: a count may be anything
        if name.lower() not in NAMES and not any(csv.is_number(cell) for cell in tops[0].cells(name)[:20]):
            yield (name,)


def _is_time(tops: Sequence[Top], columns: tuple[str, ...], form: str) -> bool:
    rows = good = steps = forward = 0
    for top in tops:
        read = csv.time_reader(TimeSpec(columns=columns, format=form))
        times = []
        for cells in zip(*(top.cells(name) for name in columns), strict=False):
            rows += 1
            try:
                times.append(read(list(cells)))
            except (ValueError, OverflowError, PeerError):
                continue
        good += len(times)
        steps += max(0, len(times) - 1)
        forward += int(np.sum(np.diff(times) > 0)) if len(times) > 1 else 0
    return rows > 1 and good >= READABLE * rows and forward >= FORWARD * steps
