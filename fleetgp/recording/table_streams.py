"""The devices of one table: the whole of it, or by the column that says whose each row is.

Where nobody named that column it is the first of a usual name (``device``, ``sensor_id``, ``mote``, ``station`` ...) whose
values come again and again, unless each only begins when the one before has ended: that is one device which was renamed. One
value alone names a device only in a column called ``device``, ``device_id`` or ``device_name``.
Rows of devices that take turns are read in one pass; where one device's rows all stand before the next one's there is a pass
for each.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice, pairwise
from pathlib import Path
from typing import NamedTuple

from fleetgp.errors import PeerError, RecordingError
from fleetgp.recording import csv, lines, parquet, table
from fleetgp.recording.discover import find_time
from fleetgp.recording.messages import kind_of
from fleetgp.recording.shared import Pass, Watch, unwatched
from fleetgp.recording.spec import RecordingSpec, TimeSpec
from fleetgp.recording.table import Cells, Record, Skipped

FIRST = 400
MOST_DEVICES = 1000
ROWS_EACH = 3  # on average at least: what stands fewer times names no device
NAMES = (
    "device", "deviceid", "devicename", "sensor", "sensorid", "sensorname", "mote", "moteid", "node", "nodeid", "station",
    "stationid", "machine", "machineid", "asset", "assetid", "unit", "unitid", "host", "hostname", "id",
)  # fmt: skip

NAMES_OF_ONE = ("device", "deviceid", "devicename")


class Part(NamedTuple):
    """What a table's rows of one device begin and end with."""

    first: list[Cells]
    last: Cells


class TableFile:
    """One table of any form. devices: {} where all rows are of one."""

    def __init__(self, path: Path, spec: RecordingSpec | None = None, watch: Watch = unwatched) -> None:
        self.path = path
        self._encoding = "" if spec is None else spec.encoding
        self._kind = kind_of(path)
        self._pass: Pass[Cells] | None = None
        self._watch = watch
        self.header = [name or "" for name in next(self.rows())]
        self.device_column = -1
        self.devices: dict[str, Part] = {}
        said = None if spec is None else spec.devices.column
        if said:
            self.device_column = table.find_column(path, self.header, said)
            self.devices = self._by_device(self.device_column)
            if not self.devices:
                raise RecordingError(f"{path}: {said!r} names no device, or more than {MOST_DEVICES}")
        elif said is None:
            self._find(TimeSpec() if spec is None else spec.time)

    def rows(self, skipped: Skipped | None = None) -> Iterator[Cells]:
        """Column names, then rows as text. Raises RecordingError where the file cannot be read."""
        if self._kind == "parquet":
            return parquet.rows(self.path)
        if self._kind == "jsonl":
            return lines.rows(self.path, self._encoding, skipped)
        return csv.rows(self.path, self._encoding)

    def join(self, device: str, skipped: Skipped) -> Iterator[Cells]:
        """A device's rows; readers that are made before any of them begins share a pass."""
        if self._pass is None or not self._pass.is_open_to(device):
            self._pass = Pass(lambda is_counted: self._owned(skipped if is_counted else Skipped()))
        return self._pass.join(device)

    def _owned(self, skipped: Skipped) -> Iterator[tuple[str, Cells]]:
        for row in islice(self.rows(skipped), 1, None):
            if device := _device(row, self.device_column):
                yield device, row
            elif row:
                skipped.add("no_device")

    def _find(self, time: TimeSpec) -> None:
        for index, name in enumerate(self.header):
            plain = "".join(c for c in name.lower() if c.isalnum())
            if plain not in NAMES:
                continue
            found = self._by_device(index)
            if len(found) > 1 and self._follow_each_other(found, time):
                continue
            if len(found) > 1 or (found and plain in NAMES_OF_ONE):
                self.device_column, self.devices = index, found
                return

    def _follow_each_other(self, devices: Mapping[str, Part], said: TimeSpec) -> bool:
        """Whether each begins after the one before has ended: one device, whose name was changed on the way."""
        try:
            time = find_time([TableStream("", self)], said)[0] if said.is_open else said
        except RecordingError:  # without times nothing follows
            return False
        if time.every:
            return False
        columns = [table.find_column(self.path, self.header, name) for name in time.columns]
        read = table.time_reader(time)
        spans = [
            (_instant(read, part.first[0], columns), _instant(read, part.last, columns)) for part in devices.values()
        ]
        return all(before[1] < after[0] for before, after in pairwise(spans))

    def _by_device(self, column: int) -> dict[str, Part]:
        """Rows by the value of a column; {} where it has too many values to name devices."""
        found: dict[str, Part] = {}
        count = 0
        for row in self._watch(islice(self.rows(), 1, None), self.path):
            device = _device(row, column)
            if not device:
                continue
            count += 1
            part = found.setdefault(device, Part([], row))
            if len(part.first) < FIRST:
                part.first.append(row)
            found[device] = part._replace(last=row)
            if len(found) > MOST_DEVICES:
                return {}
        return found if count >= ROWS_EACH * len(found) else {}


class TableStream:
    """One device of a table. device: its value in the device column, "" = the whole table."""

    has_clock = False

    def __init__(self, name: str, file: TableFile, device: str = "") -> None:
        self.name = name
        self.path = file.path
        self._file = file
        self._device = device

    def peek(self, count: int) -> tuple[list[str], list[Cells]]:
        """Column names and first rows, without the column that names the device."""
        if not self._device:
            rows = self._file.rows()
            next(rows)
            return self._file.header, [row for row in islice(rows, count) if row]
        column = self._file.device_column
        first = self._file.devices[self._device].first[:count]
        return _without(self._file.header, column), [_without(row, column) for row in first]

    def read(self, spec: RecordingSpec, skipped: Skipped | None = None) -> Iterator[Record]:
        """Rows in the file's own order. Raises RecordingError as ``table.read`` does, and where the file is damaged."""
        skipped = Skipped() if skipped is None else skipped
        if not self._device:
            return table.read(self.path, self._file.rows(skipped), spec, skipped)
        layout = table.Layout(self.path, self._file.header, spec)
        return layout.records(self._file.join(self._device, skipped), skipped)


def _instant(read: Callable[[list[str]], int], row: Cells, columns: Sequence[int]) -> float:
    """When a row was, NaN where that cannot be read."""
    try:
        return read([(row[index] or "").strip() for index in columns])
    except (ValueError, OverflowError, PeerError, IndexError):
        return math.nan


def _device(row: Cells, column: int) -> str:
    return (row[column] or "").strip() if len(row) > column else ""


def _without(row: Cells, column: int) -> list[str]:
    return [*row[:column], *row[column + 1 :]]  # type: ignore[list-item]
