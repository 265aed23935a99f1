"""From what a recording holds to what is sent and when: chosen by time and topic, renamed, moved in time, repeated. Pure.

Offsets are the recording's own time since the first message that is played, so that a message's moment is its offset by the
speed, whatever happened to those before it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from paho.mqtt.client import topic_matches_sub

from fleetgp.payloads.moving import move
from fleetgp.recording.message import Gap, Message, Recorded
from fleetgp.runtime.link import Outgoing
from fleetgp.wire.topics import ROOT

Retained = Literal["keep", "plain", "skip"]

OWN, OTHER_TOPIC, EARLIER = "the fleet's own topics", "other topics", "before --from"
RETAINED, UNSENDABLE = "retained", "topics that no client may publish on"
_MOST_TOPICS = 100_000  # whose verdict is remembered


class Due(NamedTuple):
    """What to send. offset_ns: recording time since the start of the replay; at_ns: when it was received, UTC epoch ns."""

    offset_ns: int
    message: Outgoing
    at_ns: int


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
    often, None = for ever.
    """

    filters: tuple[str, ...] = ()
    begin: Moment | None = None
    end: Moment | None = None
    prefix: str = ""
    has_own_topics: bool = False
    retained: Retained = "keep"
    shift_ns: int | Literal["now"] | None = None
    loops: int | None = 1


def is_sendable(topic: str) -> bool:
    """Whether MQTT lets a client publish on it: no wildcards, and not the broker's own."""
    return bool(topic) and not topic.startswith("$") and not set(topic) & set("+#\0") and len(topic.encode()) <= 65535


class Timeline:
    """Iterate once. read: gives the recording anew, for every loop. now_ns: the time at which the replay starts.

    What it left out, and the gaps it met, stand in the attributes while it goes on; on_gap is told of each as it comes.
    """

    def __init__(
        self,
        read: Callable[[], Iterator[Recorded]],
        cut: Cut,
        *,
        now_ns: Callable[[], int],
        on_gap: Callable[[Gap], None] = lambda gap: None,
    ) -> None:
        self._read = read
        self._cut = cut
        self._now_ns = now_ns
        self._on_gap = on_gap
        self._verdicts: dict[str, str] = {}
        self.left_out: Counter[str] = Counter()
        self.unmoved: Counter[str] = Counter()  # messages without a time that could be moved, by reason
        self.gaps: list[Gap] = []
        self.retained = 0
        self.typed = 0
        self.loop = 0
        self.first_ns: int | None = None
        self.last_ns: int | None = None

    def __iter__(self) -> Iterator[Due]:
        begun_ns = 0  # offset of this loop's first message
        shift_ns: int | None = None
        while self._cut.loops is None or self.loop < self._cut.loops:
            self.loop += 1
            offset_ns, count, origin_ns = 0, 0, 0
            for message in self._chosen():
                if not count:
                    origin_ns = message.received_ns
                    if shift_ns is None and self._cut.shift_ns is not None:
                        asked = self._cut.shift_ns
                        shift_ns = self._now_ns() - origin_ns if asked == "now" else asked
                # a message that was received before the one before it is sent right after it
                offset_ns = max(offset_ns, message.received_ns - origin_ns)
                count += 1
                yield Due(begun_ns + offset_ns, self._outgoing(message, shift_ns), message.received_ns)
            if not count:
                return
            length_ns = self._length(origin_ns, offset_ns, count)
            begun_ns += length_ns
            shift_ns = None if shift_ns is None else shift_ns + length_ns

    def _chosen(self) -> Iterator[Message]:
        """The messages of one loop."""
        cut = self._cut
        begin_ns: int | None = None
        end_ns: int | None = None
        is_first = True
        for one in self._read():
            if is_first:
                start_ns = one.start_ns if isinstance(one, Gap) else one.received_ns
                begin_ns = cut.begin.after(start_ns) if cut.begin else None
                end_ns = cut.end.after(start_ns) if cut.end else None
                is_first = False
            if isinstance(one, Gap):
                self._note_gap(one, begin_ns, end_ns)
                continue
            if begin_ns is not None and one.received_ns < begin_ns:
                self._leave_out(EARLIER)
                continue
            if end_ns is not None and one.received_ns >= end_ns:
                return  # the rest came later still, and may be long
            verdict = self._verdicts.get(one.topic) or self._judge(one.topic)
            if verdict != "play":
                self._leave_out(verdict)
                continue
            if one.is_retained and cut.retained == "skip":
                self._leave_out(RETAINED)
                continue
            if self.loop == 1:
                self.first_ns = one.received_ns if self.first_ns is None else self.first_ns
                self.last_ns = one.received_ns
            yield one

    def _leave_out(self, reason: str) -> None:
        if self.loop == 1:
            self.left_out[reason] += 1

    def _note_gap(self, gap: Gap, begin_ns: int | None, end_ns: int | None) -> None:
        is_outside = (begin_ns is not None and gap.end_ns < begin_ns) or (end_ns is not None and gap.start_ns >= end_ns)
        if self.loop == 1 and not is_outside:
            self.gaps.append(gap)
            self._on_gap(gap)

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

    def _outgoing(self, message: Message, shift_ns: int | None) -> Outgoing:
        payload = message.payload
        if shift_ns is not None:
            payload, times, why = move(payload, message.topic, round(shift_ns / 1_000_000))
            if not times:
                self.unmoved[why or "no_time"] += 1
        self.retained += message.is_retained
        self.typed += bool(message.content_type)
        is_retained = message.is_retained and self._cut.retained == "keep"
        qos = min(message.qos, 1)  # 2 is what no program of ours speaks
        return Outgoing(self._cut.prefix + message.topic, payload, qos, is_retained, message.content_type)

    def _length(self, origin_ns: int, last_offset_ns: int, count: int) -> int:
        """How long one loop takes: the span that was asked for, or up to where the next message would have come."""
        begin, end = self._cut.begin, self._cut.end
        if begin is not None and end is not None and begin.is_offset == end.is_offset:
            return max(end.ns - begin.ns, last_offset_ns)
        return last_offset_ns + (round(last_offset_ns / (count - 1)) if count > 1 else 1_000_000_000)
