"""Fixtures that several areas share: free ports, waiting with a deadline, and real MQTT brokers of both kinds."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import pytest

from broker_bridge.broker import EmbeddedBroker, is_available

BrokerKind = Literal["mosquitto", "nats"]


@pytest.fixture
def free_port() -> int:
    """A port on the loopback address that nothing uses now."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@pytest.fixture
def eventually() -> Callable[..., None]:
    """``eventually(lambda: condition, timeout_s=10)``: waits for another process or thread, fails after the deadline."""

    def wait(condition: Callable[[], object], timeout_s: float = 10.0) -> None:
        by_s = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() > by_s:
                pytest.fail(f"did not come true within {timeout_s} s")
            time.sleep(0.01)

    return wait


@pytest.fixture(params=["mosquitto", "nats"])
def broker_kind(request: pytest.FixtureRequest) -> BrokerKind:
    """Every broker that FleetGP can embed. NATS comes with pip and must be there; mosquitto is a system package."""
    kind: BrokerKind = request.param
    if kind == "mosquitto" and not is_available("mosquitto"):
        pytest.skip("mosquitto is not installed here (apt-get install mosquitto)")
    return kind


@pytest.fixture
def broker(broker_kind: BrokerKind, tmp_path: Path) -> Iterator[EmbeddedBroker]:
    """A running broker of each kind, on a free port, with nothing kept from before."""
    with EmbeddedBroker.start(broker_kind, tmp_path / "broker") as running:
        yield running
