"""A mosquitto as people run it, with its own limits: the one that FleetGP embeds has wider ones."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import paho.mqtt.client as paho
import pytest

from broker_bridge.broker import is_answering


@contextmanager
def plain_mosquitto(folder: Path, port: int, *lines: str) -> Iterator[int]:
    """Its port; lines: more of its configuration."""
    program = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin")
    if program is None:
        pytest.skip("mosquitto is not installed here (apt-get install mosquitto)")
    config = folder / "plain.conf"
    config.write_text("\n".join([f"listener {port} 127.0.0.1", "allow_anonymous true", *lines, ""]))
    with subprocess.Popen([program, "-c", str(config)], stderr=subprocess.DEVNULL) as process:
        by_s = time.monotonic() + 10.0
        while not is_answering(port) and time.monotonic() < by_s:
            time.sleep(0.02)
        yield port
        process.terminate()


@contextmanager
def publisher(port: int) -> Iterator[paho.Client]:
    """A client that publishes, and has published all when the block ends."""
    client = paho.Client(paho.CallbackAPIVersion.VERSION2)
    client.max_inflight_messages_set(500)
    client.connect("127.0.0.1", port)
    client.loop_start()
    yield client
    client.publish("done", b"", qos=1).wait_for_publish(20.0)
    client.disconnect()
    client.loop_stop()
