"""One kept-alive HTTP connection of the standard library, with a deadline for every exchange."""

from __future__ import annotations

import http.client
import socket
import ssl
import time
from collections.abc import Iterator, Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

from fleetgp.errors import ConfigError

MAX_ANSWER_BYTES = 64_000_000
_PIECE = 65_536


class Answer(NamedTuple):
    """An answer read to its end. headers: names in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Address(NamedTuple):
    """Where a server is. path: what stands before its own paths, without a slash at the end."""

    scheme: str
    host: str
    port: int
    path: str

    @classmethod
    def of(cls, url: str, key: str = "store.url") -> Address:
        """The parts of a URL. Raises ConfigError in plain words."""
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as err:
            raise ConfigError(key, f"{url!r} is no address: {err}") from err
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(key, f"{url!r} is no address; write http://HOST:8086 or https://HOST")
        if parts.username or parts.password:
            raise ConfigError(key, "holds a password; use store.username and store.password_file")
        if parts.query or parts.fragment:
            raise ConfigError(key, f"{url!r} has a ? or # in it; only http://HOST:PORT/PATH")
        default = 443 if parts.scheme == "https" else 80
        return cls(parts.scheme, parts.hostname, port or default, parts.path.rstrip("/"))

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}{self.path}"


class Line:
    """A connection that is opened when needed and again where the server closed it. One thread at a time uses it.

    timeout_s: for connecting, for every read, and for an exchange as a whole. Raises OSError or HTTPException as they come.
    """

    def __init__(self, address: Address, headers: Mapping[str, str], timeout_s: float) -> None:
        self._address = address
        self._headers = dict(headers)
        self._timeout_s = timeout_s
        self._connection: http.client.HTTPConnection | None = None

    def exchange(self, method: str, path: str, body: bytes | None = None, kind: str = "text/plain") -> Answer:
        """Ask and read the whole answer."""
        by_s = time.monotonic() + self._timeout_s
        response = self._ask(method, path, body, kind)
        pieces, size = [], 0
        while piece := response.read1(_PIECE):
            pieces.append(piece)
            size += len(piece)
            if size > MAX_ANSWER_BYTES or time.monotonic() > by_s:
                self.close()
                raise TimeoutError("the answer is too long, or too slow")
        response.close()  # of an answer without a body it would stay open, and be in the way of the next
        return Answer(response.status, _headers(response), b"".join(pieces))

    def lines(self, method: str, path: str, body: bytes, kind: str) -> Iterator[Answer]:
        """Ask and give the answer line by line as it comes (of a refusal: the whole). Only so much is in memory at once."""
        response = self._ask(method, path, body, kind)
        headers = _headers(response)
        if response.status != 200:
            yield Answer(response.status, headers, response.read(_PIECE))
            self.close()
            return
        is_done = False
        try:
            while line := response.readline(MAX_ANSWER_BYTES):
                if line.strip():
                    yield Answer(200, headers, line)
            response.close()
            is_done = True
        finally:
            if not is_done:  # whoever asked has had enough: what is still to come is in the way
                self.close()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _ask(self, method: str, path: str, body: bytes | None, kind: str) -> http.client.HTTPResponse:
        headers = self._headers | ({"Content-Type": kind} if body is not None else {})
        is_fresh = self._connection is None
        while True:
            connection = self._connection = self._connection or self._open()
            try:
                connection.request(method, self._address.path + path, body, headers)
                return connection.getresponse()
            except (http.client.HTTPException, OSError) as err:
                self.close()
                # A kept connection that the server closed meanwhile is no news of the server: ask once more on a new one.
                if is_fresh or isinstance(err, TimeoutError):
                    raise
                is_fresh = True

    def _open(self) -> http.client.HTTPConnection:
        host, port = self._address.host, self._address.port
        if self._address.scheme == "https":
            context = ssl.create_default_context()
            return http.client.HTTPSConnection(host, port, timeout=self._timeout_s, context=context)
        connection = http.client.HTTPConnection(host, port, timeout=self._timeout_s)
        connection.connect()
        connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection


def _headers(response: http.client.HTTPResponse) -> dict[str, str]:
    return {name.lower(): value for name, value in response.getheaders()}
