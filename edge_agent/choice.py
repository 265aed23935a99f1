"""What was chosen, and the readings it is being chosen from, on disk: a restart neither asks nor loses anything again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from edge_agent.choosing import Kept
from fleetgp.defaults import Choice
from fleetgp.errors import PeerError, StorageError
from fleetgp.runtime import snapshot
from fleetgp.runtime.journal import Journal
from fleetgp.runtime.logs import Log
from fleetgp.wire.freeze import freeze, frozen, thaw

VERSION = 2


class ChoiceFiles:
    """``choice.bin``, replaced as a whole, and ``first-readings.bin``, a journal that goes once a brain has its readings."""

    def __init__(self, folder: Path, log: Log) -> None:
        self._choice = folder / "choice.bin"
        self._readings = folder / "first-readings.bin"
        self._journal: Journal | None = None
        self._log = log

    def load(self) -> Choice | None:
        """What was chosen; None where nothing was, or it cannot be read: then it is put aside, and chosen again."""
        try:
            payload = snapshot.load(self._choice, version=VERSION)
            return None if payload is None else thaw(payload, Choice)
        except (StorageError, PeerError) as err:
            aside = snapshot.set_aside(self._choice)
            self._log.error("what was chosen cannot be read; choosing again", why=str(err), kept_as=aside.name)
            return None

    def save(self, choice: Choice) -> None:
        """Raises StorageError when the disk refuses."""
        snapshot.save(self._choice, frozen(choice), version=VERSION)

    def readings(self) -> Sequence[Kept]:
        """Those kept so far, oldest first. What is damaged is left out: its readings come again, or are lost with a disk."""
        if not self._readings.exists():
            return []
        found = []
        for record in self._open().read():
            try:
                found.append(thaw(record, Kept))
            except PeerError as err:
                self._log.error("a reading from before the choice cannot be read", why=str(err))
        return found

    def add(self, kept: Kept) -> None:
        """Raises StorageError when the disk refuses; nothing has changed then."""
        self._open().append(freeze(kept))

    def rewrite(self, kept: Sequence[Kept]) -> None:
        """Replace all readings as a whole. Raises StorageError when the disk refuses."""
        beside = self._readings.with_name(f"{self._readings.name}.new")
        beside.unlink(missing_ok=True)
        journal = Journal(beside)
        try:
            for one in kept:
                journal.append(freeze(one))
        finally:
            journal.close()
        self.close()
        try:
            beside.replace(self._readings)
        except OSError as err:
            raise StorageError(f"cannot replace {self._readings}: {err.strerror or err}") from err

    def forget(self) -> None:
        """The readings are in the brain's own journal now. Raises StorageError when the disk refuses."""
        self.close()
        try:
            self._readings.unlink(missing_ok=True)
        except OSError as err:
            raise StorageError(f"cannot remove {self._readings}: {err.strerror or err}") from err

    def close(self) -> None:
        if self._journal is not None:
            self._journal.close()
            self._journal = None

    def _open(self) -> Journal:
        if self._journal is None:
            self._journal = Journal(self._readings)
        return self._journal
