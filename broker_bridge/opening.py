"""The first moments of a recorder's connection, in which a broker tells what it remembers. Pure.

A broker queues the retained messages of a new subscription all at once. mosquitto has room for 1,000 of QoS 1 by default and
drops the others, while it sends any number of QoS 0. So a recorder subscribes twice, first with QoS 0, which brings all of them,
then with QoS 1, which stays and brings those again for which there was room. Held until both are here, each is told once.
Those that came only once the broker counts as dropped, which nobody misses.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from fleetgp.runtime.link import Incoming

QUIET_S = 0.3  # without a retained message: all are here
LONGEST_S = 3.0
MOST = 100_000


def twice(filters: Sequence[str]) -> tuple[tuple[str, int], ...]:
    """Subscriptions that bring all that a broker remembers, and stay at QoS 1."""
    return tuple((pattern, qos) for qos in (0, 1) for pattern in filters)


class Opening:
    """Holds the first messages of each connection. For messages in the order in which they came; times by a monotonic clock.

    repeats_dropped: retained messages that came only once, of all connections.
    """

    def __init__(self) -> None:
        self.repeats_dropped = 0
        self._generation = -1
        self._is_open = False
        self._held: list[Incoming] = []
        self._quiet_by_s = self._ends_by_s = 0.0

    def take(self, batch: list[Incoming], generation: int, now_s: float) -> list[Incoming]:
        """Messages of one connection; what can be written now. What was held of another must have been released before."""
        if generation != self._generation:
            self._generation, self._is_open = generation, True
            self._quiet_by_s, self._ends_by_s = now_s + QUIET_S, now_s + LONGEST_S
        if not self._is_open:
            return batch
        if any(message.is_retained for message in batch):
            self._quiet_by_s = now_s + QUIET_S
        elif not self._held:  # news come behind what is remembered: there was nothing
            self._is_open = False
            return batch
        self._held += batch
        return self.due(now_s)

    def due(self, now_s: float) -> list[Incoming]:
        """What has been held long enough."""
        if self._is_open and (now_s >= min(self._quiet_by_s, self._ends_by_s) or len(self._held) >= MOST):
            return self.release()
        return []

    def release(self) -> list[Incoming]:
        """All that is held; of a retained message that came twice one, with the higher QoS, where the first one stood."""
        self._is_open = False
        held, self._held = self._held, []
        found: list[Incoming] = []
        places: dict[tuple[str, bytes], int] = {}
        repeated: set[int] = set()
        for message in held:
            if not message.is_retained:
                found.append(message)
                continue
            place = places.setdefault((message.topic, message.payload), len(found))
            if place == len(found):
                found.append(message)
                continue
            repeated.add(place)
            if message.qos > found[place].qos:
                found[place] = msgspec.structs.replace(found[place], qos=message.qos)
        self.repeats_dropped += len(places) - len(repeated)
        return found
