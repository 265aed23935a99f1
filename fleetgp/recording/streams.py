"""Streams of recorded files of every form: one a device, whatever the file was written as."""

from __future__ import annotations

import heapq
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from fleetgp.recording import csv
from fleetgp.recording.board import Board
from fleetgp.recording.discover import discover
from fleetgp.recording.message import Message, Recorded
from fleetgp.recording.messages import OF_MESSAGES, kind_of, read_messages
from fleetgp.recording.shared import Watch, unwatched
from fleetgp.recording.spec import RecordingSpec
from fleetgp.recording.table import Cells, Record, Skipped
from fleetgp.recording.table_streams import TableFile, TableStream
from fleetgp.schema import Channel
from fleetgp.wanted import Wanted

TOPIC = "sensors/"


class Stream(Protocol):
    """One device's recorded readings. name: an agent id. has_clock: its readings have their time without a column of it."""

    name: str
    path: Path
    has_clock: bool

    def peek(self, count: int) -> tuple[list[str], list[Cells]]:
        """Names of columns and the first rows as text, None where a row does not speak of a column."""

    def read(self, spec: RecordingSpec, skipped: Skipped | None = None) -> Iterator[Record]:
        """Readings of the spec's inputs, in the file's order; what is left out is counted. Raises RecordingError."""


class Found(NamedTuple):
    """streams: names are unique over all files. reasons: how devices were told apart, where that was chosen."""

    streams: list[Stream]
    reasons: tuple[str, ...]


class _Entry(NamedTuple):
    """A stream to be named. own: what its device is called, "" = as its file is."""

    stream: TableStream
    own: str
    file: int


def streams(paths: Sequence[Path], spec: RecordingSpec | None = None) -> list[Stream]:
    """A stream for each device of each file, with names that are unique over all of them. Raises RecordingError."""
    return find(paths, spec).streams


def find(paths: Sequence[Path], spec: RecordingSpec | None = None, watch: Watch = unwatched) -> Found:
    """The same, and what was chosen for it. watch: is given the rows or messages of each pass that looks for devices."""
    entries: list[_Entry] = []
    reasons: list[str] = []
    told: list[Path] = []
    for index, path in enumerate(paths):
        if is_of_messages(path):
            told.append(path)
            continue
        file = TableFile(path, spec, watch)
        entries += [_Entry(TableStream("", file, device), csv.usable(device), index) for device in file.devices]
        if not file.devices:
            entries.append(_Entry(TableStream("", file), "", index))
        elif spec is None or not spec.devices.column:
            reasons.append(_by_column(file))
    _name(entries, paths)
    found: list[Stream] = [entry.stream for entry in entries]
    if told:
        board = Board(told, spec, watch)
        reasons += _by_topic(board)
        found += board.streams
    for stream, name in zip(found, csv.unique([stream.name for stream in found]), strict=True):
        if stream.name != name:
            stream.name = name
    return Found(found, tuple(reasons))


def is_of_messages(path: Path) -> bool:
    """Whether a file holds messages, each on its topic, not rows. Raises RecordingError where it cannot be opened."""
    return kind_of(path) in OF_MESSAGES


def as_messages(
    path: Path, spec: RecordingSpec | None = None, beside: Sequence[Path] = (), skipped: Skipped | None = None
) -> Iterator[Recorded]:
    """Any file as messages. A table's rows become ``sensors/NAME`` with a JSON object of their fields, as devices send it.

    Without a spec all columns of numbers are fields. Rows of several devices come in the order of their times. beside: files
    that are read together, this one among them: names tell its devices from those of the others. skipped: counts what is left
    out; without it a damaged file of messages raises RecordingError. It is raised always where the file cannot be read, or its
    time not be found.
    """
    if is_of_messages(path):
        yield from read_messages(path, skipped)
        return
    tables = [one for one in beside if one == path or not is_of_messages(one)]
    found = [stream for stream in streams(tables or [path], spec) if stream.path == path]
    if spec is None or spec.time.is_open or not spec.inputs:
        seen = discover(found, None if spec is None else spec.time)
        left = sum(reason.startswith("left out") for reason in seen.reasons)
        if skipped is not None and left:
            skipped.add("columns", left)
        inputs = Wanted(channels=tuple(Channel(name=name) for name in seen.columns))
        spec = RecordingSpec(time=seen.time, wanted=inputs if spec is None or not spec.inputs else spec.wanted)
    names = [item.name for item in spec.inputs]
    merged = heapq.merge(
        *(_numbered(stream, stream.read(spec, skipped)) for stream in found), key=lambda one: one[1].at_ms
    )
    for name, record, sequence in ((name, record, sequence) for (name, sequence), record in merged):
        payload = json.dumps({**fields(record, names), "time": record.at_ms, "seq": sequence}).encode()
        yield Message(f"{TOPIC}{name}", payload, record.at_ms * 1_000_000, record.at_ms * 1_000_000)


def fields(record: Record, names: Sequence[str]) -> Mapping[str, float | None]:
    """What a record speaks of, by name, None where a reading is missing."""
    heard = range(len(names)) if record.heard is None else record.heard
    return {names[k]: None if math.isnan(record.values[k]) else record.values[k] for k in heard}


def _numbered(stream: Stream, records: Iterator[Record]) -> Iterator[tuple[tuple[str, int], Record]]:
    for sequence, record in enumerate(records):
        yield (stream.name, sequence), record


def _name(entries: Sequence[_Entry], paths: Sequence[Path]) -> None:
    """By the file where a file is one device; by the device where it holds several, with the file's name where two do."""
    whole = [entry for entry in entries if not entry.own]
    for entry, name in zip(whole, csv.names([entry.stream.path for entry in whole]), strict=True):
        entry.stream.name = name
    files = csv.names(paths)
    owned = [entry for entry in entries if entry.own]
    for entry in owned:
        is_shared = any(other.own == entry.own and other.file != entry.file for other in owned)
        entry.stream.name = f"{files[entry.file]}-{entry.own}" if is_shared else entry.own


def _by_column(file: TableFile) -> str:
    column = file.header[file.device_column]
    return (
        f"{len(file.devices)} device{'s'[: len(file.devices) > 1]} in {file.path.name}: by its column {column}{', whose values come again and again' if len(file.devices) > 1 else ''}; "
        '[devices] column = "" in a spec takes all rows as one'
    )


def _by_topic(board: Board) -> list[str]:
    names = ", ".join(stream.name for stream in board.streams[:8]) + (", ..." if len(board.streams) > 8 else "")
    return [f"{len(board.streams)} device{'s'[: len(board.streams) > 1]} by their topics: {names}"]
