"""Commands that need a broker and find none: they end soon, in plain words."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator

import pytest

from broker_bridge.connecting import CONNECT_S, wait_for_broker
from fleetgp.errors import ServiceError
from fleetgp.runtime.clock import SystemClock
from fleetgp.runtime.logs import Log
from fleetgp.runtime.mqtt import Link, Session, SessionConfig


class Hasty(SystemClock):
    """A clock whose seconds pass at a glance."""

    def __init__(self) -> None:
        super().__init__()
        self._glances = 0

    def monotonic_s(self) -> float:
        self._glances += 1
        return self._glances * CONNECT_S / 4


@pytest.fixture
def nobody(free_port: int) -> Iterator[tuple[Session, Link]]:
    """A session to a port on which nothing listens."""
    link = Link("127.0.0.1", free_port)
    session = Session(link, SessionConfig(client_id="seeker"), clock=SystemClock(), log=Log("x", stream=io.StringIO()))
    session.start()
    yield session, link
    session.stop(timeout_s=0.5)


def test_nobody_there_is_said_with_the_address_and_what_to_do(nobody: tuple[Session, Link]) -> None:
    session, link = nobody
    with pytest.raises(ServiceError, match=f"127.0.0.1:{link.port} within 10 s.*doctor"):
        wait_for_broker(session, link, threading.Event(), Hasty())


def test_a_stop_is_heeded_before_there_is_a_connection(nobody: tuple[Session, Link]) -> None:
    stopping = threading.Event()
    stopping.set()
    with pytest.raises(ServiceError, match="stopped before"):
        wait_for_broker(*nobody, stopping, SystemClock())
