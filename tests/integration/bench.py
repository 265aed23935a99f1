"""Programs as processes of their own, as a user runs them, and a desk from which a test speaks and listens to them."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import pytest

from fleetgp.runtime.clock import SystemClock
from fleetgp.runtime.logs import Log
from fleetgp.runtime.mqtt import Incoming, Outgoing, Session, SessionConfig, parse_url
from fleetgp.runtime.outbox import Outbox
from fleetgp.wire import codec, topics
from fleetgp.wire.messages import AnomalyEvent, Health, Message, Prediction, RoundNotice, Status

FLEET = "home"
STOP_S = 5.0
# what `fleetgp demo --json` promises
DEMO_KEYS = {
    "frames", "frames_lost", "predictions_stored", "rounds_closed", "agents", "coverage90", "rmse", "rmse_persistence",
    "agent_rss_mb", "bytes_per_round", "events", "event_agents", "broker", "dashboard_ok",
}  # fmt: skip
M = TypeVar("M", bound=Message)


@dataclass
class Running:
    """A program that was started. log: file of all that it says."""

    process: subprocess.Popen[bytes]
    log: Path

    @property
    def said(self) -> str:
        return self.log.read_text(errors="replace")

    @property
    def is_alive(self) -> bool:
        return self.process.poll() is None

    def kill(self) -> None:
        """SIGKILL: no last words."""
        self.process.kill()
        self.process.wait(10)

    def stop(self, how: signal.Signals = signal.SIGTERM, within_s: float = STOP_S) -> int:
        """Ask it to end; its exit status. Fails when it takes longer than a program may."""
        self.process.send_signal(how)
        return self.wait(within_s)

    def wait(self, within_s: float = 10.0) -> int:
        try:
            return self.process.wait(within_s)
        except subprocess.TimeoutExpired:
            pytest.fail(f"still running after {within_s} s; it said:\n{self.said}")

    def limit_files(self, size: int | None) -> None:
        """From now on the system refuses it to write any file beyond this size: a full disk. None: there is room again."""
        _, hard = resource.prlimit(self.process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(self.process.pid, resource.RLIMIT_FSIZE, (hard if size is None else size, hard))


@dataclass
class Bench:
    """Starts programs against one broker; all that still run are killed when the test is over."""

    folder: Path
    url: str = ""
    programs: list[Running] = field(default_factory=list)

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def store(self) -> Path:
        return self.data / "bridge" / "history.sqlite"

    def run(self, *arguments: str, **environment: str) -> Running:
        """``fleetgp ARGUMENTS``, exactly."""
        log = self.folder / f"{len(self.programs)}-{arguments[0]}.log"
        clean = {key: value for key, value in os.environ.items() if not key.startswith("FLEETGP_")}
        clean |= {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", **environment}
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "fleetgp", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=clean,
                cwd=self.folder,
            )
        running = Running(process, log)
        self.programs.append(running)
        return running

    def start(self, program: str, *arguments: str, data: Path | None = None, **values: object) -> Running:
        """A program against the bench's broker and data; values: settings, ``mqtt__url`` is mqtt.url."""
        chosen = {f"{program}.health_s": 1, **{name.replace("__", "."): value for name, value in values.items()}}
        flags = [part for name, value in chosen.items() for part in ("--set", f"{name}={value}")]
        return self.run(program, "--broker", self.url, "--data-dir", str(data or self.data), *flags, *arguments)

    def agent(self, agent_id: str, stream: str, *, data: Path | None = None, **values: object) -> Running:
        """An agent that reads ``sensors/<id>``; stream: the [stream], [channels] and [covariates] tables."""
        file = self.folder / f"{agent_id}.toml"
        file.write_text(f'[agent]\nid = "{agent_id}"\ntopic = "sensors/{agent_id}"\n{stream}')
        return self.start("agent", "--config", str(file), data=data, **values)

    def end(self) -> None:
        for running in self.programs:
            if running.is_alive:
                running.kill()
        for pid in processes_of(self.data):  # children of a demo that was killed
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


class Desk:
    """A client of the broker: says what sensors say, and keeps all it hears (QoS 1 filters, in order)."""

    def __init__(self, url: str, folder: Path, name: str, filters: Sequence[str]) -> None:
        clock = SystemClock()
        self._outbox = Outbox(folder / f"{name}-outbox.sqlite", clock=clock)
        config = SessionConfig(
            client_id=name, is_persistent=True, subscriptions=tuple((f, 1) for f in filters), inbox_capacity=50_000
        )
        self.session = Session(parse_url(url), config, clock=clock, outbox=self._outbox, log=Log(name, level="error"))
        self.session.start()
        self.heard: list[Incoming] = []
        self._waiting: dict[str, list[Incoming]] = {}
        self._decoded: dict[str, list[Message]] = {}

    def say(self, topic: str, payload: bytes | str | Mapping[str, object], *, is_retained: bool = False) -> None:
        """Durable: survives an absent broker."""
        self.session.send(topic, as_bytes(payload), is_retained=is_retained)

    def say_once(self, topic: str, payload: bytes, qos: int = 1) -> None:
        """Past the outbox, for what is too large for it."""
        assert self.session.publish(Outgoing(topic, payload, qos))

    def flood(self, topic: str, payloads: Sequence[bytes]) -> None:
        """QoS 0, as fast as it goes."""
        for payload in payloads:
            while not self.session.publish(Outgoing(topic, payload)):
                self.listen(0.01)

    def flush(self, timeout_s: float = 20.0) -> None:
        """Wait until the broker has everything that was said."""
        self.until(
            lambda: not self.session.figures()["outbox_depth"] and not self.session.figures()["pending"], timeout_s
        )

    def listen(self, seconds: float = 0.05) -> None:
        """Take in what came, waiting for the first."""
        for message in self.session.receive(5000, seconds):
            self.session.ack(message)
            self.heard.append(message)
            self._waiting.setdefault(message.topic, []).append(message)

    def until(self, condition: Callable[[], object], timeout_s: float = 15.0) -> None:
        """Listen until it comes true; fails after the deadline."""
        by_s = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() > by_s:
                tail = [(m.topic, m.payload[:120]) for m in self.heard[-8:]]
                pytest.fail(
                    f"did not come true within {timeout_s} s; heard {len(self.heard)} messages, the last: {tail}"
                )
            self.listen()

    def of(self, kind: type[M], topic: str) -> list[M]:
        """All messages heard on a topic, oldest first, decoded."""
        waiting = self._waiting.pop(topic, [])
        decoded = self._decoded.setdefault(topic, [])
        decoded += [codec.decode(message.payload, kind) for message in waiting if message.payload]
        return decoded  # type: ignore[return-value]

    def forget(self, topic: str) -> None:
        """As if nothing had been heard on it."""
        self._waiting.pop(topic, None)
        self._decoded.pop(topic, None)

    def predictions(self, agent_id: str) -> list[Prediction]:
        return self.of(Prediction, topics.agent(FLEET, agent_id, "predictions"))

    def events(self, agent_id: str) -> list[AnomalyEvent]:
        return self.of(AnomalyEvent, topics.agent(FLEET, agent_id, "events"))

    def rounds(self, state: str) -> list[RoundNotice]:
        return [n for n in self.of(RoundNotice, topics.fleet_wide(FLEET, "round")) if n.state == state]

    def status(self, name: str) -> Status | None:
        """What stands of a program now."""
        return (self.of(Status, topic_of(name, "status")) or [None])[-1]

    def health(self, name: str) -> Health | None:
        return (self.of(Health, topic_of(name, "health")) or [None])[-1]

    def dropped(self, name: str, reason: str) -> int:
        """How often, by its last health, a program has left something out for this reason."""
        health = self.health(name)
        return health.dropped.get(reason, 0) if health else 0

    def is_online(self, name: str) -> bool:
        status = self.status(name)
        return status is not None and status.is_online

    def close(self) -> None:
        self.session.stop(timeout_s=1.0)
        self._outbox.close()


def as_bytes(payload: bytes | str | Mapping[str, object]) -> bytes:
    if isinstance(payload, bytes):
        return payload
    return (payload if isinstance(payload, str) else json.dumps(payload)).encode()


def topic_of(name: str, kind: str) -> str:
    """Topic of an agent, or of the bridge or the coordinator."""
    return topics.service(FLEET, name, kind) if name in ("bridge", "coordinator") else topics.agent(FLEET, name, kind)


@contextmanager
def desk_at(url: str, folder: Path, *filters: str, name: str = "desk") -> Iterator[Desk]:
    """A desk that hears everything of the fleet, or what the filters name."""
    desk = Desk(url, folder, name, filters or (f"{topics.ROOT}/#",))
    try:
        yield desk
    finally:
        desk.close()


def processes_of(folder: Path) -> list[int]:
    """Processes that name the folder in their command line, the demo's children all do."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if str(folder).encode() in words and int(entry.name) != os.getpid():
            found.append(int(entry.name))
    return found
