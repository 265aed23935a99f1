"""Logs of mosquitto_sub, as the real one writes them behind a real broker."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from broker_bridge.broker import EmbeddedBroker, is_available
from fleetgp.errors import RecordingError
from fleetgp.recording import mosquitto
from fleetgp.recording.message import Message
from fleetgp.recording.messages import kind_of, read_messages

SENT = [
    ("pump/1", b'{"t": 1.50, "s": "a b"}', 0),
    ("pump/2", b"0 1 0", 1),
    ("pump/3", b"", 1),
    ("pump/4", "21,4 °C".encode(), 0),
    ("pump/5", b"0 0 x", 1),
]
BINARY = ("pump/6", bytes(range(256)), 0)
LINES = ("pump/7", b'{\n  "t": 1\n}', 1)
AT_NS = 1_772_615_730_000_000_000

needs_mosquitto = pytest.mark.skipif(
    shutil.which("mosquitto_sub") is None or not is_available("mosquitto"),
    reason="mosquitto_sub is not installed here (apt-get install mosquitto-clients)",
)


def logged(
    tmp_path: Path, flags: list[str], sent: list[tuple[str, bytes, int]], eventually: Callable[..., None]
) -> Path:
    """What mosquitto_sub with these flags writes of what mosquitto_pub sends."""
    path = tmp_path / "log.txt"
    with EmbeddedBroker.start("mosquitto", tmp_path / "broker") as broker, path.open("wb") as log:
        at = ["-h", "127.0.0.1", "-p", str(broker.port)]
        subprocess.run(["mosquitto_pub", *at, "-t", "pump/0", "-m", "1", "-r", "-q", "1"], check=True, timeout=10)
        count = str(len(sent) + 1)
        child = subprocess.Popen(["mosquitto_sub", *at, "-q", "2", "-t", "pump/#", "-C", count, *flags], stdout=log)
        eventually(lambda: path.stat().st_size > 0)  # the retained message is there: it listens
        for topic, payload, qos in sent:
            what = ["-s"] if payload else ["-n"]
            command = ["mosquitto_pub", *at, "-t", topic, "-q", str(qos), *what]
            subprocess.run(command, input=payload, check=True, timeout=10)
        child.wait(20)
    return path


@needs_mosquitto
@pytest.mark.broker
@pytest.mark.parametrize(
    "form",
    ["%I %t %p", "%U %t %p", "%U\t%t\t%p", "%I\t%t\t%q\t%r\t%p", "%U %t %q %r %p", "%j", "@Y-@m-@d @H:@M:@S@z %t %p"],
)
def test_every_form_gives_the_messages_sent(tmp_path: Path, form: str, eventually: Callable[..., None]) -> None:
    sent = SENT if form == "%j" else [*SENT, BINARY]  # %j ends a payload at its first zero byte
    path = logged(tmp_path, ["-F", form], [*sent, LINES], eventually)

    has_flags = form == "%j" or "%q" in form
    assert kind_of(path) == ("messages" if form == "%j" else "mosquitto")
    skipped: dict[str, int] = {}
    found = [item for item in read_messages(path, skipped) if isinstance(item, Message)]
    expected = [("pump/0", b"1", 1), *sent, LINES]
    assert [(m.topic, m.payload, m.qos) for m in found] == [
        (topic, payload, qos if has_flags else 0) for topic, payload, qos in expected
    ]
    assert [m.is_retained for m in found] == [has_flags] + [False] * (len(expected) - 1)
    assert skipped == ({} if form == "%j" else {"continued": 3})
    times = [m.received_ns for m in found]
    assert times == sorted(times)
    assert abs(times[-1] / 1e9 - path.stat().st_mtime) < 5


@needs_mosquitto
@pytest.mark.broker
def test_payloads_that_mosquitto_wrote_anew_are_taken_as_they_stand(
    tmp_path: Path, eventually: Callable[..., None]
) -> None:
    """%J writes payloads as JSON in its own spelling, and leaves out what is none."""
    path = logged(tmp_path, ["-F", "%J"], [SENT[0]], eventually)

    payloads = [item.payload for item in read_messages(path) if isinstance(item, Message)]
    assert [json.loads(payload) for payload in payloads] == [1, {"t": 1.5, "s": "a b"}]


@needs_mosquitto
@pytest.mark.broker
def test_a_log_without_times_is_refused_with_advice(tmp_path: Path, eventually: Callable[..., None]) -> None:
    path = logged(tmp_path, ["-v"], SENT, eventually)

    assert kind_of(path) == "mosquitto"
    with pytest.raises(RecordingError, match=r"no times in its lines; record with: mosquitto_sub -t '#' -F '%U"):
        list(read_messages(path))
    found = list(mosquitto.read_untimed(path, AT_NS, 10**9))
    assert [(m.topic, m.payload) for m in found] == [("pump/0", b"1"), *((t, p) for t, p, _ in SENT)]
    assert [m.received_ns for m in found] == [AT_NS + n * 10**9 for n in range(6)]


def test_a_log_that_begins_within_a_payload_is_read_from_its_first_time_on(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    path.write_text("2026-03-04T09:15:30+0000 a/b 1\n2026-03-04T09:15:31+0000 a/b 2\n")
    assert kind_of(path) == "mosquitto"
    path.write_text('"t": 1}\n' + path.read_text())

    skipped: dict[str, int] = {}
    assert [m.payload for m in mosquitto.read(path, skipped)] == [b"1", b"2"]
    assert skipped == {"bad_line": 1}
    with pytest.raises(RecordingError, match="line 1 does not begin with a time"):
        list(mosquitto.read(path))


def test_the_zone_of_a_time_counts(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    path.write_text("2026-03-04T10:15:30+0100 a/b 1\n")
    assert list(read_messages(path)) == [Message("a/b", b"1", AT_NS)]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("time,temp\n2026-03-04T09:15:30,1\n", "csv"),
        ("Date/Time temp\n2026-03-04 1\n", "csv"),
        ("2004-03-31 03:38:15.757551 2 1 122.153 -3.9\n", "csv"),  # a table with spaces between its columns
        ('{"time":1772615730,"t":1}\n', "jsonl"),
        ("", "csv"),
        ("PAR1....", "parquet"),
    ],
)
def test_tables_are_not_taken_for_logs(tmp_path: Path, text: str, kind: str) -> None:
    path = tmp_path / "file"
    path.write_text(text)
    assert kind_of(path) == kind
