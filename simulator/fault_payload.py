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

ALONE = -1  # the payload is this number
LISTED = -2  # it is an item of a list

_TOKEN = re.compile(rb'[{}\[\],:]|"(?:[^"\\]|\\.)*"|[^\s{}\[\],:"]+')
_PLAIN = re.compile(rb'\s*"?\s*([^"]*?)\s*"?\s*')
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
    match = _PLAIN.fullmatch(payload)
    if field not in ("", plain.FIELD) or match is None:
        return "no_field"
    return _number(payload, match.start(1), match.end(1), ALONE)


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


class _Level:
    """An object or a list being walked through. name: of the member at hand, with those it is inside of."""

    def __init__(self, prefix: str, is_list: bool) -> None:
        self.prefix = prefix
        self.is_list = is_list
        self.index = 0
        self.key: str | None = None
        self.key_begin = -1

    @property
    def name(self) -> str:
        own = str(self.index) if self.is_list else self.key or ""
        return f"{self.prefix}.{own}" if self.prefix else own


def _member(payload: bytes, field: str) -> tuple[int, int, int] | None:
    """Begin and end of the last scalar of this name, and where its key begins (LISTED in a list). The payload is sound JSON."""
    levels: list[_Level] = []
    found: tuple[int, int, int] | None = None
    for match in _TOKEN.finditer(payload):
        token = match[0]
        top = levels[-1] if levels else None
        if token in b"{[":
            levels.append(_Level(top.name if top else "", token == b"["))
        elif token in b"}]":
            levels.pop()
        elif token == b"," and top is not None:
            top.index, top.key = top.index + 1, None
        elif token == b":" or top is None:
            continue
        elif not top.is_list and top.key is None:
            top.key, top.key_begin = str(json.loads(token)), match.start()
        elif top.name == field:
            found = match.start(), match.end(), LISTED if top.is_list else top.key_begin
    return found
