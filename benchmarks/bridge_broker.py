"""A mosquitto that holds up nobody: it sends without waiting for acknowledgements, drops nothing and writes nothing to disk.

The broker that FleetGP runs keeps its queue on disk and 1,000 messages under way. Then it is the broker's own speed that is
measured, above all with a subscriber that acknowledges message by message.
"""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from broker_bridge.broker import HOST, is_answering
from fleetgp.errors import ServiceError

START_S = 10.0


@contextmanager
def broker(folder: Path) -> Iterator[int]:
    """Its port, while it runs. Raises ServiceError where it is not installed or does not start."""
    program = shutil.which("mosquitto", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    if program is None:
        raise ServiceError("mosquitto is not installed (apt-get install mosquitto)")
    with socket.socket() as sock:
        sock.bind((HOST, 0))
        port = int(sock.getsockname()[1])
    config = folder / "mosquitto.conf"
    lines = [f"listener {port} {HOST}", "allow_anonymous true", "max_inflight_messages 0", "max_queued_messages 0"]
    config.write_text("\n".join([*lines, f"user {pwd.getpwuid(os.geteuid()).pw_name}"]) + "\n")
    process = subprocess.Popen([program, "-c", str(config)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        by_s = time.monotonic() + START_S
        while not is_answering(port):
            if process.poll() is not None or time.monotonic() > by_s:
                raise ServiceError("mosquitto does not start")
            time.sleep(0.02)
        yield port
    finally:
        process.terminate()
        process.wait(START_S)


def url_of(port: int) -> str:
    return f"mqtt://{HOST}:{port}"
