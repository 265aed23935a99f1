"""Which messages of a recording are played: those of the span and topics asked for. What is left out is counted. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from paho.mqtt.client import topic_matches_sub

from broker_bridge.cut import Cut, is_sendable
from fleetgp.errors import ConfigError
from fleetgp.recording.message import Gap, Recorded
from fleetgp.wire.topics import ROOT

OWN, OTHER_TOPIC, EARLIER = "the fleet's own topics", "other topics", "before --from"
RETAINED, UNSENDABLE = "retained", "topics that no client may publish on"
PAST_END = 1000  # messages in a row after the end, until the rest is believed to be later still, and may be long
_MOST_TOPICS = 100_000  # whose verdict is remembered

Read = Callable[[int | None], Iterator[Recorded]]


class Selection:
    """read: gives the recording anew, from a time on (UTC epoch ns, None = all of it); what is earlier may come as well.

    first_ns: when the recording begins. left_out: of the first pass, by reason.
    """

    def __init__(self, read: Read, cut: Cut) -> None:
        self._read = read
        self._cut = cut
        self._verdicts: dict[str, str] = {}
        self._begin_ns: int | None = None
        self._end_ns: int | None = None
        self._passes = 0
        self.first_ns: int | None = None
        self.left_out: Counter[str] = Counter()

    def open(self) -> bool:
        """Look where it begins; False where it holds nothing. Raises ConfigError where the span asked for is none."""
        cut = self._cut
        first = next(self._read(None), None)
        if first is None:
            return False
        self.first_ns = first.start_ns if isinstance(first, Gap) else first.received_ns
        self._begin_ns = cut.begin.after(self.first_ns) if cut.begin else None
        self._end_ns = cut.end.after(self.first_ns) if cut.end else None
        if self._end_ns is not None and self._end_ns <= (self._begin_ns or self._end_ns - 1):
            raise ConfigError("--to", "this is not after --from: nothing lies between them")
        return True

    @property
    def span_ns(self) -> int | None:
        """How long the span is where both of its ends were asked for in the same way."""
        begin, end = self._cut.begin, self._cut.end
        is_span = begin is not None and end is not None and begin.is_offset == end.is_offset
        return end.ns - begin.ns if is_span and begin is not None and end is not None else None

    @property
    def end_ns(self) -> int | None:
        """Where it is to end, UTC epoch ns; None = with the recording."""
        return self._end_ns

    def items(self, *, is_numbered: bool) -> Iterator[tuple[int, Recorded]]:
        """Messages and gaps that are played. is_numbered: each with its number among all messages of the recording, from 0 (a
        gap has the next one's), which needs all of it to be read."""
        self._passes += 1
        number, past = 0, 0
        for one in self._read(None if is_numbered else self._begin_ns):
            if isinstance(one, Gap):
                if self._is_gap_of_it(one):
                    yield number, one
                continue
            number += 1
            if self._end_ns is not None and one.received_ns >= self._end_ns:
                past += 1
                if past > PAST_END:
                    return
                continue
            past = 0
            if self._begin_ns is not None and one.received_ns < self._begin_ns:
                self._leave_out(EARLIER)
                continue
            verdict = self._verdicts.get(one.topic) or self._judge(one.topic)
            if verdict != "play":
                self._leave_out(verdict)
            elif one.is_retained and self._cut.retained == "skip":
                self._leave_out(RETAINED)
            else:
                yield number - 1, one

    def _leave_out(self, reason: str) -> None:
        if self._passes == 1:
            self.left_out[reason] += 1

    def _is_gap_of_it(self, gap: Gap) -> bool:
        is_before = self._begin_ns is not None and gap.end_ns < self._begin_ns
        return not is_before and (self._end_ns is None or gap.start_ns < self._end_ns)

    def _judge(self, topic: str) -> str:
        filters = self._cut.filters
        if filters and not any(topic_matches_sub(pattern, topic) for pattern in filters):
            verdict = OTHER_TOPIC
        elif topic.split("/", 1)[0] == ROOT and not self._cut.has_own_topics:
            verdict = OWN
        elif not is_sendable(self._cut.prefix + topic):
            verdict = UNSENDABLE
        else:
            verdict = "play"
        if len(self._verdicts) < _MOST_TOPICS:
            self._verdicts[topic] = verdict
        return verdict
