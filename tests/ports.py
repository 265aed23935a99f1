"""Ports for tests that name one before anything listens there, or while nothing does."""

from __future__ import annotations

import os
import random
import socket

# Below the ports that Linux hands out by itself (from 32768 on): no program that lets it choose comes upon one of these.
FIRST, BEYOND = 20_000, 32_000
TRIES = 100
_chance = random.SystemRandom()  # the usual generator begins anew with each of Hypothesis' examples


def unused_port() -> int:
    """A port on the loopback address that nothing uses now, and that no other worker of this run will choose."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    for _ in range(TRIES):
        port = _chance.randrange(FIRST + worker % workers, BEYOND, workers)
        with socket.socket() as sock:
            try:
                sock.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise OSError(f"no free port between {FIRST} and {BEYOND} in {TRIES} tries")
