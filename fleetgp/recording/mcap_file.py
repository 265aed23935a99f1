"""Walks an MCAP file record by record, or from a damaged place on to the next chunk."""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NamedTuple

from mcap.opcode import Opcode

from fleetgp.errors import RecordingError
from fleetgp.recording.mcap_layout import MAGIC

MAX_RECORD = 256 << 20  # bytes; longer ones (attachments of other programs) are passed over unread
BLOCK = 1 << 20
_HEAD = struct.Struct("<BQ")  # opcode, length of what follows
_CHUNK_HEAD = struct.Struct(
    "<BQQQQI8sQ"
)  # of a zstd chunk: ..., times, size, CRC, name of the compression, length of the data
_ZSTD = b"\x04\x00\x00\x00zstd"
_ZSTD_AT = 37  # where that stands in a chunk record
_OPCODES = range(Opcode.HEADER, Opcode.DATA_END + 1)


class Damaged(ValueError):
    """A record is not as the specification says; why, in plain words."""


class Record(NamedTuple):
    """offset: of the record in the file; body: what follows its head, b"" where it was too long to be read; crc_before:
    CRC-32 of what stands before it."""

    offset: int
    opcode: int
    body: bytes
    crc_before: int


class RecordFile:
    """An open file. position: of the next record; crc: CRC-32 of all before it, as long as nothing was left out."""

    def __init__(self, file: IO[bytes], size: int) -> None:
        self._file = file
        self.size = size
        self.position = 0
        self.crc = 0

    @classmethod
    @contextmanager
    def open(cls, path: Path) -> Iterator[RecordFile]:
        """Raises RecordingError where the file cannot be opened or read, or is empty."""
        try:
            with path.open("rb", buffering=BLOCK) as file:
                size = os.fstat(file.fileno()).st_size
                if size == 0:
                    raise RecordingError(f"{path} is empty: nothing was recorded into it")
                yield cls(file, size)
        except FileNotFoundError:
            raise RecordingError(f"there is no file {path}") from None
        except OSError as err:
            raise RecordingError(f"{path} cannot be read: {err.strerror or err}") from err

    def read_magic(self) -> None:
        """Take the eight bytes that MCAP files begin and end with. Raises Damaged where they are others."""
        data = self._file.read(len(MAGIC))
        if data != MAGIC:
            self._file.seek(self.position)
            raise Damaged("the mark of MCAP files is missing or damaged")
        self._advance(data)

    def move_to(self, offset: int) -> None:
        """Go on with the record there. The CRC is of no use from now on."""
        self.position = offset
        self._file.seek(offset)

    def next_record(self) -> Record | None:
        """The record at the position, which moves behind it; None at the end. Raises Damaged, the position unmoved."""
        start = self.position
        if start == self.size:
            return None
        opcode, length = self._head()
        crc_before = self.crc
        head = self._file.read(_HEAD.size)
        self._advance(head)
        if length > MAX_RECORD and opcode != Opcode.CHUNK:
            self._pass_over(length)
            return Record(start, opcode, b"", crc_before)
        if length > MAX_RECORD:
            self.position, self.crc = start, crc_before
            self._file.seek(start)
            raise Damaged(f"a chunk of {length:,} bytes")
        body = self._file.read(length)
        self._advance(body)
        return Record(start, opcode, body, crc_before)

    def seems_in_step(self) -> bool:
        """Whether what stands at the position looks like a record, or the file ends there."""
        if self.position == self.size:
            return True
        try:
            self._head()
        except Damaged:
            return False
        return True

    def find_chunk(self, start: int) -> None:
        """Move to the first chunk from start on, or to the end of the file."""
        self.position = min(start, self.size)
        kept = b""
        self._file.seek(self.position)
        base = self.position  # where kept begins
        while block := self._file.read(BLOCK):
            window = kept + block
            at = window.find(_ZSTD)
            while at >= 0:
                if at >= _ZSTD_AT and self._is_chunk(base + at - _ZSTD_AT):
                    self.position = base + at - _ZSTD_AT
                    self._file.seek(self.position)
                    return
                at = window.find(_ZSTD, at + 1)
            kept = window[-(_ZSTD_AT + len(_ZSTD)) :]
            base += len(window) - len(kept)
            self._file.seek(base + len(kept))
        self.position = self.size

    def _is_chunk(self, offset: int) -> bool:
        self._file.seek(offset)
        head = self._file.read(_CHUNK_HEAD.size)
        if len(head) < _CHUNK_HEAD.size:
            return False
        opcode: int
        length: int
        data_length: int
        opcode, length, *_, data_length = _CHUNK_HEAD.unpack(head)
        is_one = opcode == Opcode.CHUNK and length == data_length + _CHUNK_HEAD.size - _HEAD.size
        return is_one and offset + _HEAD.size + length <= self.size

    def _head(self) -> tuple[int, int]:
        """Opcode and length at the position. Raises Damaged where there is no record."""
        head = self._file.read(_HEAD.size)
        self._file.seek(self.position)
        if len(head) < _HEAD.size:
            raise Damaged("it ends within a record")
        opcode, length = _HEAD.unpack(head)
        left = self.size - self.position - _HEAD.size
        if opcode not in _OPCODES and opcode < 0x80:  # from 0x80 on they are private, to be passed over
            raise Damaged(f"a record of an unknown kind ({opcode:#04x})")
        if length > left:
            raise Damaged(f"a record of {length:,} bytes where {left:,} are left")
        return opcode, length

    def _advance(self, data: bytes) -> None:
        self.position += len(data)
        self.crc = zlib.crc32(data, self.crc)

    def _pass_over(self, length: int) -> None:
        while length and (block := self._file.read(min(length, BLOCK))):
            self._advance(block)
            length -= len(block)
