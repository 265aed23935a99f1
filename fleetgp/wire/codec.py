"""Encode and decode messages, with every check at the door: size, depth, syntax, version, finite numbers, schema."""

from __future__ import annotations

import math
import re
from functools import cache
from typing import Any, TypeVar

import msgspec
import numpy as np

from fleetgp.errors import ConfigError, LocalError, PeerError
from fleetgp.schema import Schema, check
from fleetgp.wire.messages import VERSION, Message, Tensor

MAX_BYTES = 8_000_000
MAX_DEPTH = 32

# A whole string, or an unfinished one up to the end; possessive, so that no input makes it look twice at a byte.
_JSON_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
_STEPS = bytes(1 if byte in b"[{" else 255 for byte in range(256))  # as int8: one deeper, one less deep
_NOT_BRACKETS = bytes(byte for byte in range(256) if byte not in b"[]{}")

M = TypeVar("M", bound=Message)


@cache
def _decoder(kind: type[Message]) -> msgspec.json.Decoder[Any] | msgspec.msgpack.Decoder[Any]:
    return msgspec.json.Decoder(kind) if kind.FORM == "json" else msgspec.msgpack.Decoder(kind)


class _Head(msgspec.Struct):
    """What every message begins with, readable even where the rest is not."""

    type: str = ""
    version: int = VERSION


_TO_JSON = msgspec.json.Encoder()
_TO_MSGPACK = msgspec.msgpack.Encoder()


def encode(message: Message) -> bytes:
    """Bytes of a message. Raises LocalError when it holds a number that cannot travel or is too large to send."""
    _check_numbers(message, LocalError)
    payload = _TO_JSON.encode(message) if message.FORM == "json" else _TO_MSGPACK.encode(message)
    if len(payload) > MAX_BYTES:
        raise LocalError("size", f"a {type(message).__name__} of {len(payload)} bytes; at most {MAX_BYTES} may be sent")
    return payload


def decode(payload: bytes, kind: type[M]) -> M:
    """The message in these bytes.

    Unknown fields are skipped, so a newer peer may say more. Raises PeerError, and nothing else, with code ``size``,
    ``depth``, ``syntax`` (not JSON or MessagePack, cut short, not UTF-8), ``version`` (above ours), ``tag`` (another
    message), ``type`` (a field missing or of the wrong type), ``range`` (a whole number beyond 64 bits), ``finite`` or
    ``schema`` (one that ``schema.check`` refuses).
    """
    if len(payload) > MAX_BYTES:
        raise PeerError("size", f"{len(payload)} bytes; at most {MAX_BYTES} are read")
    if kind.FORM == "json":
        check_depth(payload)
    try:
        message: M = _decoder(kind).decode(payload)
    except RecursionError as err:
        raise PeerError("depth", f"{kind.__name__} nested too deep") from err
    except msgspec.ValidationError as err:
        raise _refusal(payload, kind, err) from err
    except (msgspec.DecodeError, UnicodeDecodeError) as err:
        raise PeerError("syntax", f"not a {kind.__name__}: {err}") from err
    _check_version(message.version, kind)
    _check_numbers(message, PeerError)
    _check_schema(message)
    return message


def check_depth(payload: bytes, limit: int = MAX_DEPTH) -> None:
    """Raise PeerError when JSON brackets nest deeper than the limit; before any parser recurses, in linear time."""
    if payload.count(b"[") + payload.count(b"{") <= limit:
        return
    brackets = _JSON_STRING.sub(b"", payload).translate(_STEPS, _NOT_BRACKETS)
    depths = np.frombuffer(brackets, dtype=np.int8).cumsum(dtype=np.int32)
    if depths.size and depths.max() > limit:
        raise PeerError("depth", f"JSON nested deeper than {limit}")


def _refusal(payload: bytes, kind: type[Message], err: msgspec.ValidationError) -> PeerError:
    """Why well-formed bytes are not this message: first of all because it is a newer one, or another one."""
    decoder = msgspec.json.decode if kind.FORM == "json" else msgspec.msgpack.decode
    try:
        head = decoder(payload, type=_Head)
        _check_version(head.version, kind)
        if head.type != kind.__struct_config__.tag:
            return PeerError("tag", f"a {head.type[:40]!r}, not a {kind.__name__}")
    except PeerError as refusal:
        return refusal
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass  # not even a head: what the first decoder said is the better story
    code = "finite" if "Number out of range" in str(err) else "range" if "out of range" in str(err) else "type"
    return PeerError(code, f"not a {kind.__name__}: {err}")


def _check_version(version: int, kind: type[Message]) -> None:
    if not 1 <= version <= VERSION:
        raise PeerError("version", f"{kind.__name__} version {version}; this program reads up to {VERSION}")


def _check_schema(message: Message) -> None:
    schema = getattr(message, "schema", None)
    if isinstance(schema, Schema):
        try:
            check(schema)
        except ConfigError as err:
            raise PeerError("schema", str(err)) from err


def _check_numbers(value: object, error: type[LocalError] | type[PeerError], path: str = "") -> None:
    """Refuse numbers that are not finite and whole numbers that do not fit in 64 bits, wherever they stand."""
    if isinstance(value, float):
        if not math.isfinite(value):
            raise error("finite", f"{path or 'a number'} is {value}")
    elif isinstance(value, int):
        if not -(2**63) <= value < 2**63:
            raise error("range", f"{path or 'a number'} does not fit in 64 bits")
    elif isinstance(value, Tensor):
        return  # convert.py checks shape and numbers, where raw bytes become an array
    elif isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            _check_numbers(getattr(value, name), error, f"{path}.{name}" if path else name)
    elif isinstance(value, dict):
        for key, item in value.items():
            _check_numbers(item, error, f"{path}.{key}")
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            _check_numbers(item, error, f"{path}[{index}]")
