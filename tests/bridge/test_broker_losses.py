"""What a broker tells of the messages that it dropped: its count against what a subscriber did not get, on a real mosquitto."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import paho.mqtt.client as paho
import pytest
from plain_mosquitto import plain_mosquitto, publisher

from broker_bridge.broker import EmbeddedBroker
from broker_bridge.broker_losses import DROPPED, UPTIME, BrokerLosses, Tally
from fleetgp.runtime.clock import SystemClock
from fleetgp.runtime.mqtt import Incoming, parse_url


def told(*messages: tuple[str, str, bool]) -> Tally:
    tally = Tally()
    for second, (topic, payload, is_retained) in enumerate(messages):
        tally.take(Incoming(topic, payload.encode(), 0, is_retained, 0, 1, 0), float(second))
    return tally


def test_what_was_dropped_before_the_recording_does_not_count() -> None:
    tally = told(
        (DROPPED, "700", True), (UPTIME, "9000 seconds", True), (DROPPED, "705", False), (DROPPED, "709", False)
    )
    assert (tally.dropped, tally.is_at_least, tally.told_s) == (9, False, 3.0)


def test_a_broker_that_began_anew_counts_from_nothing() -> None:
    assert told((DROPPED, "700", True), (DROPPED, "703", False), (DROPPED, "2", True)).dropped == 5


def test_a_rise_from_an_unknown_count_is_told_as_the_least_that_it_can_be() -> None:
    """mosquitto forgets a count that has not changed for a minute: the next one it tells says only that it rose."""
    tally = told((UPTIME, "9000 seconds", True), (DROPPED, "52000", False), (DROPPED, "52010", False))
    assert (tally.dropped, tally.is_at_least) == (11, True)
    young = told((UPTIME, "30 seconds", True), (DROPPED, "52", False))
    assert (young.dropped, young.is_at_least) == (52, False)


def test_silence_is_not_taken_for_nothing() -> None:
    assert Tally().dropped is None
    assert told((DROPPED, "many", True), (UPTIME, "", True), (DROPPED, "9" * 30, True)).dropped is None
    assert told((UPTIME, "9000 seconds", True)).dropped == 0


@pytest.mark.broker
def test_its_count_is_what_a_subscriber_that_reads_nothing_did_not_get(
    tmp_path: Path, free_port: int, eventually: Callable[..., None]
) -> None:
    with plain_mosquitto(tmp_path, free_port, "sys_interval 1", "max_queued_messages 10") as port:
        _compare(port, eventually)


def _compare(port: int, eventually: Callable[..., None]) -> None:
    losses = BrokerLosses(parse_url(f"mqtt://127.0.0.1:{port}"), SystemClock(), "3.1.1")
    losses.start()
    heard: list[bytes] = []
    slow = paho.Client(paho.CallbackAPIVersion.VERSION2)
    slow.on_message = lambda client, data, message: heard.append(message.payload)
    slow.connect("127.0.0.1", port)
    slow.subscribe("x/#", 1)
    for _ in range(10):
        slow.loop(0.02)
    with publisher(port) as client:
        for _ in range(3000):
            client.publish("x/a", b"y" * 1000, qos=1)

    def is_all_told() -> bool:
        slow.loop(0.02)
        losses.look()
        return len(heard) + (losses.tally.dropped or 0) == 3000

    eventually(is_all_told, 15.0)
    assert 0 < len(heard) < 3000
    losses.stop()
    losses.stop()


@pytest.mark.broker
def test_a_broker_that_tells_nothing_is_no_trouble(broker: EmbeddedBroker, eventually: Callable[..., None]) -> None:
    losses = BrokerLosses(parse_url(broker.url), SystemClock(), "3.1.1")
    losses.start()
    if broker.kind == "mosquitto":
        eventually(lambda: losses.look() or losses.tally.dropped is not None, 15.0)
    else:
        losses.look()
    assert losses.tally.dropped == (0 if broker.kind == "mosquitto" else None)
    losses.stop()
