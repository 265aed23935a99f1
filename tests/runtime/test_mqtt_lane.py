"""The lane: many messages at once, bounded, and after an outage those come back that may not have arrived."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from frozen import freeze

from broker_bridge.broker import EmbeddedBroker, is_available
from fleetgp.runtime.delivery import MAX_PENDING
from fleetgp.runtime.mqtt import Incoming, Outgoing

pytestmark = pytest.mark.broker

Collect = Callable[..., list[Incoming]]


def numbered(start: int, count: int, qos: int = 1) -> list[Outgoing]:
    return [Outgoing("t/a", b"%d" % n, qos) for n in range(start, start + count)]


@pytest.mark.parametrize("qos", [0, 1])
def test_no_more_is_taken_than_there_is_room_for_and_all_arrives_in_order(
    broker: EmbeddedBroker, desk: Any, collect: Collect, qos: int
) -> None:
    reader = desk.connected(broker.url, "reader", subscriptions=(("t/#", 1),))
    lane = desk.connected(broker.url, "writer").lane
    waiting = numbered(0, 3 * MAX_PENDING, qos)
    while waiting:
        taken = lane.hand_over(waiting)
        assert taken <= MAX_PENDING
        assert lane.unconfirmed <= MAX_PENDING
        waiting = waiting[taken:]
        lane.wait_confirmed(MAX_PENDING // 2, 5.0)
    assert lane.wait_confirmed(0, 10.0)
    assert lane.take_back() == []
    heard = collect(reader, 3 * MAX_PENDING)
    assert [int(m.payload) for m in heard] == list(range(3 * MAX_PENDING))


def test_what_a_broker_did_not_confirm_comes_back_in_order_before_others_are_taken(
    broker: EmbeddedBroker, desk: Any, tmp_path: Path, eventually: Callable[..., None]
) -> None:
    """A frozen broker confirms nothing; when it is killed, all of it may be lost."""
    session = desk.connected(broker.url, "writer")
    lane = session.lane
    freeze(broker.pid)
    assert lane.hand_over(numbered(0, 300)) == 300
    assert not lane.wait_confirmed(0, 0.05)
    os.kill(broker.pid, signal.SIGKILL)
    eventually(lambda: not lane.is_open)
    assert lane.hand_over(numbered(300, 1)) == 0
    assert not lane.wait_confirmed(300, 5.0), "without a connection there is nothing to wait for"
    assert lane.unconfirmed == 300
    with EmbeddedBroker.start(broker.kind, tmp_path / "broker", broker.port):
        assert session.wait_connected(15.0)
        assert lane.hand_over(numbered(300, 1)) == 0, "they would overtake those that come back"
        back = lane.take_back()
        assert back == numbered(0, 300)
        assert lane.hand_over([*back, *numbered(300, 1)]) == 301
        assert lane.wait_confirmed(0, 10.0)


@pytest.mark.skipif(not is_available("mosquitto"), reason="only mosquitto speaks MQTT 5 here")
def test_the_content_type_goes_and_comes_where_mqtt_5_is_spoken(tmp_path: Path, desk: Any, collect: Collect) -> None:
    sent = Outgoing("t/a", b"{}", 1, content_type="application/json")
    with EmbeddedBroker.start("mosquitto", tmp_path / "five") as broker:
        readers = {
            version: desk.connected(broker.url, f"reader-{version[0]}", version=version, subscriptions=(("t/#", 1),))
            for version in ("5", "3.1.1")
        }
        writers = {
            version: desk.connected(broker.url, f"writer-{version[0]}", version=version) for version in ("5", "3.1.1")
        }
        for writer in writers.values():
            assert writer.lane.hand_over([sent]) == 1
            assert writer.lane.wait_confirmed(0, 5.0)
        heard = {version: [m.content_type for m in collect(reader, 2)] for version, reader in readers.items()}
    assert heard == {"5": ["application/json", ""], "3.1.1": ["", ""]}
