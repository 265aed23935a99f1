"""The demo: a whole fleet on this machine, every program a process of its own, as a user would run them."""

from __future__ import annotations

import json
import socket
import threading
import time
import urllib.request
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from urllib.error import URLError

from broker_bridge.broker import EmbeddedBroker
from broker_bridge.broker import Kind as BrokerKind
from fleetgp.errors import PeerError, ServiceError, StorageError
from fleetgp.runtime.clock import SystemClock
from fleetgp.runtime.logs import Log
from fleetgp.runtime.mqtt import Session, SessionConfig, parse_url
from fleetgp.schema import Channel, Covariate, Schema
from fleetgp.store.base import Kind
from fleetgp.store.sqlite import open_reader
from fleetgp.wire import codec, topics
from fleetgp.wire.messages import Status
from simulator import devices
from simulator.choosing import lines, understood
from simulator.processes import Children
from simulator.results import NOTHING, Results, results

FLEET = "demo"
DEVICES = 6
FAULTY, FAULT_AFTER_S = 2, 30.0
JOINER, JOIN_AFTER_S = 5, 45.0
AGENT_LEAD_S = 2.5
ROUND_S = 10.0
ONLINE_S = 30.0
SETTLE_S = 10.0
STOP_SETTLE_S = 0.8
SAY_EVERY_S = 10.0


@dataclass(frozen=True)
class DemoPlan:
    """What to show. seconds: how long, None = until told to stop. recordings: files to play instead of devices, at speed
    times their own time, read as the spec file says, or as their first rows show.
    """

    folder: Path
    seconds: float | None = None
    broker: BrokerKind = "auto"
    recordings: tuple[Path, ...] = ()
    spec: Path | None = None
    speed: float = 3600.0
    dashboard_port: int = 0
    say: Callable[[str], None] = print


class Demo:
    """One demo from start to end. ``run`` returns its results; everything it started is stopped, however it ends."""

    def __init__(self, plan: DemoPlan, stop: threading.Event) -> None:
        self.plan = plan
        self.stop = stop
        self.children = Children(plan.folder / "logs")
        self.report = plan.folder / "devices.json"
        if plan.recordings:
            found = understood(plan.recordings, plan.spec)
            self.schema = found.choice.schema
            for line in lines(found.choice, len(found.streams)):
                plan.say(line)
            self.names = [stream.name for stream in found.streams]
        else:
            self.schema = devices.schema()
            self.names = [f"pump-{number + 1}" for number in range(DEVICES)]
        self.late = () if plan.recordings else (self.names[JOINER],)
        self.port = plan.dashboard_port or _free_port()
        self.dashboard_ok = False
        self.broker_pid = 0

    def run(self) -> Results:
        """Raises ServiceError when a program cannot start or ends by itself, or the devices say nothing of what they sent."""
        say = self.plan.say
        try:
            self.plan.folder.mkdir(parents=True, exist_ok=True)
        except OSError as err:
            raise ServiceError(
                f"cannot make the folder {self.plan.folder}: {err.strerror}; choose another --data-dir"
            ) from err
        with EmbeddedBroker.start(self.plan.broker, self.plan.folder / "broker") as broker:
            self.broker_pid = broker.pid
            say(f"broker      {broker.kind} at {broker.url}")
            try:
                self._start_programs(broker.url)
                say(f"dashboard   http://127.0.0.1:{self.port}")
                self._start_devices(broker.url)
                self._watch()
                self.children.stop("devices")
                self._settle()
            finally:
                self.children.stop()
        return self._results().with_values(broker=broker.kind, dashboard_ok=self.dashboard_ok)

    # -- start ----------------------------------------------------------------------------------------------------------

    def _start_programs(self, url: str) -> None:
        say = self.plan.say
        common = self._common(url)
        self.children.start("bridge", ["bridge", *common])
        self.children.start("coordinator", ["coordinator", *common])
        self.children.start("dashboard", ["dashboard", *common])
        early = [name for name in self.names if name not in self.late]
        for name in early:
            self._start_agent(url, name)
        say(f"programs    bridge, coordinator, dashboard, {len(early)} agents ({', '.join(early)})")
        self._wait_online(url, {*early, "bridge", "coordinator"})
        self.dashboard_ok = self._is_dashboard_up(ONLINE_S)
        if not self.dashboard_ok and not self.stop.is_set():
            say(f"dashboard   does not answer; see {self.children.logs / 'dashboard.log'}")

    def _common(self, url: str) -> list[str]:
        clock = "recording" if self.plan.recordings else "live"
        values = {
            "coordinator.round_s": ROUND_S,
            "coordinator.answer_s": 3,
            "coordinator.health_s": 5,
            "bridge.clock": clock,
            "bridge.health_s": 5,
            # a recording may span years of its own time in minutes
            "store.raw_days": 36500,
            "store.rollup_days": 36500,
            "dashboard.port": self.port,
            "mqtt.heartbeat_s": 5,
        }
        flags = [part for name, value in values.items() for part in ("--set", f"{name}={value}")]
        return ["--broker", url, "--fleet", FLEET, "--data-dir", str(self.plan.folder), *flags]

    def _start_agent(self, url: str, name: str) -> None:
        """An agent with a settings file of its own, as its owner would write it."""
        file = self.plan.folder / f"{name}.toml"
        file.write_text(_agent_file(name, url, self.plan.folder, self.schema, is_recorded=bool(self.plan.recordings)))
        self.children.start(name, ["agent", "--config", str(file)])

    def _start_devices(self, url: str) -> None:
        arguments = ["devices", "--broker", url, "--report", str(self.report), "--data-dir", str(self.plan.folder)]
        if self.plan.seconds is not None:
            arguments += ["--seconds", str(self.plan.seconds)]
        if self.plan.recordings:
            arguments += ["--spec", str(self.plan.spec)] if self.plan.spec else []
            arguments += ["--speed", str(self.plan.speed), "--recording"]
            arguments += [str(path) for path in self.plan.recordings]
            self.plan.say(f"streams     {len(self.names)} recordings at {self.plan.speed:g} times their own speed")
        else:
            arguments += ["--names", *self.names, "--fault", f"{FAULTY}@{FAULT_AFTER_S}"]
            arguments += ["--join", f"{JOINER}@{JOIN_AFTER_S}"]
            self.plan.say(f"streams     {promised(self.names, self.plan.seconds)}")
        self.children.start("devices", arguments)
        self.url = url

    def _wait_online(self, url: str, expected: set[str]) -> None:
        """Wait until every program has said over the broker that it is there."""
        pattern = topics.all_agents(FLEET, "status"), *topics.all_services(FLEET)
        config = SessionConfig(client_id="fleetgp-demo", subscriptions=tuple((topic, 1) for topic in pattern))
        session = Session(parse_url(url), config, clock=SystemClock(), log=Log("demo", level="error"))
        session.start()
        waiting = set(expected)
        end_s = time.monotonic() + ONLINE_S
        try:
            while waiting and not self.stop.is_set():
                self.children.check()
                for message in session.receive(100, 0.2):
                    try:
                        status = codec.decode(message.payload, Status) if message.topic.endswith("/status") else None
                    except PeerError:
                        continue
                    if status is not None and status.is_online:
                        waiting.discard(status.name)
                if time.monotonic() > end_s:
                    raise ServiceError(
                        f"not up after {ONLINE_S:.0f} s: {', '.join(sorted(waiting))}; see {self.children.logs}"
                    )
        finally:
            session.stop(timeout_s=1.0)

    # -- run ------------------------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        """Until the time is over, the devices are done or a stop is asked for; the joiner's agent starts on the way."""
        begin_s = time.monotonic()
        next_word_s = begin_s + SAY_EVERY_S
        waiting = list(self.late)
        while not self.stop.wait(0.2):
            now_s = time.monotonic()
            if waiting and now_s - begin_s >= JOIN_AFTER_S - AGENT_LEAD_S:
                self._start_agent(self.url, waiting.pop())
            if self.plan.seconds is None and now_s >= next_word_s:
                next_word_s = now_s + SAY_EVERY_S
                self._say_progress(now_s - begin_s)
            devices_ = self.children.running.get("devices")
            if devices_ is not None and devices_.poll() is not None and self.report.exists():
                if self.plan.seconds is not None:
                    return
                self.children.running.pop("devices")
                self.plan.say("the recordings have been played to their end; Ctrl-C stops the demo")
            self.children.check()

    def _say_progress(self, seconds: float) -> None:
        try:
            with closing(open_reader(self._store())) as reader:
                rows = sum(info.rows for info in reader.series("reading"))
                rounds = [notice for notice in reader.rounds(2) if notice.state == "closed"]
                events = reader.events()
        except StorageError:
            return
        blamed = f" ({events[0].agent}: {', '.join(events[0].blame)})" if events else ""
        done = f", round {rounds[0].round}" if rounds else ""
        self.plan.say(
            f"{int(seconds) // 60:3d}:{int(seconds) % 60:02d}  {rows} readings{done}, {len(events)} events{blamed}"
        )

    # -- end ------------------------------------------------------------------------------------------------------------

    def _store(self) -> Path:
        return self.plan.folder / "bridge" / "history.sqlite"

    def _settle(self) -> None:
        """Wait until what was sent is stored and nothing more is predicted; not for long where a stop was asked for."""
        self.dashboard_ok = self.dashboard_ok and self._is_dashboard_up(SETTLE_S)
        sent = sum(self._sent().values())
        end_s, look_s = (STOP_SETTLE_S, 0.2) if self.stop.is_set() else (SETTLE_S, 1.0)
        end_s += time.monotonic()
        before = -1
        while time.monotonic() < end_s:
            stored, predicted = self._rows("reading"), self._rows("prediction")
            if stored >= sent and predicted == before:
                return
            before = predicted
            time.sleep(look_s)

    def _rows(self, kind: Kind) -> int:
        try:
            with closing(open_reader(self._store())) as reader:
                return sum(info.rows for info in reader.series(kind))
        except StorageError:
            return 0

    def _sent(self) -> dict[str, int]:
        """Messages by device, as the devices reported them; nothing where they were never started."""
        try:
            sent: dict[str, int] = json.loads(self.report.read_text())["sent"]
        except FileNotFoundError:
            return {}
        return sent

    def _results(self) -> Results:
        """Read from the store, as anybody could, when every program has ended."""
        sent = self._sent()
        if self.stop.is_set() and not self._rows("reading"):
            return NOTHING  # stopped before anything was stored
        if not self.report.exists():
            words = self.children.last_words("devices")
            raise ServiceError(f"the devices ended without a word on how much they sent; their last words:\n{words}")
        with closing(open_reader(self._store())) as reader:
            return results(reader, self.schema, sent)

    def _is_dashboard_up(self, timeout_s: float) -> bool:
        end_s = time.monotonic() + timeout_s
        while True:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/_stcore/health", timeout=2.0) as answer:
                    if answer.status == 200 and answer.read() == b"ok":
                        return True
            except (URLError, OSError):
                pass
            if time.monotonic() > end_s or self.stop.wait(0.2):
                return False


def promised(names: Sequence[str], seconds: float | None) -> str:
    """What the simulated pumps will do within so many seconds (None = for ever), in plain words."""
    will = [
        f"{names[index]} {what} after {after_s:.0f} s"
        for index, what, after_s in ((FAULTY, "gets a fault", FAULT_AFTER_S), (JOINER, "joins", JOIN_AFTER_S))
        if seconds is None or after_s < seconds
    ]
    count = len(names) - (seconds is not None and seconds <= JOIN_AFTER_S)
    return "; ".join([f"{count} simulated pumps, 4 channels, once a second", ", ".join(will)][: 1 + bool(will)])


def new_folder(data_dir: Path) -> Path:
    """A fresh folder for a demo's data, named by the time."""
    base = data_dir / f"demo-{datetime.now():%Y%m%d-%H%M%S}"
    folder, number = base, 1
    while folder.exists():
        number += 1
        folder = base.with_name(f"{base.name}-{number}")
    return folder


def _agent_file(name: str, url: str, folder: Path, schema: Schema, *, is_recorded: bool) -> str:
    lines = [
        f'fleet = "{FLEET}"',
        "[mqtt]",
        f"url = {json.dumps(url)}",
        "heartbeat_s = 5",
        "[data]",
        f"dir = {json.dumps(str(folder))}",
        "[agent]",
        f'id = "{name}"',
        f'topic = "sensors/{name}"',
        f'clock = "{"recording" if is_recorded else "live"}"',
        "health_s = 5",
        "[stream]",
        f"interval = {schema.interval_s}",
        f"lags = {schema.lags}",
        f"phases = {json.dumps(schema.phases)}",
        f"harmonics = {schema.harmonics}",
        f"inducing = {schema.inducing}",
        f'kernel = "{schema.kernel}"',
    ]
    for table, items in (("channels", schema.channels), ("covariates", schema.covariates)):
        lines.append(f"[{table}]")
        lines += [_input_line(item) for item in items]
    return "\n".join(lines) + "\n"


def _input_line(item: Channel | Covariate) -> str:
    parts = [f"unit = {json.dumps(item.unit, ensure_ascii=False)}", f'transform = "{item.transform}"']
    parts.append(f"field = {json.dumps(item.name, ensure_ascii=False)}")
    if isinstance(item, Covariate):
        parts.append(f"known_ahead = {str(item.known_ahead).lower()}")
    return f"{json.dumps(item.name, ensure_ascii=False)} = {{ {', '.join(parts)} }}"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
