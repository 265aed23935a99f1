"""What the fleet said to one agent: models and rounds, in the order in which they were said, until the agent has taken them."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from fleetgp.wire.messages import FleetModel, Prediction, RoundNotice

MOST_WAITING = 100_000
MOST_ASKED = 8
SOON_NS = 2_000_000_000
UNTOLD_NS = 1_000_000_000


class News(NamedTuple):
    """A model and its payload, or that a round was opened.

    is_doubtful: a model that the agent was given only if it came to the broker earlier than is told.
    """

    at_ns: int
    message: FleetModel | RoundNotice
    payload: bytes
    is_doubtful: bool = False


class NewsQueue:
    """News not yet taken, oldest first. absent: from when to when the agent was not there.

    Whoever comes (back) is given the last model by the broker, and none that went before. When exactly it came only the broker
    knows, so the model before the last is doubtful.
    """

    def __init__(self, absent: Sequence[tuple[int, int]]) -> None:
        self._absent = absent
        self._queue: deque[News] = deque()

    def hear(self, news: News) -> None:
        """The next one."""
        if isinstance(news.message, FleetModel):
            absent = next(((gone, back) for gone, back in self._absent if gone <= news.at_ns < back), None)
            if absent is not None:
                self._doubt_those_since(absent[0])
        if len(self._queue) < MOST_WAITING:
            self._queue.append(news)

    def _doubt_those_since(self, gone_ns: int) -> None:
        """Of earlier models said while it was away the last is doubtful, and those before it were never heard. A moment before
        that was told it may have been gone already."""
        kept: deque[News] = deque()
        for news in self._queue:
            is_model = isinstance(news.message, FleetModel) and news.at_ns >= gone_ns - UNTOLD_NS
            if not (is_model and news.is_doubtful and news.at_ns >= gone_ns):
                kept.append(news._replace(is_doubtful=True) if is_model else news)
        self._queue = kept

    def asked(self, number: int | None, at_ns: int) -> list[int]:
        """Indices of what an answer heard at a time may answer: the opening of its round, or where that is not known the last
        few heard by then, the oldest first (it takes the fewest models with it), and those heard a moment later."""
        opened = [(index, news) for index, news in enumerate(self._queue) if isinstance(news.message, RoundNotice)]
        if number is not None:
            return [index for index, news in opened if news.message.round == number][:1]
        before = [index for index, news in opened if news.at_ns <= at_ns]
        after = [index for index, news in opened if at_ns < news.at_ns <= at_ns + SOON_NS]
        return [*before[-MOST_ASKED:], *after]

    def model_for(self, told: Prediction) -> int | None:
        """Index of the next model, where one that waits is the one that a prediction was made with."""
        models = [
            (index, (news.message.basis, news.message.round))
            for index, news in enumerate(self._queue)
            if isinstance(news.message, FleetModel)
        ]
        return models[0][0] if any(name == (told.basis, told.round) for _, name in models) else None

    def upto(self, index: int) -> list[News]:
        """Those up to this one, itself included."""
        return [self._queue[number] for number in range(index + 1)]

    def model_before(self, at_ns: int) -> int | None:
        """Index of the next model, where it was told before the agent was last gone before a time."""
        gone_ns = max((gone for gone, back in self._absent if back <= at_ns), default=0)
        return next((k for k, one in enumerate(self._queue) if _is_model(one) and one.at_ns < gone_ns), None)

    def forget_older(self, at_ns: int) -> None:
        """Models before the last one that was told before a time: of no use to an agent that did not ask for any by then."""
        last = max((one.at_ns for one in self._queue if _is_model(one) and one.at_ns <= at_ns), default=0)
        self._queue = deque(one for one in self._queue if not (_is_model(one) and one.at_ns < last))

    def take(self, index: int) -> News:
        """This one; those before it are over."""
        for _ in range(index):
            self._queue.popleft()
        return self._queue.popleft()

    @property
    def doubt(self) -> tuple[list[News], News] | None:
        """Doubtful models and the one that follows them: once that is taken, it is decided which of them were."""
        doubtful: list[News] = []
        for news in self._queue:
            if news.is_doubtful:
                doubtful.append(news)
            elif doubtful and isinstance(news.message, FleetModel):
                return doubtful, news
        return None

    def holds(self, news: News) -> bool:
        return any(one is news for one in self._queue)

    def copy(self) -> NewsQueue:
        """The same news, to go on with apart."""
        return self.without(())

    def without(self, never: Sequence[News]) -> NewsQueue:
        """As if these had never been heard."""
        other = NewsQueue(self._absent)
        other._queue = deque(news for news in self._queue if not any(news is one for one in never))
        return other


def _is_model(news: News) -> bool:
    return isinstance(news.message, FleetModel)


def some_of(doubtful: list[News]) -> Iterator[tuple[News, ...]]:
    """All of them, all but one, ..., none."""
    for size in range(len(doubtful), -1, -1):
        yield from itertools.combinations(doubtful, size)


def is_newer_model(news: News, round_: int) -> bool:
    """Whether it is a model of a later round."""
    return isinstance(news.message, FleetModel) and news.message.round > round_
