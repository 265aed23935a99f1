"""Rows of any table, whatever its form: cells as text, and what a spec makes of them.

A table's first row are its columns' names. A cell that is None is one that its row does not speak of, as in lines of JSON
that hold a few of the fields each; a cell that is empty speaks of a missing reading.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, tzinfo
from itertools import count
from pathlib import Path
from typing import NamedTuple
from zoneinfo import ZoneInfo

from fleetgp.errors import PeerError, RecordingError
from fleetgp.payloads.content import LARGEST, epoch_ms
from fleetgp.recording.spec import RecordingSpec, TimeSpec
from fleetgp.runtime.spec import parse_span

MISSING = {"", "na", "nan", "null", "none", "n/a", "-"}

Cells = Sequence[str | None]


class Record(NamedTuple):
    """One row: its time (UTC epoch ms) and the values of the spec's inputs in their order, NaN where missing.

    heard: positions of the inputs that it speaks of, None = all. A message of one sensor says nothing of the others.
    """

    at_ms: int
    values: tuple[float, ...]
    heard: tuple[int, ...] | None = None


class Skipped(dict[str, int]):
    """What was left out, by reason: ``bad_time`` rows, ``not_a_number`` cells, ``short_row`` rows, ``bad_line`` lines."""

    def add(self, reason: str, number: int = 1) -> None:
        self[reason] = self.get(reason, 0) + number


class Layout:
    """Where a table's header has the columns that a spec names. Raises RecordingError where it lacks one."""

    def __init__(self, path: Path, header: Sequence[str], spec: RecordingSpec) -> None:
        self._path = path
        self._times = [find_column(path, header, name) for name in spec.time.columns]
        self._columns = [find_column(path, header, item.field or item.name) for item in spec.inputs]
        self._needed = max([*self._times, *self._columns])
        self._read_time = time_reader(spec.time)
        self._good, self._bad = 0, ""

    def records(self, rows: Iterator[Cells], skipped: Skipped) -> Iterator[Record]:
        """Rows in their own order. Raises RecordingError where no row has a time that can be read."""
        for row in rows:
            record = self._record(row, skipped)
            if record is not None:
                yield record
        if self._bad and not self._good:
            raise RecordingError(
                f"{self._path} has no row with a time that can be read; see [time] in the spec. The first is {self._bad}"
            )

    def _record(self, row: Cells, skipped: Skipped) -> Record | None:
        if not row:
            return None  # an empty line
        if len(row) <= self._needed:
            skipped.add("short_row")
            return None
        cells = [row[index] or "" for index in self._times]
        try:
            at_ms = self._read_time(cells)
        except (ValueError, OverflowError, PeerError) as err:
            skipped.add("bad_time")
            self._bad = self._bad or f"{', '.join(cells)!r:.60}: {err}"
            return None
        self._good += 1
        read = [row[index] for index in self._columns]
        values = tuple(math.nan if cell is None else number(cell, skipped) for cell in read)
        if None not in read:
            return Record(at_ms, values)
        return Record(at_ms, values, tuple(k for k, cell in enumerate(read) if cell is not None))


def read(path: Path, rows: Iterator[Cells], spec: RecordingSpec, skipped: Skipped) -> Iterator[Record]:
    """Records of a table whose header comes first. Raises RecordingError as ``Layout`` does."""
    header = [name or "" for name in next(rows)]
    yield from Layout(path, header, spec).records(rows, skipped)


def is_number(cell: str) -> bool:
    """Whether a cell is a number that a reading can have."""
    return not math.isnan(number(cell, Skipped()))


def find_column(path: Path, header: Sequence[str], name: str) -> int:
    """Its place. Raises RecordingError, naming the nearest column, where there is none of that name."""
    if name in header:
        return header.index(name)
    lower = [column.lower() for column in header]
    near = difflib.get_close_matches(name.lower(), lower, n=1, cutoff=0.4)
    hint = f"did you mean {header[lower.index(near[0])]!r}?" if near else f"it has {', '.join(header[:20])}"
    raise RecordingError(f"{path} has no column {name!r}; {hint}")


def number(cell: str, skipped: Skipped) -> float:
    """A cell's number, NaN where it is missing or, which is counted, none."""
    text = cell.strip()
    if text.lower() in MISSING:
        return math.nan
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if abs(value) <= LARGEST:
        return value
    skipped.add("not_a_number")
    return math.nan


def time_reader(spec: TimeSpec) -> Callable[[list[str]], int]:
    """A reader of a row's time cells that raises ValueError, OverflowError or PeerError; it remembers the row before."""
    zone: tzinfo = UTC if spec.zone == "UTC" else ZoneInfo(spec.zone)
    if spec.every:
        return _counter(spec, zone)
    read = _moment_reader(spec)
    last_ms: int | None = None

    def read_time(cells: list[str]) -> int:
        nonlocal last_ms
        moment = read(cells)
        if isinstance(moment, int):
            last_ms = moment
        else:
            last_ms = _resolved(moment if moment.tzinfo else moment.replace(tzinfo=zone), last_ms)
        return last_ms

    return read_time


def _counter(spec: TimeSpec, zone: tzinfo) -> Callable[[list[str]], int]:
    """Times of a table that has none: the first row's is the start, each next one is a step later."""
    start = datetime.fromisoformat(spec.start)
    start_ms = _ms(start if start.tzinfo else start.replace(tzinfo=zone))
    step_ms = 1000 * parse_span(spec.every, "time.every", "")
    rows = count()
    return lambda cells: start_ms + round(next(rows) * step_ms)


def _moment_reader(spec: TimeSpec) -> Callable[[list[str]], datetime | int]:
    """A reader of time cells: a date and time as written, or UTC epoch ms."""
    if len(spec.columns) > 1:
        return lambda cells: datetime(*(int(float(cell)) for cell in cells))  # type: ignore[arg-type]
    if spec.format:
        return lambda cells: datetime.strptime(cells[0].strip(), spec.format)
    return lambda cells: _iso_or_epoch(cells[0].strip())


def _iso_or_epoch(text: str) -> datetime | int:
    if len(text) == 8 or not text.isdecimal():  # as payloads.content.epoch_ms tells them apart
        try:
            return datetime.fromisoformat(text)
        except ValueError:
            pass
    return epoch_ms(text)


def _resolved(moment: datetime, last_ms: int | None) -> int:
    """UTC epoch ms. An hour that a zone's clock goes through twice is the second one where the row before says so."""
    at_ms = _ms(moment)
    if last_ms is not None and at_ms <= last_ms:
        again_ms = _ms(moment.replace(fold=1))
        return again_ms if again_ms > last_ms else at_ms
    return at_ms


def _ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)
