"""A MessagePack reader written from the specification alone: shares nothing with the library that writes our messages."""

from __future__ import annotations

import struct

_SIZES = {0xC4: ">B", 0xC5: ">H", 0xC6: ">I", 0xD9: ">B", 0xDA: ">H", 0xDB: ">I"}
_NUMBERS = {
    0xCA: ">f", 0xCB: ">d", 0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q", 0xD0: ">b", 0xD1: ">h", 0xD2: ">i", 0xD3: ">q",
}  # fmt: skip
_COUNTS = {0xDC: ">H", 0xDD: ">I", 0xDE: ">H", 0xDF: ">I"}
_CONSTANTS = {0xC0: None, 0xC2: False, 0xC3: True}


def read(content: bytes) -> object:
    """The one value in these bytes."""
    value, end = _value(content, 0)
    if end != len(content):
        raise ValueError(f"{len(content) - end} bytes too many")
    return value


def _value(content: bytes, at: int) -> tuple[object, int]:
    first = content[at]
    if first <= 0x7F or first >= 0xE0:
        return first if first <= 0x7F else first - 256, at + 1
    if first <= 0x8F:
        return _map(content, at + 1, first & 0x0F)
    if first <= 0x9F:
        return _list(content, at + 1, first & 0x0F)
    if first <= 0xBF:
        return content[at + 1 : at + 1 + (first & 0x1F)].decode(), at + 1 + (first & 0x1F)
    if first in _CONSTANTS:
        return _CONSTANTS[first], at + 1
    form = _SIZES.get(first) or _NUMBERS.get(first) or _COUNTS[first]
    (number,) = struct.unpack_from(form, content, at + 1)
    at += 1 + struct.calcsize(form)
    if first in _NUMBERS:
        return number, at
    if first in _COUNTS:
        return (_list if first <= 0xDD else _map)(content, at, number)
    chunk = content[at : at + number]
    return chunk if first <= 0xC6 else chunk.decode(), at + number


def _list(content: bytes, at: int, count: int) -> tuple[list[object], int]:
    items = []
    for _ in range(count):
        item, at = _value(content, at)
        items.append(item)
    return items, at


def _map(content: bytes, at: int, count: int) -> tuple[dict[object, object], int]:
    pairs, at = _list(content, at, 2 * count)
    return dict(zip(pairs[::2], pairs[1::2], strict=True)), at
