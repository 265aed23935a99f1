"""What a recording without a spec holds: which columns are its time, and which are numbers.

Time is the first of these whose cells can be read as times that go forward: a column called datetime, timestamp, time, ts or
date; columns called year, month, day, hour, ...; any column of dates. Numbers are the columns that all files have and in
whose first rows nearly every cell is one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec
import numpy as np

from fleetgp.errors import PeerError, RecordingError
from fleetgp.recording.spec import CALENDAR, TimeSpec
from fleetgp.recording.table import MISSING, Cells, is_number, time_reader

ROWS = 400
NAMES = ("datetime", "date_time", "timestamp", "time", "ts", "date", "_time", "at_ms", "received_at", "last_seen")
FORMATS = (
    "",  # ISO 8601, or a count since 1970
    "%d.%m.%Y %H:%M:%S", "%d.%m.%Y %H:%M", "%d.%m.%Y",
    "%Y/%m/%d %H:%M:%S", "%Y/%m/%d %H:%M", "%Y/%m/%d",
    "%d/%m/%Y %H:%M:%S", "%d/%m/%Y %H:%M", "%d/%m/%Y",
    "%m/%d/%Y %H:%M:%S", "%m/%d/%Y %H:%M", "%m/%d/%Y",
)  # fmt: skip
READABLE = 0.95
FORWARD = 0.5  # of the steps: a date beside a clock of its own stands still in most of them
BACKWARD = 0.2  # of the steps: beyond it the rows are in no order, below it a clock was set or a few rows came late
MOST_WORDS = 0.05
NO_TIMES = "its cells are no times"
NO_TIME = (
    'if it has one, name it in a spec (--spec): [time] columns = ["timestamp"]; if it has none, say when its rows were: '
    '[time] start = "2026-01-01T00:00", every = "1min"'
)
SAID = 6  # reasons in one sentence


class Discovered(NamedTuple):
    """time: how to read it. columns: of numbers, in the first file's order. reasons: what was left out, and why."""

    time: TimeSpec
    columns: tuple[str, ...]
    reasons: tuple[str, ...]


class Source(Protocol):
    """What is looked at. has_clock: its readings have their time without a column of it."""

    path: Path
    has_clock: bool

    def peek(self, count: int) -> tuple[list[str], list[Cells]]:
        """Names of columns and the first rows as text, None where a row does not speak of a column."""


class Top(NamedTuple):
    """The first rows of one source."""

    path: Path
    has_clock: bool
    header: list[str]
    rows: list[Cells]

    def cells(self, name: str) -> list[str]:
        index = self.header.index(name)
        return [cell.strip() for row in self.rows if len(row) > index and (cell := row[index]) is not None]


def discover(sources: Sequence[Source], time: TimeSpec | None = None) -> Discovered:
    """time: what a spec says of it. Raises RecordingError where a file cannot be read, or no time or no number is found."""
    tops = _tops(sources)
    common = _common(tops)
    reasons: list[str] = []
    if time is None or time.is_open:
        time, why = _time(tops, time or TimeSpec())
        reasons.append(why)
    columns: list[str] = []
    for name in dict.fromkeys(name for top in tops for name in top.header if name):
        if name in time.columns:
            continue
        why = "not every file has it" if name not in common else _no_number(name, tops)
        if why:
            reasons.append(f"left out {name}: {why}")
        elif (most := max(top.header.count(name) for top in tops)) > 1:
            reasons.append(f"column {name}: the first of {most} of that name is read")
            columns.append(name)
        else:
            columns.append(name)
    if not columns:
        why = (
            "; ".join([reason for reason in reasons if reason.startswith("left out")][:SAID])
            or f"it has {', '.join(tops[0].header[:20])}"
        )
        raise RecordingError(f"{tops[0].path} has no column of numbers beside its time; {why}")
    return Discovered(time, tuple(columns), tuple(reasons))


def find_time(sources: Sequence[Source], said: TimeSpec) -> tuple[TimeSpec, str]:
    """The time where a spec names no column of it, and why. Raises RecordingError as ``discover`` does."""
    return _time(_tops(sources), said)


def _tops(sources: Sequence[Source]) -> list[Top]:
    return [Top(source.path, source.has_clock, *source.peek(ROWS)) for source in sources]


def _common(tops: Sequence[Top]) -> list[str]:
    return [name for name in dict.fromkeys(tops[0].header) if name and all(name in top.header for top in tops)]


def numbers(source: Source) -> frozenset[str]:
    """Names of the columns of one source that hold numbers."""
    tops = _tops([source])
    return frozenset(name for name in tops[0].header if name and not _no_number(name, tops))


def _no_number(name: str, tops: Sequence[Top]) -> str:
    """Why a column holds no numbers worth reading; "" where it does."""
    if name.lower() in CALENDAR:
        return "it is part of the calendar, which the time holds already"
    cells = [cell for top in tops for cell in top.cells(name) if cell.lower() not in MISSING]
    words = [cell for cell in cells if not is_number(cell)]
    if len(words) <= MOST_WORDS * len(cells):
        return ""
    if is_number(words[0].replace(",", ".")):
        return f"it has decimal commas, such as {words[0]!r:.30}; write points, or semicolons between columns"
    return f"it is text, such as {words[0]!r:.30}"


def _time(all_tops: Sequence[Top], said: TimeSpec) -> tuple[TimeSpec, str]:
    tops = [top for top in all_tops if not top.has_clock]
    if not tops:
        return msgspec.structs.replace(
            said, columns=("time",)
        ), "time: what each message says, else when it was received"
    forms = (said.format,) if said.format else FORMATS
    unfit: list[str] = []
    for columns in _candidates(tops, _common(tops)):
        several = len(columns) > 1
        if several and said.format:
            continue
        fitting = []
        for form in forms[: 1 if several else len(forms)]:
            time = TimeSpec(columns=columns, format=form, zone=said.zone)
            why = _unfit(tops, time)
            if not why:
                fitting.append(time)
            elif why != NO_TIMES:
                unfit.append(why)
        if len(fitting) > 1 and "/" in fitting[-1].format:
            raise RecordingError(
                f"{tops[0].path}: the times in {columns[0]!r} can be read as {fitting[0].format} and as {fitting[-1].format}; "
                'say which in a spec (--spec): [time] format = "..."'
            )
        if fitting:
            how = f" as {fitting[0].format}" if fitting[0].format else ""
            return fitting[0], f"time {', '.join(columns)}{how}: in {said.zone} where no zone is named"
    what = unfit[0] if unfit else NO_TIME
    raise RecordingError(
        f"{tops[0].path} has no column of times that go forward, among {', '.join(tops[0].header[:20])}; {what}"
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
        if name.lower() not in NAMES and not any(is_number(cell) for cell in tops[0].cells(name)[:20]):
            yield (name,)


def _unfit(tops: Sequence[Top], time: TimeSpec) -> str:
    """Why these columns are not the time; "" where they are."""
    rows = good = 0
    steps = np.empty(0)
    for top in tops:
        read = time_reader(time)
        times = []
        for cells in zip(*(top.cells(name) for name in time.columns), strict=False):
            rows += 1
            try:
                times.append(read(list(cells)))
            except (ValueError, OverflowError, PeerError):
                continue
        good += len(times)
        steps = np.append(steps, np.diff(times))
    if rows < 2 or good < READABLE * rows:
        return NO_TIMES
    if np.sum(steps < 0) > BACKWARD * len(steps):
        return f"the times in {', '.join(time.columns)} go back from row to row: sort the rows by time, oldest first"
    if np.sum(steps > 0) < FORWARD * len(steps):
        return f"the times in {', '.join(time.columns)} stand still: one column must hold the date and the time of day"
    return ""
