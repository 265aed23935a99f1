"""A fast way out for a sender that has its own messages at hand: no outbox on disk, many at once, and none lost unseen."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from fleetgp.runtime.delivery import Delivery
from fleetgp.runtime.link import Outgoing


class Lane:
    """Of one session, for one sender. The sender keeps what was not taken, and sends again what comes back.

    changed: the session's lock, notified when messages were confirmed or the connection ended.
    """

    def __init__(self, delivery: Delivery, changed: threading.Condition, is_ready: Callable[[], bool]) -> None:
        self._delivery = delivery
        self._changed = changed
        self._is_ready = is_ready

    @property
    def is_open(self) -> bool:
        """Whether there is a connection that is ready."""
        return self._is_ready()

    @property
    def unconfirmed(self) -> int:
        """Messages that were taken and may not have arrived yet."""
        with self._changed:
            return self._delivery.unconfirmed

    def hand_over(self, messages: Sequence[Outgoing], *, is_urgent: bool = False) -> int:
        """Send as many of these as there is room for, in order; how many were taken: 0 without a connection, and while others
        wait to be taken back. is_urgent: in this thread, which spares waking another one before anything goes."""
        with self._changed:
            taken = self._delivery.hand_over(messages) if self._is_ready() else 0
            if taken and is_urgent:
                self._delivery.hurry()
            return taken

    def take_back(self) -> list[Outgoing]:
        """What was not confirmed when the connection ended, in order. It may have arrived."""
        with self._changed:
            return self._delivery.take_back()

    def wait_confirmed(self, most: int, timeout_s: float) -> bool:
        """Wait until at most ``most`` are unconfirmed; False when the connection ended or it took too long."""
        with self._changed:
            self._changed.wait_for(lambda: not self._is_ready() or self._delivery.unconfirmed <= most, timeout_s)
            return self._is_ready() and self._delivery.unconfirmed <= most
