"""The command ``fleetgp dashboard`` as a process of its own, as a user would run it."""

from __future__ import annotations

import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

LAUNCH = "import sys; from fleetgp.cli import main; sys.exit(main(['dashboard', *sys.argv[1:]]))"


@dataclass(frozen=True)
class Running:
    """process: the command. url: what it printed."""

    process: subprocess.Popen[str]
    url: str

    def stop(self, how: signal.Signals, within_s: float) -> int:
        """Send the signal and return the exit status.  Raises TimeoutExpired when it takes longer."""
        self.process.send_signal(how)
        return self.process.wait(within_s)


def command(arguments: Sequence[str]) -> list[str]:
    return [sys.executable, "-c", LAUNCH, *arguments]


@contextmanager
def running(store: Path, *arguments: str, start_within_s: float = 60.0) -> Iterator[Running]:
    """Start it on a free port and wait for its address."""
    process = subprocess.Popen(
        command(["--store", str(store), "--port", "0", *arguments]),
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=store.parent,
    )  # fmt: skip
    lines: queue.Queue[str] = queue.Queue(1000)

    def read() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            lines.put(line)
        lines.put("")

    reader = threading.Thread(target=read, name="dashboard.output", daemon=True)
    reader.start()
    try:
        said = []
        while not (line := lines.get(timeout=start_within_s)).startswith("Dashboard: "):
            said.append(line)
            assert line, f"it ended before it printed an address: {''.join(said)}"
        yield Running(process, line.removeprefix("Dashboard: ").strip())
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(10)
