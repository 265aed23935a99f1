"""The body of the bridge: readings and the fleet's own messages from the broker into the store.

A message is acknowledged once it is committed. While the store refuses, nothing is acknowledged: the broker keeps what
comes, and the bridge says so in its health.
"""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Literal

from broker_bridge.batcher import sort
from broker_bridge.broker import EmbeddedBroker, Kind
from fleetgp.errors import ConfigError, ServiceError, StorageError
from fleetgp.payloads.content import ClockPolicy
from fleetgp.runtime.mqtt import Incoming
from fleetgp.runtime.program import Plan, Program, stop_on_signals
from fleetgp.runtime.settings import Settings
from fleetgp.store.base import Batch, Forwarding, Writer
from fleetgp.store.open import location, open_writer
from fleetgp.wire import topics

NAME = "bridge"
MAINTAIN_S = 5.0
WAIT_S = 0.25  # how late a stop is noticed at most
DRAIN_S = 1.0  # at the end, for what came in already
WORTHWHILE = 500  # messages: more in one batch would save little
AHEAD = 20  # messages that a broker sends unacknowledged where nobody has set it otherwise
QUIET_S = 0.002
SHORT_LIFE_S = 3.0  # a broker of ours that ends sooner will not do better the next time


def reading_filters(settings: Settings) -> tuple[str, ...]:
    """MQTT filters of raw readings. Raises ConfigError when one would also match the fleet's own topics."""
    filters = tuple(part.strip() for part in settings.text("bridge.topics").split(",") if part.strip())
    for pattern in filters:
        if pattern == "#" or pattern.split("/")[0] in ("+", topics.ROOT):
            raise ConfigError(
                "bridge.topics", f"{pattern!r} also matches the fleet's own topics; name a prefix of yours"
            )
    return filters


class Bridge:
    """One bridge from start to end; ``run`` returns when it was asked to stop.

    broker: that of our own, where we run one. stopping: asks for the end.
    """

    def __init__(
        self, settings: Settings, broker: OwnBroker | None = None, stopping: threading.Event | None = None
    ) -> None:
        self.settings = settings
        fleet = settings.text("fleet")
        subscriptions = [(pattern, 1) for pattern in reading_filters(settings)]
        kinds = [topics.all_agents(fleet, kind) for kind in ("status", "predictions", "events", "health")]
        kinds += [topics.fleet_wide(fleet, "round"), *topics.all_services(fleet)]
        subscriptions += [(pattern, 1) for pattern in kinds]
        plan = Plan("bridge", NAME, tuple(subscriptions), settings.number("bridge.health_s"), inbox_capacity=20_000)
        self.broker = broker
        self.program = Program(settings, plan, stopping=stopping)
        self.policy: ClockPolicy = settings.text("bridge.clock")  # type: ignore[assignment]
        self.location = location(settings)
        self.writer: Writer = open_writer(settings)
        self.next_maintenance_s = 0.0
        self.stored = 0

    def run(self) -> None:
        """Work until stopped. Raises ServiceError when another bridge of the fleet is there."""
        program = self.program
        self._announce()
        with ExitStack() as ending:
            ending.callback(program.close)
            ending.callback(self.writer.close)
            program.start()
            while not program.is_stopping:
                self._store(self._gather())
                self._maintain()
                program.report_health(self._figures)
                self._announce()
                if self.broker is not None:
                    self.broker.mend(program)
            self._drain()

    def _announce(self) -> None:
        self.program.announce(state="storing", note=f"history in {self.location}")

    def _drain(self) -> None:
        """Predictions are sent once: those that came in already are stored before the end."""
        end_s = self.program.clock.monotonic_s() + DRAIN_S
        most = self.settings.whole("bridge.batch_rows")
        while self.program.clock.monotonic_s() < end_s and (left := self.program.session.receive(most, 0.0)):
            if not self._store(left):
                return

    def _gather(self) -> list[Incoming]:
        """Messages of up to batch_s seconds, or as many as are worth a batch.

        A broker sends only so many ahead of our acknowledgements, often AHEAD. Once we have as many and no more come,
        waiting for more would be waiting for ourselves.
        """
        most = self.settings.whole("bridge.batch_rows")
        wait_s = self.settings.number("bridge.batch_s")
        receive, clock = self.program.session.receive, self.program.clock
        found = receive(most, min(wait_s, WAIT_S))
        end_s = clock.monotonic_s() + wait_s
        while found and len(found) < min(most, WORTHWHILE) and not self.program.is_stopping:
            left_s = end_s - clock.monotonic_s()
            if left_s <= 0:
                break
            if len(found) < AHEAD:
                found += receive(most - len(found), min(left_s, WAIT_S))
                continue
            self.program.wait(min(left_s, QUIET_S))
            more = receive(most - len(found), 0.0)
            if not more:
                break
            found += more
        return found

    def _store(self, messages: list[Incoming]) -> bool:
        """False where the store refuses until the end: nothing is acknowledged, so the broker brings it again."""
        if not messages:
            return True
        for message in messages:
            if message.topic == self.program.topic("status"):
                self.program.check_rival(message)
        found = sort(list(messages), self.policy)
        if not self.program.insist(lambda: self._commit(found.batch()), "store_refused", self._figures):
            return False
        for reason, number in found.counts.items():
            self.program.count(reason, number, detail=found.details.get(reason, ""))
        self.program.session.ack_all(messages)
        return True

    def _commit(self, batch: Batch) -> None:
        report = self.writer.write(batch)
        self.stored += report.written
        self.program.counts["duplicate"] += report.duplicates
        for reason, number in report.refused.items():
            self.program.count(f"store_{reason}", number)

    def _maintain(self) -> None:
        if self.program.clock.monotonic_s() < self.next_maintenance_s:
            return
        self.next_maintenance_s = self.program.clock.monotonic_s() + MAINTAIN_S
        if isinstance(self.writer, Forwarding):
            self._warn(self.writer.note())
            if news := self.writer.news():
                self.program.log.info(news)
        try:
            self.writer.maintain(self.program.clock.now_ms())
        except StorageError as err:
            self.program.count("maintenance_refused", detail=str(err))

    def _warn(self, note: str) -> None:
        if note and not self.program.warning:
            self.program.log.warning("what is stored waits on this machine", why=note)
        elif self.program.warning and not note:
            self.program.log.info("the way to the store is free again")
        self.program.warning = note

    def _figures(self) -> dict[str, float]:
        figures = {"rows_stored": float(self.stored)}
        if isinstance(self.writer, Forwarding):
            figures |= self.writer.figures()
            for reason, number in self.writer.losses().items():
                self.program.counts[reason] = number
        return figures


class OwnBroker:
    """A broker that the bridge runs, and runs again when it dies; made running, ended by leaving the ``with`` block."""

    def __init__(self, kind: Kind, folder: Path, port: int) -> None:
        """Raises ServiceError when it does not start."""
        self._folder = folder
        self._broker = EmbeddedBroker.start(kind, folder, port)
        self._started_s = time.monotonic()

    @property
    def url(self) -> str:
        return self._broker.url

    @property
    def kind(self) -> str:
        return self._broker.kind

    def mend(self, program: Program) -> None:
        """Start it again, on its port and folder, where it has ended. Raises ServiceError when that is of no use."""
        if self._broker.is_alive:
            return
        words = self._broker.last_words()
        if time.monotonic() - self._started_s < SHORT_LIFE_S:
            raise ServiceError(f"the {self.kind} broker ended soon after its start; it said:\n{words}")
        program.counts["broker_restarts"] += 1
        program.log.error("our broker has ended; starting it again", kind=self.kind, said=words)
        self._broker = EmbeddedBroker.start(self._broker.kind, self._folder, self._broker.port)
        self._started_s = time.monotonic()

    def __enter__(self) -> OwnBroker:
        return self

    def __exit__(self, *_: object) -> None:
        self._broker.stop()


def run_bridge(settings: Settings) -> None:
    """The bridge, with a broker of its own where the settings ask for one."""
    stopping = threading.Event()
    stop_on_signals(stopping)  # before a broker is there that would be left behind
    kind: Kind | Literal["none"] = settings.text("bridge.broker")  # type: ignore[assignment]
    if kind == "none":
        Bridge(settings, stopping=stopping).run()
        return
    folder = Path(settings.text("data.dir")).expanduser() / "broker"
    with OwnBroker(kind, folder, settings.whole("bridge.port")) as broker:
        print(f"broker: {broker.kind} at {broker.url}", flush=True)
        Bridge(settings.with_values({"mqtt.url": broker.url}, "the bridge's own broker"), broker, stopping).run()
