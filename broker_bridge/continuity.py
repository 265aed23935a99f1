"""Where messages may be missing from what a recorder hears: between two connections, and where it could not keep up. Pure."""

from __future__ import annotations

from fleetgp.recording.message import Gap

AWAY = "no connection to the broker"
TOO_FAST = "messages came faster than they could be written"


class Continuity:
    """Told of connections and messages, says where the gaps are. Times are UTC epoch ns.

    A gap begins at the last moment at which the connection is known to have worked: the last message, or its own begin.
    """

    def __init__(self, start_ns: int) -> None:
        self._generation = 0
        self._sound_ns = start_ns
        self._thrown_away = 0
        self._checked_ns = start_ns

    def connected(self, generation: int, at_ns: int) -> Gap | None:
        """A connection of this number works since ``at_ns``, told before its first message. The first has no gap before it."""
        if generation == self._generation:
            return None
        gap = Gap(self._sound_ns, max(self._sound_ns, at_ns), AWAY) if self._generation else None
        self._generation, self._sound_ns = generation, max(self._sound_ns, at_ns)
        return gap

    def heard(self, at_ns: int) -> None:
        """A message came at this time."""
        self._sound_ns = max(self._sound_ns, at_ns)

    def thrown_away(self, count: int, at_ns: int) -> Gap | None:
        """How many messages since the start had to be thrown away unwritten, as counted at this time."""
        since_ns, self._checked_ns = self._checked_ns, at_ns
        if count == self._thrown_away:
            return None
        number, self._thrown_away = count - self._thrown_away, count
        return Gap(since_ns, at_ns, f"{TOO_FAST}: {number} thrown away")

    def ended(self, at_ns: int, *, is_connected: bool) -> Gap | None:
        """The recording ends; without a connection, the gap lasts until here."""
        return None if is_connected or not self._generation else Gap(self._sound_ns, at_ns, AWAY)
