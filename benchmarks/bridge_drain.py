"""How fast a queue at the broker is worked off: by a subscriber that only counts, by the bridge, by the recorder.

The reader subscribes and is then stopped (SIGSTOP) while the queue fills, so the publisher holds up nobody and every reader
finds the same. The two that are compared take turns.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

from benchmarks import bridge_peers as peers
from benchmarks.bridge_broker import broker, url_of
from fleetgp.errors import ServiceError
from fleetgp.recording.message import Message
from fleetgp.recording.messages import read_messages
from simulator.processes import Children

FLEET = "bench"
POLL_S = 0.02
STALLED_S = 20.0
# share of a recording's bytes at which its time is taken: the last few messages wait for the next flush
NEARLY_ALL = 0.97
FROM_START = 0.03
QUIET_S = 3.0  # the recorder puts what is too little for a chunk into the file within 2 s


class Drain(NamedTuple):
    """per_s: messages a second. lost: messages that did not arrive. rss_mb: most memory of the reader, 0 where not told."""

    per_s: float
    lost: int
    rss_mb: float = 0.0


class Point(NamedTuple):
    """How far something was (messages, bytes) at a time (monotonic s)."""

    at_s: float
    done: int


def rate(seen: list[Point], begin: float, end: float) -> float:
    """Units a second between the first point at or beyond ``begin`` and the first at or beyond ``end``.

    Raises ServiceError where both are one point: then it went too fast to be measured.
    """
    first = next(point for point in seen if point.done >= begin)
    last = next(point for point in seen if point.done >= end)
    if last.at_s <= first.at_s:
        raise ServiceError("too few messages to measure a rate with")
    return (last.done - first.done) / (last.at_s - first.at_s)


def peak_mb(pid: int) -> float:
    """The most resident memory a process has had, MB of 2**20 bytes; Linux."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 1024


@contextmanager
def frozen(pid: int) -> Iterator[None]:
    """A process stands still within the block."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def fill(port: int, number: int, pid: int) -> None:
    with frozen(pid):
        peers.pour(port, peers.messages(number, peers.start_ms(number)))


def by_subscriber(folder: Path, number: int) -> Drain:
    with broker(folder) as port, peers.beside(peers.count, port, number) as one:
        peers.reply_of(one)
        fill(port, number, one.pid)
        first_s, last_s = peers.reply_of(one)
    return Drain((number - 1) / (last_s - first_s), 0)


def by_bridge(folder: Path, number: int) -> Drain:
    """From the first to the last commit that a reader of the store sees."""
    with broker(folder) as port, Bridge(folder, url_of(port)) as bridge:
        bridge.start()
        fill(port, number, bridge.pid)
        seen = watch(bridge.rows, number, bridge.check)
        rss_mb = peak_mb(bridge.pid)
    return Drain(rate(seen, 1, number), number - bridge.rows(), rss_mb)


def by_recorder(folder: Path, number: int) -> Drain:
    """By the growth of the file; what is lost, by reading it afterwards."""
    path = folder / "recorded.mcap"
    with broker(folder) as port:
        recorder = Program(
            "record", folder, ["record", "--broker", url_of(port), "--topics", peers.FILTER, "-o", str(path)]
        )
        with recorder:
            recorder.start()
            fill(port, number, recorder.pid)
            seen = watch(lambda: path.stat().st_size if path.exists() else 0, None, recorder.check)
            rss_mb = peak_mb(recorder.pid)
    whole = seen[-1].done
    told = {bytes(one.payload) for one in read_messages(path) if isinstance(one, Message)}
    return Drain(rate(seen, FROM_START * whole, NEARLY_ALL * whole) * number / whole, number - len(told), rss_mb)


def watch(
    done: Callable[[], int], expected: int | None, check: Callable[[], None], poll_s: float = POLL_S
) -> list[Point]:
    """Every change, until all is done; expected None: until nothing has moved for QUIET_S. Raises ServiceError."""
    seen: list[Point] = []
    moved_s = time.monotonic()
    while True:
        now_s, now = time.monotonic(), done()
        if now and (not seen or now > seen[-1].done):
            seen.append(Point(now_s, now))
            moved_s = now_s
        is_quiet = bool(seen) and now_s - moved_s > QUIET_S
        if (now >= expected) if expected is not None else is_quiet:
            return seen
        if now_s - moved_s > STALLED_S:
            raise ServiceError(f"{now} of {expected} are done, and nothing moves any more")
        check()
        time.sleep(poll_s)


class Program:
    """A program of FleetGP as a process, until the ``with`` block is left."""

    def __init__(self, name: str, folder: Path, arguments: list[str]) -> None:
        self.name = name
        self.children = Children(folder / "logs")
        self.arguments = arguments
        self.log = folder / "logs" / f"{name}.log"

    @property
    def pid(self) -> int:
        return self.children.running[self.name].pid

    def start(self, *, is_awaited: bool = True) -> None:
        """Raises ServiceError when it does not connect."""
        before = self._connects()
        self.children.start(self.name, self.arguments)
        by_s = time.monotonic() + peers.ANSWER_S
        while is_awaited and self._connects() == before:
            self.check()
            if time.monotonic() > by_s:
                raise ServiceError(f"{self.name} does not connect; it said:\n{self.children.last_words(self.name)}")
            time.sleep(POLL_S)

    def check(self) -> None:
        """Raises ServiceError when it has ended."""
        self.children.check()

    def kill(self) -> None:
        """As a power cut ends it."""
        process = self.children.running.pop(self.name)
        process.kill()
        process.wait(peers.ANSWER_S)

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *_: object) -> None:
        self.children.stop(self.name)

    def _connects(self) -> int:
        try:
            return self.log.read_text(errors="replace").count(" connected ")
        except OSError:
            return 0


class Bridge(Program):
    """The real bridge, and its store as a reader sees it."""

    def __init__(self, folder: Path, url: str, *settings: str) -> None:
        self.path = folder / "history.sqlite"
        flags = [part for one in (f"store.path={self.path}", *settings) for part in ("--set", one)]
        common = ["--broker", url, "--fleet", FLEET, "--data-dir", str(folder / "data")]
        super().__init__("bridge", folder, ["bridge", *common, *flags])

    def __enter__(self) -> Bridge:
        return self

    def rows(self) -> int:
        """Readings that a reader of the store finds."""
        try:
            with closing(sqlite3.connect(f"{self.path.absolute().as_uri()}?mode=ro", uri=True, timeout=5.0)) as store:
                found = store.execute("SELECT coalesce(sum(rows), 0) FROM series WHERE kind = 'reading'").fetchone()
        except sqlite3.OperationalError:
            return 0  # not made yet
        return int(found[0])
