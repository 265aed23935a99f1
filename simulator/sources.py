"""Recorded files as one sequence of messages by time, whatever forms they have; a damaged one as far as it goes."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from mcap.exceptions import McapError
from mcap.reader import make_reader

from fleetgp.errors import RecordingError
from fleetgp.recording import mcap
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
        self.damages: list[str] = []
        self.last_ns = max((_last_ns(path) for path in paths), default=0)

    def read(self) -> Iterator[Recorded]:
        """Messages and gaps of all files, by their time; those of one file in its own order."""
        sources = [self._one(path) for path in self._paths]
        return sources[0] if len(sources) == 1 else heapq.merge(*sources, key=_time)

    def _one(self, path: Path) -> Iterator[Recorded]:
        if kind_of(path) == "mcap":
            scan = mcap.recover(path)
            yield from scan
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
    try:
        with path.open("rb") as file:
            summary = make_reader(file).get_summary()
    except (McapError, OSError, ValueError):
        return 0
    return summary.statistics.message_end_time if summary is not None and summary.statistics is not None else 0
