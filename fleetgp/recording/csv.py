"""CSV recordings, plain or gzip: one row a time, one column an input.

Columns are separated by commas; or by semicolons, as spreadsheets do where numbers have decimal commas: those are read then.
"""

from __future__ import annotations

import csv
import difflib
import gzip
import math
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, tzinfo
from itertools import chain, islice
from pathlib import Path
from typing import IO, NamedTuple, cast
from zoneinfo import ZoneInfo

from fleetgp.errors import PeerError, RecordingError
from fleetgp.payloads.content import LARGEST, epoch_ms
from fleetgp.recording.spec import RecordingSpec, TimeSpec

MISSING = {"", "na", "nan", "null", "none", "n/a", "-"}
DECIMAL_COMMA = re.compile(r"\s*[+-]?\d*,\d+([eE][+-]?\d+)?\s*")
DAMAGED = (OSError, EOFError, UnicodeDecodeError, csv.Error, zlib.error)


class Record(NamedTuple):
    """One row: its time (UTC epoch ms) and the values of the spec's inputs in their order, NaN where missing."""

    at_ms: int
    values: tuple[float, ...]


class Skipped(dict[str, int]):
    """Rows and cells left out, by reason: ``bad_time`` rows, ``not_a_number`` cells, ``short_row`` rows."""

    def add(self, reason: str) -> None:
        self[reason] = self.get(reason, 0) + 1


def read(path: Path, spec: RecordingSpec, skipped: Skipped | None = None) -> Iterator[Record]:
    """Rows of a file in its own order.

    Raises RecordingError when the file cannot be opened, is damaged, is empty, lacks a column that the spec names, or holds
    rows of which none has a time that can be read.
    """
    skipped = Skipped() if skipped is None else skipped
    try:
        with _open(path) as file:
            yield from _rows(path, _table(file), spec, skipped)
    except FileNotFoundError:
        raise RecordingError(f"there is no file {path}") from None
    except DAMAGED as err:
        raise RecordingError(f"{path} cannot be read: {_damage(err)}") from err


def peek(path: Path, count: int) -> tuple[list[str], list[list[str]]]:
    """Column names and the first rows of a file as text. Raises RecordingError as ``read`` does."""
    try:
        with _open(path) as file:
            rows = _table(file)
            header = _header(path, rows)
            return header, [row for row in islice(rows, count) if row]
    except FileNotFoundError:
        raise RecordingError(f"there is no file {path}") from None
    except DAMAGED as err:
        raise RecordingError(f"{path} cannot be read: {_damage(err)}") from err


def _damage(err: Exception) -> str:
    if isinstance(err, UnicodeDecodeError):
        return f"it is not UTF-8 text (byte {err.object[err.start]:#x}); save it as CSV UTF-8"
    return f"{err}; its name says gzip" if isinstance(err, gzip.BadGzipFile) else str(err)


def is_number(cell: str) -> bool:
    """Whether a cell is a number that a reading can have."""
    return not math.isnan(_number(cell, Skipped()))


def _table(file: IO[str]) -> Iterator[list[str]]:
    """Rows as text, numbers with decimal points. Whether semicolons separate is told by the first line."""
    first = file.readline()
    lines = chain([first] if first else [], file)
    if first.count(";") <= first.count(","):
        return csv.reader(lines)
    return (
        [cell.replace(",", ".") if DECIMAL_COMMA.fullmatch(cell) else cell for cell in row]
        for row in csv.reader(lines, delimiter=";")
    )


def _header(path: Path, rows: Iterator[list[str]]) -> list[str]:
    header = [name.strip() for name in next(rows, [])]
    if not header:
        raise RecordingError(f"{path} is empty; a CSV recording starts with a line of column names")
    if len(header) == 1 and (other := next((sign for sign in "\t|" if sign in header[0]), "")):
        raise RecordingError(f"{path} is separated by {other!r}, not by commas; write it with commas or semicolons")
    return header


def _rows(path: Path, rows: Iterator[list[str]], spec: RecordingSpec, skipped: Skipped) -> Iterator[Record]:
    header = _header(path, rows)
    times = [_column(path, header, name) for name in spec.time.columns]
    columns = [_column(path, header, item.field or item.name) for item in spec.inputs]
    read_time = time_reader(spec.time)
    needed = max(*times, *columns)
    good, bad = 0, ""
    for row in rows:
        if not row:
            continue  # an empty line
        if len(row) <= needed:
            skipped.add("short_row")
            continue
        cells = [row[index] for index in times]
        try:
            at_ms = read_time(cells)
        except (ValueError, OverflowError, PeerError) as err:
            skipped.add("bad_time")
            bad = bad or f"{', '.join(cells)!r:.60}: {err}"
            continue
        good += 1
        yield Record(at_ms, tuple(_number(row[index], skipped) for index in columns))
    if bad and not good:
        raise RecordingError(
            f"{path} has no row with a time that can be read; see [time] in the spec. The first is {bad}"
        )


def names(paths: Sequence[Path]) -> list[str]:
    """An agent id for each file: the parts of its name that tell it from the others.

    ``PRSA_Data_Tiantan_2013.csv.gz`` beside ``PRSA_Data_Wanliu_2013.csv.gz`` is ``Tiantan``.
    """
    stems = [_stem(path).replace(".", "_").split("_") for path in paths]
    common = set(stems[0]).intersection(*stems[1:]) if len(stems) > 1 else set()
    result: list[str] = []
    for stem in stems:
        base = "_".join(part for part in stem if part not in common) or "_".join(stem)
        base = "".join(c if c.isascii() and (c.isalnum() or c in "_-") else "-" for c in base)[:56] or "agent"
        name, number = base, 1
        while name in result:
            number += 1
            name = f"{base}-{number}"
        result.append(name)
    return result


def _stem(path: Path) -> str:
    name = path.name
    for ending in (".gz", ".csv"):
        name = name.removesuffix(ending)
    return name


def _open(path: Path) -> IO[str]:
    # utf-8-sig: spreadsheets begin a file with a byte order mark, which is no part of the first name
    if path.suffix == ".gz":
        return cast(IO[str], gzip.open(path, "rt", encoding="utf-8-sig", newline=""))
    return path.open(encoding="utf-8-sig", newline="")


def _column(path: Path, header: list[str], name: str) -> int:
    if name in header:
        return header.index(name)
    lower = [column.lower() for column in header]
    near = difflib.get_close_matches(name.lower(), lower, n=1, cutoff=0.4)
    hint = f"did you mean {header[lower.index(near[0])]!r}?" if near else f"it has {', '.join(header[:20])}"
    raise RecordingError(f"{path} has no column {name!r}; {hint}")


def _number(cell: str, skipped: Skipped) -> float:
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
