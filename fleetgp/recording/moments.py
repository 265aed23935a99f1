"""Times to the nanosecond, as recordings write them: UTC epoch ns to ISO 8601 and back, and whatever others write."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone

SECOND = 1_000_000_000
_LATEST_NS = 2**63
_ISO = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)(?:[T ](\d\d):(\d\d)(?::(\d\d)(?:[.,](\d+))?)?)?\s*(?:Z|UTC)?(?:([+-])(\d\d):?(\d\d)?)?"
)
_COUNT = re.compile(r"(\d+)(?:\.(\d*))?")
_UNITS = ((11, 9), (14, 6), (17, 3))  # digits of a count of s, ms, us at most; decimals from that unit to ns


def iso(at_ns: int) -> str:
    """``2026-03-04T09:15:30.250000000Z``"""
    seconds, rest = divmod(at_ns, SECOND)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest:09}Z"


def epoch_ns(text: str) -> int:
    """UTC epoch ns of a time as text: ISO 8601 (no zone = UTC), or a count of s, ms, us or ns told apart by its size.

    No digit is lost, as a double would lose them. Raises ValueError where it is neither, before 1970 or after 2262.
    """
    if match := _ISO.fullmatch(text.strip()):
        at_ns = _of_iso(match)
    elif match := _COUNT.fullmatch(text.strip()):
        whole, decimals = match[1].lstrip("0"), match[2] or ""
        shift = next((shift for digits, shift in _UNITS if len(whole) <= digits), 0)
        at_ns = int((whole or "0") + decimals[:shift].ljust(shift, "0"))
    else:
        raise ValueError(f"{text[:40]!r} is not a time")
    if not 0 <= at_ns < _LATEST_NS:
        raise ValueError(f"{text[:40]!r} is not a time from 1970 to 2262")
    return at_ns


def _of_iso(match: re.Match[str]) -> int:
    year, month, day, hour, minute, second, decimals, sign, zone_h, zone_min = match.groups()
    offset = timedelta(hours=int(zone_h or 0), minutes=int(zone_min or 0))
    zone = timezone(-offset if sign == "-" else offset)
    moment = datetime(int(year), int(month), int(day), int(hour or 0), int(minute or 0), int(second or 0), tzinfo=zone)
    return round(moment.timestamp()) * SECOND + int((decimals or "0")[:9].ljust(9, "0"))
