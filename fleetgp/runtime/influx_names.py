"""Names as a server of the InfluxDB family keeps them, and how InfluxQL quotes them. Pure.

Names are kept as they are but for characters that the line protocol or InfluxQL cannot carry: these become ``~`` and two
hexadecimal digits. So does the first letter of a column that is called like a tag or field of our own.
"""

from __future__ import annotations

import re

RECEIVED, SEQUENCE = "_received_ms", "_sequence"

_RESERVED = frozenset(("time", "fleet", "series"))
_UNWRITABLE = re.compile(r"[\x00-\x1f\x7f\\~]")
_ESCAPED = re.compile(r"~([0-9A-F]{2})")


def stored_name(name: str) -> str:
    """A name as the server keeps it: that of a column never meets our own fields and tags."""
    kept = _UNWRITABLE.sub(lambda found: f"~{ord(found[0]):02X}", name)
    return f"~{ord(kept[0]):02X}{kept[1:]}" if kept in _RESERVED or kept.startswith("_") else kept


def own_name(stored: str) -> str:
    """The name that ``stored_name`` was given."""
    return _ESCAPED.sub(lambda found: chr(int(found[1], 16)), stored)


def quoted(name: str) -> str:
    """An identifier of InfluxQL."""
    return '"' + name.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def literal(value: str) -> str:
    """A string of InfluxQL."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n") + "'"
