"""Recordings that go on in the next file when one is large enough. Each file is whole in itself."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from fleetgp.errors import RecordingError
from fleetgp.recording.mcap import McapWriter
from fleetgp.recording.message import Gap

CLOSING = "went on in the next file"


class Rolling:
    """One recording in one file, or in NAME-0001.mcap, NAME-0002.mcap, ... of about ``rotate_bytes`` each. For one thread.

    Every method raises RecordingError where the disk refuses or a file is there already.
    """

    def __init__(self, path: Path, session: Mapping[str, str], rotate_bytes: int | None) -> None:
        self._path = path
        self._session = dict(session)
        self._rotate_bytes = rotate_bytes
        self._finished_bytes = 0
        self.files: list[Path] = []
        self._writer = self._next()
        self.write = self._writer.write  # as it is: this is called for every message

    @staticmethod
    def check(path: Path, rotate_bytes: int | None) -> None:
        """Raises RecordingError where the first file is there already, before anything is waited for."""
        first = _numbered(path, 1) if rotate_bytes is not None else path
        if first.exists():
            raise RecordingError(f"{first} is there already; a recording is never written over, name another")

    @property
    def bytes_written(self) -> int:
        """Of all files."""
        return self._finished_bytes + self._writer.bytes_written

    @property
    def is_full(self) -> bool:
        """Whether the present file has its size: ``flush`` begins the next one."""
        return self._rotate_bytes is not None and self._writer.bytes_written >= self._rotate_bytes

    def mark_gap(self, gap: Gap) -> None:
        self._writer.mark_gap(gap)

    def flush(self) -> None:
        """Put all that was written into the file; a file that has its size by then is closed and the next one begun."""
        self._writer.flush()
        if self.is_full:
            self._writer.close(closed=CLOSING)
            self._finished_bytes += self._writer.bytes_written
            self._writer = self._next()
            self.write = self._writer.write

    def close(self, **told: str) -> None:
        self._writer.close(**told)

    def _next(self) -> McapWriter:
        number = len(self.files) + 1
        path = _numbered(self._path, number) if self._rotate_bytes is not None else self._path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as err:
            raise RecordingError(f"cannot make the folder {path.parent}: {err.strerror}") from err
        writer = McapWriter(path, {**self._session, "file": str(number)})
        self.files.append(path)
        return writer


def _numbered(path: Path, number: int) -> Path:
    return path.with_name(f"{path.stem}-{number:04}{path.suffix}")


def bytes_of(text: str) -> int:
    """A size such as 100MB, 1.5 GB or 640k. Raises ValueError where it is none, or below 64 kB."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmg]?)b?", text.strip().lower())
    count = float(found[1]) * {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9}[found[2]] if found else 0.0
    if not 64e3 <= count <= 1e15:
        raise ValueError(text)
    return int(count)
