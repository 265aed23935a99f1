"""An InfluxDB store whose sending is done by hand: what was written is there after ``send``."""

from __future__ import annotations

import itertools
from pathlib import Path

from fleetgp.runtime.clock import FakeClock
from fleetgp.runtime.influx import Access, Client
from fleetgp.store.base import Batch, WriteReport
from fleetgp.store.influx_backlog import Backlog, Bounds
from fleetgp.store.influx_read import InfluxReader
from fleetgp.store.influx_write import Shipper

NOW_MS = 1_790_000_000_000
LARGE = Bounds(10**9, 10**12)

_numbers = itertools.count()


def new_fleet() -> str:
    """A name that no other test has: tests share a server."""
    return f"fleet {next(_numbers)}"


class HandStore:
    """Writer and reader of one fleet on a server."""

    def __init__(
        self,
        url: str,
        folder: Path,
        *,
        fleet: str = "",
        bounds: Bounds = LARGE,
        timeout_s: float = 30.0,
        now_ms: int = NOW_MS,
    ) -> None:
        self.fleet = fleet or new_fleet()
        self.clock = FakeClock(now_ms)
        self.client = Client(Access(url, "fleetgp", timeout_s=timeout_s))
        self.backlog = Backlog(folder / "backlog.sqlite", bounds, self.clock, self.fleet)
        self.shipper = Shipper(self.backlog, self.client, self.clock)
        self.reader = InfluxReader(Client(Access(url, "fleetgp", timeout_s=30.0)), self.fleet)

    def write(self, batch: Batch) -> WriteReport:
        """Take a batch and send all that waits."""
        report = self.backlog.put(batch)
        self.send()
        return report

    def send(self) -> None:
        while self.shipper.step() == 0.0:
            continue
        assert self.shipper.trouble == ""

    def close(self) -> None:
        self.backlog.close()
        self.client.close()
        self.reader.close()
