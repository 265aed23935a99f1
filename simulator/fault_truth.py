"""What was done to a recording: by fault, to which messages, and what was left alone and why."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fleetgp.errors import RecordingError
from simulator.fault_spec import Fault

VERSION = 1
MOST_INDICES = 100_000


@dataclass
class Told:
    """What one fault did. indices: of the messages it changed, counted from 0 in the recording that it was put into."""

    fault: Fault
    begin_ns: int | None = None
    end_ns: int | None = None
    messages: int = 0
    indices: list[int] = field(default_factory=list)
    topics: Counter[str] = field(default_factory=Counter)
    left_alone: Counter[str] = field(default_factory=Counter)
    first_ns: int | None = None
    last_ns: int | None = None

    def note(self, index: int, topic: str, received_ns: int) -> None:
        """This message was changed."""
        self.messages += 1
        self.topics[topic] += 1
        if len(self.indices) < MOST_INDICES:
            self.indices.append(index)
        self.first_ns = received_ns if self.first_ns is None else min(self.first_ns, received_ns)
        self.last_ns = received_ns if self.last_ns is None else max(self.last_ns, received_ns)

    def document(self) -> dict[str, Any]:
        fault = self.fault
        size = {
            "size": fault.size,
            "unit": "sd" if fault.is_in_sd else "messages" if fault.kind == "reorder" else "own",
            "size_by_topic": {topic: (fault.size or 0.0) * sd for topic, sd in fault.sds.items()},
        }
        return {
            "fault": fault.text,
            "kind": fault.kind,
            "topic": fault.topic,
            "field": fault.field,
            "from": _iso(self.begin_ns),
            "until": _iso(self.end_ns),
            **(size if fault.size is not None else {}),
            **({"span_s": fault.span_s} if fault.span_s else {}),
            **({"drift_ppm": fault.drift_ppm} if fault.drift_ppm else {}),
            **({"share": fault.share} if fault.share is not None else {}),
            "messages": self.messages,
            "first": _iso(self.first_ns),
            "last": _iso(self.last_ns),
            "topics": dict(sorted(self.topics.items())),
            "indices": sorted(self.indices),
            "indices_left_off": self.messages - len(self.indices),
            "left_alone": dict(sorted(self.left_alone.items())),
        }


class Truth:
    """What all faults did. messages_in, messages_out: of the recording before and after."""

    def __init__(self, seed: int, faults: Sequence[Fault]) -> None:
        self.seed = seed
        self.faults = [Told(fault) for fault in faults]
        self.messages_in = 0
        self.messages_out = 0

    def document(self) -> dict[str, Any]:
        """As it is written beside a recording: docs/faults.md."""
        return {
            "version": VERSION,
            "seed": self.seed,
            "messages_in": self.messages_in,
            "messages_out": self.messages_out,
            "faults": [told.document() for told in self.faults],
        }

    def lines(self) -> list[str]:
        """For people, one line a fault."""
        result = []
        for told in self.faults:
            alone = ", ".join(f"{number} {reason}" for reason, number in sorted(told.left_alone.items()))
            result.append(
                f"injected    {told.fault.text}: {told.messages:,} messages"
                + (f" (left alone: {alone})" if alone else "")
            )
        return result

    def write(self, path: Path) -> None:
        """Raises RecordingError where it cannot be written."""
        try:
            path.write_text(json.dumps(self.document(), indent=1) + "\n", encoding="utf-8")
        except OSError as err:
            raise RecordingError(f"{path} cannot be written: {err.strerror}") from err


def _iso(ns: int | None) -> str | None:
    """UTC, to the nanosecond where it has any."""
    if ns is None:
        return None
    seconds, rest = divmod(ns, 1_000_000_000)
    moment = datetime.fromtimestamp(seconds, tz=UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{moment}.{rest:09d}".rstrip("0").rstrip(".") + "Z"
