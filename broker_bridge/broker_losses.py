"""What a broker says that it dropped before its subscribers had it, on ``$SYS/broker/...`` as mosquitto does.

The broker counts for all its subscribers together: a rise means that messages of ours or of others are missing. Many brokers
tell nothing of the kind, or not to everybody. The question has a connection of its own, for there are brokers that end a
connection which asks for what it may not have.
"""

from __future__ import annotations

import io
import os
import uuid

from fleetgp.runtime.clock import Clock
from fleetgp.runtime.link import Link
from fleetgp.runtime.logs import make_log
from fleetgp.runtime.mqtt import Incoming, Session, SessionConfig

DROPPED = "$SYS/broker/publish/messages/dropped"
UPTIME = "$SYS/broker/uptime"  # goes on at every count, where a number that did not change is not told again
MOST_ATTEMPTS = 3  # connections without a word, after which it is no longer asked
FORGOTTEN_S = 60  # mosquitto forgets so soon what it told and did not change: a younger one has forgotten nothing
MOST_DIGITS = 15


class Tally:
    """Adds up what the broker tells. Pure.

    dropped: messages since the first word, None as long as there was none; is_at_least: there were more before its first count.
    told_s: when the broker last counted, by a monotonic clock.
    """

    def __init__(self) -> None:
        self.dropped: int | None = None
        self.is_at_least = False
        self.told_s = 0.0
        self._last: int | None = None
        self._is_young = False

    def take(self, message: Incoming, at_s: float) -> None:
        """One message on DROPPED or UPTIME. A count of before the recording comes as a retained message."""
        told = message.payload.split()[:1]
        if not told or not told[0].isdigit() or len(told[0]) > MOST_DIGITS:
            return
        self.dropped, self.told_s = self.dropped or 0, at_s
        number = int(told[0])
        if message.topic == UPTIME:
            self._is_young = number < FORGOTTEN_S
        elif message.topic == DROPPED:
            self.dropped += self._rise(number, is_retained=message.is_retained)
            self._last = number

    def _rise(self, count: int, *, is_retained: bool) -> int:
        if self._last is not None:
            return count - self._last if count >= self._last else count  # it began anew
        if is_retained or self._is_young:
            return 0 if is_retained else count
        self.is_at_least = count > 0  # it has risen just now, nobody knows from where
        return int(count > 0)


class BrokerLosses:
    """Listens to the broker's own count. ``look`` takes in what came; ``tally`` is what it came to."""

    def __init__(self, link: Link, clock: Clock, version: str) -> None:
        self.tally = Tally()
        self._clock = clock
        self._is_asked = True
        config = SessionConfig(
            client_id=f"fleetgp-losses-{os.getpid()}-{uuid.uuid4().hex[:6]}",
            subscriptions=((DROPPED, 0), (UPTIME, 0)),
            version=version,
        )
        self._session = Session(link, config, clock=clock, log=make_log("record", stream=_Unheard()))  # type: ignore[arg-type]

    def start(self) -> None:
        self._session.start()

    def look(self) -> None:
        """Take in what the broker told meanwhile; never waits."""
        if not self._is_asked:
            return
        for message in self._session.receive(100, 0.0):
            self.tally.take(message, self._clock.monotonic_s())
        if self.tally.dropped is None and self._session.counters().get("connects", 0) > MOST_ATTEMPTS:
            self.stop()

    def stop(self) -> None:
        """Twice is once."""
        if self._is_asked:
            self._is_asked = False
            self._session.stop(timeout_s=0.5)


class _Unheard(io.TextIOBase):
    """Where the log of this connection goes: the recording's own says what is wrong with the broker."""

    def write(self, text: str, /) -> int:
        return len(text)
