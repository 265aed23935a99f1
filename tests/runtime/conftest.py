"""A desk full of MQTT sessions that are stopped when the test ends."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from fleetgp.runtime.clock import SystemClock
from fleetgp.runtime.logs import Log
from fleetgp.runtime.mqtt import Incoming, Link, Outgoing, Session, SessionConfig, parse_url
from fleetgp.runtime.outbox import Outbox


@dataclass
class Desk:
    """Makes sessions; ``said`` is everything they logged."""

    stream: io.StringIO = field(default_factory=io.StringIO)
    sessions: list[Session] = field(default_factory=list)

    def session(
        self,
        where: str | Link,
        client_id: str,
        *,
        birth: Callable[[], Sequence[Outgoing]] = tuple,
        outbox: Outbox | None = None,
        **config: Any,
    ) -> Session:
        """A session that was started and may still be connecting."""
        session = Session(
            parse_url(where) if isinstance(where, str) else where,
            SessionConfig(client_id=client_id, **config),
            clock=SystemClock(),
            birth=birth,
            outbox=outbox,
            log=Log("test", stream=self.stream),
        )
        self.sessions.append(session)
        session.start()
        return session

    def connected(self, where: str | Link, client_id: str, **config: Any) -> Session:
        session = self.session(where, client_id, **config)
        assert session.wait_connected(10.0), self.said
        return session

    @property
    def said(self) -> str:
        return self.stream.getvalue()


@pytest.fixture
def desk() -> Iterator[Desk]:
    desk = Desk()
    yield desk
    for session in desk.sessions:
        session.stop(timeout_s=0.5)


@pytest.fixture
def collect() -> Callable[..., list[Incoming]]:
    """``collect(session, count)``: receive and acknowledge until ``count`` messages came or nothing more does."""

    def run(session: Session, count: int, *, timeout_s: float = 10.0) -> list[Incoming]:
        got: list[Incoming] = []
        while len(got) < count:
            messages = session.receive(count - len(got), timeout_s)
            if not messages:
                break
            for message in messages:
                session.ack(message)
            got += messages
        return got

    return run
