"""One program to a data folder: two writers of one state would destroy it."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from types import TracebackType

from fleetgp.errors import ServiceError


class FolderLock:
    """Holds a folder (made if absent) from construction to ``release``; the system lets go of it when the process ends.

    Raises ServiceError when another process holds it, or the folder cannot be made or written.
    """

    def __init__(self, folder: Path, program: str) -> None:
        self.path = folder / "lock"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as err:
            raise ServiceError(
                f"cannot use the data folder {folder}: {err.strerror or err}; choose another with data.dir"
            ) from err
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, f"{program} (pid {os.getpid()})\n".encode(), 0)
        except OSError as err:
            holder = os.pread(self._descriptor, 200, 0).decode(errors="replace").strip() or "another program"
            os.close(self._descriptor)
            if isinstance(err, BlockingIOError):
                raise ServiceError(
                    f"the data folder {folder} is already used by {holder}; stop that one or choose another with data.dir"
                ) from err
            raise ServiceError(f"cannot lock the data folder {folder}: {err.strerror or err}") from err

    def release(self) -> None:
        """Let others have the folder. May be called twice."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> FolderLock:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
