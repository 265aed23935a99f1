"""One number inside a payload, found and replaced in place: all other bytes stay as they are. Pure.

Payloads are JSON objects (a field inside another has a name with dots, as ``fleetgp.payloads.json`` gives it) or plain
numbers in text.
"""

from __future__ import annotations

import json
import math
import re
from typing import NamedTuple

from fleetgp import payloads
from fleetgp.errors import PeerError
from fleetgp.payloads import plain
from fleetgp.payloads.json_spans import spans

ALONE = -1  # the payload is this number
LISTED = -2  # it is an item of a list

_TEXT = re.compile(rb'\s*"?\s*([^"]*?)\s*"?\s*')
_NUMBER = re.compile(rb'"?\s*([+-]?[\d.][\d.eE+-]*)\s*"?')


class Place(NamedTuple):
    """Where a number stands: payload[begin:end] is its text, member_begin where its name begins (LISTED, ALONE: it has none)."""

    begin: int
    end: int
    value: float
    member_begin: int


def find(payload: bytes, field: str) -> Place | str:
    """Where a field's number is; else why there is none: ``unreadable``, ``no_field`` or ``no_number``.

    field "" is the payload itself, where that is a plain number.
    """
    try:
        payloads.read(payload)
    except PeerError:
        return "unreadable"
    if payload.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"["):
        found = _member(payload, field)
        return "no_field" if found is None else _number(payload, *found)
    match = _TEXT.fullmatch(payload)
    if field not in ("", plain.FIELD) or match is None:
        return "no_field"
    return _number(payload, match.start(1), match.end(1), ALONE)


def fields(payload: bytes) -> tuple[str, ...]:
    """Names of the fields of a payload that can be read, as ``find`` takes them."""
    if payload.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] not in (b"{", b"["):
        return ()
    return tuple(dict.fromkeys(".".join(map(_plain, span.path)) for span in spans(payload)))


def replaced(payload: bytes, place: Place, value: float) -> bytes:
    """The payload with another number in this place, NaN = none (null); written as exactly as 15 digits go."""
    text = payload[place.begin : place.end]
    if math.isnan(value):
        quotes = payload[place.begin - 1 : place.begin], payload[place.end : place.end + 1]
        if place.member_begin != ALONE and quotes == (b'"', b'"'):
            return payload[: place.begin - 1] + b"null" + payload[place.end + 1 :]
        new = b"null"
    elif text.lstrip(b"+-").isdigit() and value == round(value):
        new = str(round(value)).encode()
    else:
        new = f"{value:.15g}".encode()
    return payload[: place.begin] + new + payload[place.end :]


def removed(payload: bytes, place: Place) -> bytes | None:
    """The payload without this field; null in a list, whose items have no names; None where it is this number and no more."""
    if place.member_begin == ALONE:
        return None
    if place.member_begin == LISTED:
        return replaced(payload, place, math.nan)
    end = place.end + (payload[place.end : place.end + 1] == b'"')
    before, after = payload[: place.member_begin].rstrip(), payload[end:].lstrip()
    if after.startswith(b","):
        return payload[: place.member_begin] + after[1:].lstrip()
    return before.removesuffix(b",") + payload[end:]


def _number(payload: bytes, begin: int, end: int, member_begin: int) -> Place | str:
    match = _NUMBER.fullmatch(payload, begin, end)
    try:
        value = float(match[1]) if match else math.nan
    except ValueError:
        value = math.nan
    if match is None or not math.isfinite(value):
        return "no_number"
    return Place(match.start(1), match.end(1), value, member_begin)


def _member(payload: bytes, field: str) -> tuple[int, int, int] | None:
    """Begin and end of the last scalar of this name, and where its key begins (LISTED in a list). The payload is sound JSON."""
    found = None
    for span in spans(payload):
        if ".".join(map(_plain, span.path)) == field:
            found = span
    if found is None:
        return None
    begin, end = found.start - found.is_text, found.end + found.is_text
    key = found.path[-1]
    return begin, end, LISTED if isinstance(key, int) else payload.rfind(f'"{key}"'.encode(), 0, begin)


def _plain(part: str | int) -> str:
    """A key as it is meant, or an index."""
    return str(json.loads(f'"{part}"')) if isinstance(part, str) and "\\" in part else str(part)
