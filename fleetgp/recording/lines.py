"""Tables as lines of JSON, plain or gzip: one object a row, objects inside flattened with dots, lists with indices.

Columns are the fields of the first rows; a field that comes up only later is not read. A field that a row does not have is
one that it does not speak of; ``null`` is a missing reading.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path

import msgspec

from fleetgp.errors import PeerError, RecordingError
from fleetgp.payloads.json import flattened
from fleetgp.recording.csv import damage, open_text
from fleetgp.recording.table import Skipped
from fleetgp.wire.codec import check_depth

FIRST_ROWS = 1000
MAX_DEPTH = 8
MAX_COLUMNS = 4096


def rows(path: Path, encoding: str = "", skipped: Skipped | None = None) -> Iterator[list[str | None]]:
    """Column names, then rows as text. Lines that are no JSON object are left out and counted.

    Raises RecordingError when the file cannot be opened, is damaged or holds no such line among its first.
    """
    skipped = Skipped() if skipped is None else skipped
    try:
        with open_text(path, encoding) as file:
            objects = _objects(file, skipped)
            first = list(islice(objects, FIRST_ROWS))
            header = list(dict.fromkeys(name for row in first for name in row))
            if not header:
                raise RecordingError(f"{path} holds no line with a JSON object of fields")
            if len(header) > MAX_COLUMNS:
                raise RecordingError(f"{path} has {len(header)} different fields in its first lines: it is no table")
            yield list(header)
            for row in chain(first, objects):
                yield [row.get(name) for name in header]
    except FileNotFoundError:
        raise RecordingError(f"there is no file {path}") from None
    except (OSError, EOFError, UnicodeDecodeError, zlib.error) as err:
        raise RecordingError(f"{path} cannot be read: {damage(err)}") from err


def _objects(file: Iterator[str], skipped: Skipped) -> Iterator[dict[str, str]]:
    for line in file:
        if not line.strip():
            continue
        try:
            payload = line.encode()
            check_depth(payload, MAX_DEPTH)
            document = msgspec.json.decode(payload)
        except (msgspec.DecodeError, PeerError, UnicodeEncodeError, RecursionError):
            document = None
        if isinstance(document, dict):
            yield {name: _text(value) for name, value in flattened(document, "")}
        else:
            skipped.add("bad_line")


def _text(value: object) -> str:
    if value is None:
        return ""
    return str(int(value)) if isinstance(value, bool) else str(value)
