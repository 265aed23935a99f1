"""Recordings of messages of every form, told by their content."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Literal

from fleetgp.errors import RecordingError
from fleetgp.recording.csv import open_text
from fleetgp.recording.message import Message, Recorded


def kind_of(path: Path) -> Literal["mcap", "messages", "jsonl", "mosquitto", "csv", "parquet"]:
    try:
        with path.open("rb") as file:
            start = file.read(8)
        if start.startswith(b"PAR1"):
            return "parquet"
        with open_text(path, "latin-1") as text:
            line = text.readline().strip()
    except FileNotFoundError:
        raise RecordingError(f"there is no file {path}") from None
    except (OSError, EOFError):
        return "csv"
    if line.startswith("{"):
        return "messages" if '"topic"' in line and '"payload"' in line else "jsonl"
    parts = line.split(" ")
    return "mosquitto" if len(parts) > 2 and "T" in parts[0] and "/" in parts[1] else "csv"


def read_messages(path: Path) -> Iterator[Recorded]:
    with open_text(path) as file:
        for line in file:
            if line.startswith("{"):
                said = json.loads(line)
                yield Message(
                    said["topic"], said["payload"].encode(), said["received"], is_retained=said.get("retain", False)
                )
            else:
                moment, topic, payload = line.rstrip("\n").split(" ", 2)
                at_ns = round(datetime.fromisoformat(moment).timestamp() * 1000) * 1_000_000
                yield Message(topic, payload.encode(), at_ns)
