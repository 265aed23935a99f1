"""Where each value of a JSON text stands in it, so that one can be changed and the rest left as it is written."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

Path = tuple[str | int, ...]

_TOKEN = re.compile(rb'\s*(?:([{}\[\],:])|("(?:[^"\\]|\\.)*+")|([^\s{}\[\],:"]++))', re.DOTALL)


class Span(NamedTuple):
    """A number or text at payload[start:end], a text without its quotes. path: keys as they are written, and indices."""

    path: Path
    start: int
    end: int
    is_text: bool


def spans(payload: bytes) -> Iterator[Span]:
    """Values of a JSON text that is known to be valid, in its order."""
    path: list[str | int] = []
    in_object: list[bool] = []
    is_key = False
    for match in _TOKEN.finditer(payload):
        sign = match[1]
        if sign == b"{" or sign == b"[":
            in_object.append(sign == b"{")
            path.append("" if sign == b"{" else 0)
            is_key = sign == b"{"
        elif sign == b"}" or sign == b"]":
            in_object.pop()
            path.pop()
        elif sign == b",":
            is_key = in_object[-1]
            last = path[-1]
            if isinstance(last, int):
                path[-1] = last + 1
        elif sign == b":":
            is_key = False
        elif is_key:
            path[-1] = payload[match.start(2) + 1 : match.end(2) - 1].decode()
        elif match[2]:
            yield Span(tuple(path), match.start(2) + 1, match.end(2) - 1, True)
        else:
            yield Span(tuple(path), match.start(3), match.end(3), False)
