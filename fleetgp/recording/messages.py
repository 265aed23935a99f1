"""Recordings of every form, told by their content; and the messages of those that hold messages."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from pathlib import Path
from typing import Literal

import msgspec

from fleetgp.recording import jsonl, mosquitto
from fleetgp.recording.mcap_layout import MAGIC
from fleetgp.recording.message import Recorded
from fleetgp.recording.text import head

Kind = Literal["mcap", "messages", "mosquitto", "jsonl", "parquet", "csv"]
OF_MESSAGES: tuple[Kind, ...] = ("mcap", "messages", "mosquitto")
FIRST_LINES = 20


def kind_of(path: Path) -> Kind:
    """What a file is, told by its first bytes and lines: ``messages`` are lines of JSON with a topic and a payload, ``jsonl``
    lines of any other JSON, ``csv`` whatever else. Raises RecordingError where it cannot be opened."""
    first = head(path)[:FIRST_LINES]
    start = b"".join(first[:2])
    if start.startswith((MAGIC, b"\x89MCAP")):
        return "mcap"
    if start.startswith(b"PAR1"):
        return "parquet"
    whole = [line for line in first if line.strip()]
    if whole and whole[0].lstrip()[:1] == b"{":
        return "messages" if any(_is_message(line) for line in whole) else "jsonl"
    return "mosquitto" if mosquitto.looks_like(first) else "csv"


def _is_message(line: bytes) -> bool:
    try:
        told = msgspec.json.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False
    return (
        isinstance(told, dict)
        and isinstance(told.get("topic"), str)
        and not told.keys().isdisjoint(("payload", "payload_base64"))
    )


def read_messages(path: Path, skipped: MutableMapping[str, int] | None = None) -> Iterator[Recorded]:
    """Messages and gaps of a file that holds messages, in its order.

    skipped: counts by reason what cannot be read, and the reader goes on as far as it can. Without it, damage raises
    RecordingError; always where the file cannot be opened or holds no messages.
    """
    kind = kind_of(path)
    if kind == "mcap":
        yield from _mcap(path, skipped)
    elif kind == "mosquitto":
        yield from mosquitto.read(path, skipped)
    else:
        yield from jsonl.read(path, skipped)


def _mcap(path: Path, skipped: MutableMapping[str, int] | None) -> Iterator[Recorded]:
    from fleetgp.recording.mcap_read import Scan  # here, for the other forms need no extra package

    scan = Scan(path, is_strict=skipped is None)
    yield from scan
    if skipped is not None and scan.damage_count:
        skipped["damaged"] = skipped.get("damaged", 0) + scan.damage_count
        skipped["lost"] = skipped.get("lost", 0) + scan.lost
