"""What was handed to the present connection and is not confirmed yet, and what of the outbox goes next."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fleetgp.errors import StorageError
from fleetgp.runtime.connection import Connection
from fleetgp.runtime.link import Outgoing
from fleetgp.runtime.outbox import Entry, Outbox

MAX_PENDING = 1000  # messages in memory that a stalled broker has not taken; more are refused, not queued
LIVE_WINDOW = 20  # outbox messages of now in flight at once
BACKLOG_WINDOW = 5  # outbox messages of before this connection in flight at once: they trickle beside the live ones


class Delivery:
    """Paces the outbox and bounds what is in flight. Not locked: the session calls it under its own lock.

    note_failure: told when the disk refuses; what was not removed then is sent again, which is allowed.

    Confirmations are matched by message number, and only those of the present connection arrive here, because every
    connection begins with an empty list.
    """

    def __init__(self, outbox: Outbox | None, note_failure: Callable[[StorageError], None]) -> None:
        self._outbox = outbox
        self._note_failure = note_failure
        self._connection: Connection | None = None
        self._pending: dict[int, int | Outgoing | None] = {}
        self._returned: list[Outgoing] = []
        self._in_flight: set[int] = set()
        self._backlog_until = 0

    @property
    def pending(self) -> int:
        """Messages handed over and not confirmed."""
        return len(self._pending)

    @property
    def unconfirmed(self) -> int:
        """Messages handed over and not confirmed, and those that wait to be taken back."""
        return len(self._pending) + len(self._returned)

    @property
    def is_idle(self) -> bool:
        """Nothing is in flight and the outbox is empty."""
        return not self._pending and (self._outbox is None or self._outbox.depth == 0)

    def begin(self, connection: Connection) -> None:
        """A connection is ready: what waits in the outbox now is backlog, what is put from now on is live."""
        self.end()
        self._connection = connection
        try:
            self._backlog_until = self._outbox.last_id() if self._outbox else 0
        except StorageError as error:
            self._note_failure(error)

    def end(self) -> None:
        """The connection is over: whatever was not confirmed is sent again by the next one, from the outbox, or by the
        owner who takes it back."""
        self._connection = None
        self._returned += [kept for kept in self._pending.values() if isinstance(kept, Outgoing)]
        self._pending.clear()
        self._in_flight.clear()

    def publish(self, message: Outgoing) -> bool:
        """Hand over a message outside the outbox; False when it cannot be taken now."""
        return len(self._pending) < MAX_PENDING and self._hand_over(message, None)

    def hand_over(self, messages: Sequence[Outgoing]) -> int:
        """Hand over messages outside the outbox, in order, as many as can be taken now.

        Those that are not confirmed when the connection ends wait for ``take_back``; until then no others are taken.
        """
        if self._returned:
            return 0
        taken = 0
        for message in messages[: MAX_PENDING - len(self._pending)]:
            if not self._hand_over(message, message):
                break
            taken += 1
        return taken

    def hurry(self) -> None:
        """What was handed over goes to the socket at once, not when the connection's thread comes to it."""
        if self._connection is not None:
            self._connection.hurry()

    def take_back(self) -> list[Outgoing]:
        """What was handed over and may not have arrived, in order; forgotten here."""
        returned, self._returned = self._returned, []
        return returned

    def pump(self) -> None:
        """Hand over from the outbox what the windows allow: live messages first, then backlog."""
        if self._connection is None or self._outbox is None or self._outbox.depth == 0:
            return
        try:
            waiting = self._next_ones(self._outbox)
        except StorageError as error:
            self._note_failure(error)
            return
        for entry in waiting:
            if len(self._in_flight) >= LIVE_WINDOW + BACKLOG_WINDOW:
                return
            if entry.id in self._in_flight:
                continue
            if not self._hand_over(Outgoing(entry.topic, entry.payload, 1, entry.is_retained), entry.id):
                return

    def confirm(self, mid: int) -> None:
        """The broker has the message with this number."""
        kept = self._pending.pop(mid, None)
        if isinstance(kept, int) and self._outbox is not None:
            self._in_flight.discard(kept)
            try:
                self._outbox.done(kept)
            except StorageError as error:
                self._note_failure(error)

    def _next_ones(self, outbox: Outbox) -> list[Entry]:
        waiting = outbox.head(LIVE_WINDOW, after=self._backlog_until)
        if self._backlog_until:
            backlog = outbox.head(BACKLOG_WINDOW, until=self._backlog_until)
            waiting += backlog
            if not backlog:
                self._backlog_until = 0
        return waiting

    def _hand_over(self, message: Outgoing, kept: int | Outgoing | None) -> bool:
        if self._connection is None:
            return False
        mid = self._connection.publish(message)
        if mid is None:
            return False
        self._pending[mid] = kept
        if isinstance(kept, int):
            self._in_flight.add(kept)
        return True
