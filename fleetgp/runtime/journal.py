"""What happened since the last snapshot: an append-only file of records that survives kill -9 at any byte.

File: 8 bytes of magic, then records of length and CRC-32 (both uint32, little-endian) and payload. Every append is one
write to the operating system, so a killed process loses nothing; a power cut may lose the last seconds (no fsync per record).
A tail that does not check out is cut off when the journal is opened, and counted.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

from fleetgp.errors import StorageError

_MAGIC = b"FGPJRNL\x01"
_RECORD = struct.Struct("<II")
MAX_RECORD_BYTES = 16_000_000


class Journal:
    """One journal file, opened and mended. One process writes it (hold the folder's lock).

    torn_bytes: how much of a damaged tail was cut off at opening. size_bytes: length of the file now.
    Raises StorageError when the file cannot be opened or is something else.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.torn_bytes = 0
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as err:
            raise self._refusal("open", err) from err
        try:
            self._end = self._mend()
        except BaseException:
            os.close(self._descriptor)
            raise

    @property
    def size_bytes(self) -> int:
        return self._end

    def append(self, payload: bytes) -> None:
        """Add one record.

        Raises StorageError when the disk refuses: the record is then not in the journal, what was there before is. Raises
        ValueError on more than MAX_RECORD_BYTES.
        """
        if len(payload) > MAX_RECORD_BYTES:
            raise ValueError(f"a record of {len(payload)} bytes; a journal takes at most {MAX_RECORD_BYTES}")
        record = _RECORD.pack(len(payload), zlib.crc32(payload)) + payload
        try:
            self._write(record, self._end)
        except OSError as err:
            self._truncate(self._end)
            raise self._refusal("write to", err) from err
        self._end += len(record)

    def read(self) -> Iterator[bytes]:
        """All records, oldest first; one at a time in memory. Raises StorageError when the file cannot be read."""
        position = len(_MAGIC)
        while (found := self._record_at(position)) is not None:
            yield found
            position += _RECORD.size + len(found)

    def reset(self) -> None:
        """Forget all records: call it when a snapshot that holds them is safe on the disk.

        A crash between the two leaves records that the snapshot already holds: whoever replays them must know records it
        has seen, for instance by a sequence number. Raises StorageError when the disk refuses.
        """
        try:
            os.ftruncate(self._descriptor, len(_MAGIC))
        except OSError as err:
            raise self._refusal("shorten", err) from err
        self._end = len(_MAGIC)

    def close(self) -> None:
        """Flush to the disk and close. May be called twice."""
        if self._descriptor < 0:
            return
        try:
            os.fsync(self._descriptor)
        except OSError as err:
            raise self._refusal("flush", err) from err
        finally:
            os.close(self._descriptor)
            self._descriptor = -1

    def _mend(self) -> int:
        """Cut off what does not check out; return the length of what is left."""
        size = os.fstat(self._descriptor).st_size
        start = os.pread(self._descriptor, len(_MAGIC), 0)
        if start != _MAGIC[: len(start)]:
            raise StorageError(f"{self._path} is not a journal of FleetGP; move it away or choose another data.dir")
        end = len(_MAGIC)
        self._end = size
        if size < end:
            self.torn_bytes = size
            try:
                self._write(_MAGIC, 0)
            except OSError as err:
                raise self._refusal("write to", err) from err
            return end
        while (payload := self._record_at(end)) is not None:
            end += _RECORD.size + len(payload)
        if end < size:
            self.torn_bytes = size - end
            self._truncate(end)
        return end

    def _record_at(self, position: int) -> bytes | None:
        """Payload of the record that starts here, None where no whole and sound record does."""
        try:
            head = os.pread(self._descriptor, _RECORD.size, position)
            if len(head) < _RECORD.size:
                return None
            length, checksum = _RECORD.unpack(head)
            if length > MAX_RECORD_BYTES or position + _RECORD.size + length > self._end:
                return None
            payload = os.pread(self._descriptor, length, position + _RECORD.size)
        except OSError as err:
            raise self._refusal("read", err) from err
        return payload if len(payload) == length and zlib.crc32(payload) == checksum else None

    def _write(self, content: bytes, position: int) -> None:
        view = memoryview(content)
        while view:
            written = os.pwrite(self._descriptor, view, position)
            view, position = view[written:], position + written

    def _truncate(self, size: int) -> None:
        try:
            os.ftruncate(self._descriptor, size)
        except OSError as err:
            raise self._refusal("shorten", err) from err

    def _refusal(self, action: str, err: OSError) -> StorageError:
        return StorageError(f"cannot {action} the journal {self._path}: {err.strerror or err}")
