"""The first connection of a command that is of no use without a broker."""

from __future__ import annotations

import threading

from fleetgp.errors import ServiceError
from fleetgp.runtime.clock import Clock
from fleetgp.runtime.link import Link
from fleetgp.runtime.mqtt import Session

CONNECT_S = 10.0
STEP_S = 0.1  # how late a stop is noticed at most


def wait_for_broker(session: Session, link: Link, stopping: threading.Event, clock: Clock) -> None:
    """Return when the session is ready. Raises ServiceError when it is not within CONNECT_S, or a stop is asked for first."""
    by_s = clock.monotonic_s() + CONNECT_S
    while not session.wait_connected(STEP_S):
        if stopping.is_set():
            raise ServiceError("stopped before there was a connection to the broker")
        if clock.monotonic_s() > by_s:
            raise ServiceError(
                f"no connection to the broker at {link.host}:{link.port} within {CONNECT_S:.0f} s; is it running, and is "
                "--broker right? fleetgp doctor looks closer"
            )
