"""What becomes of a message that arrived: queued for the owner, thrown away and counted, or left to the broker."""

from __future__ import annotations

from collections import Counter
from typing import Literal

from fleetgp.runtime.bounded import Bounded
from fleetgp.runtime.link import Incoming, SessionConfig
from fleetgp.runtime.logs import Log

MAX_PAYLOAD = 8_000_000  # bytes; a larger message is counted, acknowledged and thrown away

Verdict = Literal["kept", "finished", "refused"]


class Intake:
    """The bounded inbox and the rules at its door. ``offer`` belongs to the session's thread, ``inbox`` to all."""

    def __init__(self, config: SessionConfig, *, is_echo_ours: bool, counts: Counter[str], log: Log) -> None:
        self.inbox: Bounded[Incoming] = Bounded(config.inbox_capacity)
        self._config = config
        self._is_echo_ours = is_echo_ours
        self._counts = counts
        self._log = log

    def offer(self, message: Incoming, wait_s: float) -> Verdict:
        """Take a message in, waiting up to ``wait_s`` where it is QoS 1 and the inbox is full.

        kept: the owner has it and will acknowledge. finished: nobody needs it, acknowledge it now. refused: there is no
        room, and the broker keeps it for us: connect anew without acknowledging.
        """
        if self._is_echo_ours and message.topic == self._config.heartbeat_topic:
            return "finished"
        if len(message.payload) > MAX_PAYLOAD:
            self._counts["oversized"] += 1
            topic, size = message.topic, len(message.payload)
            self._log.once(f"oversized {topic}", "warning", "message_too_large", topic=topic, bytes=size)
            return "finished"
        if self.inbox.put(message, is_droppable=message.qos == 0, timeout_s=wait_s):
            return "kept"
        # Where the broker keeps no queue for us, an unacknowledged message would never come again, only block others.
        return "refused" if message.qos and self._config.is_persistent else "finished"
