"""The writing side of the InfluxDB store: a batch is safe on this machine's disk when ``write`` returns, and is sent on.

A thread sends what waits, oldest first, and goes on to the next only when the server has taken it. What may go well later
is tried again and again, what the server refuses for good is found (``influx_send``) and put among the dead letters. Nothing is dropped but by the bounds of the backlog, and that is counted.
"""

from __future__ import annotations

import threading

from fleetgp.errors import FleetError, StorageError
from fleetgp.runtime.clock import Clock
from fleetgp.runtime.influx import Client
from fleetgp.runtime.influx_answers import InfluxError
from fleetgp.store.base import Batch, WriteReport
from fleetgp.store.influx_backlog import Backlog, Bounds
from fleetgp.store.influx_late import Settled, plain_line, settle
from fleetgp.store.influx_portion import Portion
from fleetgp.store.influx_roll import roll
from fleetgp.store.influx_send import Sender

FIRST_RETRY_S, LAST_RETRY_S, DENIED_RETRY_S = 0.25, 5.0, 10.0
IDLE_S = 1.0
PART_S = 2.0  # at the end, for what still waits
NOTE_AFTER_S = 10.0
ROLL_RETRY_S = 60.0


class Shipper:
    """Sends the backlog to the server, from a thread of its own.

    trouble: why nothing goes through just now, "" where it does; shipped: lines taken by the server since the start.
    """

    def __init__(self, backlog: Backlog, client: Client, clock: Clock) -> None:
        self.trouble = ""
        self.failing_since_s: float | None = None
        self._backlog = backlog
        self._client = client
        self._clock = clock
        self._sender = Sender(client, clock, backlog.fleet)
        self._news = threading.Event()
        self._stopping = threading.Event()
        self._retry_s = FIRST_RETRY_S
        self._next_roll_s = 0.0
        self._thread = threading.Thread(target=self._run, name="store.influx.ship", daemon=True)

    @property
    def shipped(self) -> int:
        return self._sender.shipped

    def take_news(self) -> str:
        """What was done at the server since this was asked last, "" where nothing was."""
        news, self._sender.news = self._sender.news, ""
        return news

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """Something was put into the backlog."""
        self._news.set()

    def stop(self) -> bool:
        """End, within PART_S and a little; False where a request is still in hand. It is then sent again by the next process."""
        self._stopping.set()
        self._news.set()
        if self._thread.is_alive():
            self._thread.join(PART_S + 0.5)
        return not self._thread.is_alive()

    def step(self) -> float:
        """Send one portion; returns for how many seconds there is nothing to do (0: there is more)."""
        try:
            portion = self._backlog.take()
            if portion is None:
                return 0.0 if self._roll() else IDLE_S
            settled = self._settle(portion)
            dead = portion.refused + settled.refused
            self._sender.send(portion.lines + settled.lines, dead, self._failing_s())
            self._backlog.advance(portion, dead, settled.known)
        except InfluxError as err:
            return self._mend(err)
        except FleetError as err:
            return self._fail(err)
        self.trouble, self.failing_since_s, self._retry_s = "", None, FIRST_RETRY_S
        return 0.0

    def _roll(self) -> bool:
        """Have the server roll up what is due; readers do without where it does not. True where there may be more."""
        if self._clock.monotonic_s() < self._next_roll_s:
            return False
        try:
            return roll(self._client, self._backlog)
        except InfluxError:
            self._next_roll_s = self._clock.monotonic_s() + ROLL_RETRY_S
            return False

    def _settle(self, portion: Portion) -> Settled:
        """What to do with the rows that the server may know already."""
        if not portion.late:
            return Settled([], [], [])
        if self._client.probe().kind == "victoriametrics":
            # it cannot be asked, and keeps rows of one time beside each other
            return Settled([plain_line(row, self._backlog.fleet) for row in portion.late], [], [])
        return settle(self._client, self._backlog.fleet, portion.late)

    def _failing_s(self) -> float:
        return 0.0 if self.failing_since_s is None else self._clock.monotonic_s() - self.failing_since_s

    def _mend(self, err: InfluxError) -> float:
        try:
            return 0.0 if self._sender.mend(err) else self._fail(err)
        except InfluxError as worse:
            return self._fail(worse)

    def _fail(self, err: FleetError) -> float:
        self.trouble = str(err)
        if self.failing_since_s is None:
            self.failing_since_s = self._clock.monotonic_s()
        if isinstance(err, InfluxError) and err.verdict == "wait":
            wait_s = max(self._retry_s, err.retry_after_s)
            self._retry_s = min(2 * self._retry_s, LAST_RETRY_S)
            return wait_s
        return DENIED_RETRY_S

    def _run(self) -> None:
        while not self._stopping.is_set():
            wait_s = self.step()
            if not wait_s:
                continue
            if self.trouble:
                self._stopping.wait(wait_s)
            elif self._news.wait(wait_s):
                self._news.clear()
        by_s = self._clock.monotonic_s() + PART_S
        while self._clock.monotonic_s() < by_s and self.step() == 0.0:
            continue


class InfluxWriter:
    """A ``Writer`` that needs no server to write: what it takes is on the disk, and is sent when the server answers.

    Safe between threads. What an earlier process left in the backlog goes first.
    """

    def __init__(
        self, backlog: Backlog, client: Client, clock: Clock, bounds: Bounds, *, shipper: Shipper | None = None
    ) -> None:
        """backlog, client: owned by the writer from now on. shipper: one that is driven by hand; None: a thread sends."""
        self._backlog = backlog
        self._client = client
        self._clock = clock
        self._bounds = bounds
        self._shipper = shipper or Shipper(backlog, client, clock)
        if shipper is None:
            self._shipper.start()

    def write(self, batch: Batch) -> WriteReport:
        """Take a batch, whole or not at all; StorageError where the disk refuses it."""
        report = self._backlog.put(batch)
        self._shipper.wake()
        return report

    def maintain(self, now_ms: int) -> None:
        """Keep the backlog within its bounds; the server keeps its own (its retention policy)."""
        self._backlog.tidy()

    def figures(self) -> dict[str, float]:
        """What waits and what was sent, for health and metrics."""
        depth = self._backlog.depth()
        return {
            "influx_waiting": float(depth.waiting),
            "influx_backlog_mb": depth.used_bytes / 1e6,
            "influx_shipped": float(self._shipper.shipped),
        }

    def losses(self) -> dict[str, int]:
        """Dead letters, and what was dropped for room or age; since the backlog was begun."""
        return {f"influx_{name}": number for name, number in self._backlog.counts().items()}

    def news(self) -> str:
        """What was done at the server since this was asked last, in plain words; "" where nothing was."""
        return self._shipper.take_news()

    def note(self) -> str:
        """What is wrong with the way to the server, in plain words; "" where nothing is."""
        try:
            depth = self._backlog.depth()
        except StorageError as err:
            return str(err)
        since_s, trouble = self._shipper.failing_since_s, self._shipper.trouble
        oldest_s = (self._clock.now_ms() - depth.oldest_ms) / 1000 if depth.oldest_ms is not None else 0.0
        is_half = depth.waiting > 0 and (
            2 * depth.used_bytes > self._bounds.most_bytes or 2000 * oldest_s > self._bounds.most_ms
        )
        is_long = since_s is not None and self._clock.monotonic_s() - since_s >= NOTE_AFTER_S
        if not is_half and not is_long:
            return ""
        waits = f"{depth.waiting} instants wait on disk ({depth.used_bytes / 1e6:.0f} of {self._bounds.most_bytes / 1e6:.0f} MB)"
        until = "; more than half of what may wait: the oldest will be dropped when it is full" if is_half else ""
        return f"{trouble or 'the InfluxDB is slower than what comes in'}; {waits}{until}"

    def close(self) -> None:
        """Send what can still be sent within PART_S, then close; what is left goes on with the next process."""
        has_ended = self._shipper.stop()
        self._backlog.close()
        if has_ended:  # a request in hand holds the client until the server answers, for which nobody waits here
            self._client.close()
