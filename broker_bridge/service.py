"""The body of the bridge: readings and the fleet's own messages from the broker into the store.

A message is acknowledged once it is committed. While the store refuses, nothing is acknowledged: the broker keeps what
comes, and the bridge says so in its health.
"""

from __future__ import annotations

from pathlib import Path

from broker_bridge.batcher import Sorted, sort
from broker_bridge.broker import EmbeddedBroker
from fleetgp.errors import ConfigError, ServiceError, StorageError
from fleetgp.payloads.content import ClockPolicy
from fleetgp.runtime.mqtt import Incoming
from fleetgp.runtime.program import Plan, Program
from fleetgp.runtime.settings import Settings
from fleetgp.store.base import Writer
from fleetgp.store.sqlite import open_writer
from fleetgp.wire import topics

NAME = "bridge"
MAINTAIN_S = 5.0
RETRY_S = 1.0


def store_path(settings: Settings) -> Path:
    """Where the history is kept."""
    given = settings.text("store.path")
    return Path(given).expanduser() if given else Path(settings.text("data.dir")).expanduser() / NAME / "history.sqlite"


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
    """One bridge from start to end; ``run`` returns when it was asked to stop."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        fleet = settings.text("fleet")
        subscriptions = [(pattern, 1) for pattern in reading_filters(settings)]
        kinds = [topics.all_agents(fleet, kind) for kind in ("status", "predictions", "events", "health")]
        kinds += [topics.fleet_wide(fleet, "round"), *topics.all_services(fleet)]
        subscriptions += [(pattern, 1) for pattern in kinds]
        plan = Plan("bridge", NAME, tuple(subscriptions), settings.number("bridge.health_s"), inbox_capacity=20_000)
        self.program = Program(settings, plan)
        self.policy: ClockPolicy = settings.text("bridge.clock")  # type: ignore[assignment]
        self.path = store_path(settings)
        self.writer: Writer = open_writer(
            self.path, raw_days=settings.whole("store.raw_days"), rollup_days=settings.whole("store.rollup_days")
        )
        self.next_maintenance_s = 0.0
        self.stored = 0

    def run(self) -> None:
        """Work until stopped. Raises ServiceError when another bridge of the fleet is there."""
        program = self.program
        program.announce(state="storing", note=f"history in {self.path}")
        is_gone = True
        try:
            program.start()
            while not program.is_stopping:
                self._store(self._gather())
                self._maintain()
                program.report_health(self._figures)
        except ServiceError:
            is_gone = False
            raise
        finally:
            self.writer.close()
            program.close(is_gone=is_gone)

    def _gather(self) -> list[Incoming]:
        """Messages of up to batch_s seconds, or as many as one batch may hold."""
        most = self.settings.whole("bridge.batch_rows")
        wait_s = self.settings.number("bridge.batch_s")
        first = self.program.session.receive(most, wait_s)
        end_s = self.program.clock.monotonic_s() + wait_s
        while first and len(first) < most and (left_s := end_s - self.program.clock.monotonic_s()) > 0:
            first += self.program.session.receive(most - len(first), left_s)
        return first

    def _store(self, messages: list[Incoming]) -> None:
        if not messages:
            return
        for message in messages:
            if message.topic == self.program.topic("status"):
                self.program.check_rival(message)
        found = sort(list(messages), self.policy)
        if not self._commit(found):
            return  # not acknowledged: the broker will bring them again
        for reason, number in found.counts.items():
            self.program.count(reason, number, detail=found.details.get(reason, ""))
        for message in messages:
            self.program.session.ack(message)

    def _commit(self, found: Sorted) -> bool:
        """Write until the store takes it; False when the program is to stop first."""
        while True:
            try:
                report = self.writer.write(found.batch())
            except StorageError as err:
                self.program.health_note = str(err)
                self.program.count("store_refused", detail=str(err))
                self.program.report_health(self._figures)
                if self.program.is_stopping:
                    return False
                self.program.wait(RETRY_S)
                continue
            self.program.health_note = ""
            self.stored += report.written
            self.program.counts["duplicate"] += report.duplicates
            for reason, number in report.refused.items():
                self.program.count(f"store_{reason}", number)
            return True

    def _maintain(self) -> None:
        if self.program.clock.monotonic_s() < self.next_maintenance_s:
            return
        self.next_maintenance_s = self.program.clock.monotonic_s() + MAINTAIN_S
        try:
            self.writer.maintain(self.program.clock.now_ms())
        except StorageError as err:
            self.program.count("maintenance_refused", detail=str(err))

    def _figures(self) -> dict[str, float]:
        return {"rows_stored": float(self.stored)}


def run_bridge(settings: Settings) -> None:
    """The bridge, with a broker of its own where the settings ask for one."""
    kind = settings.text("bridge.broker")
    if kind == "none":
        Bridge(settings).run()
        return
    folder = Path(settings.text("data.dir")).expanduser() / "broker"
    with EmbeddedBroker.start(kind, folder, settings.whole("bridge.port")) as broker:  # type: ignore[arg-type]
        print(f"broker: {broker.kind} at {broker.url}", flush=True)
        Bridge(settings.with_values({"mqtt.url": broker.url}, "the bridge's own broker")).run()
