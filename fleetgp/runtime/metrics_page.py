"""The page that shows a registry: ``/metrics`` for Prometheus, ``/healthz`` for watchdogs.

One daemon thread serves one request at a time and cuts every connection after a deadline, so that a slow or hostile
client costs at most that: no threads and no memory that grow with the number of clients.
"""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from socketserver import TCPServer
from typing import Any

from fleetgp.errors import ServiceError
from fleetgp.runtime.metrics import CONTENT_TYPE, Registry

DEADLINE_S = 2.0


class MetricsPage:
    """Serves from construction to ``close``.

    host, port: where to listen; port 0 takes a free one, told by ``port``. trouble: what is wrong with the program in
    plain words, "" while all is well; ``/healthz`` answers 503 with it, else 200. Called from the page's thread.
    Raises ServiceError when the address cannot be used.
    """

    def __init__(self, registry: Registry, host: str, port: int, *, trouble: Callable[[], str] = str) -> None:
        try:
            self._server = _Server(host, port, registry, trouble)
        except OSError as err:
            raise ServiceError(
                f"the metrics page cannot listen on {host}:{port}: {err.strerror or err}; "
                "choose another metrics.port (0 = no page) or metrics.host"
            ) from err
        self.host = host
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.2}, name="fleetgp.metrics", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop listening; waits at most a few seconds for a request that is being answered."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(2 * DEADLINE_S)


class _Server(TCPServer):
    allow_reuse_address = True
    request_queue_size = 8

    def __init__(self, host: str, port: int, registry: Registry, trouble: Callable[[], str]) -> None:
        self.registry = registry
        self.trouble = trouble
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away or was cut off is no news; anything else is a bug of ours and is told."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    server_version = "FleetGP"
    sys_version = ""
    timeout = DEADLINE_S

    def setup(self) -> None:
        super().setup()
        # The timeout above is for each single read; only this one holds against a client that drips.
        self._deadline = threading.Timer(DEADLINE_S, self._cut)
        self._deadline.daemon = True
        self._deadline.start()

    def finish(self) -> None:
        self._deadline.cancel()
        super().finish()

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/metrics":
            self._answer(200, self.server.registry.exposition(), CONTENT_TYPE)
        elif path == "/healthz":
            trouble = self.server.trouble()
            self._answer(503 if trouble else 200, (trouble or "ok") + "\n")
        else:
            self._answer(404, "here are /metrics and /healthz\n")

    def _answer(self, status: int, text: str, content_type: str = "text/plain; charset=utf-8") -> None:
        body = text.encode(errors="replace")
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Requests are not logged."""

    def _cut(self) -> None:
        try:
            self.connection.shutdown(socket.SHUT_RDWR)
        except OSError:  # it is closed already
            return
