"""One connection to a broker, from CONNECT to its end.

Every connection is a fresh paho client: message numbers, half packets and whatever paho keeps in memory of an earlier
connection cannot leak into the next, so an acknowledgement can never hit a message of another connection.

paho's own threaded loop is not used, because of three things in its source: a failed connect loses the reason, its
back-off has no jitter, and an error that is no OSError ends its thread unseen. Instead the session's thread calls
``step``. Callbacks only append to ``happened``; the session acts on it between steps, when no lock of paho's is held.
"""

from __future__ import annotations

import os
import socket
import ssl
import struct
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from fleetgp.runtime.clock import Clock
from fleetgp.runtime.link import Incoming, Link, Outgoing, SessionConfig

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
class Arrived:
    """A message came."""

    message: Incoming


@dataclass(frozen=True)
class Unreadable:
    """A message came whose topic is no text."""

    mid: int
    qos: int


@dataclass(frozen=True)
class Confirmed:
    """The broker has our message (QoS 1), or it was written to the socket (QoS 0); code: its verdict in MQTT 5."""

    mid: int
    code: int = 0


@dataclass(frozen=True)
class Closed:
    """The connection is over; code: reason code of MQTT 5 where the broker gave one, else 0."""

    code: int = 0


Happening = Accepted | Refused | Subscribed | Arrived | Unreadable | Confirmed | Closed


class _Listener:
    """paho's callbacks. Apart from the connection, so that the two form no circle and sockets close at once."""

    def __init__(self, generation: int, clock: Clock) -> None:
        self.happened: deque[Happening] = deque()
        self.is_parting = False
        self.lingering: socket.socket | None = None
        self._generation = generation
        self._clock = clock

    def on_connect(self, _client: Any, _data: Any, flags: paho.ConnectFlags, reason: ReasonCode, _props: Any) -> None:
        self.happened.append(Refused(reason.value) if reason.is_failure else Accepted(flags.session_present))

    def on_subscribe(self, _client: Any, _data: Any, _mid: int, reasons: list[ReasonCode], _props: Any) -> None:
        self.happened.append(Subscribed(tuple(i for i, reason in enumerate(reasons) if reason.is_failure)))

    def on_message(self, _client: Any, _data: Any, message: paho.MQTTMessage) -> None:
        try:
            topic = message.topic
        except UnicodeDecodeError:
            self.happened.append(Unreadable(message.mid, message.qos))
            return
        incoming = Incoming(
            topic,
            bytes(message.payload),
            message.qos,
            message.retain,
            message.mid,
            self._generation,
            self._clock.now_ns(),
            _content_type(message.properties),
        )
        self.happened.append(Arrived(incoming))

    def on_publish(self, _client: Any, _data: Any, mid: int, reason: ReasonCode, _props: Any) -> None:
        self.happened.append(Confirmed(mid, reason.value))

    def on_disconnect(self, _client: Any, _data: Any, flags: Any, reason: ReasonCode, _props: Any) -> None:
        self.happened.append(Closed(reason.value if flags.is_disconnect_packet_from_server else 0))

    def on_socket_close(self, _client: Any, _data: Any, sock: Any) -> None:
        """paho closes the moment DISCONNECT is written. With messages for us still unread, the kernel would then reset
        the connection, and the broker would lose our last acknowledgements and DISCONNECT itself. So hold it open.
        """
        if self.is_parting:
            self.lingering = socket.socket(fileno=os.dup(sock.fileno()))


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
        self._listener = _Listener(generation, clock)
        self.happened = self._listener.happened
        self._link = link
        self._config = config
        self._is_v5 = version == "5"
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

    def step(self, timeout_s: float) -> bool:
        """Read and write what is due, waiting up to ``timeout_s``; False when the connection is over."""
        try:
            return self._client.loop(timeout_s) == MQTTErrorCode.MQTT_ERR_SUCCESS
        except (OSError, ValueError, LookupError, struct.error):
            # What paho raises on packets that break the protocol: as good as a lost connection.
            return False

    def drop(self) -> None:
        """Close the socket; without ``disconnect`` before it, the broker will say our will."""
        sock = self._client.socket()
        if sock is not None:
            sock.close()
        if self._listener.lingering is not None:
            _read_to_end(self._listener.lingering)
            self._listener.lingering = None

    def subscribe(self, subscriptions: Sequence[tuple[str, int]]) -> None:
        self._client.subscribe(list(subscriptions))

    def publish(self, message: Outgoing) -> int | None:
        """Hand a message to the socket; returns its number for ``Confirmed``, None when there is no connection."""
        properties = None
        if message.content_type and self._is_v5:
            properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
            properties.ContentType = message.content_type
        info = self._client.publish(message.topic, message.payload, message.qos, message.is_retained, properties)
        return info.mid if info.rc == MQTTErrorCode.MQTT_ERR_SUCCESS else None

    def ack(self, mid: int) -> None:
        self._client.ack(mid, 1)

    def disconnect(self) -> None:
        """Ask to part in peace: the broker keeps our will to itself. ``step`` carries it out."""
        self._listener.is_parting = True
        self._client.disconnect()

    def _make_client(self, tls: ssl.SSLContext | None) -> paho.Client:
        client = paho.Client(
            CallbackAPIVersion.VERSION2,
            client_id=self._config.client_id,
            clean_session=None if self._is_v5 else not self._config.is_persistent,
            protocol=MQTTProtocolVersion.MQTTv5 if self._is_v5 else MQTTProtocolVersion.MQTTv311,
            reconnect_on_failure=False,
            manual_ack=True,
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
        client.on_message = self._listener.on_message
        client.on_publish = self._listener.on_publish
        client.on_disconnect = self._listener.on_disconnect
        client.on_socket_close = self._listener.on_socket_close
        # With this callback set, paho leaves all writing to ``step`` and other threads only queue and wake it.
        client.on_socket_register_write = _leave_writing_to_step
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


def _content_type(properties: Properties | None) -> str:
    """What MQTT 5 says of a payload's form; "" where it says nothing."""
    return str(getattr(properties, "ContentType", "")) if properties is not None else ""


def _leave_writing_to_step(_client: Any, _data: Any, _sock: Any) -> None:
    return
