"""What an MCAP chunk holds: its data checked and unpacked, the records inside, and what a channel says of its messages."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from io import BytesIO
from typing import NamedTuple

import msgspec
import zstandard
from mcap.data_stream import ReadDataStream
from mcap.exceptions import McapError
from mcap.opcode import Opcode
from mcap.records import Channel

from fleetgp.recording.mcap_file import MAX_RECORD, Damaged
from fleetgp.recording.mcap_layout import HOLDS, MESSAGE
from fleetgp.recording.message import Gap, Message, Recorded

# what reading damaged bytes may raise, from the library and from ours
DAMAGED = (ValueError, struct.error, McapError, zstandard.ZstdError, msgspec.MsgspecError)

_CHUNK = struct.Struct("<QQQII")  # first and last time, size and CRC of the data, length of the compression's name
_LENGTH = struct.Struct("<Q")
_INSIDE_HEAD = 9  # bytes of opcode and length before a record's body
_LARGEST_TIME = 2**63


class Described(NamedTuple):
    """A channel: the topic, and what its metadata say of all its messages. A channel of another program says nothing."""

    topic: str
    qos: int = 0
    is_retained: bool = False
    content_type: str = ""
    is_ours: bool = False
    has_time: bool = False
    is_gap: bool = False


class _Gap(msgspec.Struct):
    """A gap as JSON, in the order of Gap's fields."""

    start_ns: int
    end_ns: int
    why: str


class Numbered(NamedTuple):
    """A message or gap and its running number in the file (1, 2, ... modulo 2^32); None in files of other programs."""

    sequence: int | None
    recorded: Recorded


def unpack(body: bytes) -> bytes:
    """The data of a chunk. Raises one of DAMAGED where its CRC or anything else is wrong."""
    _, _, size, crc, name_length = _CHUNK.unpack_from(body)
    name = body[_CHUNK.size : _CHUNK.size + name_length]
    start = _CHUNK.size + name_length + _LENGTH.size
    (length,) = _LENGTH.unpack_from(body, start - _LENGTH.size)
    if start + length != len(body) or size > MAX_RECORD:
        raise Damaged("a chunk whose lengths do not fit")
    data = _decompress(name, body[start:], size)
    if len(data) != size or (crc and zlib.crc32(data) != crc):
        raise Damaged("a chunk whose check sum is wrong")
    return data


def times_of(body: bytes) -> tuple[int, int] | None:
    """First and last time of a chunk as its head says, UTC epoch ns; None where it is too short for one."""
    return _CHUNK.unpack_from(body)[:2] if len(body) >= _CHUNK.size else None


def _decompress(name: bytes, data: bytes, size: int) -> bytes:
    if name == b"zstd":
        if zstandard.frame_content_size(data) not in (size, -1):  # before that much memory is taken
            raise Damaged("a chunk whose lengths do not fit")
        return zstandard.ZstdDecompressor().decompress(data, max_output_size=max(size, 1))
    if name == b"lz4":
        raise Damaged("a chunk compressed by lz4, which is not read here (the mcap tool can turn it into zstd)")
    if name:
        raise Damaged("a chunk of unknown compression")
    return data


def read_records(data: bytes, channels: dict[int, Described]) -> list[Numbered]:
    """Messages and gaps in a chunk's data; channels: those known so far, gets those it brings. Raises one of DAMAGED."""
    found: list[Numbered] = []
    for opcode, start, end in _walk(data):
        if opcode == Opcode.MESSAGE:
            found.append(read_message(data, start, end, channels))
        elif opcode == Opcode.CHANNEL:
            add_channel(data[start + _INSIDE_HEAD : end], channels)
    return found


def _walk(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Opcode, start and end of each record."""
    at, size = 0, len(data)
    while at < size:
        (length,) = _LENGTH.unpack_from(data, at + 1)
        end = at + _INSIDE_HEAD + length
        if end > size:
            raise Damaged("a record that is longer than its chunk")
        yield data[at], at, end
        at = end


def read_message(data: bytes, start: int, end: int, channels: dict[int, Described]) -> Numbered:
    """The message record at data[start:end]."""
    if end - start < MESSAGE.size:
        raise Damaged("a message that is too short")
    _, _, channel_id, sequence, log_ns, publish_ns = MESSAGE.unpack_from(data, start)
    payload = data[start + MESSAGE.size : end]
    channel = channels.get(channel_id)
    if channel is None:
        raise Damaged("a message of a channel that is not known")
    if log_ns >= _LARGEST_TIME or publish_ns >= _LARGEST_TIME:
        raise Damaged("a message of a time after the year 2262")
    if channel.is_gap:
        return Numbered(sequence, Gap(*msgspec.structs.astuple(msgspec.json.decode(payload, type=_Gap))))
    topic, qos, is_retained, content_type, is_ours, has_time, _ = channel
    has_time = has_time or (not is_ours and publish_ns != log_ns)
    message = Message(topic, payload, log_ns, publish_ns if has_time else 0, qos, is_retained, content_type)
    return Numbered(sequence if is_ours else None, message)


def add_channel(body: bytes, channels: dict[int, Described]) -> None:
    """Read a channel record's body. Raises one of DAMAGED."""
    channel = Channel.read(ReadDataStream(BytesIO(body)))
    channels[channel.id] = described(channel)


def described(channel: Channel) -> Described:
    """What a channel's record says."""
    told = channel.metadata
    return Described(
        topic=channel.topic,
        qos=int(told["qos"]) if told.get("qos", "") in {"0", "1", "2"} else 0,
        is_retained=told.get("retain") == "true",
        content_type=told.get("content_type", ""),
        is_ours="publish_time" in told or HOLDS in told,
        has_time=told.get("publish_time") == "sender",
        is_gap=told.get(HOLDS) == "gap",
    )
