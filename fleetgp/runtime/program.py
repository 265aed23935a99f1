"""What agent, coordinator and bridge have in common: a folder of their own, a session, presence, health, an orderly end."""

from __future__ import annotations

import json
import signal
import socket
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec
from paho.mqtt.client import topic_matches_sub

from fleetgp import __version__
from fleetgp.errors import PeerError, ServiceError, StorageError
from fleetgp.runtime.clock import Clock, SystemClock
from fleetgp.runtime.lock import FolderLock
from fleetgp.runtime.logs import Log, make_log
from fleetgp.runtime.metrics import Registry, resident_megabytes
from fleetgp.runtime.mqtt import Incoming, Link, Outgoing, Session, SessionConfig, parse_url
from fleetgp.runtime.outbox import Outbox
from fleetgp.runtime.settings import Settings, mqtt_password
from fleetgp.wire import codec, topics
from fleetgp.wire.messages import Health, Message, Status

if TYPE_CHECKING:
    from fleetgp.runtime.metrics_page import MetricsPage

Role = Literal["agent", "coordinator", "bridge"]

CLIENT_ID_MOST = 64
RETRY_S = 1.0
PART_S = 2.0  # for last words; with the work in hand and the metrics page a program ends within 5 s
# what the session counts that is no loss of anything; told among the figures, not among what was left out
_NO_LOSS = ("connects", "disconnects")


@dataclass(frozen=True)
class Plan:
    """What a program wants of its frame. subscriptions: (filter, QoS). health_s: seconds between its health reports."""

    role: Role
    name: str
    subscriptions: tuple[tuple[str, int], ...]
    health_s: float
    inbox_capacity: int = 5000


def stop_on_signals(stopping: threading.Event) -> None:
    """From now on SIGTERM, SIGINT and a closed terminal (unless ``nohup`` has it ignored) set the event, nothing more.

    Does nothing outside the main thread, where no signal can be caught.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda *_: stopping.set())


def broker_link(settings: Settings) -> Link:
    """Where the broker is and how to be let in, as the [mqtt] settings say. Raises ConfigError in plain words."""
    return parse_url(
        settings.text("mqtt.url"),
        username=settings.text("mqtt.username"),
        password=mqtt_password(settings),
        ca_file=settings.text("mqtt.ca_file"),
        cert_file=settings.text("mqtt.cert_file"),
        key_file=settings.text("mqtt.key_file"),
    )


class _LeftOut(Registry):
    """A registry that shows what was left out, by reason, as it stands when the page is asked for."""

    def __init__(self, counts: Counter[str]) -> None:
        super().__init__()
        self._counts = counts
        self._shown = self.counter("left_out_total", "readings and messages left out, by reason", ("reason",))

    def exposition(self) -> str:
        for reason, number in list(self._counts.items()):
            self._shown.set(number, reason=reason)
        return super().exposition()


class Program:
    """A running program. Made by ``Program(settings, plan)``, begun by ``start``, left by ``close``; one a process.

    counts: what was left out, by reason; shown in health and metrics. is_stopping: a signal or a command asked for the end.
    health_note: what is wrong just now, in plain words; warning: what will be, where nothing is. Signals that end a program are caught from the beginning on, so
    that one that comes while it is still reading its memory ends it in order as well.
    Raises ConfigError, ServiceError or StorageError in plain words where it cannot begin.
    """

    def __init__(
        self, settings: Settings, plan: Plan, *, clock: Clock | None = None, stopping: threading.Event | None = None
    ) -> None:
        """stopping: set by whoever wants the end; signals set it too."""
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
        self.warning = ""
        self._stopping = stopping or threading.Event()
        stop_on_signals(self._stopping)
        self._is_said = False
        self._has_rival = False
        self._figures: Mapping[str, float] = {}
        self._next_health_s = 0.0
        folder = plan.role if plan.role != "agent" else f"agent-{plan.name}"
        self.folder = Path(settings.text("data.dir")).expanduser() / folder
        with ExitStack() as held:
            held.callback(FolderLock(self.folder, f"{plan.role} {plan.name}").release)
            self.outbox = Outbox(self.folder / "outbox.sqlite", clock=self.clock)
            held.callback(self.outbox.close)
            self.session = self._make_session()
            self.page = self._make_page()
            if self.page is not None:
                held.callback(self.page.close)
            self._held = held.pop_all()

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    def start(self) -> None:
        """Begin to connect."""
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

    def insist(self, write: Callable[[], None], reason: str, figures: Callable[[], Mapping[str, float]]) -> bool:
        """Do what the disk may refuse (StorageError), again and again until it takes it, and say so meanwhile.

        False when the program is to stop first: then it was not done, and nothing that rests on it may be acknowledged.
        """
        while True:
            try:
                write()
            except StorageError as err:
                self.counts[reason] += 1
                if not self.health_note:
                    self.log.error("the disk refuses; nothing is acknowledged until it takes it", why=str(err))
                self.health_note = str(err)
                self.announce(note=self.health_note)
                self.report_health(figures)
                if self.is_stopping:
                    return False
                self.wait(RETRY_S)
                continue
            if self.health_note:
                self.health_note = ""
                self.log.info("the disk takes it again")
            return True

    def topic(self, kind: str) -> str:
        """This program's own topic of a kind."""
        if self.plan.role == "agent":
            return topics.agent(self.fleet, self.plan.name, kind)
        return topics.service(self.fleet, self.plan.name, kind)

    def announce(self, **changes: object) -> None:
        """Change the retained status, and publish it where it is another one. To be called again and again: what could not
        be said while there was no connection is said by the next call."""
        new = msgspec.structs.replace(self.status, **changes)
        if new != self.status:
            self.status = msgspec.structs.replace(new, at_ms=self.clock.now_ms())
            self._is_said = False
        if not self._is_said and self.session.is_connected:
            self._is_said = self._publish_status()

    def _publish_status(self) -> bool:
        return self.session.publish(Outgoing(self.topic("status"), codec.encode(self.status), 1, True))

    def report_health(self, figures: Callable[[], Mapping[str, float]]) -> bool:
        """Publish health when it is due; figures are asked only then. True when it was."""
        now_s = self.clock.monotonic_s()
        if now_s < self._next_health_s:
            return False
        self._next_health_s = now_s + self.plan.health_s
        memory = resident_megabytes()
        own = {"rss_mb": memory} if memory == memory else {}
        counters = self.session.counters()
        own |= {name: float(counters.pop(name, 0)) for name in _NO_LOSS}
        self._figures = own | dict(figures()) | self.session.figures()
        health = Health(
            at_ms=self.clock.now_ms(),
            name=self.plan.name,
            role=self.plan.role,
            instance=self.instance,
            figures=dict(self._figures),
            dropped={name: n for name, n in (dict(self.counts) | counters).items() if n},
            note=self.health_note or self.warning,
        )
        if self.session.is_connected:
            self.session.publish(Outgoing(self.topic("health"), codec.encode(health)))
        return True

    def check_rival(self, message: Incoming) -> None:
        """Two programs under one name: the one that started first tells the other to leave, which then does (ServiceError).

        The order names the other's instance, which is new at every start. So it cannot be mistaken for something that the
        broker kept or brings again from an earlier time, and a rival that is gone tells nobody anything. A status that
        says offline (the will of a connection that died a while ago, a rival's farewell) is not true while we are here,
        and is put right.
        """
        if message.is_retained or not message.payload:
            return
        try:
            other = codec.decode(message.payload, Status)
        except PeerError as err:
            self.count(f"status_{err.code}", detail=err.detail)
            return
        if not other.is_online:
            self.log.info("presence_restored", was=other.state)
            self._publish_status()
        elif other.instance in ("", self.instance):
            return
        elif self.instance in other.note:
            self._has_rival = True
            raise ServiceError(
                f"another {self.plan.role} called {self.plan.name!r} is running already"
                f"{f' on {other.host}' if other.host else ''}; stop it, or give this one another name"
            )
        elif (self.started_ms, self.instance) < (other.started_ms, other.instance):
            self.counts["rivals"] += 1
            self.log.warning(f"another {self.plan.role} of this name has started; it is told to leave", host=other.host)
            where = f" on {other.host}" if other.host else ""
            self.announce(note=f"another {self.plan.role} of this name, {other.instance}{where}, was told to leave")

    def close(self) -> None:
        """Say goodbye, unless an earlier rival holds the name, and let go of everything."""
        farewell = msgspec.structs.replace(self.status, at_ms=self.clock.now_ms(), is_online=False, state="stopped")
        last = [Outgoing(self.topic("status"), codec.encode(farewell), 1, True)]
        with self._held:
            is_heard = self.session.is_connected and not self._has_rival
            self.session.stop(farewell=last if is_heard else [], timeout_s=PART_S)

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
        gone: Message = msgspec.structs.replace(self.status, is_online=False, state="vanished")
        config = SessionConfig(
            client_id=self._client_id(),
            is_persistent=True,
            subscriptions=self._subscriptions(),
            will=Outgoing(self.topic("status"), codec.encode(gone), 1, True),
            heartbeat_topic=self.topic("health"),
            heartbeat_s=max(settings.number("mqtt.heartbeat_s"), self.plan.health_s),
            keepalive_s=settings.whole("mqtt.keepalive_s"),
            inbox_capacity=self.plan.inbox_capacity,
            version=settings.text("mqtt.version"),
        )
        link = broker_link(settings)
        return Session(link, config, clock=self.clock, birth=self._birth, outbox=self.outbox, log=self.log)

    def _subscriptions(self) -> tuple[tuple[str, int], ...]:
        """The plan's, and our own status: QoS 0, because what was said of us while we were away is of no use."""
        own = self.topic("status")
        is_covered = any(topic_matches_sub(pattern, own) for pattern, _ in self.plan.subscriptions)
        return self.plan.subscriptions if is_covered else (*self.plan.subscriptions, (own, 0))

    def _birth(self) -> list[Outgoing]:
        return [Outgoing(self.topic("status"), codec.encode(self.status), 1, True)]

    def _client_id(self) -> str:
        """Ours for good, by a random end that is never cut off: two programs of one name, or of long names that begin
        alike, must not throw each other out in turns."""
        end = f"-{self._suffix()}"
        return f"fleetgp-{self.plan.role[:1]}-{self.plan.name}"[: CLIENT_ID_MOST - len(end)] + end

    def _suffix(self) -> str:
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
        # an HTTP server's code is a megabyte that most agents do without
        from fleetgp.runtime.metrics_page import MetricsPage

        registry = _LeftOut(self.counts)
        registry.watch("gauge", "a figure of this program", lambda: dict(self._figures))
        registry.watch("counter", "counted by the connection to the broker", self.session.counters)
        return MetricsPage(registry, self.settings.text("metrics.host"), port, trouble=self._trouble)

    def _trouble(self) -> str:
        return self.health_note or self.warning if self.session.is_connected else "not connected to the broker"
