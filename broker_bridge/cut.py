"""What of a recording is played, and how: as it was asked for. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Retained = Literal["keep", "plain", "skip"]


@dataclass(frozen=True)
class Moment:
    """A time in a recording: UTC epoch ns, or ns since its first message."""

    ns: int
    is_offset: bool = False

    def after(self, first_ns: int) -> int:
        """UTC epoch ns, in a recording whose first message came at ``first_ns``."""
        return first_ns + self.ns if self.is_offset else self.ns


@dataclass(frozen=True)
class Cut:
    """What of a recording is played and how. filters: () = every topic. begin, end: end excluded. prefix: before topics.

    shift_ns: how far times inside payloads are moved; ``now``: so that the first message is now; None: they stay. loops: how
    often, None = for ever. longest_pause_ns: longer ones between two messages are shortened to it; None = as they were.
    """

    filters: tuple[str, ...] = ()
    begin: Moment | None = None
    end: Moment | None = None
    prefix: str = ""
    has_own_topics: bool = False
    retained: Retained = "keep"
    shift_ns: int | Literal["now"] | None = None
    loops: int | None = 1
    longest_pause_ns: int | None = None


def is_sendable(topic: str) -> bool:
    """Whether MQTT lets a client publish on it: no wildcards, and not the broker's own."""
    return bool(topic) and not topic.startswith("$") and not set(topic) & set("+#\0") and len(topic.encode()) <= 65535
