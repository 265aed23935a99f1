"""What agent, coordinator and bridge have in common: a folder of their own, a session, presence, health, an orderly end."""

from __future__ import annotations

import json
import signal
import socket
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from fleetgp import __version__
from fleetgp.errors import PeerError, ServiceError
from fleetgp.runtime.clock import Clock, SystemClock
from fleetgp.runtime.lock import FolderLock
from fleetgp.runtime.logs import Log, make_log
from fleetgp.runtime.metrics import Registry, resident_megabytes
from fleetgp.runtime.metrics_page import MetricsPage
from fleetgp.runtime.mqtt import Incoming, Outgoing, Session, SessionConfig, parse_url
from fleetgp.runtime.outbox import Outbox
from fleetgp.runtime.settings import Settings, mqtt_password
from fleetgp.wire import codec, topics
from fleetgp.wire.messages import Health, Message, Status

Role = Literal["agent", "coordinator", "bridge"]


@dataclass(frozen=True)
class Plan:
    """What a program wants of its frame. subscriptions: (filter, QoS). health_s: seconds between its health reports."""

    role: Role
    name: str
    subscriptions: tuple[tuple[str, int], ...]
    health_s: float
    inbox_capacity: int = 5000


class Program:
    """A running program. Made by ``Program(settings, plan)``, begun by ``start``, left by ``close``; one a process.

    counts: what was left out, by reason; shown in health and metrics. is_stopping: a signal or a command asked for the end.
    Raises ConfigError, ServiceError or StorageError in plain words where it cannot begin.
    """

    def __init__(self, settings: Settings, plan: Plan, *, clock: Clock | None = None) -> None:
        self.settings = settings
        self.plan = plan
        self.fleet = settings.text("fleet")
        self.clock: Clock = clock or SystemClock()
        self.log: Log = make_log(plan.name, settings.text("logs.form"), settings.text("logs.level"))
        self.counts: Counter[str] = Counter()
        self.instance = uuid.uuid4().hex[:12]
        self.started_ms = self.clock.now_ms()
        self.status = self._first_status()
        self.health_note = ""
        self._stopping = threading.Event()
        self._figures: Mapping[str, float] = {}
        self._next_health_s = 0.0
        folder = plan.role if plan.role != "agent" else f"agent-{plan.name}"
        self.folder = Path(settings.text("data.dir")).expanduser() / folder
        self._lock = FolderLock(self.folder, f"{plan.role} {plan.name}")
        try:
            self.outbox = Outbox(self.folder / "outbox.sqlite", clock=self.clock)
            self.session = self._make_session()
            self.page = self._make_page()
        except BaseException:
            self._lock.release()
            raise

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    def start(self) -> None:
        """Catch the signals that end a program, and begin to connect."""
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, lambda *_: self._stopping.set())
        self.session.start()

    def wait(self, seconds: float) -> None:
        """Wait, but not beyond the wish to stop."""
        self._stopping.wait(seconds)

    def stop(self) -> None:
        """Ask for the end, from any thread."""
        self._stopping.set()

    def count(self, reason: str, number: int = 1, *, detail: str = "") -> None:
        """Something was left out; said once for each reason, counted always."""
        self.counts[reason] += number
        self.log.once(reason, "warning", f"left out: {reason}", detail=detail or None)

    def topic(self, kind: str) -> str:
        """This program's own topic of a kind."""
        if self.plan.role == "agent":
            return topics.agent(self.fleet, self.plan.name, kind)
        return topics.service(self.fleet, self.plan.name, kind)

    def announce(self, **changes: object) -> None:
        """Change the retained status, and publish it where it is another one."""
        new = msgspec.structs.replace(self.status, **changes)
        if new == self.status:
            return
        self.status = msgspec.structs.replace(new, at_ms=self.clock.now_ms())
        self.session.publish(Outgoing(self.topic("status"), codec.encode(self.status), 1, True))

    def report_health(self, figures: Callable[[], Mapping[str, float]]) -> bool:
        """Publish health when it is due; figures are asked only then. True when it was."""
        now_s = self.clock.monotonic_s()
        if now_s < self._next_health_s:
            return False
        self._next_health_s = now_s + self.plan.health_s
        memory = resident_megabytes()
        own = {"rss_mb": memory} if memory == memory else {}
        self._figures = own | dict(figures()) | self.session.figures()
        health = Health(
            at_ms=self.clock.now_ms(),
            name=self.plan.name,
            role=self.plan.role,
            instance=self.instance,
            figures=dict(self._figures),
            dropped={name: n for name, n in (dict(self.counts) | self.session.counters()).items() if n},
            note=self.health_note,
        )
        self.session.publish(Outgoing(self.topic("health"), codec.encode(health)))
        return True

    def check_rival(self, message: Incoming) -> None:
        """Two programs under one name: the one that came later leaves (ServiceError), the earlier says again who it is.

        A retained status is no proof of life, only a live one is.
        """
        if message.is_retained or not message.payload:
            return
        try:
            other = codec.decode(message.payload, Status)
        except PeerError as err:
            self.count(f"status_{err.code}", detail=err.detail)
            return
        if not other.is_online or other.instance in ("", self.instance):
            return
        if (other.started_ms, other.instance) < (self.started_ms, self.instance):
            raise ServiceError(
                f"another {self.plan.role} called {self.plan.name!r} is running already"
                f"{f' on {other.host}' if other.host else ''}; stop it, or give this one another name"
            )
        self.counts["rivals"] += 1
        self.log.warning(f"another {self.plan.role} of this name has started; it is told to leave", host=other.host)
        self.session.publish(Outgoing(self.topic("status"), codec.encode(self.status), 1, True))

    def close(self, *, is_gone: bool = True) -> None:
        """Say goodbye and let go of everything. is_gone: False leaves the retained status to a rival who holds it."""
        farewell = msgspec.structs.replace(self.status, at_ms=self.clock.now_ms(), is_online=False, state="stopped")
        last = [Outgoing(self.topic("status"), codec.encode(farewell), 1, True)] if is_gone else []
        self.session.stop(farewell=last)
        self.outbox.close()
        if self.page is not None:
            self.page.close()
        self._lock.release()

    def _first_status(self) -> Status:
        return Status(
            at_ms=self.started_ms,
            name=self.plan.name,
            role=self.plan.role,
            is_online=True,
            instance=self.instance,
            started_ms=self.started_ms,
            state="starting",
            software=f"fleetgp {__version__}",
            host=socket.gethostname(),
        )

    def _make_session(self) -> Session:
        settings = self.settings
        link = parse_url(
            settings.text("mqtt.url"),
            username=settings.text("mqtt.username"),
            password=mqtt_password(settings),
            ca_file=settings.text("mqtt.ca_file"),
            cert_file=settings.text("mqtt.cert_file"),
            key_file=settings.text("mqtt.key_file"),
        )
        gone: Message = msgspec.structs.replace(self.status, is_online=False, state="vanished")
        config = SessionConfig(
            client_id=f"fleetgp-{self.plan.role[:1]}-{self.plan.name}-{self._suffix()}"[:64],
            is_persistent=True,
            subscriptions=(*self.plan.subscriptions, (self.topic("status"), 1)),
            will=Outgoing(self.topic("status"), codec.encode(gone), 1, True),
            heartbeat_topic=self.topic("health"),
            heartbeat_s=max(settings.number("mqtt.heartbeat_s"), self.plan.health_s),
            keepalive_s=settings.whole("mqtt.keepalive_s"),
            inbox_capacity=self.plan.inbox_capacity,
            version=settings.text("mqtt.version"),
        )
        return Session(link, config, clock=self.clock, birth=self._birth, outbox=self.outbox, log=self.log)

    def _birth(self) -> list[Outgoing]:
        return [Outgoing(self.topic("status"), codec.encode(self.status), 1, True)]

    def _suffix(self) -> str:
        """Makes the client id ours for good: two programs of one name must not throw each other out in turns."""
        path = self.folder / "client.json"
        try:
            suffix = str(json.loads(path.read_text())["suffix"])
        except (OSError, ValueError, KeyError, TypeError):
            suffix = uuid.uuid4().hex[:8]
            try:
                path.write_text(json.dumps({"suffix": suffix}))
            except OSError as err:
                raise ServiceError(f"cannot write to {path}: {err.strerror}; check data.dir and its owner") from err
        return suffix

    def _make_page(self) -> MetricsPage | None:
        port = self.settings.whole("metrics.port")
        if not port:
            return None
        registry = Registry()
        labelled = registry.counter("left_out_total", "readings and messages left out, by reason", ("reason",))

        def left_out() -> Mapping[str, float]:
            for reason, number in list(self.counts.items()):
                labelled.set(number, reason=reason)
            return {}

        registry.watch("gauge", "a figure of this program", lambda: dict(self._figures))
        registry.watch("counter", "", left_out)
        return MetricsPage(registry, self.settings.text("metrics.host"), port, trouble=self._trouble)

    def _trouble(self) -> str:
        return "" if self.session.is_connected else "not connected to the broker"
