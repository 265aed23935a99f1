"""A socket with a buffer on both sides: few calls to the system for many packets.

To paho it is a socket. The connection puts into it what paho is to read, and writes what paho and it have to say.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading

CHUNK = 65_536
_NOT_NOW = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class Pipe:
    """``say`` may be called from any thread and wakes who waits for ``bell``, and so may ``hurry``; all else belongs to one
    thread."""

    def __init__(self, sock: socket.socket) -> None:
        """sock: connected; owned by the pipe from now on."""
        self._sock = sock
        self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._for_paho = bytearray()
        self._has_ended = False
        self._unsent = bytearray()
        self._lock = threading.Lock()
        self.bell, self._clapper = socket.socketpair()
        for end in (self.bell, self._clapper):
            end.setblocking(False)

    # -- what paho asks of a socket -----------------------------------------------------------------------------------

    def recv(self, size: int) -> bytes:
        """What was given to paho; b"" when the other side has closed."""
        if not self._for_paho and not self._has_ended:
            raise BlockingIOError
        part = bytes(self._for_paho[:size])
        del self._for_paho[:size]
        return part

    def send(self, data: bytes | bytearray) -> int:
        """All of it is taken; ``flush`` sends it."""
        self.say(data)
        return len(data)

    def setblocking(self, flag: bool) -> None:
        self._sock.setblocking(flag)

    def fileno(self) -> int:
        return self._sock.fileno()

    def close(self) -> None:
        """Close at once; what is unsent is dropped. A second time does nothing."""
        with self._lock:
            self._sock.close()
            self.bell.close()
            self._clapper.close()

    # -- for the connection -------------------------------------------------------------------------------------------

    @property
    def has_unsent(self) -> bool:
        return bool(self._unsent)

    @property
    def has_more(self) -> bool:
        """Bytes are here already that no wait for the socket would tell of (TLS)."""
        return isinstance(self._sock, ssl.SSLSocket) and self._sock.pending() > 0

    def read(self) -> bytes | None:
        """What came, None where nothing did, b"" when the other side has closed. Raises OSError."""
        try:
            data = self._sock.recv(CHUNK)
        except _NOT_NOW:
            return None
        self._has_ended = not data
        return data

    def give(self, packet: bytes) -> None:
        """What paho reads next."""
        self._for_paho += packet

    def say(self, data: bytes | bytearray) -> None:
        """To be sent by the next ``flush``; dropped where the pipe is closed."""
        with self._lock:
            is_first = not self._unsent
            self._unsent += data
            if is_first:
                self._ring()

    def ring(self) -> None:
        """Wake who waits for ``bell``."""
        with self._lock:
            self._ring()

    def hush(self) -> None:
        """The bell was heard."""
        with contextlib.suppress(*_NOT_NOW):
            self.bell.recv(4096)

    def flush(self) -> None:
        """Send what the socket takes now. Raises OSError."""
        with self._lock, contextlib.suppress(*_NOT_NOW):
            while self._unsent:
                with memoryview(self._unsent) as view:
                    sent = self._sock.send(view[: 4 * CHUNK])
                del self._unsent[:sent]

    def hurry(self) -> None:
        """What ``flush`` does, in the thread that has something to say. TLS, which two threads must not enter, is left to the
        one that was woken. Raises OSError."""
        if not isinstance(self._sock, ssl.SSLSocket):
            self.flush()

    def finish(self, seconds: float) -> None:
        """Send all that is unsent, waiting for at most so long. Raises OSError."""
        with self._lock:
            self._sock.settimeout(seconds)
            self._sock.sendall(self._unsent)
            self._unsent.clear()

    def _ring(self) -> None:
        with contextlib.suppress(OSError):  # rung often enough already, or nobody is there any more
            self._clapper.send(b"\0")
