"""A real InfluxDB 1.x beside the benchmark, which can be killed and come back."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
import urllib.request
from pathlib import Path

from fleetgp.errors import ServiceError

START_S = 30.0
_CONFIG = """
reporting-disabled = true
bind-address = "127.0.0.1:0"
[meta]
dir = "{folder}/meta"
[data]
dir = "{folder}/data"
wal-dir = "{folder}/wal"
index-version = "tsi1"
[monitor]
store-enabled = false
[http]
bind-address = "127.0.0.1:{port}"
log-enabled = false
"""


def is_there() -> bool:
    return shutil.which("influxd") is not None


class Influx:
    """One server, ended when the ``with`` block is left."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        with socket.socket() as sock:
            sock.bind(("127.0.0.1", 0))
            port = int(sock.getsockname()[1])
        self.url = f"http://127.0.0.1:{port}"
        self._config = folder / "influxdb.conf"
        self._config.write_text(_CONFIG.format(folder=folder, port=port))
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Raises ServiceError where it does not answer."""
        self._process = subprocess.Popen(
            ["influxd", "run", "-config", str(self._config)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        by_s = time.monotonic() + START_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > by_s:
                raise ServiceError("influxd does not start")
            time.sleep(0.05)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(10)

    def __enter__(self) -> Influx:
        self.start()
        request = urllib.request.Request(f"{self.url}/query?q=CREATE+DATABASE+fleetgp", method="POST")
        urllib.request.urlopen(request, timeout=START_S).close()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def _answers(self) -> bool:
        try:
            urllib.request.urlopen(f"{self.url}/ping", timeout=1.0).close()
        except OSError:
            return False
        return True
