"""Which format a payload is in, told from its first byte."""

from __future__ import annotations

import codecs

from fleetgp.errors import PeerError
from fleetgp.payloads import json, plain
from fleetgp.payloads.content import MAX_PAYLOAD, Content


def read(payload: bytes) -> Content:
    """The content of a payload of any known format.

    Raises PeerError with code ``size``, ``empty``, ``encoding``, ``syntax``, ``depth``, ``fields``, ``text`` or ``range``.
    """
    if len(payload) > MAX_PAYLOAD:
        raise PeerError("size", f"{len(payload)} bytes; a reading has at most {MAX_PAYLOAD}")
    payload = payload.removeprefix(codecs.BOM_UTF8)
    start = payload.lstrip()[:1]
    if not start:
        raise PeerError("empty", "no payload")
    if start in b"{[":
        return json.read(payload)
    try:
        text = payload.decode("utf-8")
    except UnicodeDecodeError as err:
        raise PeerError("encoding", "neither JSON nor UTF-8 text") from err
    return plain.read(text.strip().strip('"'))
