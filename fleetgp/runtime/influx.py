"""Client of the InfluxDB family: what kind of server answers, lines written to it, InfluxQL queries read from it.

InfluxDB 1.x is written at ``/write`` by the standard library alone; 2.x, 3.x and VictoriaMetrics at ``/api/v2/write`` by
influxdb-client's synchronous API (never its batching one, which loses points). InfluxQL at ``/query`` is read the same way
from 1.x, 2.x (where the bucket is mapped to a database) and 3.x; VictoriaMetrics has none.
"""

from __future__ import annotations

import base64
import http.client
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol
from urllib.parse import urlencode

from fleetgp.runtime.influx_answers import InfluxError, Table, read_reply, refusal, unreachable
from fleetgp.runtime.influx_http import Address, Answer, Line
from fleetgp.runtime.influx_names import quoted

ServerKind = Literal["influxdb1", "influxdb2", "influxdb3", "victoriametrics"]
CHUNK_ROWS = 10_000
_FORM = "application/x-www-form-urlencoded"


@dataclass(frozen=True)
class Access:
    """Where the server is and how to be let in. database: of 1.x, or the bucket. Printing it shows no secret."""

    url: str
    database: str
    org: str = ""
    username: str = ""
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    timeout_s: float = 10.0


class Server(NamedTuple):
    """What a probe found. version: as the server says it, "" where it does not."""

    kind: ServerKind
    version: str

    def __str__(self) -> str:
        name = "VictoriaMetrics" if self.kind == "victoriametrics" else "InfluxDB"
        return f"{name} {self.version}".strip()


class LineWriter(Protocol):
    """Writes lines of the line protocol, times in ns; raises InfluxError."""

    def write(self, lines: Sequence[str]) -> None: ...

    def close(self) -> None: ...


class Client:
    """One server and database; may be used from any thread, one exchange at a time.

    Every exchange ends within timeout_s (a stream: every part of it). All methods raise InfluxError; the constructor
    raises ConfigError on an address that is none.
    """

    def __init__(self, access: Access) -> None:
        self.access = access
        self._address = Address.of(access.url)
        self.where = f"the InfluxDB at {self._address.url}"
        self._line = Line(self._address, _login(access), access.timeout_s)
        self._lock = threading.Lock()
        self._server: Server | None = None
        self._writer: LineWriter | None = None

    @property
    def location(self) -> str:
        """Server and database, for people."""
        return f"{self._address.url}/{self.access.database}"

    def probe(self) -> Server:
        """Which server answers; asked once, unless it did not answer."""
        if self._server is None:
            self._server = self._look()
        return self._server

    def write(self, lines: Sequence[str]) -> None:
        """Write lines, each a point; when it returns the server has them."""
        if self._writer is None:
            self._writer = self._choose_writer()
        try:
            self._writer.write(lines)
        except InfluxError as err:
            if err.verdict == "denied":  # perhaps another server answers by now
                self._server = None
                self._writer.close()
                self._writer = None
            raise

    def make_database(self) -> None:
        """Make the database of a 1.x server; one that is there stays as it is."""
        self.query(f"CREATE DATABASE {quoted(self.access.database)}")

    def query(self, text: str, database: str | None = None) -> list[Table]:
        """The whole answer to InfluxQL statements, all in memory."""
        return list(self.stream(text, database=database))

    def stream(self, text: str, chunk_rows: int = CHUNK_ROWS, database: str | None = None) -> Iterator[Table]:
        """The answer in parts of at most chunk_rows rows; a group that has more comes in several parts."""
        server = self.probe()
        if server.kind == "victoriametrics":
            words = "it answers no InfluxQL; look at it with Grafana and PromQL"
            raise InfluxError(f"{self.where} is a VictoriaMetrics: {words}", "denied", words)
        form = {"db": database or self.access.database, "q": text, "epoch": "ns", "chunked": "true"}
        body = urlencode(form | {"chunk_size": str(chunk_rows)}).encode()
        with self._lock:
            try:
                for answer in self._line.lines("POST", "/query", body, _FORM):
                    yield from self._tables(answer)
            except (OSError, http.client.HTTPException) as err:
                self._line.close()
                raise unreachable(self.where, err) from err

    def post_lines(self, path: str, lines: Sequence[str]) -> None:
        """POST lines to a path of the server."""
        answer = self._exchange("POST", path, "\n".join(lines).encode())
        if answer.status not in (200, 204):
            raise refusal(self.where, self.access.database, answer.status, answer.body, answer.headers)

    def close(self) -> None:
        with self._lock:
            self._line.close()
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _tables(self, answer: Answer) -> Iterator[Table]:
        if answer.status != 200:
            raise refusal(self.where, self.access.database, answer.status, answer.body, answer.headers)
        reply = read_reply(answer.body, self.where)
        for error in (reply.error, *(result.error for result in reply.results)):
            if "database not found" in error:
                raise refusal(self.where, self.access.database, 404, error.encode(), {})
            if error:
                raise InfluxError(f"{self.where} refuses a query: {error}", "split", error)
        for result in reply.results:
            yield from result.series

    def _look(self) -> Server:
        answer = self._exchange("GET", "/ping")
        version = answer.headers.get("x-influxdb-version", "")
        if answer.status in (401, 403):
            raise refusal(self.where, self.access.database, answer.status, answer.body, answer.headers)
        if answer.status not in (200, 204):
            words = f"/ping answers {answer.status}"
            raise InfluxError(f"{self.where} is none: {words}; is store.url right?", "denied", words)
        if not version or "x-server-hostname" in answer.headers:
            health = self._exchange("GET", "/health")
            if health.status == 200 and health.body.strip() == b"OK" and "x-server-hostname" in health.headers:
                return Server("victoriametrics", "")
        if not version:
            words = "it does not say a version"
            raise InfluxError(f"{self.where} is none: {words}; is store.url right?", "denied", words)
        number = version.lstrip("v")
        kind: ServerKind = (
            "influxdb2" if number.startswith("2") else "influxdb3" if number.startswith("3") else "influxdb1"
        )
        return Server(kind, version)

    def _choose_writer(self) -> LineWriter:
        if self.probe().kind == "influxdb1":
            return _PlainWriter(self)
        # influxdb-client takes 25 MB of memory, which a bridge that writes to a 1.x server does without
        from fleetgp.runtime.influx_v2 import ClientWriter

        return ClientWriter(self.access, self.where)

    def _exchange(self, method: str, path: str, body: bytes | None = None) -> Answer:
        with self._lock:
            try:
                return self._line.exchange(method, path, body)
            except (OSError, http.client.HTTPException) as err:
                self._line.close()
                raise unreachable(self.where, err) from err


class _PlainWriter:
    """Writes to ``/write`` of 1.x."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._path = "/write?" + urlencode({"db": client.access.database, "precision": "ns"})

    def write(self, lines: Sequence[str]) -> None:
        self._client.post_lines(self._path, lines)

    def close(self) -> None:
        return


def _login(access: Access) -> dict[str, str]:
    if access.token:
        return {"Authorization": f"Token {access.token}"}
    if access.username:
        pair = base64.b64encode(f"{access.username}:{access.password}".encode()).decode()
        return {"Authorization": f"Basic {pair}"}
    return {}
