"""Plays messages to a broker, each at its own moment: start + offset / speed by the monotonic clock, so that delays do not
add up. A message that is late goes at once. While the broker is away the clock stands still.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from broker_bridge.lateness import Lateness
from broker_bridge.timeline import Due
from fleetgp.errors import ServiceError
from fleetgp.runtime.clock import Clock
from fleetgp.runtime.link import Outgoing

BATCH = 100  # messages at once where the speed is not bounded
ROOM = 500  # unconfirmed messages at which sending goes on after the broker had stalled it
PAUSE_S = 1.0  # a wait that is told of
DUE_S = 1e-6  # no sleep is that exact, and no clock of floating point counts on for ever
NAP_S, NAPS_S = 0.0005, 0.003  # how long naps are, and how long before a message is due they begin
STEP_S = 0.1  # longest wait: bounds how late a stop or an outage is noticed
AWAY_S = 60.0  # how long a broker may be away, or take nothing
MOST_RETURNS = 3  # of one message, until its topic is believed to be what the broker does not want
SUSPECT_S = 1.0  # for the confirmation of a message that may end the connection
CONFIRM_S = 10.0  # for the last messages to be confirmed


class Way(Protocol):
    """Where messages go: ``fleetgp.runtime.lane.Lane``."""

    @property
    def is_open(self) -> bool: ...

    @property
    def unconfirmed(self) -> int: ...

    def hand_over(self, messages: list[Outgoing], *, is_urgent: bool = False) -> int: ...

    def take_back(self) -> list[Outgoing]: ...

    def wait_confirmed(self, most: int, timeout_s: float) -> bool: ...


class Player:
    """Plays one sequence. speed: recording seconds a second, None = as fast as the broker takes them.

    wait: sleeps up to so many seconds, True when the replay is to stop. say: told in plain words what goes wrong.
    watch: called now and then with the last message that was due. pause: called while it waits, with the next one and the
    seconds until then.
    """

    def __init__(
        self,
        way: Way,
        clock: Clock,
        wait: Callable[[float], bool],
        *,
        speed: float | None = 1.0,
        say: Callable[[str], None] = lambda text: None,
        watch: Callable[[Due], None] = lambda due: None,
        pause: Callable[[Due, float], None] = lambda due, left_s: None,
    ) -> None:
        self._way = way
        self._clock = clock
        self._wait = wait
        self._speed = speed
        self._say = say
        self._watch = watch
        self._pause = pause
        self._begin_s = 0.0
        self._waiting: list[Outgoing] = []
        self._first_back: Outgoing | None = None
        self._returns = 0
        self._suspects = 0
        self._refused_topics: set[str] = set()
        self.lateness = Lateness()
        self.sent = 0
        self.bytes = 0
        self.resent = 0
        self.refused = 0
        self.away_s = 0.0
        self.first_ns: int | None = None  # the earliest and latest receive time of what was played
        self.last_ns: int | None = None
        self.is_stopped = False

    def play(self, dues: Iterable[Due]) -> None:
        """Send all, or until ``wait`` says stop. Raises ServiceError where the broker stays away or takes nothing."""
        most = 1 if self._speed is not None else BATCH
        for due in dues:
            if self.first_ns is None:  # the clock starts when there is something to play
                self._begin_s = self._clock.monotonic_s()
            if self._speed is not None:
                self._keep_time(due, due.offset_ns / 1e9 / self._speed)
            if self.is_stopped:
                break
            self.first_ns = due.at_ns if self.first_ns is None else min(self.first_ns, due.at_ns)
            self.last_ns = due.at_ns if self.last_ns is None else max(self.last_ns, due.at_ns)
            if due.message.topic in self._refused_topics:
                self.refused += 1
                continue
            self._waiting.append(due.message)
            if len(self._waiting) >= most:
                self._send()
                self._watch(due)
                self.is_stopped = self.is_stopped or self._wait(0.0)
        self._send()

    def confirm(self) -> int:
        """Wait until the broker has confirmed everything; how many messages it has not, CONFIRM_S after the last sign of it."""
        by_s = self._clock.monotonic_s() + CONFIRM_S
        while (self._way.unconfirmed or self._waiting) and self._clock.monotonic_s() < by_s:
            self._waiting = self._take_back() + self._waiting
            if self._hand_over():
                by_s = self._clock.monotonic_s() + CONFIRM_S
            if not self._way.wait_confirmed(0, STEP_S) and not self._way.is_open:
                if self.is_stopped:
                    break
                self.is_stopped = self._wait(STEP_S)
        return self._way.unconfirmed + len(self._waiting)

    def _keep_time(self, due: Due, after_s: float) -> None:
        """Wait until a message is due, and note how late it is."""
        while not self.is_stopped:
            left_s = self._begin_s + after_s - self._clock.monotonic_s()
            if left_s <= DUE_S:
                self.lateness.add(-1000.0 * left_s)
                return
            if left_s > PAUSE_S:
                self._pause(due, left_s)
            # the last bit in naps: a sleeper of many ms is woken later, on a busy machine, than one that was just awake
            rest_s = left_s - NAPS_S
            self.is_stopped = self._wait(min(rest_s, STEP_S) if rest_s > NAP_S else min(left_s, NAP_S))

    def _send(self) -> None:
        """Hand over what waits; returns when it was taken, or a stop was asked for."""
        taken_s = self._clock.monotonic_s()
        while self._waiting and not self.is_stopped:
            taken = self._hand_over()
            if back := self._take_back():
                self._waiting = back + self._waiting
            elif taken:
                taken_s = self._clock.monotonic_s()
            elif not self._way.is_open:
                self._wait_for_broker()
                taken_s = self._clock.monotonic_s()
            elif self._clock.monotonic_s() - taken_s > AWAY_S:
                raise ServiceError(f"the broker has taken nothing for {AWAY_S:.0f} s; given up")
            else:
                self._way.wait_confirmed(ROOM, STEP_S)
                self.is_stopped = self._wait(0.0)

    def _hand_over(self) -> int:
        """As many as are taken; one by one, each confirmed, where one of them seems to end the connection."""
        now = self._waiting[:1] if self._suspects else self._waiting
        count = self._way.hand_over(now, is_urgent=self._speed is not None)
        taken, self._waiting = self._waiting[:count], self._waiting[count:]
        self.sent += count
        self.bytes += sum(len(message.payload) for message in taken)
        if count and self._suspects:
            self._suspects -= 1
            self._way.wait_confirmed(0, SUSPECT_S)
        return count

    def _take_back(self) -> list[Outgoing]:
        """What may not have arrived, to be sent again; without one message at which the broker ends every connection."""
        back = self._way.take_back()
        if not back:
            return back
        self._returns = self._returns + 1 if back[0] is self._first_back else 1
        self._first_back = back[0]
        self.sent -= len(back)
        self.bytes -= sum(len(message.payload) for message in back)
        if self._returns > 1:
            self._suspects = max(self._suspects, len(back))
        if self._returns >= MOST_RETURNS:
            back = self._refuse(back[0].topic, back)
        self.resent += len(back)
        return back

    def _refuse(self, topic: str, back: list[Outgoing]) -> list[Outgoing]:
        """Give a topic up; what is left of those that came back."""
        self._say(f"the broker ends the connection whenever a message on {topic!r} comes: that topic is left out")
        self._refused_topics.add(topic)
        self.refused += sum(message.topic == topic for message in (*back, *self._waiting))
        self._waiting = [message for message in self._waiting if message.topic != topic]
        return [message for message in back if message.topic != topic]

    def _wait_for_broker(self) -> None:
        """The clock stands still while the broker is away."""
        gone_s = self._clock.monotonic_s()
        self._say("the broker is away: waiting for it, and the replay's clock stands still")
        while not self._way.is_open and not self.is_stopped:
            if self._clock.monotonic_s() - gone_s > AWAY_S:
                raise ServiceError(f"the broker was away for {AWAY_S:.0f} s; given up")
            self.is_stopped = self._wait(STEP_S)
        passed_s = self._clock.monotonic_s() - gone_s
        self.away_s += passed_s
        self._begin_s += passed_s
