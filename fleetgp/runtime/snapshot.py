"""A program's state on disk, replaced as a whole: after a crash there is the old one or the new one, never a mixture.

File: 8 bytes of magic, then version, CRC-32 of the payload (both uint32) and its length (uint64), little-endian; payload.
"""

from __future__ import annotations

import contextlib
import os
import struct
import zlib
from pathlib import Path

from fleetgp.errors import StorageError

_MAGIC = b"FLEETGP\x01"
_HEADER = struct.Struct("<8sIIQ")
MAX_BYTES = 256_000_000


def save(path: Path, payload: bytes, *, version: int) -> None:
    """Replace the snapshot: write beside, flush to the disk, rename.

    Raises StorageError when the disk refuses (full, read-only); the old snapshot is then still there.
    """
    beside = path.with_name(path.name + ".new")
    header = _HEADER.pack(_MAGIC, version, zlib.crc32(payload), len(payload))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with beside.open("wb") as file:
            file.write(header)
            file.write(payload)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
        sync_folder(path.parent)
    except OSError as err:
        with contextlib.suppress(OSError):
            beside.unlink()
        raise StorageError(f"cannot save {path}: {err.strerror or err}; the last snapshot before it is kept") from err


def load(path: Path, *, version: int) -> bytes | None:
    """The payload of a snapshot, None where there is none.

    Raises StorageError, naming the file, when it is damaged, of another version or cannot be read.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + _HEADER.size + 1)
    except FileNotFoundError:
        return None
    except OSError as err:
        raise StorageError(f"cannot read the snapshot {path}: {err.strerror or err}") from err
    if len(content) < _HEADER.size:
        raise StorageError(f"the snapshot {path} is damaged: only {len(content)} bytes long")
    magic, found, checksum, length = _HEADER.unpack_from(content)
    payload = content[_HEADER.size :]
    if magic != _MAGIC:
        raise StorageError(f"{path} is not a snapshot of FleetGP")
    if len(payload) != length or zlib.crc32(payload) != checksum:
        raise StorageError(f"the snapshot {path} is damaged: its content does not match its checksum")
    if found != version:
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
