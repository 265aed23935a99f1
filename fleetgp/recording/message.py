"""What a recording of messages holds: each message with all that matters of it, and the gaps between them."""

from __future__ import annotations

from typing import NamedTuple


class Message(NamedTuple):
    """One MQTT message. received_ns: when it reached the recorder, UTC epoch ns.

    published_ns: the time that its sender gave it (in the payload, for MQTT itself has none), UTC epoch ns; 0 where it gave
    none. content_type: of MQTT 5, "" where none was sent. is_retained: it was the broker's memory, not news.
    """

    topic: str
    payload: bytes
    received_ns: int
    published_ns: int = 0
    qos: int = 0
    is_retained: bool = False
    content_type: str = ""


class Gap(NamedTuple):
    """A span in which messages may be missing, UTC epoch ns; why: in plain words."""

    start_ns: int
    end_ns: int
    why: str


Recorded = Message | Gap
