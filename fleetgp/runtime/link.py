"""Where the broker is, what travels to and from it, and plain words for what can go wrong on the way."""

from __future__ import annotations

import random
import re
import socket
import ssl
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

import msgspec

from fleetgp.errors import ConfigError
from fleetgp.schema import check_id

_PORTS = {"mqtt": 1883, "mqtts": 8883}
_VERSIONS = ("3.1.1", "5")


@dataclass(frozen=True)
class Link:
    """A broker's address and how to be let in. Files are paths, "" where none."""

    host: str
    port: int
    is_tls: bool = False
    username: str = field(default="", repr=False)
    password: str = field(default="", repr=False)
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""


class Incoming(msgspec.Struct, frozen=True, gc=False):
    """A message from the broker. generation: the connection it came on; mid: its number there, for ``Session.ack``.

    received_ns: UTC epoch ns. content_type: of MQTT 5, "" where none was sent.
    """

    topic: str
    payload: bytes
    qos: int
    is_retained: bool
    mid: int
    generation: int
    received_ns: int
    content_type: str = ""

    @property
    def received_ms(self) -> int:
        """UTC epoch ms."""
        return self.received_ns // 1_000_000


@dataclass(frozen=True)
class Outgoing:
    """A message to the broker. content_type: told where MQTT 5 is spoken; 3.1.1 has no place for it."""

    topic: str
    payload: bytes
    qos: int = 0
    is_retained: bool = False
    content_type: str = ""


@dataclass(frozen=True, kw_only=True)
class SessionConfig:
    """How a session behaves; checked when made (ConfigError).

    is_persistent: the broker keeps our queue while we are away. subscriptions: (filter, QoS 0 or 1). will: what the
    broker says for us when we vanish. heartbeat_topic: a topic we publish on that comes back to us; when for three times
    heartbeat_s seconds nothing came back of what we sent, the connection is renewed. inbox_wait_s: how long QoS 1 messages
    wait for room in a full inbox before the connection is renewed. version: ``3.1.1``, or ``5`` to use version 5 where
    the broker offers it.
    """

    client_id: str
    is_persistent: bool = False
    subscriptions: tuple[tuple[str, int], ...] = ()
    will: Outgoing | None = None
    heartbeat_topic: str = ""
    heartbeat_s: float = 20.0
    keepalive_s: int = 30
    inbox_capacity: int = 5000
    inbox_wait_s: float = 3.0
    version: str = "3.1.1"

    def __post_init__(self) -> None:
        check_id(self.client_id, "client id")
        for pattern, qos in self.subscriptions:
            if qos not in (0, 1):
                raise ConfigError("subscriptions", f"{pattern!r}: quality of service is 0 or 1, not {qos}")
            check_filter(pattern, "subscriptions")
        if self.version not in _VERSIONS:
            raise ConfigError(
                "mqtt.version", f"{self.version!r} is not a version; expected one of {', '.join(_VERSIONS)}"
            )
        if not 1 <= self.keepalive_s <= 65535:
            raise ConfigError("mqtt.keepalive_s", f"needs 1 to 65535 seconds, is {self.keepalive_s}")
        if self.heartbeat_s <= 0:
            raise ConfigError("mqtt.heartbeat_s", f"needs more than 0 seconds, is {self.heartbeat_s}")


def parse_url(
    url: str, *, username: str = "", password: str = "", ca_file: str = "", cert_file: str = "", key_file: str = ""
) -> Link:
    """Read ``mqtt://host:port`` or ``mqtts://host:port``; raises ConfigError in plain words.

    A user name or password may stand in the URL; those given as arguments win.
    """
    parts = urlsplit(url.strip())
    example = "expected like mqtt://192.168.1.10:1883 or mqtts://broker.example:8883"
    if parts.scheme not in _PORTS:
        raise ConfigError("mqtt.url", f"{_without_password(url)!r} does not begin with mqtt:// or mqtts://; {example}")
    try:
        port = parts.port or _PORTS[parts.scheme]
    except ValueError:
        raise ConfigError(
            "mqtt.url", f"{_without_password(url)!r} has no usable port (1 to 65535); {example}"
        ) from None
    if not parts.hostname or re.search(r"\s", parts.hostname):
        raise ConfigError("mqtt.url", f"{_without_password(url)!r} names no host; {example}")
    if parts.path.strip("/") or parts.query or parts.fragment:
        raise ConfigError("mqtt.url", f"{_without_password(url)!r} has something after the port; {example}")
    if (ca_file or cert_file) and parts.scheme == "mqtt":
        raise ConfigError("mqtt.url", "certificates are set, but mqtt:// is not encrypted; use mqtts://")
    if bool(cert_file) != bool(key_file):
        raise ConfigError("mqtt.cert_file", "a client certificate needs both mqtt.cert_file and mqtt.key_file")
    return Link(
        host=parts.hostname,
        port=port,
        is_tls=parts.scheme == "mqtts",
        username=username or unquote(parts.username or ""),
        password=password or unquote(parts.password or ""),
        ca_file=ca_file,
        cert_file=cert_file,
        key_file=key_file,
    )


def check_filter(pattern: str, key: str) -> str:
    """Return a subscription filter that brokers take (NATS none with spaces inside), or raise ConfigError."""
    levels = pattern.split("/")
    is_legal = (
        bool(pattern)
        and all(level in ("+", "#") or not set(level) & set("+#\0") for level in levels)
        and "#" not in levels[:-1]
    )
    if not is_legal or pattern != pattern.strip() or not pattern.isprintable():
        raise ConfigError(
            key,
            f"{pattern!r} is not a topic filter; expected like sensors/# or sensors/+/air, without spaces around it",
        )
    return pattern


def tls_context(link: Link) -> ssl.SSLContext:
    """Encryption as the link asks for; raises ConfigError naming the file that cannot be used."""
    try:
        context = ssl.create_default_context(cafile=link.ca_file or None)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError("mqtt.ca_file", f"{link.ca_file} cannot be used: {error}") from None
    if link.cert_file:
        try:
            context.load_cert_chain(link.cert_file, link.key_file)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(
                "mqtt.cert_file", f"{link.cert_file} with {link.key_file} cannot be used: {error}"
            ) from None
    return context


def explain(error: Exception, link: Link) -> str:
    """One plain sentence: why the broker cannot be reached, and what to do."""
    where = f"{link.host}:{link.port}"
    match error:
        case socket.gaierror() | UnicodeError():
            return f"the name {link.host!r} is not known here; check mqtt.url and the network"
        case ConnectionRefusedError():
            return f"nothing listens at {where}; is the broker running, and is mqtt.url right?"
        case ssl.SSLCertVerificationError():
            return (
                f"the certificate of {where} is not trusted ({error.verify_message}); set mqtt.ca_file to the authority "
                "that signed it, and use the name that is in it"
            )
        case ssl.SSLError():
            return f"no encrypted connection with {where} ({error.args[-1]}); does that port speak TLS? if not, use mqtt://"
        case TimeoutError():
            return f"{where} does not answer; check the address, the cable and the firewall"
        case OSError(strerror=str(words)):
            return f"{where} cannot be reached ({words.lower()}); check mqtt.url and the network"
        case _:
            return f"{where} cannot be reached ({error}); check mqtt.url and the network"


def explain_refusal(code: int, link: Link, client_id: str) -> str:
    """One plain sentence for a CONNACK that says no; code: the reason code of MQTT 5."""
    where = f"the broker at {link.host}:{link.port}"
    match code:
        case 134 | 135 if not link.username:
            return f"{where} wants a user name and password; set mqtt.username and mqtt.password"
        case 134 | 135:
            return f"{where} refuses user {link.username!r}; check mqtt.username and mqtt.password"
        case 133:
            return f"{where} does not take the client id {client_id!r}; choose another"
        case 132:
            return f'{where} does not speak this version of MQTT; set mqtt.version = "3.1.1"'
        case _:
            return f"{where} refuses the connection for now (reason {code}); trying again"


def explain_no_answer(link: Link) -> str:
    """One plain sentence for a connection that was taken and led nowhere."""
    hint = "" if link.is_tls else "; where it wants encryption, use mqtts://"
    return f"{link.host}:{link.port} takes the connection but does not answer as a broker; does it speak MQTT?{hint}"


def explain_silence(config: SessionConfig) -> str:
    """One plain sentence for a connection that brings nothing."""
    return (
        "nothing comes back from the broker although it looks connected; connecting anew (if this stays, check that it "
        f"lets {config.client_id!r} read {config.heartbeat_topic})"
    )


def explain_rival(config: SessionConfig) -> str:
    """One plain sentence for a client id that is used twice."""
    return (
        "the broker keeps closing the connection: most likely another program uses the client id "
        f"{config.client_id!r}; give each program its own"
    )


class Backoff:
    """Seconds to wait before the next attempt: doubling from low to high, each shortened at random by up to a half.

    The randomness keeps a fleet from returning all at once after its broker was away.
    """

    def __init__(self, rng: random.Random, *, low_s: float = 0.5, high_s: float = 30.0) -> None:
        self._rng = rng
        self._low_s = low_s
        self._high_s = high_s
        self._step_s = low_s

    def next_s(self) -> float:
        wait_s = self._step_s * self._rng.uniform(0.5, 1.0)
        self._step_s = min(self._step_s * 2.0, self._high_s)
        return wait_s

    def reset(self) -> None:
        self._step_s = self._low_s


def _without_password(url: str) -> str:
    return re.sub(r"//[^@/]*@", "//***@", url)
