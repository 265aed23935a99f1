"""Programs as child processes: started with a log file each, watched, and stopped together within a deadline."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from fleetgp.errors import ServiceError

KILL_AFTER_S = 3.5
POLL_S = 0.05
LAST_LINES = 8


@dataclass
class Children:
    """Processes by name. logs: folder of their output."""

    logs: Path
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start(self, name: str, arguments: list[str]) -> None:
        """Run ``fleetgp ARGUMENTS`` as a process of its own, its output in ``<logs>/<name>.log``."""
        self.logs.mkdir(parents=True, exist_ok=True)
        environment = {key: value for key, value in os.environ.items() if not key.startswith("FLEETGP_")}
        # the fleet's matrices are small: one thread each is faster, and leaves the cores to the other programs
        environment |= {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
        with (self.logs / f"{name}.log").open("ab") as log:
            self.running[name] = subprocess.Popen(
                [sys.executable, "-m", "fleetgp", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                # Ctrl-C reaches us alone; we stop the others in order
                start_new_session=True,
            )

    def check(self) -> None:
        """Raise ServiceError, with its last words, when a program that should run has ended."""
        for name, process in self.running.items():
            if process.poll() is not None:
                raise ServiceError(
                    f"{name} has ended (exit status {process.returncode}); it said:\n{self.last_words(name)}"
                )

    def last_words(self, name: str) -> str:
        try:
            lines = (self.logs / f"{name}.log").read_text(errors="replace").splitlines()
        except OSError:
            return ""
        return "\n".join(f"    {line}" for line in lines[-LAST_LINES:])

    def stop(self, *names: str, timeout_s: float = KILL_AFTER_S) -> None:
        """Ask the named programs (default: all) to end, together; end those by force that take longer."""
        chosen = {name: self.running.pop(name) for name in (names or tuple(self.running)) if name in self.running}
        for process in chosen.values():
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        end_s = time.monotonic() + timeout_s
        for process in chosen.values():
            try:
                process.wait(max(POLL_S, end_s - time.monotonic()))
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait(1.0)
