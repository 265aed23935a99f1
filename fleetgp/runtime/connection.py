"""One connection to a broker, from CONNECT to its end.

Every connection is a fresh paho client: message numbers, half packets and whatever paho keeps in memory of an earlier
connection cannot leak into the next, so an acknowledgement can never hit a message of another connection.

paho's own threaded loop is not used, because of three things in its source: a failed connect loses the reason, its
back-off has no jitter, and an error that is no OSError ends its thread unseen. Instead the session's thread calls
``step``. Callbacks only append to ``happened``; the session acts on it between steps, when no lock of paho's is held.
Messages and their confirmations pass paho by: they are read and written in ``packets``, many with one call to the system.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import select
import socket
import ssl
import struct
import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from fleetgp.runtime.clock import Clock
from fleetgp.runtime.link import Incoming, Link, Outgoing, SessionConfig
from fleetgp.runtime.packets import Confirmed, Framer, Unreadable, puback_packets, publish_packet
from fleetgp.runtime.pipe import Pipe

CONNECT_TIMEOUT_S = 5.0
LINGER_S = 0.5  # for the broker to read our last words
QUEUE_EXPIRY_S = 7 * 86400  # how long a version 5 broker keeps our queue while we are away; 3.1.1 brokers decide alone


@dataclass(frozen=True)
class Accepted:
    """The broker let us in. had_session: it had kept a queue for us."""

    had_session: bool


@dataclass(frozen=True)
class Refused:
    """The broker said no; code: reason code of MQTT 5."""

    code: int


@dataclass(frozen=True)
class Subscribed:
    """The broker answered our subscriptions; refused: indices of those it did not grant."""

    refused: tuple[int, ...]


@dataclass(frozen=True)
class Closed:
    """The connection is over; code: reason code of MQTT 5 where the broker gave one, else 0."""

    code: int = 0


Happening = Accepted | Refused | Subscribed | Incoming | Unreadable | Confirmed | Closed


class _Listener:
    """paho's callbacks. Apart from the connection, so that the two form no circle and sockets close at once."""

    def __init__(self) -> None:
        self.happened: deque[Happening] = deque()
        self.is_parting = False
        self.lingering: socket.socket | None = None

    def on_connect(self, _client: Any, _data: Any, flags: paho.ConnectFlags, reason: ReasonCode, _props: Any) -> None:
        self.happened.append(Refused(reason.value) if reason.is_failure else Accepted(flags.session_present))

    def on_subscribe(self, _client: Any, _data: Any, _mid: int, reasons: list[ReasonCode], _props: Any) -> None:
        self.happened.append(Subscribed(tuple(i for i, reason in enumerate(reasons) if reason.is_failure)))

    def on_disconnect(self, _client: Any, _data: Any, flags: Any, reason: ReasonCode, _props: Any) -> None:
        self.happened.append(Closed(reason.value if flags.is_disconnect_packet_from_server else 0))

    def on_socket_close(self, _client: Any, _data: Any, sock: Any) -> None:
        """paho closes the moment DISCONNECT is written. With messages for us still unread, the kernel would then reset
        the connection, and the broker would lose our last acknowledgements and DISCONNECT itself. So hold it open.
        """
        if self.is_parting:
            with contextlib.suppress(OSError):
                sock.finish(LINGER_S)
            self.lingering = socket.socket(fileno=os.dup(sock.fileno()))


class _Client(paho.Client):
    """paho over a ``Pipe`` instead of a bare socket: the one place in which it is not used as its manual says."""

    def _create_socket(self) -> Pipe:
        return Pipe(cast(socket.socket, super()._create_socket()))


class Connection:
    """One connection. ``open``, ``step`` and ``drop`` belong to one thread; the rest may be called from any."""

    def __init__(
        self,
        link: Link,
        config: SessionConfig,
        *,
        generation: int,
        tls: ssl.SSLContext | None,
        version: str,
        clock: Clock,
    ) -> None:
        self.generation = generation
        self._listener = _Listener()
        self.happened = self._listener.happened
        self._link = link
        self._config = config
        self._clock = clock
        self._is_v5 = version == "5"
        self._framer = Framer(generation, is_v5=self._is_v5)
        self._mids = itertools.cycle(range(1, 65_536))  # far more than are ever in flight
        self._written: deque[int] = deque()  # QoS 0: confirmed once the socket has them
        self._pipe: Pipe | None = None
        self._client = self._make_client(tls)

    def open(self) -> None:
        """Connect and send CONNECT. Raises OSError (or UnicodeError for an impossible name) when it cannot."""
        properties = None
        if self._is_v5 and self._config.is_persistent:
            properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
            properties.SessionExpiryInterval = QUEUE_EXPIRY_S
        self._client.connect(
            self._link.host,
            self._link.port,
            keepalive=self._config.keepalive_s,
            clean_start=not self._config.is_persistent if self._is_v5 else paho.MQTT_CLEAN_START_FIRST_ONLY,
            properties=properties,
        )
        self._pipe = cast(Pipe, self._client.socket())

    def step(self, timeout_s: float) -> bool:
        """Read and write what is due, waiting up to ``timeout_s``; False when the connection is over.

        Nothing is read, and nothing waited for, while ``happened`` still holds something of before.
        """
        pipe = self._pipe
        if pipe is None or self._client.socket() is None:
            return False
        try:
            self._wait(pipe, timeout_s)
            is_alive = bool(self.happened) or self._read(pipe)
            if is_alive and self._client.want_write():
                is_alive = self._client.loop_write() == MQTTErrorCode.MQTT_ERR_SUCCESS
            if not is_alive or self._client.socket() is None:
                return False
            pipe.flush()
            while self._written and not pipe.has_unsent:
                self.happened.append(Confirmed(self._written.popleft()))
            return self._client.loop_misc() == MQTTErrorCode.MQTT_ERR_SUCCESS
        except (OSError, ValueError, LookupError, struct.error):
            # What packets raise that break the protocol: as good as a lost connection.
            return False

    def drop(self) -> None:
        """Close the socket; without ``disconnect`` before it, the broker will say our will."""
        if self._pipe is not None:
            self._pipe.close()
        if self._listener.lingering is not None:
            _read_to_end(self._listener.lingering)
            self._listener.lingering = None

    def subscribe(self, subscriptions: Sequence[tuple[str, int]]) -> None:
        self._client.subscribe(list(subscriptions))

    def publish(self, message: Outgoing) -> int | None:
        """Hand a message to the socket; returns its number for ``Confirmed``, None when there is no connection.

        Raises ValueError for a topic that cannot be published on.
        """
        if self._pipe is None or self._client.socket() is None:
            return None
        mid = next(self._mids)
        packet = publish_packet(message, mid, is_v5=self._is_v5)
        if message.qos == 0:
            self._written.append(mid)
        self._pipe.say(packet)
        return mid

    def flush(self) -> None:
        """Write at once what the socket takes, instead of with the next ``step``."""
        if self._pipe is not None:
            with contextlib.suppress(OSError):  # a dead connection: ``step`` will find out
                self._pipe.flush()

    def hurry(self) -> None:
        """The same from any thread, where that may be."""
        if self._pipe is not None:
            with contextlib.suppress(OSError):
                self._pipe.hurry()

    def ack(self, mids: Iterable[int]) -> None:
        """Acknowledge messages, in order."""
        if self._pipe is not None:
            self._pipe.say(puback_packets(mids))

    def disconnect(self) -> None:
        """Ask to part in peace: the broker keeps our will to itself. ``step`` carries it out."""
        self._listener.is_parting = True
        self._client.disconnect()

    def _wait(self, pipe: Pipe, timeout_s: float) -> None:
        """Until there is something to read or to write."""
        here, bell = pipe.fileno(), pipe.bell.fileno()
        is_busy = bool(self.happened) or pipe.has_more
        writing = [here] if pipe.has_unsent or self._client.want_write() else []
        heard, _, _ = select.select([here, bell], writing, [], 0.0 if is_busy else timeout_s)
        if bell in heard:
            pipe.hush()

    def _read(self, pipe: Pipe) -> bool:
        """Take in what came; False when the connection is over."""
        data = pipe.read()
        if data is None:
            return True
        if not data:
            return self._client.loop_read() == MQTTErrorCode.MQTT_ERR_SUCCESS
        for packet in self._framer.feed(data, self._clock.now_ns()):
            if not isinstance(packet, bytes):
                self.happened.append(packet)
                continue
            pipe.give(packet)
            if self._client.loop_read() != MQTTErrorCode.MQTT_ERR_SUCCESS:
                return False
        return True

    def _make_client(self, tls: ssl.SSLContext | None) -> paho.Client:
        client = _Client(
            CallbackAPIVersion.VERSION2,
            client_id=self._config.client_id,
            clean_session=None if self._is_v5 else not self._config.is_persistent,
            protocol=MQTTProtocolVersion.MQTTv5 if self._is_v5 else MQTTProtocolVersion.MQTTv311,
            reconnect_on_failure=False,
        )
        client.connect_timeout = CONNECT_TIMEOUT_S
        if self._link.username:
            client.username_pw_set(self._link.username, self._link.password or None)
        if tls is not None:
            client.tls_set_context(tls)
        will = self._config.will
        if will is not None:
            client.will_set(will.topic, will.payload, will.qos, will.is_retained)
        client.on_connect = self._listener.on_connect
        client.on_subscribe = self._listener.on_subscribe
        client.on_disconnect = self._listener.on_disconnect
        client.on_socket_close = self._listener.on_socket_close
        # With this callback set, paho leaves all writing to ``step`` and other threads only queue and wake it.
        client.on_socket_register_write = _wake_step
        return client


def _read_to_end(sock: socket.socket) -> None:
    """Throw away what still comes until the broker has closed its side, for at most LINGER_S."""
    by_s = time.monotonic() + LINGER_S
    with sock:
        try:
            sock.shutdown(socket.SHUT_WR)
            sock.settimeout(LINGER_S)
            while time.monotonic() < by_s and sock.recv(65536):
                pass
        except OSError:  # timed out or reset: there is nothing left to be polite about
            return


def _wake_step(_client: Any, _data: Any, sock: Any) -> None:
    sock.ring()
