"""A JSON object of fields; objects inside are flattened with dots, lists with indices.

Time is looked for under ``time``, ``timestamp``, ``ts``, ``at_ms``, ``last_seen`` at the top (any case), a running count
under ``seq`` or ``sequence``.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from fleetgp.errors import PeerError
from fleetgp.payloads.content import Content, epoch_ms, number
from fleetgp.wire.codec import check_depth

TIME_KEYS = frozenset(("time", "timestamp", "ts", "at_ms", "last_seen"))
SEQUENCE_KEYS = frozenset(("seq", "sequence"))
MAX_FIELDS = 256
MAX_DEPTH = 8
MAX_NAME = 256


def read(payload: bytes) -> Content:
    """Raises PeerError ``depth``, ``syntax``, ``range`` (a number no double can hold) or ``fields``.

    A field that is no number is counted in ``rejected``.
    """
    check_depth(payload, MAX_DEPTH)
    try:
        document = msgspec.json.decode(payload)
    except msgspec.ValidationError as err:
        raise PeerError("range", str(err)) from err
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as err:
        raise PeerError("syntax", f"not JSON: {err}") from err
    if not isinstance(document, dict):
        raise PeerError("syntax", "JSON, but no object of fields")
    return _read_object(document)


def _read_object(document: dict[str, object]) -> Content:
    at_ms: int | None = None
    sequence: int | None = None
    rejected: dict[str, int] = {}
    values: dict[str, float | None] = {}
    for name, value in _top_fields(document):
        key = name.lower()
        try:
            if key in TIME_KEYS:
                at_ms = epoch_ms(value) if at_ms is None and value is not None else at_ms
            elif key in SEQUENCE_KEYS and type(value) is int and 0 <= value < 2**63:
                sequence = value
            elif not name.strip() or len(name) > MAX_NAME or "\0" in name:
                raise PeerError("name", f"{name[:40]!r} is no usable name of a field")
            else:
                values[name] = number(value)
        except PeerError as err:
            rejected[err.code] = rejected.get(err.code, 0) + 1
        if len(values) > MAX_FIELDS:
            raise PeerError("fields", f"more than {MAX_FIELDS} fields in one payload")
    return Content(values=values, at_ms=at_ms, sequence=sequence, rejected=rejected)


def _top_fields(document: dict[str, object]) -> Iterator[tuple[str, object]]:
    for name, value in document.items():
        if isinstance(value, (dict, list)):
            yield from flattened(value, name)
        else:
            yield name, value


def flattened(value: object, name: str) -> Iterator[tuple[str, object]]:
    """What objects and lists hold, each under its names and indices joined by dots. name: of the value itself, "" at the top."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from flattened(item, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from flattened(item, f"{name}.{index}")
    else:
        yield name, value
