"""A queue with a bound, a drop rule and counters: what stands between the network and a program's own thread."""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from typing import Generic, TypeVar

T = TypeVar("T")


class Bounded(Generic[T]):
    """First in, first out, at most ``capacity`` items, safe between threads.

    Droppable items make room for themselves by pushing out the oldest droppable one; all others wait for room.
    """

    def __init__(self, capacity: int, *, name: str = "inbox") -> None:
        if capacity < 1:
            raise ValueError(f"a queue needs room for at least one item, not {capacity}")
        self._capacity = capacity
        self._name = name
        self._items: OrderedDict[int, T] = OrderedDict()
        self._droppable: deque[int] = deque()
        self._next_ticket = 0
        self._dropped = 0
        self._refused = 0
        self._changed = threading.Condition(threading.Lock())

    @property
    def depth(self) -> int:
        """Items waiting now."""
        with self._changed:
            return len(self._items)

    def counters(self) -> dict[str, int]:
        """Items dropped to make room and items refused after waiting, since the start."""
        with self._changed:
            return {f"{self._name}_dropped": self._dropped, f"{self._name}_refused": self._refused}

    def put(self, item: T, *, is_droppable: bool, timeout_s: float) -> bool:
        """Add an item; False when it did not get in (counted).

        A droppable item never waits: the oldest droppable one goes, or this one where there is none. Others wait up to
        ``timeout_s`` seconds for room.
        """
        with self._changed:
            if is_droppable:
                if len(self._items) >= self._capacity and not self._drop_oldest():
                    return False
            elif len(self._items) >= self._capacity and not self._changed.wait_for(self._has_room, timeout_s):
                self._refused += 1
                return False
            if is_droppable:
                self._droppable.append(self._next_ticket)
            self._items[self._next_ticket] = item
            self._next_ticket += 1
            self._changed.notify_all()
            return True

    def take(self, most: int, timeout_s: float) -> list[T]:
        """Wait up to ``timeout_s`` seconds for a first item, then return up to ``most``; [] when none came."""
        with self._changed:
            if not self._items:
                self._changed.wait_for(lambda: bool(self._items), timeout_s)
            if most >= len(self._items):
                taken = list(self._items.values())
                self._items.clear()
                self._droppable.clear()
            else:
                taken = [self._take_first() for _ in range(most)]
            if taken:
                self._changed.notify_all()
            return taken

    def _has_room(self) -> bool:
        return len(self._items) < self._capacity

    def _take_first(self) -> T:
        ticket, item = self._items.popitem(last=False)
        if self._droppable and self._droppable[0] == ticket:
            self._droppable.popleft()
        return item

    def _drop_oldest(self) -> bool:
        self._dropped += 1
        if not self._droppable:
            return False
        del self._items[self._droppable.popleft()]
        return True
