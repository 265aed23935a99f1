"""The time that a message's sender gave it, read as cheaply as a recorder needs. Pure."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec

MAX_BYTES = 65536  # a larger payload is no reading; to look through it would cost more than its time is worth
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_EARLIEST_NS = 946_684_800_000_000_000  # 2000: a count below is no time of day, whatever its unit
_LATEST_NS = 4_102_444_800_000_000_000  # 2100

_Time = str | int | float | None


class _Times(msgspec.Struct):
    """The fields that hold a time in JSON, as ``fleetgp.payloads.json`` knows them; all others are skipped unread."""

    time: _Time = None
    timestamp: _Time = None
    ts: _Time = None
    at_ms: _Time = None
    last_seen: _Time = None


_DECODER = msgspec.json.Decoder(_Times)


def own_time_ns(payload: bytes) -> int:
    """UTC epoch ns of the time in a JSON object, 0 where there is none or it cannot be one (before 2000, after 2100)."""
    if payload[:1] != b"{" or len(payload) > MAX_BYTES:
        return 0
    try:
        found = _DECODER.decode(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return 0
    for value in (found.time, found.timestamp, found.ts, found.at_ms, found.last_seen):
        if value is not None:
            told = _nanoseconds(value)
            return told if _EARLIEST_NS <= told <= _LATEST_NS else 0
    return 0


def _nanoseconds(value: str | int | float) -> int:
    if isinstance(value, str):
        if len(value) != 8 and value.isdecimal():
            return _of_count(int(value)) if len(value) <= 20 else 0
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            return 0
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        try:
            return (moment - _EPOCH) // _MICROSECOND * 1000
        except OverflowError:
            return 0
    return _of_count(value)


def _of_count(count: int | float) -> int:
    """Of a count of s, ms, us or ns, told apart by its size."""
    if not 0 <= count < 1e20:
        return 0
    for limit, scale in ((1e11, 1_000_000_000), (1e14, 1_000_000), (1e17, 1_000)):
        if count < limit:
            return round(count * scale)
    return round(count)
