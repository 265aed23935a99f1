"""Moves the times inside payloads, so that a replay of yesterday tells of today. Nothing else of a payload changes.

Each time keeps its form: the zone and precision of ISO text, the unit and decimals of a count. What a form is too coarse to
hold of the shift is dropped, the same forwards and back. Known: JSON with a time at its top, Shelly, Tasmota, The Things
Stack, Telegraf, Ruuvi, SenML, Home Assistant's ``last_updated``, InfluxDB lines, and the fleet's own messages.
"""

from __future__ import annotations

import codecs
import re
from datetime import datetime, timedelta
from typing import Literal, NamedTuple

import msgspec

from fleetgp.errors import PeerError
from fleetgp.payloads.json import TIME_KEYS
from fleetgp.payloads.json_spans import Path, Span, spans
from fleetgp.wire import topics
from fleetgp.wire.codec import check_depth
from fleetgp.wire.messages import BY_KIND

MAX_DEPTH = 16
ABSOLUTE = 2**28  # a smaller count of seconds is an offset or an uptime (RFC 8428, 4.5.3), whatever its unit

Why = Literal["", "no_time", "sparkplug"]

_TOP = {*TIME_KEYS, "received_at", "gwts"}
_OURS = {"at_ms", "start_ms", "end_ms", "peak_ms", "started_ms", "deadline_ms"}
_LEVELS = {"last_updated", "last_changed", "last_seen", "time", "timestamp"}  # topics whose whole payload is a time
_SENML = {"n", "bn", "v", "vs", "vb", "vd", "bt", "bv", "s"}
_ISO = re.compile(
    rb"(\d{4})(-?)(\d\d)\2(\d\d)(?:([T ])(\d\d)(:?)(\d\d)(?:\7(\d\d)(?:([.,])(\d+))?)?)?"
    rb"(\s*(?:Z|UTC|[+-]\d\d(?::?\d\d)?)?)"
)
_COUNT = re.compile(rb"([1-9]\d{0,19})(?:\.(\d{1,18}))?")
_PER_MS = (
    (11, 0),
    (14, 3),
    (17, 6),
    (20, 9),
)  # digits of a count of s, ms, us, ns at most; decimals of a second it has
_INFLUX = re.compile(
    rb'^[^\S\n]*(?!#)(?:\\.|[^\\ \n])++ (?:\\.|[^\\ ,="\n])++='
    rb'(?:"(?:\\.|[^"\\])*+"|\\.|[^ "\\\n])++(?: (\d+))?[ \r]*$',
    re.MULTILINE,
)
_FLAT = (
    re.compile(  # in an object without others inside: times by name, and the other strings so as not to look into them
        rb'"(?i:%s)"\s*+:\s*+(?:"((?:[^"\\]|\\.)*+)"|(\d[^\s,}]*+))|"(?:[^"\\]|\\.)*+"'
        % "|".join(sorted(_TOP)).encode(),
        re.DOTALL,
    )
)
_OUR_TIME = b"\xa5at_ms\xcf"  # in MessagePack: the name, then 8 bytes, big-endian
_OUR_TIME_WITHIN = 64  # bytes from the start: only type and version come before it


class Moved(NamedTuple):
    """times: how many were moved; why: where none was, the reason."""

    payload: bytes
    times: int
    why: Why = ""


class _Place(NamedTuple):
    """A time at payload[start:end]; is_text: of a string, where digits may be a date."""

    start: int
    end: int
    is_text: bool


def move_time(payload: bytes, topic: str, shift_ms: int) -> bytes:
    """The payload with its times later by shift_ms; as it is where it has none that we know."""
    return move(payload, topic, shift_ms).payload


def move(payload: bytes, topic: str, shift_ms: int) -> Moved:
    """As ``move_time``, and how many times were moved."""
    if payload.startswith(codecs.BOM_UTF8):
        moved = move(payload.removeprefix(codecs.BOM_UTF8), topic, shift_ms)
        return moved._replace(payload=codecs.BOM_UTF8 + moved.payload)
    if (address := topics.parse(topic)) is not None and BY_KIND[address.kind].FORM == "msgpack":
        return _move_packed(payload, shift_ms)
    parts: list[bytes] = []
    done = times = 0
    for start, end, is_text in _places(payload, topic):
        text = _moved(payload[start:end], shift_ms, is_text=is_text)
        if text is not None:
            parts += (payload[done:start], text)
            done = end
            times += 1
    if not times:
        return Moved(payload, 0, "sparkplug" if topic.startswith("spBv1.0/") else "no_time")
    return Moved(b"".join([*parts, payload[done:]]), times)


def _move_packed(payload: bytes, shift_ms: int) -> Moved:
    """A summary or a model: ``at_ms`` where it stands."""
    start = payload.find(_OUR_TIME, 0, _OUR_TIME_WITHIN) + len(_OUR_TIME)
    at_ms = int.from_bytes(payload[start : start + 8], "big") + shift_ms
    if start < len(_OUR_TIME) or len(payload) < start + 8 or not 2**32 <= at_ms < 2**63:
        return Moved(payload, 0, "no_time")
    return Moved(payload[:start] + at_ms.to_bytes(8, "big") + payload[start + 8 :], 1)


def _places(payload: bytes, topic: str) -> list[_Place]:
    """Where times stand, in order."""
    first = payload.lstrip()[:1]
    if first in (b"{", b"["):
        return _in_json(payload, topic) if _is_json(payload) else []
    if topic.rpartition("/")[2] in _LEVELS:
        start = len(payload) - len(payload.lstrip(b' \t\r\n"'))
        return [_Place(start, max(start, len(payload.rstrip(b' \t\r\n"'))), is_text=True)]
    if b"=" in payload:
        return [_Place(*match.span(1), is_text=False) for match in _INFLUX.finditer(payload) if match[1]]
    return []


def _is_json(payload: bytes) -> bool:
    try:
        check_depth(payload, MAX_DEPTH)
        msgspec.json.decode(payload)
    except (PeerError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False
    return True


def _in_json(payload: bytes, topic: str) -> list[_Place]:
    is_ours = topics.parse(topic) is not None
    if not is_ours and payload.count(b"{") + payload.count(b"[") == 1:  # as most are, in half the time
        texts = [(match.span(1), match.span(2)) for match in _FLAT.finditer(payload)]
        return [_Place(*max(text, count), is_text=text > count) for text, count in texts if max(text, count)[0] >= 0]
    found = list(spans(payload))
    if payload.lstrip()[:1] == b"[":
        return _in_senml(payload, found)
    return [_Place(*span[1:]) for span in found if _is_time(span.path, is_ours=is_ours)]


def _is_time(path: Path, *, is_ours: bool) -> bool:
    match path:
        case (str(name),):
            return name in _OURS if is_ours else name.lower() in _TOP
        case ("params", "ts") | (*_, "minute_ts") | ("metrics", int(), "timestamp"):
            return True
        case ("uplink_message", "rx_metadata", int(), "time" | "received_at"):
            return True
        case ("uplink_message", "settings", "time") | ("uplink_message", "received_at"):
            return True
    return False


def _in_senml(payload: bytes, found: list[Span]) -> list[_Place]:
    """Base times, and times that no base time precedes (RFC 8428); offsets from now, below ABSOLUTE, stay."""
    records: dict[str | int, dict[str | int, Span]] = {}
    for span in found:
        if len(span.path) != 2:
            return []
        records.setdefault(span.path[0], {})[span.path[1]] = span
    places: list[_Place] = []
    base = 0.0
    for record in records.values():
        if record.keys().isdisjoint(_SENML):
            return []
        told = {name: _seconds(payload, record.get(name)) for name in ("bt", "t")}
        base = base if told["bt"] is None else told["bt"]
        if told["bt"] is not None and base >= ABSOLUTE:
            places.append(_Place(*record["bt"][1:]))
        elif told["t"] is not None and base < ABSOLUTE <= base + told["t"]:
            places.append(_Place(*record["t"][1:]))
    return places


def _seconds(payload: bytes, span: Span | None) -> float | None:
    if span is None or span.is_text:
        return None
    try:
        return float(payload[span.start : span.end])
    except ValueError:
        return None


def _moved(text: bytes, shift_ms: int, *, is_text: bool) -> bytes | None:
    """The time moved, in the form it has; None where it is none, or would be before 1970 or beyond the year 9999."""
    if is_text and (len(text) == 8 or not text.isdigit()) and (match := _ISO.fullmatch(text)):
        return _moved_iso(match, shift_ms)
    match = _COUNT.fullmatch(text)
    if match is None or int(match[1]) < ABSOLUTE:
        return None
    whole, decimals = match[1], match[2] or b""
    unit = next(unit for digits, unit in _PER_MS if len(whole) <= digits)
    count = int(whole + decimals) + _shift(shift_ms, unit + len(decimals))
    if count < 0:
        return None
    digits = b"%0*d" % (len(decimals) + 1, count)
    return digits[: -len(decimals)] + b"." + digits[-len(decimals) :] if decimals else digits


def _shift(shift_ms: int, decimals: int) -> int:
    """A shift in units of 10^-decimals s; what is less than one is dropped, so that there and back is nothing."""
    amount: int = abs(shift_ms) * 10**decimals // 1000
    return amount if shift_ms >= 0 else -amount


def _moved_iso(match: re.Match[bytes], shift_ms: int) -> bytes | None:
    year, dash, month, day, between, hour, colon, minute, second, point, decimals, zone = match.groups()
    clock = [int(part or 0) for part in (year, month, day, hour, minute, second)]
    count = len(decimals or b"")
    coarsest_s = 1 if second else 60 if hour else 86_400
    units = _shift(shift_ms, count)
    units = units if second else (abs(units) // coarsest_s * coarsest_s) * (1 if units >= 0 else -1)
    seconds, rest = divmod(int(decimals or 0) + units, 10**count)
    try:
        moment = datetime(*clock) + timedelta(seconds=seconds)  # type: ignore[arg-type]
    except (ValueError, OverflowError):
        return None
    text = dash.join([b"%04d" % moment.year, b"%02d" % moment.month, b"%02d" % moment.day])
    if hour:
        text += between + colon.join([b"%02d" % moment.hour, b"%02d" % moment.minute])
    if second:
        text += colon + b"%02d" % moment.second
    if decimals:
        text += point + b"%0*d" % (count, rest)
    return text + zone
