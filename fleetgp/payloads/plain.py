"""A payload that is one scalar in text: ``21.4``, ``ON``, ``nan``. Its one field is called ``value``."""

from __future__ import annotations

from fleetgp.errors import PeerError
from fleetgp.payloads.content import Content, number

FIELD = "value"
LONGEST = 64


def read(text: str) -> Content:
    """Raises PeerError ``text`` or ``range`` when the text is not one scalar."""
    if len(text) > LONGEST:
        raise PeerError("text", f"{len(text)} characters; a plain value has at most {LONGEST}")
    return Content(values={FIELD: number(text)})
