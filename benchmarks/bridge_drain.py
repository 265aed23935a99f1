"""How fast a queue that the broker kept is worked off: by a subscriber that only counts, and by the real bridge.

The queue is full before the reader comes, so the publisher holds up neither.
"""

from __future__ import annotations

import signal
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from benchmarks import bridge_peers as peers
from broker_bridge.broker import EmbeddedBroker
from fleetgp.errors import ServiceError
from simulator.processes import Children

FLEET = "bench"
POLL_S = 0.02
STALLED_S = 20.0
COUNTER = "bench-counter"


class Drain(NamedTuple):
    """per_s: messages a second. left: messages that did not arrive. rss_mb: most memory of the reader, 0 where not told."""

    per_s: float
    left: int
    rss_mb: float = 0.0


def peak_mb(pid: int) -> float:
    """The most resident memory a process has had, MB of 2**20 bytes; Linux."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 1024


def start_ms(count: int) -> int:
    """A start such that the last reading is of now."""
    return time.time_ns() // 1_000_000 - count // peers.DEVICES * peers.STEP_MS


def by_subscriber(folder: Path, count: int) -> Drain:
    with EmbeddedBroker.start("mosquitto", folder / "broker") as broker:
        peers.register(broker.port, COUNTER)
        peers.pour(broker.port, peers.messages(count, start_ms(count)))
        with peers.beside(peers.count, broker.port, COUNTER, count) as reply:
            first_s, last_s = peers.reply_of(reply)
    return Drain((count - 1) / (last_s - first_s), 0)


def by_bridge(folder: Path, count: int) -> Drain:
    """From the first to the last commit that a reader of the store sees."""
    with EmbeddedBroker.start("mosquitto", folder / "broker") as broker:
        bridge = Bridge(folder, broker.url)
        bridge.start()
        bridge.stop()  # the broker keeps its queue from now on
        peers.pour(broker.port, peers.messages(count, start_ms(count)))
        bridge.start(is_awaited=False)
        try:
            seen = watch(bridge.rows, count, bridge.children.check)
            rss_mb = peak_mb(bridge.pid)
        finally:
            bridge.stop()
        (first_s, first), (last_s, last) = seen[0], seen[-1]
        return Drain((last - first) / (last_s - first_s), count - bridge.rows(), rss_mb)


def watch(stored: Callable[[], int], expected: int, check: Callable[[], None]) -> list[tuple[float, int]]:
    """Every change of the number that is stored, with its time (monotonic s), until all are or nothing moves any more."""
    seen: list[tuple[float, int]] = []
    moved_s = time.monotonic()
    while True:
        now_s, rows = time.monotonic(), stored()
        if rows and (not seen or rows > seen[-1][1]):
            seen.append((now_s, rows))
            moved_s = now_s
        if rows >= expected:
            return seen
        if now_s - moved_s > STALLED_S:
            raise ServiceError(f"{rows} of {expected} messages are stored, and nothing moves any more")
        check()
        time.sleep(POLL_S)


class Bridge:
    """The real bridge as a process, and its store as a reader sees it."""

    def __init__(self, folder: Path, url: str, *settings: str) -> None:
        self.children = Children(folder / "logs")
        self.path = folder / "history.sqlite"
        flags = [part for one in (f"store.path={self.path}", "bridge.health_s=5", *settings) for part in ("--set", one)]
        self.arguments = ["bridge", "--broker", url, "--fleet", FLEET, "--data-dir", str(folder / "data"), *flags]
        self.log = folder / "logs" / "bridge.log"

    @property
    def pid(self) -> int:
        return self.children.running["bridge"].pid

    def start(self, *, is_awaited: bool = True) -> None:
        """Raises ServiceError when it does not connect."""
        before = self._connects()
        self.children.start("bridge", self.arguments)
        by_s = time.monotonic() + peers.ANSWER_S
        while is_awaited and self._connects() == before:
            self.children.check()
            if time.monotonic() > by_s:
                raise ServiceError(f"the bridge does not connect; it said:\n{self.children.last_words('bridge')}")
            time.sleep(POLL_S)

    def stop(self) -> None:
        self.children.stop("bridge")

    def kill(self) -> None:
        """As a power cut ends it."""
        process = self.children.running.pop("bridge")
        process.send_signal(signal.SIGKILL)
        process.wait(peers.ANSWER_S)

    def rows(self) -> int:
        """Readings that a reader of the store finds."""
        try:
            with closing(sqlite3.connect(f"{self.path.absolute().as_uri()}?mode=ro", uri=True, timeout=5.0)) as store:
                found = store.execute("SELECT coalesce(sum(rows), 0) FROM series WHERE kind = 'reading'").fetchone()
        except sqlite3.OperationalError:
            return 0  # not made yet
        return int(found[0])

    def _connects(self) -> int:
        try:
            return self.log.read_text(errors="replace").count("connected")
        except OSError:
            return 0
