"""One pass over a file for several readers, each of whom takes what is of its own device.

What one reader meets of another's waits for it, up to a bound. Where devices take turns, as they do in time, little waits and
the file is read once. Where one device's rows all stand before the next one's, a reader leaves the common pass and reads the
file by itself: as many passes as devices then, and no more memory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Generic, Protocol, TypeVar

T = TypeVar("T")

MOST_WAITING = 20_000

Source = Callable[[bool], Iterator[tuple[str, T]]]


class Watch(Protocol):
    """Looks on while the items of a file are read, and gives them on."""

    def __call__(self, items: Iterator[T], path: Path, /) -> Iterator[T]: ...


def unwatched(items: Iterator[T], path: Path, /) -> Iterator[T]:
    """Nobody looks on."""
    return items


class Pass(Generic[T]):
    """source: makes a fresh pass over (device, item); its argument says whether what it leaves out is to be counted."""

    def __init__(self, source: Source[T], most_waiting: int = MOST_WAITING) -> None:
        self._source = source
        self._most = most_waiting
        self._items: Iterator[tuple[str, T]] | None = None
        self._queues: dict[str, deque[T]] = {}
        self._waiting = 0

    def is_open_to(self, device: str) -> bool:
        """Whether a reader of this device can still join."""
        return self._items is None and device not in self._queues

    def join(self, device: str) -> Iterator[T]:
        """All items of a device, in their order."""
        self._queues[device] = deque()
        return self._take(device)

    def _take(self, device: str) -> Iterator[T]:
        if self._items is None:
            self._items = self._source(True)
        queue = self._queues[device]
        taken = 0
        try:
            while queue or self._waiting < self._most:
                if queue:
                    self._waiting -= 1
                    taken += 1
                    yield queue.popleft()
                    continue
                found = next(self._items, None)
                if found is None:
                    return
                if found[0] == device:
                    taken += 1
                    yield found[1]
                elif found[0] in self._queues:
                    self._queues[found[0]].append(found[1])
                    self._waiting += 1
        finally:  # nothing waits for one who has left
            self._queues.pop(device, None)
            self._waiting -= len(queue)
            queue.clear()
        alone = (item for name, item in self._source(False) if name == device)
        yield from islice(alone, taken, None)
