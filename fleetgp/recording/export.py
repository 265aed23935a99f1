"""Readings of a recording as a table, CSV or Parquet: a row a message, with its time, its device and its fields.

Time is the payload's own, else when the message was received; the device is the topic, or the level above it where the
payload is one value, which then is the field that the last level names. Retained messages and the fleet's own topics are no
readings: they are left out and counted, and so is what cannot be read.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, NamedTuple, cast

from fleetgp import payloads
from fleetgp.errors import PeerError, RecordingError
from fleetgp.payloads.plain import FIELD
from fleetgp.recording.message import Gap, Recorded
from fleetgp.wire.topics import ROOT

OURS = "sensors/"  # where ``fleetgp devices`` publishes: what follows is the device
MAX_FIELDS = 4096
ROW_GROUP = 65_536  # rows that a Parquet file is written and read by


class Reading(NamedTuple):
    """A row. at_ms: UTC epoch ms; values: None = said to be missing."""

    at_ms: int
    device: str
    values: Mapping[str, float | None]


def readings(recorded: Iterable[Recorded], left_out: MutableMapping[str, int]) -> Iterator[Reading]:
    """What messages tell in numbers. left_out: counts messages that are no readings, by reason, and under ``field_...``
    fields of the others."""
    for message in recorded:
        if isinstance(message, Gap):
            continue
        reason = "retained" if message.is_retained else "fleet" if message.topic.startswith(f"{ROOT}/") else ""
        content = None
        if not reason:
            try:
                content = payloads.read(message.payload)
            except PeerError as err:
                reason = err.code
        if content is None:
            left_out[reason] = left_out.get(reason, 0) + 1
            continue
        for code, count in content.rejected.items():
            left_out[f"field_{code}"] = left_out.get(f"field_{code}", 0) + count
        at_ms = message.received_ns // 1_000_000 if content.at_ms is None else content.at_ms
        topic = message.topic.removeprefix(OURS)
        device, _, name = topic.rpartition("/")
        if content.values.keys() == {FIELD} and content.at_ms is None and device:
            yield Reading(at_ms, device, {name: content.values[FIELD]})
        elif content.values:
            yield Reading(at_ms, topic, content.values)


def fields(rows: Iterable[Reading]) -> list[str]:
    """Names of all fields, in the order in which they come up. Raises RecordingError where they are too many for a table."""
    names: dict[str, None] = {}
    for row in rows:
        names.update(dict.fromkeys(row.values))
        if len(names) > MAX_FIELDS:
            raise RecordingError(
                f"more than {MAX_FIELDS:,} fields are too many for a table; choose topics with --topic"
            )
    return list(names)


def write_csv(path: Path, rows: Iterable[Reading], names: list[str]) -> int:
    """Columns time (ISO 8601, UTC), device, then the fields; gzip where the path ends in ``.gz``. How many rows there are."""
    count = 0
    with _create(path) as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["time", "device", *names])
        for at_ms, device, values in rows:
            count += 1
            writer.writerow([_iso(at_ms), device, *(_cell(values.get(name)) for name in names)])
    return count


def write_parquet(path: Path, rows: Iterable[Reading], names: list[str]) -> int:
    """The same columns: a timestamp in ms, UTC; text; doubles, null where there is none. Written by row groups."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema(
        [("time", pa.timestamp("ms", tz="UTC")), ("device", pa.string()), *((name, pa.float64()) for name in names)]
    )
    count = 0
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for group in _groups(rows):
            count += len(group)
            columns = [
                pa.array([row.at_ms for row in group], schema.field(0).type),
                pa.array([row.device for row in group], pa.string()),
                *(pa.array([row.values.get(name) for row in group], pa.float64()) for name in names),
            ]
            writer.write_table(pa.table(columns, schema=schema))
    return count


def _groups(rows: Iterable[Reading]) -> Iterator[list[Reading]]:
    group: list[Reading] = []
    for row in rows:
        group.append(row)
        if len(group) == ROW_GROUP:
            yield group
            group = []
    if group:
        yield group


@contextmanager
def _create(path: Path) -> Iterator[IO[str]]:
    try:
        if path.suffix == ".gz":
            with cast(IO[str], gzip.open(path, "xt", encoding="utf-8", newline="")) as file:
                yield file
        else:
            with path.open("x", encoding="utf-8", newline="") as file:
                yield file
    except FileExistsError:
        raise RecordingError(f"{path} is there already; name another") from None


def _iso(at_ms: int) -> str:
    seconds, rest = divmod(at_ms, 1000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest:03}Z"


def _cell(value: float | None) -> str:
    """The shortest text that is this double, whole numbers without a point; empty where there is none."""
    return "" if value is None else repr(value).removesuffix(".0")
