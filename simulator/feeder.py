"""Publishes streams to a broker as devices would: simulated ones at a rate, recorded ones at a multiple of their time.

Every message carries its device's own time and a running number. Messages go through an outbox on disk: a broker that is
away loses nothing. When it ends, the feeder writes how many messages each device has sent.
"""

from __future__ import annotations

import heapq
import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from fleetgp.recording.streams import TOPIC, fields
from fleetgp.recording.table import Record
from fleetgp.runtime.clock import Clock
from fleetgp.runtime.mqtt import Session
from simulator.devices import Device
from simulator.presses import Press

DRAIN_S = 5.0
STOP_DRAIN_S = 1.5  # where a stop was asked for
STEP_S = 0.1


class Due(NamedTuple):
    """A message and when it is due, seconds after the start; values by field, None = missing."""

    after_s: float
    device: str
    at_ms: int
    values: Mapping[str, float | None]


def simulated(
    devices: Sequence[Device | Press], joins_s: Sequence[float], interval_s: float, start_ms: int
) -> Iterator[Due]:
    """Readings of simulated devices, for ever; joins_s: when each device first speaks, seconds after the start."""
    queue = [(join, index) for index, join in enumerate(joins_s)]
    heapq.heapify(queue)
    while True:
        after_s, index = heapq.heappop(queue)
        device, at_ms = devices[index], start_ms + round(after_s * 1000)
        values = dict(zip((c.name for c in device.channels), map(float, device.read(at_ms / 1000)), strict=True))
        yield Due(after_s, device.name, at_ms, values)
        heapq.heappush(queue, (after_s + interval_s, index))


def recorded(recordings: Mapping[str, Iterator[Record]], names: Sequence[str], speed: float) -> Iterator[Due]:
    """Rows of recordings, all on one clock: the earliest first row is the start. names: fields of a row's values."""

    def rows(device: str) -> Iterator[tuple[int, str, Record]]:
        for record in recordings[device]:
            yield record.at_ms, device, record

    start_ms: int | None = None
    for at_ms, device, record in heapq.merge(*(rows(device) for device in sorted(recordings)), key=lambda row: row[:2]):
        start_ms = at_ms if start_ms is None else start_ms
        yield Due((at_ms - start_ms) / 1000 / speed, device, at_ms, fields(record, names))


class Feeder:
    """Sends what is due, each at its own time: target = start + offset, so that delays do not add up."""

    def __init__(self, session: Session, clock: Clock, report: Path) -> None:
        self.session = session
        self.clock = clock
        self.report = report
        self.sent: dict[str, int] = {}
        self.unsent = 0
        self.late_s = 0.0

    def run(self, dues: Iterator[Due], seconds: float | None, stop: threading.Event) -> None:
        """Send until the stream ends, ``seconds`` have passed or ``stop`` is set; then drain and report."""
        try:
            self._feed(dues, seconds, stop)
            self._drain(stop)
        finally:
            self._write_report()

    def _feed(self, dues: Iterator[Due], seconds: float | None, stop: threading.Event) -> None:
        begin_s = self.clock.monotonic_s()
        for due in dues:
            if seconds is not None and due.after_s >= seconds:
                break
            while not stop.is_set() and (left := begin_s + due.after_s - self.clock.monotonic_s()) > 0:
                stop.wait(min(left, STEP_S))
            if stop.is_set():
                break
            self.late_s = max(self.late_s, self.clock.monotonic_s() - begin_s - due.after_s)
            self._send(due)

    def _send(self, due: Due) -> None:
        sequence = self.sent.get(due.device, 0)
        payload = json.dumps({**due.values, "time": due.at_ms, "seq": sequence}).encode()
        self.session.send(f"{TOPIC}{due.device}", payload)
        self.sent[due.device] = sequence + 1

    def _drain(self, stop: threading.Event) -> None:
        begin_s = self.clock.monotonic_s()
        while self.session.figures()["outbox_depth"]:
            if self.clock.monotonic_s() - begin_s > (STOP_DRAIN_S if stop.is_set() else DRAIN_S):
                return
            self.session.receive(1, STEP_S)

    def _write_report(self) -> None:
        self.unsent = int(self.session.figures()["outbox_depth"])
        told = {"sent": self.sent, "unsent": self.unsent, "late_s": round(self.late_s, 4)}
        beside = self.report.with_name(f"{self.report.name}.new")
        beside.write_text(json.dumps(told))
        beside.replace(self.report)
