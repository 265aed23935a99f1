"""Lines of text files, plain or gzip, UTF-8 or marked as UTF-16, as bytes; and where a reader counts what it leaves out."""

from __future__ import annotations

import codecs
import gzip
import zlib
from collections.abc import Iterator, MutableMapping
from pathlib import Path
from typing import IO, cast

from fleetgp.errors import RecordingError

GZIP = b"\x1f\x8b"
HEAD = 65_536  # bytes that a file's form is told from
MAX_LINE = 16 << 20  # bytes


class Faults:
    """What a reader does with what it cannot read: counts it by reason, or raises where nobody wants the counts."""

    def __init__(self, path: Path, skipped: MutableMapping[str, int] | None) -> None:
        self._path = path
        self._skipped = skipped

    def add(self, reason: str, detail: str, count: int = 1) -> None:
        """reason: a short word for counters; detail: where and what. Raises RecordingError where nobody counts."""
        if self._skipped is None:
            raise RecordingError(
                f"{self._path} is damaged: {detail}; fleetgp recordings recover saves what can be read"
            )
        self._skipped[reason] = self._skipped.get(reason, 0) + count

    def tell(self, reason: str, count: int = 1) -> None:
        """Count what is no damage but should be known."""
        if self._skipped is not None:
            self._skipped[reason] = self._skipped.get(reason, 0) + count


def lines(path: Path, faults: Faults) -> Iterator[tuple[int, bytes]]:
    """Number and content of each line, its end included where it has one.

    Raises RecordingError where the file cannot be read. A cut gzip file is counted as ``cut``, a line of more than MAX_LINE
    bytes as ``long_line``.
    """
    try:
        with open_bytes(path) as file:
            yield from _lines(file, faults)
    except FileNotFoundError:
        raise RecordingError(f"there is no file {path}") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as err:
        faults.add("cut", f"its compressed data end too soon or are wrong ({err})")
    except OSError as err:
        raise RecordingError(f"{path} cannot be read: {err.strerror or err}") from err


def _lines(file: IO[bytes], faults: Faults) -> Iterator[tuple[int, bytes]]:
    number = 0
    while line := file.readline(MAX_LINE):
        number += 1
        if number == 1:
            line = line.removeprefix(codecs.BOM_UTF8)
        if len(line) < MAX_LINE or line.endswith(b"\n"):
            yield number, line
            continue
        faults.add("long_line", f"line {number} has more than {MAX_LINE:,} bytes")
        while (rest := file.readline(MAX_LINE)) and not rest.endswith(b"\n"):
            pass


def head(path: Path) -> list[bytes]:
    """The lines within the first HEAD bytes of a file, each with its end where it has one.

    Raises RecordingError where the file cannot be read. A file that is damaged already there gives what stands before.
    """
    whole: list[bytes] = []
    size = 0
    try:
        with open_bytes(path) as file:
            while size < HEAD and (line := file.readline(HEAD - size)):
                size += len(line)
                whole.append(line)
    except FileNotFoundError:
        raise RecordingError(f"there is no file {path}") from None
    except (EOFError, zlib.error, gzip.BadGzipFile):
        pass
    except OSError as err:
        raise RecordingError(f"{path} cannot be read: {err.strerror or err}") from err
    if whole:
        whole[0] = whole[0].removeprefix(codecs.BOM_UTF8)
    return whole[:-1] if size == HEAD and len(whole) > 1 else whole


def open_bytes(path: Path) -> IO[bytes]:
    """The file's content: unpacked where its first bytes say gzip, as UTF-8 where they then say UTF-16."""
    content = _unpacked(path)
    try:
        start = content.read(2)
        content.seek(0)
    except BaseException:
        content.close()
        raise
    if start not in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        return content
    return cast(IO[bytes], codecs.EncodedFile(content, "utf-8", "utf-16", errors="replace"))


def _unpacked(path: Path) -> IO[bytes]:
    with path.open("rb") as file:
        start = file.read(2)
    return cast(IO[bytes], gzip.open(path, "rb")) if start == GZIP else path.open("rb")
