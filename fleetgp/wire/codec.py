"""Encode and decode messages, with every check at the door: size, depth, syntax, version, finite numbers."""

from __future__ import annotations

import math
from functools import cache
from typing import Any, TypeVar

import msgspec

from fleetgp.errors import LocalError, PeerError
from fleetgp.wire.messages import VERSION, Message, Tensor

MAX_BYTES = 8_000_000
MAX_DEPTH = 32

M = TypeVar("M", bound=Message)


@cache
def _decoder(kind: type[Message]) -> msgspec.json.Decoder[Any] | msgspec.msgpack.Decoder[Any]:
    return msgspec.json.Decoder(kind) if kind.FORM == "json" else msgspec.msgpack.Decoder(kind)


_TO_JSON = msgspec.json.Encoder()
_TO_MSGPACK = msgspec.msgpack.Encoder()


def encode(message: Message) -> bytes:
    """Bytes of a message. Raises LocalError when it holds a number that is not finite or is too large to send."""
    _check_finite(message, LocalError)
    payload = _TO_JSON.encode(message) if message.FORM == "json" else _TO_MSGPACK.encode(message)
    if len(payload) > MAX_BYTES:
        raise LocalError("size", f"a {type(message).__name__} of {len(payload)} bytes; at most {MAX_BYTES} may be sent")
    return payload


def decode(payload: bytes, kind: type[M]) -> M:
    """The message in these bytes.

    Raises PeerError with code ``size``, ``depth``, ``syntax``, ``version`` or ``finite``. Unknown fields are skipped, so
    a newer peer may say more; an unknown tag, a wrong type or a version above ours is refused.
    """
    if len(payload) > MAX_BYTES:
        raise PeerError("size", f"{len(payload)} bytes; at most {MAX_BYTES} are read")
    if kind.FORM == "json":
        check_depth(payload)
    try:
        message: M = _decoder(kind).decode(payload)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as err:
        raise PeerError("syntax", f"not a {kind.__name__}: {err}") from err
    if not 1 <= message.version <= VERSION:
        raise PeerError("version", f"{kind.__name__} version {message.version}; this program reads up to {VERSION}")
    _check_finite(message, PeerError)
    return message


def check_depth(payload: bytes, limit: int = MAX_DEPTH) -> None:
    """Raise PeerError when JSON brackets nest deeper than the limit; cheap, and before any parser recurses."""
    if payload.count(b"[") + payload.count(b"{") <= limit:
        return
    depth = 0
    in_string = is_escaped = False
    for byte in payload:
        if in_string:
            if is_escaped:
                is_escaped = False
            elif byte == 0x5C:
                is_escaped = True
            elif byte == 0x22:
                in_string = False
        elif byte == 0x22:
            in_string = True
        elif byte in b"[{":
            depth += 1
            if depth > limit:
                raise PeerError("depth", f"JSON nested deeper than {limit}")
        elif byte in b"]}":
            depth -= 1


def _check_finite(value: object, error: type[LocalError] | type[PeerError], path: str = "") -> None:
    if isinstance(value, float):
        if not math.isfinite(value):
            raise error("finite", f"{path or 'a number'} is {value}")
    elif isinstance(value, Tensor):
        return  # convert.py checks the numbers in raw bytes, where they become an array
    elif isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            _check_finite(getattr(value, name), error, f"{path}.{name}" if path else name)
    elif isinstance(value, dict):
        for key, item in value.items():
            _check_finite(item, error, f"{path}.{key}")
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            _check_finite(item, error, f"{path}[{index}]")
