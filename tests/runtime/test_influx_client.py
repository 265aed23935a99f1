"""The client: which server answers, how it lets us in, how refusals read, how much of an answer is in memory."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlencode

import pytest
from influx_servers import InfluxServer

from fleetgp.errors import ConfigError
from fleetgp.runtime.influx import Access, Client
from fleetgp.runtime.influx_answers import InfluxError
from fleetgp.runtime.influx_http import Address
from fleetgp.runtime.influx_v2 import ClientWriter

Answer = Callable[[BaseHTTPRequestHandler], None]


@contextmanager
def server(answer: Answer) -> Iterator[str]:
    """A server that answers every request as told; its address."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            answer(self)

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            answer(self)

        def log_message(self, format: str, *args: object) -> None:
            return

    running = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    running.daemon_threads = True
    thread = threading.Thread(target=running.serve_forever, args=(0.02,), name="test.server")
    thread.start()
    try:
        yield f"http://127.0.0.1:{running.server_port}"
    finally:
        running.shutdown()
        running.server_close()
        thread.join(5)


def told(status: int, body: bytes = b"", **headers: str) -> Answer:
    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(status)
        for name, value in headers.items():
            request.send_header(name.replace("_", "-"), value)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)

    return answer


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        (told(204, X_Influxdb_Version="1.6.7"), "influxdb1", "InfluxDB 1.6.7"),
        (told(204, X_Influxdb_Version="v2.7.1"), "influxdb2", "InfluxDB v2.7.1"),
        (told(200, b"{}", X_Influxdb_Version="3.0.1"), "influxdb3", "InfluxDB 3.0.1"),
        (told(200, b"OK", X_Server_Hostname="vm"), "victoriametrics", "VictoriaMetrics"),
    ],
)
def test_a_probe_tells_the_servers_apart(answer: Answer, kind: str, words: str) -> None:
    with server(answer) as url:
        found = Client(Access(url, "db")).probe()
    assert (found.kind, str(found)) == (kind, words)


@pytest.mark.parametrize(
    ("answer", "verdict", "words"),
    [
        (told(200, b"<html>Grafana</html>"), "denied", "is store.url right"),
        (told(404, b"<html><p>not here</p></html>"), "denied", "is store.url right"),
        (told(401, b'{"error":"unable to parse authentication credentials"}'), "denied", "store.password"),
    ],
)
def test_what_is_no_influxdb_is_told(answer: Answer, verdict: str, words: str) -> None:
    with server(answer) as url, pytest.raises(InfluxError, match=words) as caught:
        Client(Access(url, "db")).probe()
    assert caught.value.verdict == verdict


def test_an_answer_that_trickles_ends_at_the_deadline() -> None:
    def trickle(request: BaseHTTPRequestHandler) -> None:
        request.send_response(204)
        request.send_header("X-Influxdb-Version", "1.8.0")
        request.end_headers()

    def drip(request: BaseHTTPRequestHandler) -> None:
        if request.path == "/ping":
            return trickle(request)
        request.send_response(200)
        request.send_header("Content-Length", "1000000")
        request.end_headers()
        for _ in range(200):
            request.wfile.write(b" ")
            request.wfile.flush()
            time.sleep(0.02)
        return None

    with server(drip) as url:
        client = Client(Access(url, "db", timeout_s=0.3))
        client.probe()
        began_s = time.monotonic()
        with pytest.raises(InfluxError, match="too slow") as caught:
            client.write(["a v=1"])
        assert time.monotonic() - began_s < 2.0
    assert caught.value.verdict == "wait"


@pytest.mark.parametrize(
    ("status", "verdict", "retry_after_s"),
    [(503, "wait", 7.0), (400, "split", 0.0), (422, "split", 0.0), (401, "denied", 0.0)],
)
def test_the_writer_of_2_x_reads_refusals_like_that_of_1_x(status: int, verdict: str, retry_after_s: float) -> None:
    body = b'{"code":"invalid","message":"what is wrong"}'
    with server(told(status, body, Retry_After="7")) as url:
        writer = ClientWriter(Access(url, "bucket", org="me", token="secret", timeout_s=2.0), "the InfluxDB")
        with pytest.raises(InfluxError, match="what is wrong") as caught:
            writer.write(["a v=1 1"])
        writer.close()
    assert caught.value.verdict == verdict
    assert caught.value.retry_after_s in (retry_after_s, 7.0 if verdict == "wait" else 0.0)
    gone = ClientWriter(Access("http://127.0.0.1:1", "bucket"), "the InfluxDB")
    with pytest.raises(InfluxError, match="does not answer") as caught:
        gone.write(["a v=1 1"])
    assert caught.value.verdict == "wait"


def test_the_writer_of_2_x_asks_as_2_x_wants_to_be_asked() -> None:
    asked: list[tuple[str, str | None]] = []

    def answer(request: BaseHTTPRequestHandler) -> None:
        asked.append((request.path, request.headers["Authorization"]))
        told(204, X_Influxdb_Version="v2.7.1")(request)

    with server(answer) as url:
        client = Client(Access(url, "my bucket", org="me", token="secret"))
        client.write(["a v=1 1", "a v=2 2"])
        client.close()
    assert asked[-1] == ("/api/v2/write?org=me&bucket=my+bucket&precision=ns", "Token secret")


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("127.0.0.1:8086", "write http://"),
        ("ftp://host", "write http://"),
        ("http://", "write http://"),
        ("http://me:pw@host:8086", "store.password_file"),
        ("http://host:x", "is no address"),
        ("http://host/?db=x", "has a"),
    ],
)
def test_an_address_that_is_none_is_told(url: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        Client(Access(url, "db"))


def test_addresses() -> None:
    assert Address.of("https://influx.example/base/") == Address("https", "influx.example", 443, "/base")
    assert Address.of("http://[::1]:8086").url == "http://[::1]:8086"


def test_secrets_are_not_printed() -> None:
    assert "hush" not in repr(Access("http://host", "db", username="me", password="hush", token="hush"))


@pytest.mark.influx
def test_a_server_that_asks_for_a_password(tmp_path: Path) -> None:
    guarded = InfluxServer("influxd", tmp_path, auth=True).start()
    try:
        make = urlencode({"q": "CREATE USER me WITH PASSWORD 'it''s' WITH ALL PRIVILEGES".replace("''", "\\'")})
        guarded.ask("POST", f"/query?{make}")
        guarded.make_database("fleetgp", login=urlencode({"u": "me", "p": "it's"}) + "&")
        client = Client(Access(guarded.url, "fleetgp", username="me", password="it's"))
        client.write(["a v=1 1"])
        assert client.query("SELECT v FROM a")[0].values == [[1, 1]]
        for wrong in (Access(guarded.url, "fleetgp"), Access(guarded.url, "fleetgp", username="me", password="no")):
            with pytest.raises(InfluxError, match=r"store\.username") as caught:
                Client(wrong).write(["a v=2 2"])
            assert caught.value.verdict == "denied"
    finally:
        guarded.stop()


@pytest.mark.influx
def test_a_long_answer_comes_in_parts_and_may_be_left_early(influxd: InfluxServer) -> None:
    client = Client(Access(influxd.url, "fleetgp"))
    client.write([f"parts v={i}i {i + 1}" for i in range(5000)])
    sizes, found = [], []
    for table in client.stream("SELECT v FROM parts", chunk_rows=700):
        sizes.append(len(table.values))
        found += [row[1] for row in table.values]
    assert found == list(range(5000))
    assert max(sizes) == 700
    stream = client.stream("SELECT v FROM parts", chunk_rows=700)
    assert next(stream).values[0] == [1, 0]
    stream.close()
    assert client.query("SELECT count(v) FROM parts")[0].values == [[0, 5000]]
    with pytest.raises(InfluxError, match="error parsing query") as caught:
        client.query("SELEC")
    assert caught.value.verdict == "split"
    with pytest.raises(InfluxError, match="CREATE DATABASE"):
        client.query("SELECT v FROM parts", database="nowhere")
