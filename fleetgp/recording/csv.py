"""CSV recordings, plain or gzip: one row a time, one column an input."""

from __future__ import annotations

import csv
import difflib
import gzip
import math
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, NamedTuple, cast
from zoneinfo import ZoneInfo

from fleetgp.errors import PeerError, RecordingError
from fleetgp.payloads.content import LARGEST, epoch_ms
from fleetgp.recording.spec import RecordingSpec, TimeSpec

MISSING = {"", "na", "nan", "null", "none", "n/a", "-"}


class Record(NamedTuple):
    """One row: its time (UTC epoch ms) and the values of schema.inputs in their order, NaN where missing."""

    at_ms: int
    values: tuple[float, ...]


class Skipped(dict[str, int]):
    """Rows and cells left out, by reason: ``bad_time`` rows, ``not_a_number`` cells, ``short_row`` rows."""

    def add(self, reason: str) -> None:
        self[reason] = self.get(reason, 0) + 1


def read(path: Path, spec: RecordingSpec, skipped: Skipped | None = None) -> Iterator[Record]:
    """Rows of a file in its own order.

    Raises RecordingError when the file cannot be opened, is damaged, is empty, or lacks a column that the spec names.
    """
    skipped = Skipped() if skipped is None else skipped
    try:
        with _open(path) as file:
            rows = csv.reader(file)
            header = [name.strip().strip("\ufeff") for name in next(rows, [])]
            if not header:
                raise RecordingError(f"{path} is empty; a CSV recording starts with a line of column names")
            times = [_column(path, header, name) for name in spec.time.columns]
            columns = [_column(path, header, item.field or item.name) for item in spec.schema.inputs]
            read_time = _time_reader(spec.time)
            needed = max(*times, *columns)
            for row in rows:
                if len(row) <= needed:
                    skipped.add("short_row")
                    continue
                try:
                    at_ms = read_time([row[index] for index in times])
                except (ValueError, OverflowError, PeerError):
                    skipped.add("bad_time")
                    continue
                yield Record(at_ms, tuple(_number(row[index], skipped) for index in columns))
    except (OSError, EOFError, UnicodeDecodeError, csv.Error) as err:
        raise RecordingError(f"{path} cannot be read: {err}") from err


def names(paths: Sequence[Path]) -> list[str]:
    """An agent id for each file: the parts of its name that tell it from the others.

    ``PRSA_Data_Tiantan_2013.csv.gz`` beside ``PRSA_Data_Wanliu_2013.csv.gz`` is ``Tiantan``.
    """
    stems = [_stem(path).replace(".", "_").split("_") for path in paths]
    common = set(stems[0]).intersection(*stems[1:]) if len(stems) > 1 else set()
    result: list[str] = []
    for stem in stems:
        base = "_".join(part for part in stem if part not in common) or "_".join(stem)
        base = "".join(c if c.isascii() and (c.isalnum() or c in "_-") else "-" for c in base)[:60] or "agent"
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
    if path.suffix == ".gz":
        return cast(IO[str], gzip.open(path, "rt", encoding="utf-8", newline=""))
    return path.open(encoding="utf-8", newline="")


def _column(path: Path, header: list[str], name: str) -> int:
    if name in header:
        return header.index(name)
    near = difflib.get_close_matches(name, header, n=1, cutoff=0.4)
    hint = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(header[:20])}"
    raise RecordingError(f"{path} has no column {name!r}; {hint}")


def _number(cell: str, skipped: Skipped) -> float:
    text = cell.strip()
    if text.lower() in MISSING:
        return math.nan
    try:
        value = float(text)
    except ValueError:
        skipped.add("not_a_number")
        return math.nan
    if abs(value) <= LARGEST:
        return value
    skipped.add("not_a_number")
    return math.nan


def _time_reader(spec: TimeSpec) -> Callable[[list[str]], int]:
    zone = UTC if spec.zone == "UTC" else ZoneInfo(spec.zone)
    if len(spec.columns) > 1:
        return lambda cells: _ms(datetime(*(int(float(c)) for c in cells), tzinfo=zone))  # type: ignore[misc,arg-type]
    if spec.format:
        return lambda cells: _ms(_zoned(datetime.strptime(cells[0].strip(), spec.format), zone))
    return lambda cells: _iso_or_epoch(cells[0].strip(), zone)


def _iso_or_epoch(text: str, zone: ZoneInfo | object) -> int:
    try:
        return _ms(_zoned(datetime.fromisoformat(text), zone))
    except ValueError:
        return epoch_ms(text)


def _zoned(moment: datetime, zone: object) -> datetime:
    return moment if moment.tzinfo else moment.replace(tzinfo=zone)  # type: ignore[arg-type]


def _ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)
