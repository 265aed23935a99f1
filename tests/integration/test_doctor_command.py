"""``fleetgp doctor``: 0 where all is well, 1 where something is not, and for each fault what to do about it."""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path

import pytest
from bench import Bench, Desk

from broker_bridge.broker import Access, EmbeddedBroker, is_available
from fleetgp.runtime.clock import SystemClock
from fleetgp.store.base import Batch
from fleetgp.store.sqlite import open_writer
from fleetgp.wire.messages import Health, Status

DEVICE = """\
[agent]
id = "pump-1"
topic = "sensors/pump-1"
[channels]
flow = {}
"""


def examine(bench: Bench, *flags: str, url: str = "", **environment: str) -> tuple[int, dict[str, dict[str, str]]]:
    """Exit status and findings by name."""
    file = bench.folder / "findings.json"
    where = ["--broker", url or bench.url, "--data-dir", str(bench.data)]
    status = bench.run("doctor", *where, "--json", str(file), *flags, **environment).wait(20.0)
    return status, {finding["check"]: finding for finding in json.loads(file.read_text())}


@pytest.mark.broker
def test_a_healthy_fleet(bench: Bench, desk: Desk, any_broker: EmbeddedBroker, tmp_path: Path) -> None:
    """Broker, folder, store, channels and the programs' own words are looked at, and all is well."""
    (tmp_path / "device.toml").write_text(DEVICE)
    bridge = bench.start("bridge", bridge__batch_s=0.05)
    desk.until(lambda: desk.is_online("bridge"))
    desk.say("sensors/pump-1", '{"flow": 1}')
    desk.say("sensors/pump-1", "it rains")
    desk.until(lambda: desk.health("bridge") and desk.dropped("bridge", "text"))
    desk.listen(0.5)
    status, findings = examine(bench, "--config", str(tmp_path / "device.toml"))
    assert {name: finding["verdict"] for name, finding in findings.items()} == dict.fromkeys(
        ("settings", "versions", "clock", "channels", "folder", "broker", "store", "bridge"), "ok"
    )
    assert status == 0
    assert "a message came back" in findings["broker"]["seen"]
    assert "counted: text 1" in findings["bridge"]["seen"]
    assert "connects" not in findings["bridge"]["seen"], "to have connected is not to have left something out"
    assert bridge.stop() == 0


def test_no_broker_and_no_store(bench: Bench, free_port: int) -> None:
    """The broker is a fault, with the command that would run one here; a store that was never begun is only told."""
    status, findings = examine(bench, url=f"mqtt://127.0.0.1:{free_port}")
    assert status == 1
    assert findings["broker"]["verdict"] == "fault"
    assert findings["broker"]["seen"] == f"nothing listens at 127.0.0.1:{free_port}"
    if is_available("mosquitto") or is_available("nats"):
        assert f"fleetgp bridge --own-broker --set bridge.port={free_port}" in findings["broker"]["advice"]
    assert findings["store"]["verdict"] == "warning"
    assert "fleetgp bridge" in findings["store"]["advice"]


def test_a_host_that_is_not_known(bench: Bench) -> None:
    """The advice is about the address, not about a broker to start."""
    _, findings = examine(bench, url="mqtt://no-such-host.invalid")
    assert findings["broker"]["seen"] == "the name 'no-such-host.invalid' is not known here"
    assert findings["broker"]["advice"] == "check mqtt.url and the network"


@pytest.mark.broker
@pytest.mark.skipif(not is_available("mosquitto"), reason="mosquitto is not installed (apt-get install mosquitto)")
@pytest.mark.parametrize(("user", "seen"), [("ann", "refuses user 'ann'"), ("", "wants a user name and password")])
def test_a_wrong_password(bench: Bench, tmp_path: Path, user: str, seen: str) -> None:
    """It names the settings to mend; the password itself is shown nowhere."""
    salt = b"twelve bytes"
    digest = hashlib.pbkdf2_hmac("sha512", b"right", salt, 101)
    passwords = tmp_path / "passwords"
    passwords.write_text(f"ann:$7$101${base64.b64encode(salt).decode()}${base64.b64encode(digest).decode()}\n")
    secrets = {"FLEETGP_MQTT_PASSWORD": "hush-hush"} if user else {}
    with EmbeddedBroker.start("mosquitto", tmp_path / "broker", access=Access(password_file=passwords)) as broker:
        status, findings = examine(bench, "--set", f"mqtt.username={user}", url=broker.url, **secrets)
        assert status == 1
        assert seen in findings["broker"]["seen"]
        assert "mqtt.password" in findings["broker"]["advice"]
        assert "hush-hush" not in json.dumps(findings)
        good = {"FLEETGP_MQTT_USERNAME": "ann", "FLEETGP_MQTT_PASSWORD": "right"}
        assert examine(bench, url=broker.url, **good)[1]["broker"]["verdict"] == "ok"


def test_a_bad_setting(bench: Bench) -> None:
    """It is named with its nearest neighbour and where it came from; what can still be looked at is."""
    status, findings = examine(bench, "--set", "mqtt.ulr=x", url="mqtt://127.0.0.1:1")
    assert status == 1
    assert 'did you mean "mqtt.url"' in findings["settings"]["seen"]
    assert "flag --set mqtt.ulr" in findings["settings"]["seen"]
    assert findings["clock"]["verdict"] == "ok"


@pytest.mark.parametrize(
    ("change", "check", "verdict", "words"),
    [
        (('id = "pump-1"\n', ""), "channels", "fault", "agent.id is not set"),
        (('topic = "sensors/pump-1"\n', ""), "channels", "fault", "no topic for flow"),
        (("sensors/pump-1", "mill/pump-1"), "topics", "warning", "the bridge does not store mill/pump-1"),
    ],
)
def test_a_device_that_is_not_described_to_its_end(
    bench: Bench, tmp_path: Path, change: tuple[str, str], check: str, verdict: str, words: str
) -> None:
    """What an agent of these settings would refuse, and what a bridge of these settings would not keep."""
    (tmp_path / "device.toml").write_text(DEVICE.replace(*change))
    _, findings = examine(bench, "--config", str(tmp_path / "device.toml"), url="mqtt://127.0.0.1:1")
    assert findings[check]["verdict"] == verdict
    assert words in findings[check]["seen"]
    assert findings[check]["advice"]


def test_a_store_and_a_folder_that_are_none(bench: Bench, tmp_path: Path) -> None:
    """A file of something else is named; a data folder that is a file too."""
    notes = tmp_path / "notes.txt"
    notes.write_text("dear diary\n" * 500)
    status, findings = examine(bench, "--set", f"store.path={notes}", url="mqtt://127.0.0.1:1")
    assert (status, findings["store"]["verdict"]) == (1, "fault")
    assert str(notes) in findings["store"]["seen"]
    bench.data.rmdir()
    bench.data.write_text("a file")
    status, findings = examine(bench, url="mqtt://127.0.0.1:1")
    assert (status, findings["folder"]["verdict"]) == (1, "fault")
    assert "data.dir" in findings["folder"]["advice"]


def test_findings_for_people_and_to_nowhere(bench: Bench, tmp_path: Path) -> None:
    """The table says the same; a file that cannot be written is said without a traceback."""
    running = bench.run("doctor", "--broker", "mqtt://127.0.0.1:1", "--data-dir", str(bench.data))
    assert running.wait(20.0) == 1
    assert "fault    broker     nothing listens at 127.0.0.1:1" in running.said
    running = bench.run("doctor", "--set", "nonsense=1", "--json", str(tmp_path / "no" / "where.json"))
    assert running.wait(20.0) == 2
    assert "cannot write" in running.said
    assert "Traceback" not in running.said


@pytest.mark.broker
def test_an_agent_whose_device_is_quiet_is_no_healthy_agent(bench: Bench, any_broker: EmbeddedBroker) -> None:
    """A misspelt topic looks like a program that works: its own note, kept with the history, says what is missing."""
    now_ms = SystemClock().now_ms()
    path = bench.data / "bridge" / "history.sqlite"
    path.parent.mkdir(parents=True)
    writer = open_writer(path, raw_days=1, rollup_days=1)
    about = {"at_ms": now_ms, "role": "agent"}
    quiet = Status(name="pump-1", is_online=True, note="no reading yet on sensors/pmp-1", **about)
    fine = Status(name="pump-2", is_online=True, **about)
    writer.write(Batch(statuses=[quiet, fine], healths=[Health(name=one, **about) for one in ("pump-1", "pump-2")]))
    writer.close()
    _, findings = examine(bench)
    assert findings["pump-1"]["verdict"] == "warning"
    assert "no reading yet on sensors/pmp-1" in findings["pump-1"]["seen"]
    assert "topic" in findings["pump-1"]["advice"]
    assert findings["pump-2"]["verdict"] == "ok"
