"""What is lost or doubled when programs are killed: devices with an outbox, a broker, the bridge, its store, all of them real.

Every device numbers its readings; in the end every number it gave must be in the store once.
"""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Literal, NamedTuple

from benchmarks import bridge_peers as peers
from benchmarks.bridge_drain import FLEET, Bridge, Program
from benchmarks.bridge_influx import Influx
from broker_bridge.broker import EmbeddedBroker
from fleetgp.errors import ServiceError, StorageError
from fleetgp.recording.streams import TOPIC
from fleetgp.runtime.settings import load
from fleetgp.store.open import open_reader

# five devices of four channels every 20 ms: 1,000 readings a second
NAMES, INTERVAL_S = ("mill-1", "mill-2", "mill-3", "mill-4", "mill-5"), 0.02
BrokerKind = Literal["mosquitto", "nats"]
Victim = Literal["bridge", "broker", "store"]
POLL_S = 0.2
SETTLE_S = 20.0  # without any change, until what is missing counts as lost
START_S, END_S = 2.0, 3.0  # of quiet before the first kill and after the last
APART_S, DOWN_S = (1.0, 3.0), (0.1, 1.0)  # between kills, and until what was killed comes back


class Tally(NamedTuple):
    """Readings' numbers: sent by the devices, not in the store, in the store more than once."""

    sent: int
    lost: int
    duplicated: int


class Kill(NamedTuple):
    """Who is killed, so long after the last was back, and for how long it stays away."""

    victim: Victim
    after_s: float
    down_s: float


def plan(number: int, victims: tuple[Victim, ...], seed: int) -> list[Kill]:
    """Victims in turn, moments at random."""
    rng = random.Random(seed)
    return [Kill(victims[i % len(victims)], rng.uniform(*APART_S), rng.uniform(*DOWN_S)) for i in range(number)]


def tally(sent: dict[str, int], stored: dict[str, list[int]]) -> Tally:
    """By device: numbers given, and numbers found."""
    lost = sum(len(set(range(number)) - set(stored.get(name, ()))) for name, number in sent.items())
    doubled = sum(len(found) - len(set(found)) for found in stored.values())
    return Tally(sum(sent.values()), lost, doubled)


class Stage:
    """Broker, bridge, store and devices, all running."""

    def __init__(self, folder: Path, broker: EmbeddedBroker, influx: Influx | None) -> None:
        self.folder = folder
        self.broker = broker
        self.influx = influx
        self.settings = {"store.kind": "influx", "store.url": influx.url} if influx else {}
        self.bridge = Bridge(folder, broker.url, *(f"{key}={value}" for key, value in self.settings.items()))
        self.report = folder / "sent.json"

    @contextmanager
    def devices(self, seconds: float) -> Iterator[Program]:
        """The devices speak for so long."""
        flags = [
            "--names",
            *NAMES,
            "--interval",
            str(INTERVAL_S),
            "--seconds",
            str(seconds),
            "--report",
            str(self.report),
        ]
        common = ["--broker", self.broker.url, "--fleet", FLEET, "--data-dir", str(self.folder / "data")]
        with Program("devices", self.folder, ["devices", *common, *flags]) as devices:
            devices.start()
            yield devices

    def kill(self, victim: Victim) -> None:
        if victim == "bridge":
            self.bridge.kill()
        elif victim == "broker":
            os.kill(self.broker.pid, signal.SIGKILL)
            self.broker.stop()
        elif self.influx is not None:
            self.influx.kill()

    def restore(self, victim: Victim) -> None:
        if victim == "bridge":
            self.bridge.start(is_awaited=False)
        elif victim == "broker":
            self.broker = EmbeddedBroker.start(self.broker.kind, self.folder / "broker", self.broker.port)
        elif self.influx is not None:
            self.influx.start()

    def suffer(self, kills: Iterable[Kill]) -> None:
        for one in kills:
            time.sleep(one.after_s)
            self.kill(one.victim)
            time.sleep(one.down_s)
            self.restore(one.victim)

    def outcome(self, devices: Program) -> Tally:
        """When the devices are done and nothing comes to the store any more. Raises ServiceError where they do not end."""
        devices.children.running["devices"].wait(peers.WAIT_S)
        told = json.loads(self.report.read_text())
        if told["unsent"]:
            raise ServiceError(f"the devices could not send {told['unsent']} of their readings")
        sent: dict[str, int] = told["sent"]
        stored, moved_s = self.stored(), time.monotonic()
        while (found := tally(sent, stored)).lost and time.monotonic() - moved_s < SETTLE_S:
            time.sleep(POLL_S)
            again = self.stored()
            if again != stored:
                stored, moved_s = again, time.monotonic()
        return found

    def stored(self) -> dict[str, list[int]]:
        """Numbers in the store, by device."""
        flags = {
            "data.dir": str(self.folder / "data"),
            "fleet": FLEET,
            "store.path": str(self.bridge.path),
            **self.settings,
        }
        try:
            reader = open_reader(load(None, {}, flags))
        except StorageError:
            return {}
        try:
            return {name: reader.sequences(f"{TOPIC}{name}") for name in NAMES}
        finally:
            reader.close()


@contextmanager
def stage(folder: Path, kind: BrokerKind, *, has_influx: bool) -> Iterator[Stage]:
    with ExitStack() as held:
        influx = held.enter_context(Influx(folder / "influx")) if has_influx else None
        one = Stage(folder, EmbeddedBroker.start(kind, folder / "broker"), influx)
        held.callback(lambda: one.broker.stop())  # that of the end, not that of now
        held.enter_context(one.bridge)
        one.bridge.start()
        yield one


def kills(folder: Path, kind: BrokerKind, number: int, *, has_influx: bool, seed: int) -> Tally:
    """So many kills; where the store is SQLite it is the bridge that holds it, and the two are killed together."""
    victims: tuple[Victim, ...] = ("bridge", "broker", "store") if has_influx else ("bridge", "broker")
    planned = plan(number, victims, seed)
    # a start takes a while, of InfluxDB up to a second and a half
    seconds = START_S + END_S + sum(one.after_s + one.down_s + 1.5 for one in planned)
    with stage(folder, kind, has_influx=has_influx) as one, one.devices(seconds) as devices:
        time.sleep(START_S)
        one.suffer(planned)
        return one.outcome(devices)


def outage(folder: Path, seconds: float) -> Tally:
    """InfluxDB is away for so long; inside it the bridge is stopped in order once, and killed once."""
    with stage(folder, "mosquitto", has_influx=True) as one, one.devices(START_S + seconds + END_S) as devices:
        time.sleep(START_S)
        one.kill("store")
        time.sleep(seconds / 3)
        one.bridge.children.stop("bridge")
        one.restore("bridge")
        time.sleep(seconds / 3)
        one.kill("bridge")
        one.restore("bridge")
        time.sleep(seconds / 3)
        one.restore("store")
        return one.outcome(devices)
