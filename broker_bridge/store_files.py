"""Rows of a store written as CSV, JSONL (plain or gzip) or Parquet, a piece at a time, as ``backtest`` reads them.

The first columns are ``time`` (UTC, to the millisecond) and ``device``, then the channels. A file gets its name when it is whole.
"""

from __future__ import annotations

import csv
import gzip
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Literal, cast

from fleetgp.errors import StorageError
from fleetgp.store.sqlite_export import RawRow

if TYPE_CHECKING:
    from collections.abc import Iterable

Form = Literal["csv", "jsonl", "parquet"]

ENDINGS: dict[str, tuple[Form, bool]] = {
    ".csv": ("csv", False),
    ".csv.gz": ("csv", True),
    ".jsonl": ("jsonl", False),
    ".jsonl.gz": ("jsonl", True),
    ".parquet": ("parquet", False),
}
ROWS_A_PIECE = 20_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def form_of(path: Path) -> tuple[Form, bool]:
    """What a file's ending asks for, and whether gzipped. Raises StorageError for another ending."""
    for ending, form in ENDINGS.items():
        if path.name.endswith(ending) and path.name != ending:
            return form
    raise StorageError(f"{path}: the name of an export must end in one of {', '.join(ENDINGS)}")


def write(path: Path, columns: Sequence[str], rows: Iterable[RawRow], is_whole: bool = False) -> int:
    """Write rows to a new file and return how many. columns: names of the rows' values.

    is_whole: also ``received`` and ``sequence`` of each row. Raises StorageError when the file is there already or cannot be
    written; then nothing is left of it.
    """
    form, is_gzip = form_of(path)
    if path.exists():
        raise StorageError(f"{path} is there already: choose another name, or move it away")
    part = path.with_name(f"{path.name}.part")
    try:
        if form == "parquet":
            count = _write_parquet(part, columns, iter(rows), is_whole)
        else:
            with _text(part, is_gzip) as file:
                count = (_write_csv if form == "csv" else _write_jsonl)(file, columns, rows, is_whole)
        os.replace(part, path)
    except OSError as err:
        raise StorageError(f"cannot write {path}: {err.strerror or err}") from err
    finally:
        part.unlink(missing_ok=True)
    return count


@contextmanager
def _text(path: Path, is_gzip: bool) -> Iterator[IO[str]]:
    if is_gzip:
        with gzip.open(path, "wt", encoding="utf-8", newline="", compresslevel=6) as file:
            yield cast(IO[str], file)
    else:
        with path.open("w", encoding="utf-8", newline="") as file:
            yield file


def time_text(at_ms: int) -> str:
    """``2026-03-04T09:15:31.250Z``."""
    return (_EPOCH + timedelta(milliseconds=at_ms)).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _write_csv(file: IO[str], columns: Sequence[str], rows: Iterable[RawRow], is_whole: bool) -> int:
    writer, count = csv.writer(file, lineterminator="\n"), 0
    writer.writerow(["time", "device", *(["received", "sequence"] if is_whole else []), *_distinct(columns)])
    for row in rows:
        more = [time_text(row.received_ms), row.sequence] if is_whole else []
        writer.writerow([time_text(row.at_ms), row.series, *more, *row.values])
        count += 1
    return count


def _write_jsonl(file: IO[str], columns: Sequence[str], rows: Iterable[RawRow], is_whole: bool) -> int:
    names, count = _distinct(columns), 0
    for row in rows:
        line: dict[str, object] = {"time": time_text(row.at_ms), "device": row.series}
        if is_whole:
            line["received"] = time_text(row.received_ms)
            if row.sequence is not None:
                line["sequence"] = row.sequence
        line.update((name, value) for name, value in zip(names, row.values, strict=True) if value is not None)
        file.write(json.dumps(line, ensure_ascii=False) + "\n")
        count += 1
    return count


def _write_parquet(path: Path, columns: Sequence[str], rows: Iterator[RawRow], is_whole: bool) -> int:
    import pyarrow
    from pyarrow import parquet

    moment = pyarrow.timestamp("ms", tz="UTC")
    fields = [("time", moment), ("device", pyarrow.string())]
    fields += [("received", moment), ("sequence", pyarrow.int64())] if is_whole else []
    schema = pyarrow.schema([*fields, *((name, pyarrow.float64()) for name in _distinct(columns))])
    count = 0
    with parquet.ParquetWriter(path, schema, compression="zstd") as writer:
        while piece := list(islice(rows, ROWS_A_PIECE)):
            table = [[row.at_ms for row in piece], [row.series for row in piece]]
            if is_whole:
                table += [[row.received_ms for row in piece], [row.sequence for row in piece]]
            values = zip(*(row.values for row in piece), strict=True)
            cells = [pyarrow.array(cells, field.type) for cells, field in zip([*table, *values], schema, strict=True)]
            writer.write_batch(pyarrow.record_batch(cells, schema=schema))
            count += len(piece)
    return count


def _distinct(columns: Sequence[str]) -> list[str]:
    """Column names beside ours: a channel called ``time`` is ``time (channel)``."""
    ours = {"time", "device", "received", "sequence"}
    return [f"{name} (channel)" if name in ours else name for name in columns]
