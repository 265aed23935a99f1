"""CSV recordings, plain or gzip: one row a time, one column an input.

Columns are separated by commas; or by semicolons, as spreadsheets do where numbers have decimal commas: those are read then.
Text is UTF-8, or UTF-16 where a byte order mark says so, or what a spec names.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import re
import zlib
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import IO, cast

from fleetgp.errors import RecordingError
from fleetgp.recording import table
from fleetgp.recording.spec import RecordingSpec
from fleetgp.recording.table import Record, Skipped

__all__ = ["Record", "Skipped", "names", "peek", "read", "rows"]

DECIMAL_COMMA = re.compile(r"\s*[+-]?\d*,\d+([eE][+-]?\d+)?\s*")
DAMAGED = (OSError, EOFError, UnicodeDecodeError, csv.Error, zlib.error)
GZIP = b"\x1f\x8b"
LONGEST = 56
FALLBACK = "agent"
ENDINGS = (".gz", ".csv", ".parquet", ".jsonl", ".ndjson", ".json", ".mcap", ".log", ".tsv", ".txt")


def read(path: Path, spec: RecordingSpec, skipped: Skipped | None = None) -> Iterator[Record]:
    """Rows of a file in its own order.

    Raises RecordingError when the file cannot be opened, is damaged, is empty, lacks a column that the spec names, or holds
    rows of which none has a time that can be read.
    """
    return table.read(path, rows(path, spec.encoding), spec, Skipped() if skipped is None else skipped)


def peek(path: Path, count: int, encoding: str = "") -> tuple[list[str], list[list[str]]]:
    """Column names and the first rows of a file as text. Raises RecordingError as ``read`` does."""
    found = rows(path, encoding)
    header = next(found)
    return header, [row for row in islice(found, count) if row]


def rows(path: Path, encoding: str = "") -> Iterator[list[str]]:
    """Column names, then rows as text. Raises RecordingError as ``read`` does. encoding: "" = told by the file, or UTF-8."""
    try:
        with open_text(path, encoding) as file:
            found = _table(file)
            yield _header(path, found)
            yield from found
    except FileNotFoundError:
        raise RecordingError(f"there is no file {path}") from None
    except DAMAGED as err:
        raise RecordingError(f"{path} cannot be read: {damage(err)}") from err


def damage(err: Exception) -> str:
    """What is wrong with a text file, in plain words."""
    if isinstance(err, UnicodeDecodeError):
        name = err.encoding.upper()
        if name != "UTF-8":
            return f"it is not {name} text ({err.reason})"
        return (
            f"it is not UTF-8 text (byte {err.object[err.start]:#x}); save it as CSV UTF-8, or say in a spec (--spec) what it "
            'is: [file] encoding = "cp1252" (Windows, Western Europe) or "latin-1"'
        )
    return f"{err}; its name says gzip" if isinstance(err, gzip.BadGzipFile) else str(err)


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
    if header[0].startswith(("[", "{")):
        raise RecordingError(f"{path} is one JSON document; write a line for each row, with one object of its fields")
    if len(header) == 1 and (other := next((sign for sign in "\t|" if sign in header[0]), "")):
        raise RecordingError(f"{path} is separated by {other!r}, not by commas; write it with commas or semicolons")
    return header


def names(paths: Sequence[Path]) -> list[str]:
    """An agent id for each file: the parts of its name that tell it from the others.

    ``PRSA_Data_Tiantan_2013.csv.gz`` beside ``PRSA_Data_Wanliu_2013.csv.gz`` is ``Tiantan``. Files of one name in several
    folders have their folder's name before it.
    """
    found = telling([_stem(path) for path in paths])
    if len(set(found)) < len(found):
        folders = telling([path.parent.name for path in paths])
        found = [
            f"{folder}-{name}" if found.count(name) > 1 and folder != FALLBACK else name
            for folder, name in zip(folders, found, strict=True)
        ]
    return unique(found)


def telling(names: Sequence[str]) -> list[str]:
    """Of each name the parts between underscores that not all have, as an id; the whole name where it has no other."""
    parts = [name.replace(".", "_").split("_") for name in names]
    common = set(parts[0]).intersection(*parts[1:]) if len(parts) > 1 else set()
    return [usable("_".join(part for part in one if part not in common) or "_".join(one)) for one in parts]


def usable(text: str) -> str:
    """An id made of any text."""
    return "".join(c if c.isascii() and (c.isalnum() or c in "_-") else "-" for c in text)[:LONGEST] or FALLBACK


def unique(ids: Sequence[str]) -> list[str]:
    """The ids, numbered where one stands twice."""
    result: dict[str, None] = {}
    for base in ids:
        name, number = base[:LONGEST], 1
        while name in result:
            number += 1
            name = f"{base[:LONGEST]}-{number}"
        result[name] = None
    return list(result)


def _stem(path: Path) -> str:
    name = path.name
    for ending in ENDINGS:
        name = name.removesuffix(ending)
    return name


def open_text(path: Path, encoding: str = "") -> IO[str]:
    """A text file, plain or gzip. A byte order mark is no part of the text; it says UTF-16 where nobody said otherwise."""
    with path.open("rb") as file:
        is_gzip = path.suffix == ".gz" or file.read(2) == GZIP
    binary = cast(IO[bytes], gzip.GzipFile(path) if is_gzip else path.open("rb"))
    try:
        encoding = encoding or _marked(binary)
    except BaseException:
        binary.close()
        raise
    return io.TextIOWrapper(binary, encoding=encoding, newline="")


def _marked(binary: IO[bytes]) -> str:
    start = binary.read(2)
    binary.seek(0)
    return "utf-16" if start in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) else "utf-8-sig"
