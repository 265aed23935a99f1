"""The session against real brokers of both kinds: coming and going, taking in, acknowledging."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from broker_bridge.broker import EmbeddedBroker
from fleetgp.errors import ServiceError
from fleetgp.runtime.intake import MAX_PAYLOAD
from fleetgp.runtime.mqtt import Incoming, Outgoing

pytestmark = pytest.mark.broker

Collect = Callable[..., list[Incoming]]
ALL = (("t/#", 1),)


def texts(messages: list[Incoming]) -> list[str]:
    return [message.payload.decode() for message in messages]


def test_messages_arrive_in_order_with_their_quality(broker: EmbeddedBroker, desk: Any, collect: Collect) -> None:
    reader = desk.connected(broker.url, "reader", subscriptions=ALL)
    writer = desk.connected(broker.url, "writer")
    for number in range(100):
        assert writer.publish(Outgoing("t/a", b"%d" % number, qos=number % 2))
    got = collect(reader, 100)
    assert sorted(int(text) for text in texts(got)) == list(range(100))
    assert texts([message for message in got if message.qos == 1]) == [str(number) for number in range(1, 100, 2)]


def test_birth_comes_after_the_subscriptions(broker: EmbeddedBroker, desk: Any, collect: Collect) -> None:
    """A session that hears its own birth had subscribed before it spoke."""
    session = desk.connected(broker.url, "self", subscriptions=ALL, birth=lambda: [Outgoing("t/self", b"born", 1)])
    assert texts(collect(session, 1)) == ["born"]


def test_presence_is_retained_and_the_will_speaks_for_a_killed_program(
    broker: EmbeddedBroker, desk: Any, collect: Collect
) -> None:
    program = (
        "import sys, threading\n"
        "from fleetgp.runtime.mqtt import *\n"
        "from fleetgp.runtime.clock import SystemClock\n"
        "from fleetgp.runtime.logs import Log\n"
        "status = lambda text: Outgoing('t/status', text, 1, True)\n"
        "session = Session(parse_url(sys.argv[1]), SessionConfig(client_id='victim', will=status(b'offline')),\n"
        "    clock=SystemClock(), birth=lambda: [status(b'online')], log=Log('victim'))\n"
        "session.start()\n"
        "assert session.wait_connected(10)\n"
        "print('ready', flush=True)\n"
        "threading.Event().wait()\n"
    )
    with subprocess.Popen([sys.executable, "-c", program, broker.url], stdout=subprocess.PIPE, text=True) as victim:
        try:
            assert victim.stdout is not None
            assert victim.stdout.readline() == "ready\n"
            late_reader = desk.connected(broker.url, "reader", subscriptions=ALL)
            assert [(message.payload, message.is_retained) for message in collect(late_reader, 1)] == [
                (b"online", True)
            ]
            os.kill(victim.pid, signal.SIGKILL)
            assert [(message.payload, message.is_retained) for message in collect(late_reader, 1)] == [
                (b"offline", False)
            ]
        finally:
            victim.kill()  # where an assertion failed before: leaving the block waits for its end


def test_a_farewell_is_said_and_the_will_is_not(broker: EmbeddedBroker, desk: Any, collect: Collect) -> None:
    reader = desk.connected(broker.url, "reader", subscriptions=ALL)
    leaver = desk.connected(broker.url, "leaver", will=Outgoing("t/will", b"vanished", 1))
    leaver.stop(farewell=[Outgoing("t/status", b"offline", 1)])
    assert not leaver.is_connected
    marker = desk.connected(broker.url, "marker")
    marker.publish(Outgoing("t/marker", b"end", 1))
    assert texts(collect(reader, 2)) == ["offline", "end"]


def test_what_was_not_acknowledged_comes_again_to_a_persistent_session(
    broker: EmbeddedBroker, desk: Any, collect: Collect
) -> None:
    first = desk.connected(broker.url, "keeper", subscriptions=ALL, is_persistent=True)
    writer = desk.connected(broker.url, "writer")
    for number in range(6):
        writer.publish(Outgoing("t/a", b"%d" % number, 1))
    assert texts(collect(first, 3)) == ["0", "1", "2"]
    assert texts(first.receive(1, 10.0)) == ["3"]
    first.stop()
    writer.publish(Outgoing("t/a", b"while away", 1))
    again = desk.connected(broker.url, "keeper", subscriptions=ALL, is_persistent=True)
    assert sorted(texts(collect(again, 4))) == ["3", "4", "5", "while away"]
    assert collect(again, 1, timeout_s=0.3) == []


def test_an_acknowledgement_never_hits_a_message_of_another_connection(
    broker: EmbeddedBroker, desk: Any, eventually: Callable[..., None]
) -> None:
    """Message numbers start again on every connection: an old one must not confirm a new message."""
    session = desk.connected(
        broker.url, "keeper", subscriptions=ALL, is_persistent=True, inbox_capacity=1, inbox_wait_s=0.2
    )
    writer = desk.connected(broker.url, "writer")
    writer.publish(Outgoing("t/a", b"0", 1))
    (stale,) = session.receive(1, 10.0)
    for number in (1, 2):
        writer.publish(Outgoing("t/a", b"%d" % number, 1))  # one fills the inbox, one makes the session connect anew
    eventually(lambda: session.generation > stale.generation)
    taken: set[str] = set()
    while len(taken) < 3:
        fresh = session.receive(1, 10.0)
        assert fresh, "the messages did not come again"
        if fresh[0].generation > stale.generation:
            session.ack(stale)
            taken.add(fresh[0].payload.decode())
            session.ack(fresh[0])
    assert taken == {"0", "1", "2"}
    assert session.counters()["acks_stale"] >= 3


def test_a_full_inbox_drops_old_qos_0_and_counts(
    broker: EmbeddedBroker, desk: Any, eventually: Callable[..., None]
) -> None:
    slow = desk.connected(broker.url, "slow", subscriptions=ALL, inbox_capacity=10)
    writer = desk.connected(broker.url, "writer")
    for number in range(100):
        assert writer.publish(Outgoing("t/a", b"%d" % number))
    eventually(lambda: slow.counters()["inbox_dropped"] == 90)
    assert texts(slow.receive(100, 1.0)) == [str(number) for number in range(90, 100)]


def test_a_full_inbox_leaves_qos_1_to_the_broker_and_loses_nothing(
    broker: EmbeddedBroker, desk: Any, collect: Collect, eventually: Callable[..., None]
) -> None:
    slow = desk.connected(
        broker.url, "slow", subscriptions=ALL, is_persistent=True, inbox_capacity=10, inbox_wait_s=0.1
    )
    writer = desk.connected(broker.url, "writer")
    for number in range(50):
        assert writer.publish(Outgoing("t/a", b"%d" % number, 1))
    eventually(lambda: slow.counters()["inbox_refused"] > 0 and slow.counters()["disconnects"] > 0)
    assert slow.figures()["inbox_depth"] == 10
    seen: set[str] = set()
    while len(seen) < 50:
        got = collect(slow, 1)
        assert got, f"only {len(seen)} of 50 came"
        seen.update(texts(got))
    assert "messages come faster" in desk.said


def test_an_oversized_message_is_counted_and_never_comes_again(
    broker: EmbeddedBroker, desk: Any, collect: Collect
) -> None:
    reader = desk.connected(broker.url, "reader", subscriptions=ALL, is_persistent=True)
    writer = desk.connected(broker.url, "writer")
    for payload in (bytes(MAX_PAYLOAD + 1), b"small"):
        writer.publish(Outgoing("t/a", payload, 1))
    assert texts(collect(reader, 1)) == ["small"]
    assert reader.counters()["oversized"] == 1
    reader.stop()
    again = desk.connected(broker.url, "reader", subscriptions=ALL, is_persistent=True)
    assert collect(again, 1, timeout_s=0.3) == []


def test_two_programs_with_one_client_id_are_told_and_leak_no_sockets(
    broker: EmbeddedBroker, desk: Any, eventually: Callable[..., None]
) -> None:
    """Every connection is a fresh client: the last one must let go of its sockets without the garbage collector."""
    gc.disable()
    try:
        rivals = [desk.session(broker.url, "twin") for _ in range(2)]
        eventually(lambda: sum(rival.counters()["connects"] for rival in rivals) >= 2)
        before = len(os.listdir("/proc/self/fd"))
        eventually(lambda: any(rival.counters()["taken_over"] for rival in rivals), timeout_s=20.0)
        assert sum(rival.counters()["connects"] for rival in rivals) >= 5
        assert len(os.listdir("/proc/self/fd")) <= before + 3  # one connection may be opening just now
    finally:
        gc.enable()
    assert "another program uses the client id 'twin'" in desk.said


def test_version_5_is_used_where_offered_and_not_missed_elsewhere(
    broker: EmbeddedBroker, desk: Any, collect: Collect
) -> None:
    config = {"subscriptions": ALL, "is_persistent": True, "version": "5"}
    desk.connected(broker.url, "modern", **config).stop()
    writer = desk.connected(broker.url, "writer", version="5")
    writer.publish(Outgoing("t/a", b"while away", 1))
    again = desk.connected(broker.url, "modern", **config)
    assert texts(collect(again, 1)) == ["while away"]
    assert ("does not offer MQTT 5" in desk.said) is (broker.kind == "nats")


def test_a_bug_in_birth_is_loud(broker: EmbeddedBroker, desk: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading, "excepthook", lambda _args: None)

    def birth() -> list[Outgoing]:
        raise ZeroDivisionError

    session = desk.session(broker.url, "bug", birth=birth)
    with pytest.raises(ServiceError, match="session bug has ended"):
        session.wait_connected(10.0)
    with pytest.raises(ServiceError):
        session.receive(1, 0.0)


def test_the_heartbeat_of_the_session_itself_stays_out_of_the_inbox(
    broker: EmbeddedBroker, desk: Any, collect: Collect
) -> None:
    """Where the owner did not subscribe to its heartbeat, the echo is for the session alone."""
    session = desk.connected(broker.url, "beat", subscriptions=ALL, heartbeat_topic="health/beat")
    session.publish(Outgoing("health/beat", b"alive"))
    session.publish(Outgoing("t/a", b"end"))
    assert texts(collect(session, 1)) == ["end"]
    assert collect(session, 1, timeout_s=0.2) == []


def test_many_are_acknowledged_at_once_and_no_other(broker: EmbeddedBroker, desk: Any, collect: Collect) -> None:
    first = desk.connected(broker.url, "keeper", subscriptions=ALL, is_persistent=True)
    writer = desk.connected(broker.url, "writer")
    for number in range(300):
        assert writer.publish(Outgoing("t/a", b"%d" % number, number % 2))
    got: list[Incoming] = []
    while len(got) < 300:
        more = first.receive(300, 10.0)
        assert more, f"only {len(got)} of 300 came"
        got += more
    kept = [message for message in got if message.payload in (b"297", b"299")]
    first.ack_all([message for message in got if message not in kept])
    first.stop()
    again = desk.connected(broker.url, "keeper", subscriptions=ALL, is_persistent=True)
    assert sorted(texts(collect(again, 2))) == ["297", "299"]
    assert collect(again, 1, timeout_s=0.3) == []


def test_a_slow_owner_of_a_full_inbox_keeps_its_connection(broker: EmbeddedBroker, desk: Any, collect: Collect) -> None:
    """Many messages come in one piece, longer to take than one may wait; each may wait for its room, and pings go out
    meanwhile."""
    slow = desk.connected(
        broker.url, "slow", subscriptions=ALL, is_persistent=True, inbox_capacity=2, inbox_wait_s=1.5, keepalive_s=1
    )
    writer = desk.connected(broker.url, "writer")
    for number in range(60):
        assert writer.publish(Outgoing("t/a", b"%d" % number, 1))
    pause, got = threading.Event(), list[str]()
    for _ in range(60):
        pause.wait(0.04)
        got += texts(collect(slow, 1))
    assert got == [str(number) for number in range(60)]
    assert slow.counters()["connects"] == 1
