"""Real servers that history can live in: InfluxDB 1.x and VictoriaMetrics, each on a free port with a folder of its own."""

from __future__ import annotations

import http.client
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Literal
from urllib.parse import quote, urlencode

from ports import unused_port

ServerName = Literal["influxd", "victoria-metrics"]
START_WITHIN_S = 20.0

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
auth-enabled = {auth}
"""


def has_servers() -> bool:
    return shutil.which("influxd") is not None and shutil.which("victoria-metrics") is not None


class InfluxServer:
    """One server process. It can be killed and started again on its port and folder; ``stop`` at the end."""

    def __init__(self, name: ServerName, folder: Path, *, auth: bool = False) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.name = name
        self.port = unused_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._folder = folder
        self._auth = auth
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> InfluxServer:
        if self.name == "influxd":
            config = self._folder / "influxdb.conf"
            config.write_text(_CONFIG.format(folder=self._folder, port=self.port, auth=str(self._auth).lower()))
            command = ["influxd", "run", "-config", str(config)]
        else:
            command = [
                "victoria-metrics", f"-storageDataPath={self._folder}", f"-httpListenAddr=127.0.0.1:{self.port}",
                "-retentionPeriod=100y", "-search.latencyOffset=0s", "-memory.allowedBytes=64MB",
            ]  # fmt: skip
        self._process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=self._folder
        )
        by_s = time.monotonic() + START_WITHIN_S
        while not self._answers():
            assert self._process.poll() is None, f"{self.name} ended with {self._process.returncode}"
            assert time.monotonic() < by_s, f"{self.name} did not answer in {START_WITHIN_S} s"
            time.sleep(0.02)
        return self

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait(10)
            self._process = None

    def kill(self) -> None:
        self.stop(signal.SIGKILL)

    def make_database(self, name: str, *, login: str = "") -> None:
        answer = self.ask("POST", "/query?" + login + urlencode({"q": f'CREATE DATABASE "{name}"'}))
        assert b"error" not in answer, answer

    def ask(self, method: str, path: str, body: bytes | None = None) -> bytes:
        """One request; the body of the answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            connection.request(method, path, body)
            return connection.getresponse().read()
        finally:
            connection.close()

    def export(self, match: str) -> list[bytes]:
        """Lines of VictoriaMetrics' own export."""
        self.ask("GET", "/internal/force_flush")
        return self.ask("GET", f"/api/v1/export?match%5B%5D={quote(match)}").splitlines()

    def _answers(self) -> bool:
        try:
            self.ask("GET", "/ping")
        except (OSError, http.client.HTTPException):
            return False
        return True
