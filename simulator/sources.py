"""Recorded files as one sequence of messages by time, whatever forms they have; a damaged one as far as it goes."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from fleetgp.errors import RecordingError
from fleetgp.recording import mcap
from fleetgp.recording.mcap_glance import glance
from fleetgp.recording.message import Gap, Recorded
from fleetgp.recording.messages import kind_of
from fleetgp.recording.spec import RecordingSpec
from fleetgp.recording.streams import as_messages

MOST_SAID = 10  # damages; all are in the report


class Sources:
    """Files that are read together. say: told once of each damage."""

    def __init__(
        self, paths: Sequence[Path], spec: RecordingSpec | None = None, say: Callable[[str], None] = lambda text: None
    ) -> None:
        """Raises RecordingError where a file is not there."""
        self._paths = paths
        self._spec = spec
        self._say = say
        self._passed_over: dict[Path, int] = {}
        self.damages: list[str] = []
        self.last_ns = max((_last_ns(path) for path in paths), default=0)

    def read(self, begin_ns: int | None = None) -> Iterator[Recorded]:
        """Messages and gaps of all files, by their time; those of one file in its own order.

        begin_ns: files that have an index of their times are read from there on (UTC epoch ns); earlier ones may come as well.
        """
        sources = [self._one(path, begin_ns) for path in self._paths]
        return sources[0] if len(sources) == 1 else heapq.merge(*sources, key=_time)

    @property
    def passed_over(self) -> int:
        """Messages before ``begin_ns`` that were not even read, in the last reading."""
        return sum(self._passed_over.values())

    def _one(self, path: Path, begin_ns: int | None) -> Iterator[Recorded]:
        if kind_of(path) == "mcap":
            scan = mcap.recover(path, begin_ns)
            try:
                yield from scan
            finally:  # also where not all of it is read
                self._passed_over[path] = scan.passed_over
                for damage in scan.damages:
                    self._note(f"{path}: {damage.why}")
            return
        count = 0
        try:
            for one in as_messages(path, self._spec, self._paths):
                count += 1
                yield one
        except RecordingError as err:
            if not count:
                raise
            self._note(str(err))

    def _note(self, words: str) -> None:
        if words not in self.damages:
            self.damages.append(words)
            if len(self.damages) <= MOST_SAID:
                self._say(words + "; played as far as it goes")


def _time(one: Recorded) -> int:
    return one.start_ns if isinstance(one, Gap) else one.received_ns


def _last_ns(path: Path) -> int:
    """Time of the last message where a file tells it without being read, else 0."""
    if kind_of(path) != "mcap":
        return 0
    told = glance(path)
    return 0 if told is None or told.last_ns is None else told.last_ns
