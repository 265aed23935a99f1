"""The real agent as a process, fed through a real broker as fast as it answers, beside a real coordinator; its memory meanwhile."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks import agent_stream as stream
from benchmarks.endurance import resident_mb
from broker_bridge.broker import EmbeddedBroker
from fleetgp.arrays import Array
from fleetgp.errors import ServiceError
from fleetgp.runtime.clock import SystemClock
from fleetgp.runtime.logs import Log
from fleetgp.runtime.mqtt import Incoming, Outgoing, Session, SessionConfig, parse_url
from fleetgp.schema import Schema
from fleetgp.wire import codec, topics
from fleetgp.wire.messages import FleetModel, Health, Prediction
from simulator.processes import Children

FLEET, NAME, TOPIC = "bench", "agent-1", "sensors/agent-1"
# frames under way at most: enough to keep the agent busy, few enough that no queue on the way is ever full
WINDOW = 256
SAMPLE_FRAMES = 250
# so many frames are read alone, then few at a time until the agent has the fleet's whole basis: the coordinator places
# inducing inputs after some rounds, each with frames that are new to it
ALONE_FRAMES = 300
FEW_FRAMES, FEW_S = 25, 0.2
MOST_FEW_FRAMES = 3_000
START_S = 15.0
LISTEN_S = 0.05
STALLED_S = 20.0
SHARE_FROM = 10_000  # by then every cache is filled


class Sample(NamedTuple):
    """Resident memory after so many frames."""

    frames: int
    rss_mb: float


class Outcome(NamedTuple):
    """What came of it. lost: frames that the agent did not predict and learn; features: of the model it took from the fleet."""

    samples: list[Sample]
    sent: int
    lost: int
    rounds: int
    features: int
    frames_per_s: float


def slope_per_100k(samples: list[Sample], after: int = SHARE_FROM) -> float | None:
    """MB per 100,000 frames: median slope between any two samples after so many frames (Theil 1950); None below three.

    A sample may meet a short peak; a line by least squares would lean on it.
    """
    late = [one for one in samples if one.frames >= after]
    if len(late) < 3:
        return None
    x = np.array([one.frames for one in late]) / 100_000
    y = np.array([one.rss_mb for one in late])
    first, second = np.triu_indices(len(x), 1)
    # the last look of a run may fall on the same frame as the one before it: between these two there is no slope
    is_apart = x[second] > x[first]
    first, second = first[is_apart], second[is_apart]
    return float(np.median((y[second] - y[first]) / (x[second] - x[first])))


def payload(schema: Schema, number: int, values: Array) -> bytes:
    """A frame as its device says it: JSON, with the recording's own time."""
    named = {item.name: round(float(value), 4) for item, value in zip(schema.inputs, values, strict=True)}
    return json.dumps({**named, "time": stream.START_MS + number * schema.interval_ms}).encode()


def run(frames: int, seed: int, round_s: float) -> Outcome:
    """Feed so many frames. Raises ServiceError when a program ends, or nothing goes on for STALLED_S."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with EmbeddedBroker.start("auto", folder / "broker") as broker:
            children = Children(folder / "logs")
            desk = _Desk(broker.url)
            try:
                desk.start()
                _start_programs(children, broker.url, folder, round_s)
                return _Run(children, desk).feed(islice(stream.frames(seed), frames))
            finally:
                desk.session.stop(timeout_s=1.0)
                children.stop()


def _start_programs(children: Children, url: str, folder: Path, round_s: float) -> None:
    common = ["--broker", url, "--fleet", FLEET, "--data-dir", str(folder / "data")]
    rounds = {"coordinator.round_s": round_s, "coordinator.answer_s": min(1.0, round_s / 2), "coordinator.health_s": 5}
    flags = [part for name, value in rounds.items() for part in ("--set", f"{name}={value}")]
    children.start("coordinator", ["coordinator", *common, *flags])
    file = folder / "agent.toml"
    file.write_text(f'[agent]\nid = "{NAME}"\ntopic = "{TOPIC}"\nclock = "recording"\nhealth_s = 1\n{stream.STREAM}')
    children.start("agent", ["agent", *common, "--config", str(file)])


class _Desk:
    """Speaks as the device, and hears how far the agent is.

    answered: frames that it has taken; basis, features: of the fleet's last model; health: the agent's last report.
    """

    def __init__(self, url: str) -> None:
        kinds = [topics.agent(FLEET, NAME, kind) for kind in ("predictions", "health")]
        filters = [*kinds, topics.fleet_wide(FLEET, "model")]
        config = SessionConfig(
            client_id="bench-desk", subscriptions=tuple((topic, 1) for topic in filters), inbox_capacity=20_000
        )
        self.session = Session(parse_url(url), config, clock=SystemClock(), log=Log("desk", level="error"))
        self.answered = 0
        self.basis = 0
        self.features = 0
        self.health: Health | None = None

    def start(self) -> None:
        self.session.start()
        if not self.session.wait_connected(START_S):
            raise ServiceError(f"no connection to the broker within {START_S:.0f} s")

    def say(self, body: bytes) -> bool:
        """False where the connection takes no more just now."""
        return self.session.publish(Outgoing(TOPIC, body, 1))

    def listen(self, seconds: float) -> None:
        """Take in what came. Of predictions the newest tells all: their numbers have no gap."""
        newest: Incoming | None = None
        for message in self.session.receive(1000, seconds):
            self.session.ack(message)
            kind = message.topic.rsplit("/", 1)[1]
            if kind == "predictions":
                newest = message
            elif kind == "health":
                self.health = codec.decode(message.payload, Health)
                self.answered = max(self.answered, int(self.health.figures["frames"]))
            elif message.payload:
                model = codec.decode(message.payload, FleetModel)
                self.basis, self.features = model.basis, model.deviation_scale.shape[0]
        if newest is not None:
            self.answered = max(self.answered, codec.decode(newest.payload, Prediction).sequence + 1)

    def figure(self, name: str) -> int:
        """A figure of the agent's last health report, 0 before the first."""
        return int(self.health.figures[name]) if self.health else 0


class _Run:
    """One feeding from start to end, with samples of the agent's memory on the way."""

    def __init__(self, children: Children, desk: _Desk) -> None:
        self.children = children
        self.desk = desk
        self.pid = children.running["agent"].pid
        self.samples: list[Sample] = []

    def feed(self, values: Iterable[Array]) -> Outcome:
        """Send all frames, wait until the last is taken, and say what came of them."""
        schema = stream.schema()
        self._wait(lambda: self.desk.health is not None, "the agent does not come up")
        sent, counted, begin_s = 0, 0, time.monotonic()
        for sent, row in enumerate(values, start=1):
            if not counted and sent >= ALONE_FRAMES and self._is_begun(sent, schema):
                counted, begin_s = sent, time.monotonic()
            self._wait(partial(self._has_room, sent), "the agent does not go on")
            self._wait(partial(self.desk.say, payload(schema, sent, row)), "the broker takes no more readings")
        with suppress(_Stalled):  # what is lost by then is told, not waited for
            self._wait(lambda: self.desk.figure("frames") >= sent, "frames are lost")
        seconds = time.monotonic() - begin_s
        self.samples.append(Sample(self.desk.figure("frames"), resident_mb(self.pid)))
        return Outcome(
            self.samples,
            sent,
            sent - self.desk.figure("frames"),
            self.desk.figure("round"),
            self.desk.features,
            (sent - counted) / seconds,
        )

    def _is_begun(self, sent: int, schema: Schema) -> bool:
        """Whether the agent has the fleet's whole basis, or has waited long enough for it; if not, waits a little."""
        if sent == ALONE_FRAMES:
            self._wait(lambda: self.desk.figure("basis") > 0, "the agent gets no basis from the coordinator")
        if sent % FEW_FRAMES == 0:
            by_s = time.monotonic() + FEW_S
            self._wait(lambda: time.monotonic() > by_s, "the agent does not go on")
        is_whole = self.desk.features == schema.feature_count and self.desk.figure("basis") == self.desk.basis
        return is_whole or sent >= MOST_FEW_FRAMES

    def _has_room(self, sent: int) -> bool:
        return sent - self.desk.answered < WINDOW

    def _wait(self, condition: Callable[[], bool], else_: str) -> None:
        """Listen until it comes true. Raises ServiceError when a program ends or nothing moves for STALLED_S."""
        before, moved_s = self.desk.answered, time.monotonic()
        while not condition():
            self.children.check()
            self.desk.listen(LISTEN_S)
            if self.desk.answered > before:
                before, moved_s = self.desk.answered, time.monotonic()
            if self.desk.answered >= len(self.samples) * SAMPLE_FRAMES:
                self.samples.append(Sample(self.desk.answered, resident_mb(self.pid)))
            if time.monotonic() - moved_s > STALLED_S:
                raise _Stalled(f"{else_}: {before} frames taken; its last words:\n{self.children.last_words('agent')}")


class _Stalled(ServiceError):
    """Nothing moves any more."""
