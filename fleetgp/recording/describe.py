"""What a recording of messages holds, in numbers: topics, counts, bytes, times, gaps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from fleetgp.recording.message import Gap, Message, Recorded

MAX_GAPS = 1000  # kept one by one; more are only counted


class Topic(NamedTuple):
    """One topic of a recording. Times: UTC epoch ns of the first and last message received; bytes: of payloads."""

    messages: int
    retained: int
    bytes: int
    first_ns: int
    last_ns: int


class Description(NamedTuple):
    """A recording in numbers. gaps: the first MAX_GAPS of gap_count; session, end: what was told at its start and
    close. backwards: messages that were received earlier than the one before them."""

    topics: Mapping[str, Topic]
    gaps: tuple[Gap, ...]
    gap_count: int
    session: Mapping[str, str]
    end: Mapping[str, str]
    is_whole: bool
    backwards: int = 0

    @property
    def messages(self) -> int:
        return sum(topic.messages for topic in self.topics.values())

    @property
    def payload_bytes(self) -> int:
        return sum(topic.bytes for topic in self.topics.values())

    @property
    def first_ns(self) -> int | None:
        return min((topic.first_ns for topic in self.topics.values()), default=None)

    @property
    def last_ns(self) -> int | None:
        return max((topic.last_ns for topic in self.topics.values()), default=None)


class Overview:
    """Counts messages one by one; memory grows with topics, not with messages."""

    def __init__(self) -> None:
        self._topics: dict[str, list[int]] = {}
        self._gaps: list[Gap] = []
        self._gap_count = 0
        self._backwards = 0
        self._last_ns = 0

    def add(self, recorded: Recorded) -> None:
        if not isinstance(recorded, Message):
            self._gap_count += 1
            if len(self._gaps) < MAX_GAPS:
                self._gaps.append(recorded)
            return
        at_ns = recorded.received_ns
        self._backwards += at_ns < self._last_ns
        self._last_ns = at_ns
        counts = self._topics.get(recorded.topic)
        if counts is None:
            counts = self._topics[recorded.topic] = [0, 0, 0, at_ns, at_ns]
        counts[0] += 1
        counts[1] += recorded.is_retained
        counts[2] += len(recorded.payload)
        counts[3] = min(counts[3], at_ns)
        counts[4] = max(counts[4], at_ns)

    def description(self, *, session: Mapping[str, str], end: Mapping[str, str], is_whole: bool) -> Description:
        topics = {name: Topic(*counts) for name, counts in sorted(self._topics.items())}
        return Description(topics, tuple(self._gaps), self._gap_count, session, end, is_whole, self._backwards)
