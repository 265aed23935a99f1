"""A program's state on disk, replaced as a whole: after a crash there is the old one or the new one, never a mixture.

File: 8 bytes of magic, then version, CRC-32 of the payload (both uint32) and its length (uint64), little-endian; payload.
"""

from __future__ import annotations

import contextlib
import os
import struct
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

from fleetgp.errors import StorageError

_MAGIC = b"FLEETGP\x01"
_HEADER = struct.Struct("<8sIIQ")
MAX_BYTES = 256_000_000


def save(path: Path, parts: Iterable[bytes | memoryview], *, version: int) -> int:
    """Replace the snapshot: write beside, flush to the disk, rename. Returns the bytes written.

    parts: the payload, each taken from memory to the disk before the next is asked for.
    Raises StorageError when the disk refuses (full, read-only); the old snapshot is then still there.
    """
    beside = path.with_name(path.name + ".new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with beside.open("wb") as file:
            length = _write(file, parts, version)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
        sync_folder(path.parent)
    except OSError as err:
        with contextlib.suppress(OSError):
            beside.unlink()
        raise StorageError(f"cannot save {path}: {err.strerror or err}; the last snapshot before it is kept") from err
    return _HEADER.size + length


def _write(file: BinaryIO, parts: Iterable[bytes | memoryview], version: int) -> int:
    """Header and payload; the payload's length. What the header tells of the payload is known only after it."""
    file.seek(_HEADER.size)
    checksum, length = 0, 0
    for part in parts:
        checksum = zlib.crc32(part, checksum)
        length += len(part)
        file.write(part)
    file.seek(0)
    file.write(_HEADER.pack(_MAGIC, version, checksum, length))
    return length


def load(path: Path, *, version: int, older: tuple[int, ...] = ()) -> bytes | None:
    """The payload of a snapshot, None where there is none. older: versions before this one that are read all the same.

    Raises StorageError, naming the file, when it is damaged, of another version or cannot be read.
    """
    try:
        with path.open("rb") as file:
            header, payload = file.read(_HEADER.size), file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as err:
        raise StorageError(f"cannot read the snapshot {path}: {err.strerror or err}") from err
    if len(header) < _HEADER.size:
        raise StorageError(f"the snapshot {path} is damaged: only {len(header)} bytes long")
    magic, found, checksum, length = _HEADER.unpack(header)
    if magic != _MAGIC:
        raise StorageError(f"{path} is not a snapshot of FleetGP")
    if len(payload) != length or zlib.crc32(payload) != checksum:
        raise StorageError(f"the snapshot {path} is damaged: its content does not match its checksum")
    if found not in (version, *older):
        raise StorageError(f"the snapshot {path} is of version {found}; this program reads version {version}")
    return payload


def set_aside(path: Path, word: str = "damaged") -> Path:
    """Rename a file that cannot be used to ``<name>.<word>`` (replacing an earlier one) and return its new place.

    Raises StorageError when the disk refuses.
    """
    aside = path.with_name(f"{path.name}.{word}")
    try:
        path.replace(aside)
    except OSError as err:
        raise StorageError(f"cannot rename {path} to {aside.name}: {err.strerror or err}") from err
    return aside


def sync_folder(folder: Path) -> None:
    """Make renames in a folder survive a power cut, where the file system can. Raises OSError when it fails."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
