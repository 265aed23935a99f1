"""Recordings that go on in the next file when one is large enough. Each file is whole in itself."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from fleetgp.errors import RecordingError
from fleetgp.recording.mcap import McapWriter
from fleetgp.recording.message import Gap

CLOSING = "went on in the next file"


class Gone(NamedTuple):
    """A file that was moved or removed while it was written. messages: lost with it, 0 where it was only moved.

    first_ns: when the first of them came, UTC epoch ns.
    """

    path: Path
    messages: int
    first_ns: int


class Rolling:
    """One recording in one file, or in NAME-0001.mcap, NAME-0002.mcap, ... of about ``rotate_bytes`` each. For one thread.

    One file, too, is followed by NAME-0002.mcap where it has all the topics that a file can hold, or was taken away.
    messages_gone: in files that were removed. Every method raises RecordingError where the disk refuses.
    """

    def __init__(self, path: Path, session: Mapping[str, str], rotate_bytes: int | None) -> None:
        self._path = path
        self._session = dict(session)
        self._rotate_bytes = rotate_bytes
        self._finished_bytes = 0
        self._number = 0
        self.files: list[Path] = []
        self.messages_gone = 0
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
    def unwritten(self) -> int:
        """Messages and gaps that the present file does not hold yet, or never will where the disk refuses."""
        return self._writer.unwritten

    @property
    def is_full(self) -> bool:
        """Whether the present file has its size or its topics: ``flush`` begins the next one."""
        is_large = self._rotate_bytes is not None and self._writer.bytes_written >= self._rotate_bytes
        return is_large or not self._writer.is_roomy

    def mark_gap(self, gap: Gap) -> None:
        self._writer.mark_gap(gap)

    def flush(self) -> Gone | None:
        """Put all that was written into the file; one that is full by then, or gone, is closed and the next one begun.

        What is gone is told.
        """
        self._writer.flush()
        gone = self._look_after()
        if gone is not None or self.is_full:
            self._writer.close(closed=CLOSING)
            self._finished_bytes += self._writer.bytes_written
            self._writer = self._next()
            self.write = self._writer.write
        return gone

    def close(self, **told: str) -> None:
        """Also raises RecordingError where the last file was removed: its messages are lost."""
        gone = self._look_after()
        self._writer.close(**told)
        if gone is not None and gone.messages:
            raise RecordingError(
                f"{gone.path} was removed while it was written, and {gone.messages:,} messages with it"
            )

    def _look_after(self) -> Gone | None:
        links = self._writer.links
        if links is None:
            return None
        gone = Gone(self._writer.path, 0 if links else self._writer.digest.messages, self._writer.first_ns)
        self.messages_gone += gone.messages
        self.files.remove(gone.path)
        return gone

    def _next(self) -> McapWriter:
        self._number += 1
        path = self._path if self._rotate_bytes is None and self._number == 1 else _numbered(self._path, self._number)
        while self._number > 1 and path.exists():  # of an earlier recording: no reason to end this one
            self._number += 1
            path = _numbered(self._path, self._number)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as err:
            raise RecordingError(f"cannot make the folder {path.parent}: {err.strerror}") from err
        writer = McapWriter(path, {**self._session, "file": str(self._number)})
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
