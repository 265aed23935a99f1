"""Writes recordings of messages as MCAP: a channel for each topic, QoS, retained flag and content type.

The records are those of the MCAP specification (https://mcap.dev/spec) and of the ``mcap`` library; the chunks are put
together here, for three reasons: every chunk repeats the channels it uses, so that it can be read when those before it are
damaged; a finished chunk is in the file, not in a buffer, when ``write`` returns; and a message costs half the time.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

import msgspec
import zstandard
from mcap.data_stream import RecordBuilder
from mcap.opcode import Opcode
from mcap.records import (
    Channel,
    Chunk,
    ChunkIndex,
    DataEnd,
    Footer,
    Header,
    McapRecord,
    Metadata,
    MetadataIndex,
    Statistics,
    SummaryOffset,
)

from fleetgp import __version__
from fleetgp.errors import RecordingError
from fleetgp.recording.digest import Digest
from fleetgp.recording.mcap_layout import (
    CHUNK_BYTES,
    END,
    GAP_TOPIC,
    HOLDS,
    MAGIC,
    MAX_CHANNELS,
    MESSAGE,
    PROFILE,
    SESSION,
)
from fleetgp.recording.message import Gap, Message

_Key = tuple[str, int, bool, str, bool]  # topic, QoS, retained, content type, whether its messages have a sender's time
_GAP_KEY: _Key = (GAP_TOPIC, -1, False, "", True)  # no message has such a QoS
_LARGEST_TIME = 2**63
ROOM = 4096  # channels that a file which goes on in another one leaves free
_MESSAGE_OPCODE = int(Opcode.MESSAGE)  # looked up once, not for each message


class McapWriter:
    """One recording while it is written. For one thread.

    ``kill -9`` leaves every finished chunk: at most the last 64 KB of messages, or what came since ``flush``, are lost.
    A published_ns before 1970 is kept as 0 (none). Every method raises RecordingError where the disk refuses.
    """

    def __init__(self, path: Path, session: Mapping[str, str]) -> None:
        """session: what is known at the start, by name. Raises RecordingError where the file exists or cannot be made."""
        self.path = path
        self.digest = Digest()
        self._file = _File(path)
        self._channels: dict[_Key, tuple[int, bytes]] = {}
        self._counts: dict[int, int] = {}
        self._compressor = zstandard.ZstdCompressor(level=3)
        self._sequence = 0
        self._chunk_indices: list[bytes] = []  # as records: objects would take ten times the memory
        self._metadata_indices: list[bytes] = []
        self._first_ns, self._last_ns = _LARGEST_TIME, 0
        self._is_closed = False
        self._begin_chunk()
        self._file.append(MAGIC + _bytes_of(Header(PROFILE, f"fleetgp {__version__}")))
        self._add_metadata(SESSION, {"program": f"fleetgp {__version__}", **session})

    @property
    def bytes_written(self) -> int:
        """Size of the file now; the chunk that is still open is not in it."""
        return self._file.size

    @property
    def first_ns(self) -> int:
        """When the earliest message was received that is in the file, UTC epoch ns; far in the future where none is."""
        return self._first_ns

    @property
    def unwritten(self) -> int:
        """Messages and gaps of the open chunk, which is not in the file yet."""
        return self.digest.messages + self.digest.gaps - sum(self._counts.values())

    @property
    def is_roomy(self) -> bool:
        """Whether some thousand new topics still have their place: an MCAP file has no more than 65,535 channels."""
        return len(self._channels) < MAX_CHANNELS - ROOM

    @property
    def links(self) -> int | None:
        """None where the file still stands at its path; else at how many other paths: 0 = it is gone when it is closed."""
        return self._file.links()

    def write(self, message: Message) -> None:
        """Take one message; a chunk that is full by it goes into the file."""
        topic, payload, received_ns, published_ns, qos, is_retained, content_type = message
        has_time = 0 < published_ns < _LARGEST_TIME
        if published_ns and not has_time:
            message = message._replace(published_ns=0)
        key = (topic, qos, is_retained, content_type, has_time)
        known = self._channels.get(key) or self._add_channel(key, payload)
        if len(payload) >= CHUNK_BYTES:
            self.flush()  # what is cut within a large message shall take no other with it
        self._put(known, received_ns, published_ns if has_time else received_ns, payload)
        self.digest.add(message)
        if self._chunk_size >= CHUNK_BYTES:
            self.flush()

    def mark_gap(self, gap: Gap) -> None:
        """Say that messages may be missing here."""
        known = self._channels.get(_GAP_KEY) or self._register(_GAP_KEY, GAP_TOPIC, "json", {HOLDS: "gap"})
        self._put(known, gap.start_ns, gap.end_ns, msgspec.json.encode(gap._asdict()))
        self.digest.add(gap)
        if self._chunk_size >= CHUNK_BYTES:
            self.flush()

    def flush(self) -> None:
        """End the open chunk and put it into the file (not onto the disk: that is the system's to do, and ``close``'s)."""
        if not self._chunk_index:
            return
        data = b"".join(self._chunk)
        times = {channel_id: entries[::2] for channel_id, entries in self._chunk_index.items()}
        first_ns, last_ns = min(map(min, times.values())), max(map(max, times.values()))
        chunk = Chunk(
            compression="zstd",
            data=self._compressor.compress(data),
            message_start_time=first_ns,
            message_end_time=last_ns,
            uncompressed_crc=zlib.crc32(data),
            uncompressed_size=len(data),
        )
        record = _bytes_of(chunk)
        start = self._file.size
        offsets: dict[int, int] = {}
        parts, position = [record], start + len(record)
        for channel_id, entries in self._chunk_index.items():
            offsets[channel_id] = position
            parts.append(_message_index(channel_id, entries))
            position += len(parts[-1])
        self._file.append(b"".join(parts))
        self._chunk_indices.append(
            _bytes_of(
                ChunkIndex(
                    chunk_length=len(record),
                    chunk_start_offset=start,
                    compression="zstd",
                    compressed_size=len(chunk.data),
                    message_end_time=last_ns,
                    message_index_length=position - start - len(record),
                    message_index_offsets=offsets,
                    message_start_time=first_ns,
                    uncompressed_size=len(data),
                )
            )
        )
        for channel_id, received in times.items():
            self._counts[channel_id] += len(received)
        self._first_ns, self._last_ns = min(self._first_ns, first_ns), max(self._last_ns, last_ns)
        self._begin_chunk()

    def close(self, **told: str) -> None:
        """End the recording: hash and counts, told (what is known at the end, by name), and the index. Twice is once."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            self.flush()
            counted = {"messages": str(self.digest.messages), "gaps": str(self.digest.gaps)}
            self._add_metadata(END, {**told, **counted, "sha256": self.digest.hexdigest()})
            self._file.append(_bytes_of(DataEnd(self._file.crc)))
            self._file.append(self._summary(self._file.size))
        finally:
            self._file.close()

    def __enter__(self) -> McapWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(**({"ended_by": kind.__name__} if kind else {}))

    def _begin_chunk(self) -> None:
        self._chunk: list[bytes] = []
        self._chunk_size = 0
        self._chunk_index: dict[int, list[int]] = {}  # time and offset in the chunk of each message, by channel

    def _put(self, known: tuple[int, bytes], log_ns: int, publish_ns: int, data: bytes) -> None:
        channel_id, channel = known
        index = self._chunk_index.get(channel_id)
        if index is None:
            index = self._chunk_index[channel_id] = []
            self._chunk.append(channel)
            self._chunk_size += len(channel)
        index += (log_ns, self._chunk_size)
        self._sequence = sequence = (self._sequence + 1) & 0xFFFFFFFF
        size = len(data)
        self._chunk += (MESSAGE.pack(_MESSAGE_OPCODE, size + 22, channel_id, sequence, log_ns, publish_ns), data)
        self._chunk_size += size + MESSAGE.size

    def _add_channel(self, key: _Key, payload: bytes) -> tuple[int, bytes]:
        topic, qos, is_retained, content_type, has_time = key
        told = {"qos": str(qos), "retain": str(is_retained).lower(), "content_type": content_type}
        told["publish_time"] = "sender" if has_time else "none"
        return self._register(key, topic, "json" if _is_json(payload) else "mqtt", told)

    def _register(self, key: _Key, topic: str, encoding: str, told: dict[str, str]) -> tuple[int, bytes]:
        channel_id = len(self._channels) + 1
        if channel_id > MAX_CHANNELS:
            raise RecordingError(
                f"{self.path} has {MAX_CHANNELS:,} topics, all that an MCAP file can hold; begin another file, or record fewer topics"
            )
        channel = Channel(id=channel_id, topic=topic, message_encoding=encoding, metadata=told, schema_id=0)
        self._channels[key] = (channel_id, _bytes_of(channel))
        self._counts[channel_id] = 0
        return self._channels[key]

    def _add_metadata(self, name: str, told: dict[str, str]) -> None:
        record = _bytes_of(Metadata(name=name, metadata=told))
        self._metadata_indices.append(_bytes_of(MetadataIndex(offset=self._file.size, length=len(record), name=name)))
        self._file.append(record)

    def _summary(self, start: int) -> bytes:
        """The index at the end of the file, which tools open a recording by."""
        groups = (
            (Opcode.CHANNEL, [channel for _, channel in self._channels.values()]),
            (Opcode.STATISTICS, [_bytes_of(self._statistics())]),
            (Opcode.CHUNK_INDEX, self._chunk_indices),
            (Opcode.METADATA_INDEX, self._metadata_indices),
        )
        parts: list[bytes] = []
        offsets: list[bytes] = []
        position = start
        for opcode, records in groups:
            group = b"".join(records)
            if group:
                offsets.append(_bytes_of(SummaryOffset(opcode, position, len(group))))
            parts.append(group)
            position += len(group)
        summary = b"".join([*parts, *offsets])
        crc = zlib.crc32(struct.pack("<BQQQ", Opcode.FOOTER, 20, start, position), zlib.crc32(summary))
        return summary + _bytes_of(Footer(start, position, crc)) + MAGIC

    def _statistics(self) -> Statistics:
        count = sum(self._counts.values())
        return Statistics(
            attachment_count=0,
            channel_count=len(self._channels),
            channel_message_counts=self._counts,
            chunk_count=len(self._chunk_indices),
            message_count=count,
            message_end_time=self._last_ns,
            message_start_time=self._first_ns if count else 0,
            metadata_count=len(self._metadata_indices),
            schema_count=0,
        )


class _File:
    """The file without a buffer: what was appended survives the process. A write that fails half-way is taken back."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.size = 0
        self.crc = 0
        try:
            self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o644)
        except FileExistsError:
            raise RecordingError(f"{path} is there already; a recording is never written over, name another") from None
        except OSError as err:
            raise RecordingError(f"{path} cannot be written: {err.strerror}") from err

    def append(self, data: bytes) -> None:
        left = memoryview(data)
        try:
            while left:
                left = left[os.write(self._fd, left) :]
        except OSError as err:
            os.ftruncate(self._fd, self.size)
            os.lseek(self._fd, self.size, os.SEEK_SET)
            raise RecordingError(
                f"{self._path} cannot be written on: {err.strerror}; what is in it can be read"
            ) from err
        self.size += len(data)
        self.crc = zlib.crc32(data, self.crc)

    def links(self) -> int | None:
        mine = os.fstat(self._fd)
        try:
            there = os.stat(self._path)
        except OSError:
            return mine.st_nlink
        return None if (there.st_dev, there.st_ino) == (mine.st_dev, mine.st_ino) else mine.st_nlink

    def close(self) -> None:
        try:
            os.fsync(self._fd)
        except OSError as err:
            raise RecordingError(f"{self._path} may not be on the disk: {err.strerror}") from err
        finally:
            os.close(self._fd)


def _bytes_of(record: McapRecord) -> bytes:
    builder = RecordBuilder()
    record.write(builder)
    return bytes(builder.end())  # type: ignore[no-untyped-call]


def _message_index(channel_id: int, entries: list[int]) -> bytes:
    """entries: time and offset of each message, one after the other."""
    size = 8 * len(entries)
    return struct.pack(f"<BQHI{len(entries)}Q", Opcode.MESSAGE_INDEX, size + 6, channel_id, size, *entries)


def _is_json(payload: bytes) -> bool:
    """Whether tools that show JSON can show it; told by a channel's first message."""
    if payload.lstrip()[:1] != b"{":
        return False
    try:
        msgspec.json.decode(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False
    return True
