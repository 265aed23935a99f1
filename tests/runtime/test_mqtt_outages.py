"""The session and its outbox while brokers are absent, killed, deaf, and while processes are killed."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from frozen import freeze

from broker_bridge.broker import EmbeddedBroker
from fleetgp.runtime.clock import SystemClock
from fleetgp.runtime.delivery import MAX_PENDING
from fleetgp.runtime.mqtt import Incoming, Outgoing, Session
from fleetgp.runtime.outbox import Outbox

pytestmark = pytest.mark.broker

Collect = Callable[..., list[Incoming]]
Eventually = Callable[..., None]
ALL = (("t/#", 1),)


@pytest.fixture
def outbox(tmp_path: Path) -> Iterator[Outbox]:
    outbox = Outbox(tmp_path / "outbox.sqlite", clock=SystemClock())
    yield outbox
    outbox.close()


def test_an_absent_broker_is_waited_for_and_said_once(
    broker_kind: Literal["mosquitto", "nats"], desk: Any, free_port: int, tmp_path: Path, eventually: Eventually
) -> None:
    session = desk.session(f"mqtt://127.0.0.1:{free_port}", "early")
    eventually(lambda: session.counters().get("connect_failures", 0) >= 2)
    assert not session.is_connected
    assert desk.said.count(f"nothing listens at 127.0.0.1:{free_port}") == 1
    with EmbeddedBroker.start(broker_kind, tmp_path, free_port):
        assert session.wait_connected(10.0)
        session.stop()


def test_publishing_while_away_is_refused_and_queues_nothing(desk: Any, free_port: int) -> None:
    away = desk.session(f"mqtt://127.0.0.1:{free_port}", "away")
    assert [away.publish(Outgoing("t/a", b"x", qos)) for qos in (0, 1)] == [False, False]
    assert away.counters()["publish_refused"] == 2
    assert away.figures()["pending"] == 0


def test_nothing_durable_is_lost_over_a_killed_broker(
    broker_kind: Literal["mosquitto", "nats"],
    desk: Any,
    free_port: int,
    tmp_path: Path,
    outbox: Outbox,
    collect: Collect,
    eventually: Eventually,
) -> None:
    """500 messages sent while the broker is killed with -9 and comes back: all arrive; duplicates may."""
    broker = EmbeddedBroker.start(broker_kind, tmp_path, free_port)
    reader = desk.connected(broker.url, "reader", subscriptions=ALL, is_persistent=True)
    writer = desk.connected(broker.url, "writer", outbox=outbox)
    seen: Counter[bytes] = Counter()
    is_over = threading.Event()

    def read() -> None:
        while not is_over.is_set():
            seen.update(message.payload for message in collect(reader, 1, timeout_s=0.1))

    reading = threading.Thread(target=read)
    reading.start()
    try:
        _send(writer, range(200), seconds=2.5)  # mosquitto saves its sessions every one to two seconds
        os.kill(broker.pid, signal.SIGKILL)
        broker.stop()
        _send(writer, range(200, 300), seconds=0.3)
        assert outbox.depth > 0
        with EmbeddedBroker.start(broker_kind, tmp_path, free_port):
            _send(writer, range(300, 500), seconds=0.5)
            eventually(lambda: len(seen) == 500 and outbox.depth == 0, timeout_s=20.0)
            writer.stop()
            reader.stop()
    finally:
        is_over.set()
        reading.join(10.0)
    assert set(seen) == {b"%d" % number for number in range(500)}
    assert seen.total() - 500 <= 60, "duplicates should be about what was in flight"
    assert writer.counters()["connects"] >= 2
    assert outbox.counters()["outbox_dropped"] == 0


def test_the_outbox_of_a_killed_process_is_sent_by_the_next(
    broker: EmbeddedBroker, desk: Any, free_port: int, tmp_path: Path, collect: Collect
) -> None:
    program = (
        "import os, signal, sys\n"
        "from fleetgp.runtime.mqtt import *\n"
        "from fleetgp.runtime.clock import SystemClock\n"
        "from fleetgp.runtime.logs import Log\n"
        "from fleetgp.runtime.outbox import Outbox\n"
        "clock = SystemClock()\n"
        "session = Session(parse_url(sys.argv[1]), SessionConfig(client_id='writer'), clock=clock,\n"
        "    outbox=Outbox(sys.argv[2], clock=clock), log=Log('writer'))\n"
        "session.start()\n"
        "for number in range(50):\n"
        "    session.send('t/a', b'%d' % number)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    path = tmp_path / "outbox.sqlite"
    arguments = [sys.executable, "-c", program, f"mqtt://127.0.0.1:{free_port}", str(path)]
    killed = subprocess.run(arguments, timeout=30, check=False, capture_output=True)
    assert killed.returncode == -signal.SIGKILL
    reader = desk.connected(broker.url, "reader", subscriptions=ALL)
    outbox = Outbox(path, clock=SystemClock())
    writer = desk.connected(broker.url, "writer", outbox=outbox)
    assert [int(message.payload) for message in collect(reader, 50)] == list(range(50))
    writer.stop()
    outbox.close()


def test_a_disk_that_refuses_is_said_and_the_message_goes_out_directly(
    broker: EmbeddedBroker, desk: Any, outbox: Outbox, tmp_path: Path, collect: Collect
) -> None:
    reader = desk.connected(broker.url, "reader", subscriptions=ALL)
    writer = desk.connected(broker.url, "writer", outbox=outbox)
    with sqlite3.connect(tmp_path / "outbox.sqlite") as db:
        db.execute("CREATE TRIGGER full BEFORE INSERT ON entries BEGIN SELECT RAISE(ABORT, 'disk is full'); END")
    for text in (b"1", b"2"):
        writer.send("t/a", text)
    assert [message.payload for message in collect(reader, 2)] == [b"1", b"2"]
    assert writer.counters()["outbox_failed"] == 2
    assert desk.said.count("disk is full") == 1


def test_live_messages_go_before_the_backlog(
    broker: EmbeddedBroker, desk: Any, outbox: Outbox, collect: Collect
) -> None:
    for _ in range(400):
        outbox.put("t/backlog", b"old")
    reader = desk.connected(broker.url, "reader", subscriptions=ALL)
    writer = desk.connected(broker.url, "writer", outbox=outbox)
    for _ in range(20):
        writer.send("t/live", b"new")
    topics = [message.topic for message in collect(reader, 420)]
    assert len(topics) == 420
    last_live = max(place for place, topic in enumerate(topics) if topic == "t/live")
    assert topics[:last_live].count("t/backlog") < 300


def test_only_so_many_are_in_flight(broker: EmbeddedBroker, desk: Any, outbox: Outbox, eventually: Eventually) -> None:
    writer = desk.connected(broker.url, "writer", outbox=outbox)
    freeze(broker.pid)
    try:
        for number in range(100):
            writer.send("t/a", b"%d" % number)
        assert writer.figures()["pending"] <= 25
        assert outbox.depth >= 75
        room = MAX_PENDING - int(writer.figures()["pending"])
        assert [writer.publish(Outgoing("t/a", b"x", 1)) for _ in range(room + 3)] == [True] * room + [False] * 3
        assert writer.counters()["publish_refused"] == 3
    finally:
        os.kill(broker.pid, signal.SIGCONT)
    eventually(lambda: outbox.depth == 0)


def test_a_connection_that_brings_nothing_is_renewed(broker: EmbeddedBroker, desk: Any, eventually: Eventually) -> None:
    """A stopped broker keeps its sockets open: only the missing echo tells."""
    session = desk.connected(broker.url, "deaf", heartbeat_topic="t/health", heartbeat_s=0.1, keepalive_s=600)
    before = session.generation
    freeze(broker.pid)
    try:
        assert session.publish(Outgoing("t/health", b"alive"))
        eventually(lambda: session.counters().get("heartbeat_lost", 0) == 1, timeout_s=5.0)
    finally:
        os.kill(broker.pid, signal.SIGCONT)
    eventually(lambda: session.is_connected and session.generation > before)


def test_a_heartbeat_that_comes_back_renews_nothing(broker: EmbeddedBroker, desk: Any, eventually: Eventually) -> None:
    session = desk.connected(broker.url, "healthy", heartbeat_topic="t/health", heartbeat_s=0.1, subscriptions=ALL)
    by_s = time.monotonic() + 1.0
    while time.monotonic() < by_s:
        session.publish(Outgoing("t/health", b"alive"))
        assert session.receive(1, 5.0)
    assert (session.generation, session.counters()["disconnects"]) == (1, 0)


def test_stopping_never_takes_long(desk: Any, free_port: int) -> None:
    session = desk.session(f"mqtt://127.0.0.1:{free_port}", "hopeless")
    began_s = time.monotonic()
    session.stop(farewell=[Outgoing("t/status", b"offline", 1)], timeout_s=3.0)
    assert time.monotonic() - began_s < 2.0


def _send(writer: Session, numbers: range, *, seconds: float) -> None:
    """Send the numbers spread over a span, as a device would."""
    pause = threading.Event()
    for number in numbers:
        writer.send("t/a", b"%d" % number)
        pause.wait(seconds / len(numbers))
