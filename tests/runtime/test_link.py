from __future__ import annotations

import random
import socket
import ssl
from typing import Any

import pytest

from fleetgp.errors import ConfigError
from fleetgp.runtime.link import Backoff, Link, SessionConfig, explain, explain_refusal, parse_url

LINK = Link("broker.example", 1883)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("mqtt://localhost", Link("localhost", 1883)),
        ("mqtts://broker.example", Link("broker.example", 8883, is_tls=True)),
        ("mqtt://10.0.0.7:1884/", Link("10.0.0.7", 1884)),
        ("mqtt://[::1]:1883", Link("::1", 1883)),
        ("mqtt://ann:p%40ss@host", Link("host", 1883, username="ann", password="p@ss")),
    ],
)
def test_urls_are_read(url: str, expected: Link) -> None:
    assert parse_url(url) == expected


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("localhost:1883", "does not begin with mqtt://"),
        ("http://localhost", "does not begin with mqtt://"),
        ("mqtt://", "names no host"),
        ("mqtt://host:18x3", "no usable port"),
        ("mqtt://host:70000", "no usable port"),
        ("mqtt://host/path", "something after the port"),
    ],
)
def test_wrong_urls_are_refused_in_plain_words(url: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as caught:
        parse_url(url)
    assert caught.value.key == "mqtt.url"


def test_a_password_is_never_shown() -> None:
    assert "secret" not in repr(parse_url("mqtt://ann:secret@host"))
    with pytest.raises(ConfigError) as caught:
        parse_url("http://ann:secret@host")
    assert "secret" not in str(caught.value)


def test_certificates_need_encryption_and_a_key() -> None:
    with pytest.raises(ConfigError, match="use mqtts://"):
        parse_url("mqtt://host", ca_file="ca.pem")
    with pytest.raises(ConfigError, match=r"mqtt\.key_file"):
        parse_url("mqtts://host", cert_file="cert.pem")


@pytest.mark.parametrize(
    "wrong",
    [
        {"client_id": "has space"},
        {"client_id": ""},
        {"client_id": "x" * 65},
        {"client_id": "a", "subscriptions": (("t", 2),)},
        {"client_id": "a", "subscriptions": (("t/#/x", 0),)},
        {"client_id": "a", "subscriptions": (("t/x+", 0),)},
        {"client_id": "a", "subscriptions": ((" with space around", 0),)},
        {"client_id": "a", "version": "4"},
        {"client_id": "a", "keepalive_s": 0},
        {"client_id": "a", "heartbeat_s": 0.0},
    ],
)
def test_wrong_configurations_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        SessionConfig(**wrong)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (socket.gaierror(-2, "Name or service not known"), "name 'broker.example' is not known"),
        (ConnectionRefusedError(111, "Connection refused"), "nothing listens at broker.example:1883"),
        (TimeoutError("timed out"), "does not answer; check"),
        (ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER] wrong version number"), "does that port speak TLS"),
        (OSError(113, "No route to host"), "no route to host"),
    ],
)
def test_every_trouble_has_one_plain_sentence(error: Exception, words: str) -> None:
    sentence = explain(error, LINK)
    assert words in sentence
    assert "\n" not in sentence


def test_a_refusal_says_which_setting_to_check() -> None:
    assert "set mqtt.username and mqtt.password" in explain_refusal(134, LINK, "a")
    assert "refuses user 'ann'" in explain_refusal(135, Link("host", 1883, username="ann"), "a")
    assert 'mqtt.version = "3.1.1"' in explain_refusal(132, LINK, "a")


def test_back_off_doubles_to_its_limit_with_jitter_and_starts_again() -> None:
    backoff = Backoff(random.Random(7), low_s=0.5, high_s=30.0)
    waits = [backoff.next_s() for _ in range(12)]
    limits = [min(0.5 * 2**n, 30.0) for n in range(12)]
    assert all(limit / 2 <= wait <= limit for wait, limit in zip(waits, limits, strict=True))
    assert len(set(waits[7:])) == 5, "no two waits at the limit should be alike"
    backoff.reset()
    assert backoff.next_s() <= 0.5
