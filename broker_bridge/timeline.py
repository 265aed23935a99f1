"""From what of a recording is played to what is sent and when: changed on the way, renamed, moved in time, repeated. Pure.

Offsets are the recording's own time since the first message that is played, so that a message's moment is its offset by the
speed, whatever happened to those before it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import chain
from typing import NamedTuple

from broker_bridge.cut import Cut
from broker_bridge.selection import Read, Selection
from fleetgp.payloads.moving import move
from fleetgp.recording.message import Gap, Message, Recorded
from fleetgp.runtime.link import Outgoing

# what is done to messages on their way: numbered ones, and when the recording began
Change = Callable[[Iterator[tuple[int, Recorded]], int], Iterator[Recorded]]


class Due(NamedTuple):
    """What to send. offset_ns: recording time since the start of the replay; at_ns: when it was received, UTC epoch ns."""

    offset_ns: int
    message: Outgoing
    at_ns: int


class Timeline:
    """Iterate once. read: gives the recording anew, for every loop. now_ns: the time at which the replay starts.

    What was met on the way stands in the attributes while it goes on; on_gap is told of each gap as it comes.
    """

    def __init__(
        self,
        read: Read,
        cut: Cut,
        *,
        now_ns: Callable[[], int],
        on_gap: Callable[[Gap], None] = lambda gap: None,
        change: Change | None = None,
    ) -> None:
        self._cut = cut
        self._now_ns = now_ns
        self._on_gap = on_gap
        self._change = change
        self._base_ns: int | None = None  # the shift with which a loop begins
        self._cut_out_ns = 0  # of pauses, in this loop
        self._begun: Iterator[Message] | None = None
        self.selection = Selection(read, cut)
        self.unmoved: Counter[str] = Counter()  # messages without a time that could be moved, by reason
        self.gaps: list[Gap] = []
        self.retained = 0
        self.typed = 0
        self.loop = 0
        self.shortened = 0  # pauses
        self.early = 0  # messages received before one that stands before them
        self.is_empty = False  # the recording holds nothing at all

    @property
    def left_out(self) -> Counter[str]:
        """Messages that are not played, by reason."""
        return self.selection.left_out

    def open(self) -> bool:
        """Look for the first message to play, which may take its time; False where there is none.

        Raises ConfigError where no span lies between begin and end, RecordingError where the recording cannot be read.
        """
        if not self.selection.open():
            self.is_empty = True
            self._begun = iter(())
            return False
        messages = self._pass()
        first = next(messages, None)
        self._begun = iter(()) if first is None else chain([first], messages)
        return first is not None

    def __iter__(self) -> Iterator[Due]:
        if self._begun is None:
            self.open()
        begun_ns = 0  # offset of this loop's first message
        while self._cut.loops is None or self.loop < self._cut.loops:
            messages = self._begun if self.loop == 0 and self._begun is not None else self._pass()
            self.loop += 1
            offset_ns, latest_ns, count = 0, 0, 0
            self._cut_out_ns = 0
            for message in messages:
                if not count:
                    latest_ns = message.received_ns
                    self._begin_shift(latest_ns)
                count += 1
                offset_ns += self._step(message.received_ns - latest_ns)
                latest_ns = max(latest_ns, message.received_ns)
                yield Due(begun_ns + offset_ns, self._outgoing(message), message.received_ns)
            if not count:
                return
            length_ns = self._length(offset_ns, count)
            begun_ns += length_ns
            if self._base_ns is not None:
                self._base_ns += length_ns + (0 if self._is_now else self._cut_out_ns)

    @property
    def _is_now(self) -> bool:
        return self._cut.shift_ns == "now"

    @property
    def _shift_ns(self) -> int | None:
        """How far times are moved here: what comes after a shortened pause is of now as well, if the first message was."""
        return None if self._base_ns is None else self._base_ns - (self._cut_out_ns if self._is_now else 0)

    def _begin_shift(self, first_ns: int) -> None:
        asked = self._cut.shift_ns
        if self.loop == 1 and asked is not None:
            self._base_ns = self._now_ns() - first_ns if asked == "now" else asked

    def _step(self, step_ns: int) -> int:
        """Recording time to the next message; one that was received before the one before it is sent right after it."""
        if step_ns < 0:
            self.early += self.loop == 1
            return 0
        longest_ns = self._cut.longest_pause_ns
        if longest_ns is None or step_ns <= longest_ns:
            return step_ns
        self.shortened += self.loop == 1
        self._cut_out_ns += step_ns - longest_ns
        return longest_ns

    def _pass(self) -> Iterator[Message]:
        """The messages of one loop."""
        items = self.selection.items(is_numbered=self._change is not None)
        is_first = self.loop == 0
        chosen: Iterator[Recorded]
        if self._change is None:
            chosen = (one for _, one in items)
        else:
            chosen = self._change(items, self.selection.first_ns or 0)
        for one in chosen:
            if isinstance(one, Message):
                yield one
            elif is_first:
                self.gaps.append(one)
                self._on_gap(one)

    def _outgoing(self, message: Message) -> Outgoing:
        payload = message.payload
        if (shift_ns := self._shift_ns) is not None:
            payload, times, why = move(payload, message.topic, round(shift_ns / 1_000_000))
            if not times:
                self.unmoved[why or "no_time"] += 1
        self.retained += message.is_retained
        self.typed += bool(message.content_type)
        is_retained = message.is_retained and self._cut.retained == "keep"
        qos = min(message.qos, 1)  # 2 is what no program of ours speaks
        return Outgoing(self._cut.prefix + message.topic, payload, qos, is_retained, message.content_type)

    def _length(self, last_offset_ns: int, count: int) -> int:
        """How long one loop takes: the span that was asked for, or up to where the next message would have come."""
        span_ns = self.selection.span_ns
        if span_ns is not None and self._cut.longest_pause_ns is None:
            return max(span_ns, last_offset_ns)
        return last_offset_ns + (round(last_offset_ns / (count - 1)) if count > 1 else 1_000_000_000)
