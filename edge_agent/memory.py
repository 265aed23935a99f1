"""What an agent has learnt, on disk: a snapshot of its state and a journal of the events since.

A kill at any moment loses nothing that is in the journal, and starting again is the same as never having stopped. What
cannot be read is put aside under another name, never deleted.
"""

from __future__ import annotations

import zlib
from collections import Counter, deque
from collections.abc import Iterable
from pathlib import Path

import msgspec

from edge_agent import agent, remodel
from edge_agent.frames import Sample
from edge_agent.state import Effect, Event, Readings, State
from fleetgp.errors import FleetError, PeerError, StorageError
from fleetgp.runtime import snapshot
from fleetgp.runtime.journal import Journal
from fleetgp.runtime.logs import Log
from fleetgp.wire.freeze import freeze, frozen, thaw

SNAPSHOT_VERSION = 3
# what these do not say is as it was then: the full model, channels that are not mixed, no tuning
READ_VERSIONS = (2,)
SNAPSHOT, JOURNAL = "snapshot.bin", "journal.bin"
# A snapshot is due before a replay would take the brain longer than this. Work is timed as it is done the first time, so that
# the bound is the same on a small and on a large computer, for slow and for fast streams.
REPLAY_S = 5.0
# or before the journal is longer than this, of which nearly all are the fleet's models, one a round
JOURNAL_MOST_BYTES = 4_000_000
# effects of a replay that are kept: the newest, for what came before was published before
REPLAYED_EFFECTS = 2000
# samples that are known again: more than a broker sends before it wants an acknowledgement
RECENT = 2000
# what a brain may fail with on an event that it should have refused: our bug, whatever the event was
_FAILURES = (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError, FleetError)

Mark = tuple[int, int]


class Saved(msgspec.Struct, frozen=True):
    """A snapshot: the state after so many journalled events, and marks of the samples taken last."""

    events: int
    state: State
    recent: tuple[Mark, ...] = ()


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """One journalled event and its number, counted from the first start."""

    number: int
    event: Event


class Recent:
    """Marks of the samples taken last.

    A broker sends again what was not acknowledged when a program was killed or a connection broke. Readings without a time
    of their own get that of their arrival and are not known again: of those an agent may take one twice.
    """

    def __init__(self, marks: Iterable[Mark] = ()) -> None:
        self.marks: deque[Mark] = deque(marks, maxlen=RECENT)
        self._known = Counter(self.marks)

    def __contains__(self, mark: Mark) -> bool:
        return mark in self._known

    def copy(self) -> Recent:
        """The same marks, to go on with apart from these."""
        return Recent(self.marks)

    def add(self, mark: Mark) -> None:
        if len(self.marks) == RECENT:
            oldest = self.marks[0]
            self._known[oldest] -= 1
            if not self._known[oldest]:
                del self._known[oldest]
        self.marks.append(mark)
        self._known[mark] += 1


def mark(sample: Sample) -> Mark:
    """What tells a sample from others: its time, and a checksum of which inputs it holds and their values."""
    return sample.at_ms, zlib.crc32(freeze((sample.positions, sample.values)))


def put_aside(folder: Path, word: str) -> list[str]:
    """Put what was learnt aside, under names that end with the word; the new names. Raises StorageError."""
    return [snapshot.set_aside(folder / name, word).name for name in (JOURNAL, SNAPSHOT) if (folder / name).exists()]


class Memory:
    """An agent's state and where it is kept. One process uses a folder (hold its lock).

    state: after all events so far; the owner replaces it after each ``keep``, and adds the seconds that took to ``work_s``,
    what a replay of the journal would take. events: how many there were. written: bytes, of journal and snapshots, since the start. replayed: effects of
    the events that were replayed at the start. failures: of reading it, by reason.
    Raises StorageError when the disk refuses at the start.
    """

    def __init__(self, folder: Path, fresh: State, log: Log) -> None:
        self._snapshot = folder / SNAPSHOT
        self._journal_path = folder / JOURNAL
        self._log = log
        self._recent = Recent()
        self._is_saved = False
        self.events = 0
        self.work_s = 0.0
        self.written = 0
        self.state = fresh
        self.replayed: list[Effect] = []
        self.failures: Counter[str] = Counter()
        self._journal = Journal(self._journal_path)
        if self._journal.torn_bytes:
            log.warning("the end of the journal was cut short; its readings come again", bytes=self._journal.torn_bytes)
        self._load(fresh)

    def unknown(self, samples: Iterable[Sample]) -> list[Sample]:
        """Those samples that were not taken before, each once."""
        fresh: dict[Mark, Sample] = {}
        for sample in samples:
            key = mark(sample)
            if key not in self._recent:
                fresh.setdefault(key, sample)
        return list(fresh.values())

    def keep(self, event: Event) -> None:
        """Put an event in the journal; raises StorageError when the disk refuses, and nothing has changed then."""
        before = self._journal.size_bytes
        self._journal.append(freeze(Entry(self.events + 1, event)))
        self.written += self._journal.size_bytes - before
        self._count(event)

    def save(self) -> None:
        """Write a snapshot, where the last one is not as good; the events it holds may then go.

        Raises StorageError when the disk refuses.
        """
        if not self._is_saved:
            saved = Saved(self.events, self.state, tuple(self._recent.marks))
            self.written += snapshot.save(self._snapshot, frozen(saved), version=SNAPSHOT_VERSION)
            self._is_saved = True
        self._journal.reset()
        self.work_s = 0.0

    @property
    def is_due(self) -> bool:
        """Whether what is in the journal would take too long to replay."""
        return self.work_s >= REPLAY_S or self._journal.size_bytes >= JOURNAL_MOST_BYTES

    @property
    def size_bytes(self) -> int:
        """Length of the journal."""
        return self._journal.size_bytes

    def close(self) -> None:
        """Raises StorageError when the disk refuses the last flush."""
        self._journal.close()

    def _load(self, fresh: State) -> None:
        try:
            payload = snapshot.load(self._snapshot, version=SNAPSHOT_VERSION, older=READ_VERSIONS)
            saved = None if payload is None else thaw(payload, Saved)
        except (StorageError, PeerError) as err:
            self._give_up("damaged", "what was learnt cannot be read; starting afresh", why=str(err))
            saved = None
        if saved is not None and saved.state.config.schema.signature() != fresh.config.schema.signature():
            self._give_up("other-channels", "the channels were changed in the settings; starting afresh on them")
            saved = None
        if saved is None:
            if next(self._journal.read(), None) is not None:
                self._give_up("orphaned", "the journal's snapshot is gone; starting afresh")
            self.save()  # so that a journal always follows the state it began with
            return
        self.events, self.state, self._recent = saved.events, saved.state, Recent(saved.recent)
        # by the settings of then, which made what was published; those of now hold from here on
        self._replay()
        if self.state.config != fresh.config:
            self.state, said = remodel.under(self.state, fresh.config)
            if said:
                self._log.warning(said)
            self._is_saved = False
            self.save()  # so that the events to come are replayed by the settings that they came under

    def _replay(self) -> None:
        effects: deque[Effect] = deque(maxlen=REPLAYED_EFFECTS)
        before = self.events
        for record in self._journal.read():
            try:
                entry = thaw(record, Entry)
            except PeerError as err:
                self._break_off(str(err))
                break
            if entry.number <= self.events:
                continue
            if entry.number > self.events + 1:
                self._break_off(f"event {self.events + 1} is missing")
                break
            effects.extend(self._again(entry))
        self.replayed = list(effects)
        self._is_saved = self.events == before
        if self.events > before:
            self._log.info("took up where it was left", replayed=self.events - before, frames=self.state.frame_count)

    def _again(self, entry: Entry) -> list[Effect]:
        """Replay one event. One that ended the program when it came must not end every start after that."""
        self._count(entry.event)
        try:
            self.state, effects = agent.step(self.state, entry.event)
        except _FAILURES as err:
            self.failures["event_failed"] += 1
            self._log.error(
                "an event cannot be worked off and is left out; please report this", number=entry.number, why=repr(err)
            )
            return []
        return effects

    def _count(self, event: Event) -> None:
        self.events += 1
        self._is_saved = False
        if isinstance(event, Readings):
            for sample in event.samples:
                self._recent.add(mark(sample))

    def _break_off(self, why: str) -> None:
        """The rest of the journal is of no use: keep it aside, and what was read of it as a snapshot."""
        self._give_up(
            "damaged", "the journal cannot be read to its end; what follows is lost", only_journal=True, why=why
        )
        self.save()

    def _give_up(self, word: str, sentence: str, *, only_journal: bool = False, **facts: str) -> None:
        self._journal.close()
        names = []
        for path in (self._journal_path,) if only_journal else (self._journal_path, self._snapshot):
            if path.exists():
                names.append(snapshot.set_aside(path, word).name)
        self._journal = Journal(self._journal_path)
        self.failures["memory_lost"] += 1
        self._log.error(sentence, kept_as=names, **facts)
