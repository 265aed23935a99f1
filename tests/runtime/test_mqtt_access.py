"""Who is let in: passwords and certificates, with mosquitto, each refusal in one plain sentence."""

from __future__ import annotations

import base64
import hashlib
import os
import pwd
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from broker_bridge.broker import Access, EmbeddedBroker, is_available
from fleetgp.errors import ConfigError
from fleetgp.runtime.link import tls_context
from fleetgp.runtime.mqtt import Incoming, Link, Outgoing, parse_url

pytestmark = [
    pytest.mark.broker,
    pytest.mark.skipif(not is_available("mosquitto"), reason="mosquitto is not installed (apt-get install mosquitto)"),
]

Eventually = Callable[..., None]


def password_line(user: str, password: str) -> str:
    """A line of mosquitto's password file: PBKDF2 with SHA-512, 101 rounds."""
    salt = b"twelve bytes"
    digest = hashlib.pbkdf2_hmac("sha512", password.encode(), salt, 101)
    return f"{user}:$7$101${base64.b64encode(salt).decode()}${base64.b64encode(digest).decode()}\n"


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    """A broker that lets in ann with the password right, and hides health/ann from her."""
    passwords, rules = tmp_path / "passwords", tmp_path / "rules"
    passwords.write_text(password_line("ann", "right"))
    rules.write_text("user ann\ntopic write health/#\ntopic readwrite t/#\n")
    access = Access(password_file=passwords, acl_file=rules)
    with EmbeddedBroker.start("mosquitto", tmp_path / "broker", access=access) as broker:
        yield broker


def test_the_right_password_is_let_in(guarded: EmbeddedBroker, desk: Any) -> None:
    desk.connected(parse_url(guarded.url, username="ann", password="right"), "ann")


@pytest.mark.parametrize(
    ("username", "password", "words"),
    [("ann", "wrong", "refuses user 'ann'"), ("", "", "wants a user name and password")],
)
def test_a_wrong_password_is_said_once_with_the_setting(
    guarded: EmbeddedBroker, desk: Any, eventually: Eventually, username: str, password: str, words: str
) -> None:
    session = desk.session(parse_url(guarded.url, username=username, password=password), "ann")
    eventually(lambda: session.counters().get("connect_failures", 0) >= 2)
    assert desk.said.count(words) == 1
    assert "mqtt.password" in desk.said
    assert "wrong" not in desk.said


def test_a_heartbeat_hidden_by_the_brokers_rules_is_said_and_given_up(
    guarded: EmbeddedBroker, desk: Any, eventually: Eventually
) -> None:
    link = parse_url(guarded.url, username="ann", password="right")
    session = desk.connected(link, "ann", heartbeat_topic="health/ann", heartbeat_s=0.05)

    def is_given_up() -> bool:
        session.publish(Outgoing("health/ann", b"alive"))
        return session.counters().get("heartbeat_lost", 0) >= 3

    eventually(is_given_up, timeout_s=20.0)
    assert "lets 'ann' read health/ann" in desk.said


@dataclass(frozen=True)
class Certificates:
    ca: Path
    server: Path
    server_key: Path
    client: Path
    client_key: Path


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """An authority of our own that signed a server (127.0.0.1) and a client."""
    if shutil.which("openssl") is None:
        pytest.skip("the openssl command is not installed here")
    folder = tmp_path_factory.mktemp("certificates")

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True, timeout=30)

    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    openssl("req", "-x509", *curve, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=test authority", "-days", "30")
    for name, extension in (("server", "subjectAltName=IP:127.0.0.1"), ("client", "extendedKeyUsage=clientAuth")):
        (folder / f"{name}.ext").write_text(extension + "\n")
        openssl("req", *curve, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        signing = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "30", "-extfile", f"{name}.ext")
        openssl("x509", "-req", "-in", f"{name}.csr", "-out", f"{name}.pem", *signing)
    return Certificates(*(folder / name for name in ("ca.pem", "server.pem", "server.key", "client.pem", "client.key")))


@pytest.fixture
def encrypted(certificates: Certificates, tmp_path: Path, free_port: int) -> Iterator[int]:
    """Port of a broker that speaks TLS and wants a client certificate."""
    config = tmp_path / "tls.conf"
    config.write_text(
        f"user {pwd.getpwuid(os.geteuid()).pw_name}\nlistener {free_port} 127.0.0.1\nallow_anonymous true\n"
        f"cafile {certificates.ca}\ncertfile {certificates.server}\nkeyfile {certificates.server_key}\n"
        "require_certificate true\n"
    )
    program = shutil.which("mosquitto") or "/usr/sbin/mosquitto"
    process = subprocess.Popen([program, "-c", str(config)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    yield free_port
    process.terminate()
    process.wait(5)


def test_certificates_of_both_sides_are_enough(
    certificates: Certificates, encrypted: int, desk: Any, collect: Callable[..., list[Incoming]]
) -> None:
    link = parse_url(
        f"mqtts://127.0.0.1:{encrypted}",
        ca_file=str(certificates.ca),
        cert_file=str(certificates.client),
        key_file=str(certificates.client_key),
    )
    session = desk.connected(link, "secure", subscriptions=(("t/#", 1),))
    session.publish(Outgoing("t/a", bytes(300_000), 1))
    assert [len(message.payload) for message in collect(session, 1)] == [300_000]
    session.stop(farewell=[Outgoing("t/a", b"bye", 1)])
    assert session.counters()["connects"] == 1


def test_a_burst_arrives_whole_and_in_order_over_tls(
    certificates: Certificates, encrypted: int, desk: Any, collect: Callable[..., list[Incoming]]
) -> None:
    """Many messages in one record of TLS: those that were decrypted with the first are not left to the next arrival."""
    link = Link(
        "127.0.0.1",
        encrypted,
        True,
        "",
        "",
        str(certificates.ca),
        str(certificates.client),
        str(certificates.client_key),
    )
    session = desk.connected(link, "secure", subscriptions=(("t/#", 1),))
    sent = [b"%d " % number * (number % 40) for number in range(800)]
    for payload in sent:
        assert session.publish(Outgoing("t/a", payload, 1))
    assert [message.payload for message in collect(session, len(sent))] == sent
    assert session.counters()["connects"] == 1


def test_an_unknown_authority_is_said_with_the_setting(encrypted: int, desk: Any, eventually: Eventually) -> None:
    session = desk.session(Link("127.0.0.1", encrypted, is_tls=True), "stranger")
    eventually(lambda: "is not trusted" in desk.said)
    assert "mqtt.ca_file" in desk.said
    assert not session.is_connected


def test_speaking_plainly_to_an_encrypted_port_is_said(encrypted: int, desk: Any, eventually: Eventually) -> None:
    desk.session(f"mqtt://127.0.0.1:{encrypted}", "plain")
    eventually(lambda: "mqtts://" in desk.said)


def test_certificate_files_that_cannot_be_used_are_named(tmp_path: Path, certificates: Certificates) -> None:
    with pytest.raises(ConfigError, match=r"mqtt\.ca_file.*absent\.pem"):
        tls_context(Link("host", 8883, is_tls=True, ca_file=str(tmp_path / "absent.pem")))
    mismatched = Link("host", 8883, True, cert_file=str(certificates.client), key_file=str(certificates.server_key))
    with pytest.raises(ConfigError, match=r"mqtt\.cert_file"):
        tls_context(mismatched)
