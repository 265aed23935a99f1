"""What the index at the end of an MCAP file tells, without reading the file: how much there is, and where a time begins."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import NamedTuple

from mcap.exceptions import McapError
from mcap.reader import make_reader
from mcap.records import Channel
from mcap.summary import Summary

from fleetgp.errors import RecordingError
from fleetgp.recording.mcap_layout import HOLDS


class Glance(NamedTuple):
    """Counts as the file tells them itself. Times: UTC epoch ns of the first and last message, None where there is none."""

    messages: int
    gaps: int
    topics: int
    first_ns: int | None
    last_ns: int | None


def glance(path: Path) -> Glance | None:
    """None where the file was cut, or its index cannot be read. Raises RecordingError where it cannot be opened."""
    summary = _summary(path)
    if summary is None or summary.statistics is None:
        return None
    told = summary.statistics
    gap_channels = {channel.id for channel in summary.channels.values() if HOLDS in channel.metadata}
    gaps = sum(told.channel_message_counts.get(channel, 0) for channel in gap_channels)
    has_any = told.message_count > 0
    return Glance(
        messages=told.message_count - gaps,
        gaps=gaps,
        topics=len({channel.topic for channel in summary.channels.values() if channel.id not in gap_channels}),
        first_ns=told.message_start_time if has_any else None,
        last_ns=told.message_end_time if has_any else None,
    )


class Place(NamedTuple):
    """Where to begin to read: a chunk's offset in the file, its first and last time, and the channels of the whole file."""

    offset: int
    times: tuple[int, int]
    channels: tuple[Channel, ...]


def place_of(path: Path, begin_ns: int) -> Place | None:
    """The first chunk that holds a message of this time (UTC epoch ns) or later: all before it are earlier.

    None where there is no index, or nothing to pass over. Raises RecordingError where the file cannot be opened.
    """
    summary = _summary(path)
    if summary is None or summary.statistics is None or len(summary.chunk_indexes) != summary.statistics.chunk_count:
        return None
    chunks = sorted(summary.chunk_indexes, key=lambda chunk: chunk.chunk_start_offset)
    later = next((chunk for chunk in chunks if chunk.message_end_time >= begin_ns), chunks[-1] if chunks else None)
    if later is None or later is chunks[0]:
        return None
    return Place(
        later.chunk_start_offset, (later.message_start_time, later.message_end_time), tuple(summary.channels.values())
    )


def _summary(path: Path) -> Summary | None:
    try:
        with path.open("rb") as file:
            return make_reader(file).get_summary()
    except FileNotFoundError:
        raise RecordingError(f"there is no file {path}") from None
    except OSError as err:
        raise RecordingError(f"{path} cannot be read: {err.strerror or err}") from err
    except (McapError, ValueError, struct.error):
        return None
