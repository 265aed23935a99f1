"""A server of our own that takes lines like InfluxDB 1.x and refuses them as a test says."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple


class Refusal(NamedTuple):
    """What is answered instead of 204. headers: beside the usual. after_s: how long the answer is held back."""

    status: int
    words: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    after_s: float = 0.0


Rule = Callable[[list[str]], Refusal | None]


class FakeInflux:
    """rule: looks at the lines of a request and refuses it, or not. kept: points by tags and time; requests: sizes."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.rule: Rule = lambda _: None
        self.kept: dict[tuple[str, str], str] = {}
        self.requests: list[int] = []
        self.paths: list[str] = []
        self.version = "1.8.10"
        self.answers_queries = False
        self.released = threading.Event()

    def take(self, lines: list[str]) -> Refusal | None:
        self.requests.append(len(lines))
        refusal = self.rule(lines)
        if refusal is None:
            for line in lines:
                series, _, rest = line.partition(" ")
                fields, _, at_ns = rest.rpartition(" ")
                self.kept[series, at_ns] = fields
        return refusal

    @property
    def sequences(self) -> list[int]:
        """Numbers of the readings that were kept, sorted."""
        found = [fields for (series, _), fields in self.kept.items() if series.startswith("fleetgp_reading")]
        return sorted(
            int(part[10:-1]) for fields in found for part in fields.split(",") if part.startswith("_sequence=")
        )


def _handler(fake: FakeInflux) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # or each refusal takes 40 ms

        def do_GET(self) -> None:
            self._answer(Refusal(204))

        def do_POST(self) -> None:
            fake.paths.append(self.path)
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            if self.path.startswith("/query"):
                self._answer(Refusal(200, "") if fake.answers_queries else Refusal(400, "no queries"))
                return
            self._answer(fake.take(body.split("\n")) or Refusal(204))

        def _answer(self, answer: Refusal) -> None:
            if answer.after_s:
                fake.released.wait(answer.after_s)
            body = json.dumps({"error": answer.words}).encode() if answer.status != 204 else b""
            self.send_response(answer.status)
            self.send_header("X-Influxdb-Version", fake.version)
            for name, value in answer.headers:
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            return

    return Handler


@contextmanager
def fake_influx() -> Iterator[FakeInflux]:
    """A fake on a free port, until the end of the block."""
    fake = FakeInflux(0)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(fake))
    server.daemon_threads = True
    fake.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), name="fake_influx")
    thread.start()
    try:
        yield fake
    finally:
        fake.released.set()
        server.shutdown()
        server.server_close()
        thread.join(5)
