"""What a payload holds once read, and the rules for numbers and times that all formats share."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Literal

import msgspec

from fleetgp.errors import PeerError

MAX_PAYLOAD = 1_000_000
LARGEST = 1e15
EARLIEST_MS = 1_577_836_800_000  # 2020-01-01, before which a live clock was never set
AHEAD_MS = 300_000

ClockPolicy = Literal["live", "recording", "receive"]

_WORDS = {"on": 1.0, "off": 0.0, "true": 1.0, "false": 0.0, "open": 1.0, "closed": 0.0}
_MISSING = {"nan", "", "null", "none", "unavailable", "unknown", "na"}


class Content(msgspec.Struct, frozen=True, kw_only=True):
    """One payload: values by field name (None = said to be missing), its time and count where it has them.

    rejected: fields left out, by reason (``text``, ``range``, ``time``, ``name``).
    """

    values: Mapping[str, float | None]
    at_ms: int | None = None
    sequence: int | None = None
    rejected: Mapping[str, int] = {}


def number(value: object) -> float | None:
    """The number in a value; None when it says that there is none. Raises PeerError ``text`` or ``range``."""
    if value is None:
        return None
    if type(value) is float and -LARGEST <= value <= LARGEST:  # what most fields are
        return value
    if isinstance(value, (bool, int, float)):
        result = float(value) if abs(value) <= LARGEST else math.inf
    elif isinstance(value, str):
        word = value.strip().lower()
        if word.lstrip("+-") in _MISSING:
            return None
        if word in _WORDS:
            return _WORDS[word]
        try:
            result = float(word) if "_" not in word else math.nan  # Python's own digit grouping is nobody's format
        except ValueError:
            result = math.nan
        if math.isnan(result):
            raise PeerError("text", f"{value[:40]!r} is not a number")
    else:
        raise PeerError("text", f"a {type(value).__name__} is not a number")
    if not abs(result) <= LARGEST:
        raise PeerError("range", f"a number beyond {LARGEST:g}")
    return result


def epoch_ms(value: object) -> int:
    """UTC epoch ms of a time: ISO 8601 text (no zone = UTC) or a count of s, ms, us or ns told apart by its size.

    Digits alone are a count, for some would pass for an ISO date too; eight of them are a date (20260304).
    Raises PeerError ``time`` when it is neither.
    """
    if type(value) is int and 1e11 <= value < 1e14:  # ms, what most devices send
        return value
    if isinstance(value, str) and (len(value) == 8 or not value.isdecimal()):
        try:
            moment = datetime.fromisoformat(value)
            moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
            return round(moment.timestamp() * 1000)
        except (ValueError, OverflowError):
            pass
    count = math.nan
    if isinstance(value, (int, float, str)) and not isinstance(value, bool):
        with contextlib.suppress(ValueError, OverflowError):  # not a number; an integer no double can hold
            count = float(value)
    if not 0 <= count < 1e20:
        raise PeerError("time", f"{value[:40]!r} is not a time" if isinstance(value, str) else "not a time")
    for limit, divisor in ((1e11, 1e-3), (1e14, 1.0), (1e17, 1e3)):
        if count < limit:
            return round(count / divisor)
    return round(count / 1e6)


def settle(at_ms: int | None, received_ms: int, policy: ClockPolicy) -> int:
    """The time to file a reading under. Raises PeerError ``implausible_time`` under the live policy.

    live: the device's own time where it sends one, which must lie between 2020 and five minutes ahead of us.
    recording: the recording's own clock decides. receive: the device's time is not believed at all.
    """
    if policy == "receive" or at_ms is None:
        return received_ms
    if policy == "live" and not EARLIEST_MS <= at_ms <= received_ms + AHEAD_MS:
        raise PeerError("implausible_time", f"{at_ms} ms, received at {received_ms} ms")
    return at_ms
