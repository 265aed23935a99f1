"""Who is there: births and farewells, two programs under one name, folders and ports that others hold."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from bench import Bench, Desk, Running, desk_at, topic_of

from broker_bridge.broker import EmbeddedBroker
from fleetgp.runtime.mqtt import Outgoing
from fleetgp.wire import codec
from fleetgp.wire.messages import Status

ONE = "[stream]\ninterval = 0.1\nlags = 2\nphases = []\ninducing = 0\n[channels]\nflow = {}\n"


def start(bench: Bench, name: str, data: Path | None = None) -> Running:
    return bench.agent(name, ONE, data=data) if name.startswith("pump") else bench.start(name, data=data)


def retained(bench: Bench, name: str) -> Status:
    """What a program that comes now is told of another."""
    with desk_at(bench.url, bench.folder, "fleetgp/#", name=f"look-{len(list(bench.folder.iterdir()))}") as desk:
        desk.until(lambda: desk.status(name))
        assert desk.heard[0].is_retained
        status = desk.status(name)
        assert status is not None
        return status


@pytest.mark.broker
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_every_program_says_goodbye(bench: Bench, desk: Desk, any_broker: EmbeddedBroker, how: signal.Signals) -> None:
    """Asked to end, by a service manager, Ctrl-C or a closed terminal: exit 0 within 5 s, and its status says offline."""
    names = ("pump-1", "coordinator", "bridge")
    running = [start(bench, name) for name in names]
    desk.until(lambda: all(desk.is_online(name) for name in names))
    for program in running:
        program.process.send_signal(how)
    assert [program.wait(5.0) for program in running] == [0, 0, 0]
    for name in names:
        status = retained(bench, name)
        assert (status.is_online, status.state) == (False, "stopped")


@pytest.mark.broker
def test_a_killed_program_is_said_to_have_vanished(bench: Bench, desk: Desk, broker: EmbeddedBroker) -> None:
    """The broker says it, and the program says otherwise when it is back."""
    agent = start(bench, "pump-1")
    desk.until(lambda: desk.is_online("pump-1"))
    agent.kill()
    desk.until(lambda: not desk.is_online("pump-1"))
    assert retained(bench, "pump-1").state == "vanished"
    agent = start(bench, "pump-1")
    desk.until(lambda: desk.is_online("pump-1"))
    assert retained(bench, "pump-1").is_online


@pytest.mark.broker
def test_a_signal_during_the_start_ends_a_program_too(bench: Bench, any_broker: EmbeddedBroker) -> None:
    """With no broker to reach as well: there is nothing to wait for."""
    bench.url = "mqtt://127.0.0.1:1"
    for name in ("pump-1", "coordinator", "bridge"):
        program = start(bench, name)
        folder = bench.data / (f"agent-{name}" if name.startswith("pump") else name)
        while not (folder / "lock").exists():  # signals are caught by then
            assert program.is_alive, program.said
        assert program.stop() == 0


@pytest.mark.broker
@pytest.mark.parametrize("name", ["pump-1", "coordinator", "bridge"])
def test_the_later_of_two_under_one_name_leaves(
    bench: Bench, desk: Desk, any_broker: EmbeddedBroker, name: str, tmp_path: Path
) -> None:
    """It says why and ends with 2; the earlier goes on and its retained status stands."""
    first = start(bench, name)
    desk.until(lambda: desk.is_online(name))
    instance = retained(bench, name).instance
    second = start(bench, name, data=tmp_path / "other")
    assert second.wait() == 2
    assert f"called '{name}' is running already" in second.said
    assert "stop it, or give this one another name" in second.said
    desk.until(lambda: desk.status(name).instance == instance)
    desk.listen(0.3)
    assert first.is_alive
    assert "told to leave" in first.said
    assert len({notice.at_ms for notice in desk.rounds("opened")}) <= 1, "a second coordinator opens no round"
    assert (retained(bench, name).instance, retained(bench, name).is_online) == (instance, True)
    assert first.stop() == 0


@pytest.mark.broker
@pytest.mark.parametrize("name", ["pump-1", "bridge"])
def test_a_rival_of_the_past_is_none(
    bench: Bench, desk: Desk, broker: EmbeddedBroker, name: str, tmp_path: Path
) -> None:
    """What the broker kept while a program was away, of another that has left since, does not keep it from starting."""
    first = start(bench, name)
    desk.until(lambda: desk.is_online(name))
    assert first.stop() == 0
    desk.until(lambda: not desk.is_online(name))
    other = start(bench, name, data=tmp_path / "other")
    desk.until(lambda: desk.is_online(name))
    assert other.stop() == 0
    desk.until(lambda: not desk.is_online(name))
    again = start(bench, name)
    desk.until(lambda: desk.is_online(name) and len(desk.of(Status, topic_of(name, "status"))) > 3)
    desk.listen(0.5)
    assert again.is_alive, again.said
    assert desk.is_online(name)


@pytest.mark.broker
def test_a_false_word_on_presence_is_put_right(bench: Bench, desk: Desk, any_broker: EmbeddedBroker) -> None:
    """The will of a connection that died long ago may come late: a program that is there says so again."""
    start(bench, "pump-1")
    desk.until(lambda: desk.is_online("pump-1"))
    said = desk.status("pump-1")
    gone = codec.encode(Status(at_ms=said.at_ms, name="pump-1", role="agent", is_online=False, instance=said.instance))
    desk.session.publish(Outgoing(topic_of("pump-1", "status"), gone, 1, True))
    desk.until(lambda: not desk.is_online("pump-1"))
    desk.until(lambda: desk.is_online("pump-1"))
    assert retained(bench, "pump-1").is_online


@pytest.mark.broker
def test_agents_of_long_names_that_begin_alike_live_side_by_side(
    bench: Bench, desk: Desk, any_broker: EmbeddedBroker
) -> None:
    """Names of the full length that differ at their end only, and one name in two folders: no client id is shared."""
    names = ["pump-" + "x" * 58 + end for end in "ab"]
    running = [start(bench, name) for name in names]
    desk.until(lambda: all(desk.is_online(name) for name in names))
    desk.until(lambda: all(desk.health(name) for name in names))
    for program, name in zip(running, names, strict=True):
        assert desk.health(name).figures["connects"] == 1
        assert program.stop() == 0


@pytest.mark.broker
def test_one_folder_serves_one_program(bench: Bench, desk: Desk, any_broker: EmbeddedBroker) -> None:
    """The second is told who holds it."""
    for name in ("pump-1", "coordinator", "bridge"):
        first = start(bench, name)
        desk.until(lambda name=name: desk.is_online(name))
        second = start(bench, name)
        assert second.wait() == 2
        assert f"(pid {first.process.pid})" in second.said
        assert "choose another with data.dir" in second.said
        assert first.is_alive


def test_a_folder_that_cannot_be_used_is_said(bench: Bench, tmp_path: Path) -> None:
    """A file where the folder should be: the one thing that no user, root included, may write into."""
    bench.url = "mqtt://127.0.0.1:1"
    (tmp_path / "data").write_text("I am a file")
    for name in ("pump-1", "coordinator", "bridge"):
        program = start(bench, name)
        assert program.wait() == 2
        assert "data folder" in program.said
        assert "data.dir" in program.said
        assert "Traceback" not in program.said


@pytest.mark.parametrize("package", ["edge_agent", "coordinator", "broker_bridge"])
def test_a_program_without_the_dispatcher_fails_alike(package: str, tmp_path: Path) -> None:
    """``python -m edge_agent`` is what a small device runs: the same sentence and the same exit status."""
    (tmp_path / "data").write_text("I am a file")
    flags = ["--data-dir", str(tmp_path / "data"), "--broker", "mqtt://127.0.0.1:1"]
    done = subprocess.run([sys.executable, "-m", package, *flags], capture_output=True, text=True, timeout=30)
    assert done.returncode == 2
    assert done.stderr.startswith("fleetgp ")
    assert "Traceback" not in done.stderr


def test_a_port_in_use_is_said(bench: Bench, tmp_path: Path) -> None:
    """Metrics page, own broker and dashboard: exit 2, naming the port and the setting to change."""
    bench.url = "mqtt://127.0.0.1:1"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        tries = [
            (bench.agent("pump-1", ONE, metrics__port=port), "metrics.port"),
            (bench.start("coordinator", metrics__port=port), "metrics.port"),
            (bench.run("bridge", "--data-dir", str(bench.data), "--set", f"metrics.port={port}"), "metrics.port"),
            (bench.run("bridge", "--data-dir", str(tmp_path / "b"), "--own-broker", "--set", f"bridge.port={port}"),
             "bridge.port"),
            (bench.run("dashboard", "--data-dir", str(bench.data), "--port", str(port)), "dashboard.port"),
        ]  # fmt: skip
        for program, setting in tries:
            assert program.wait() == 2
            assert str(port) in program.said
            assert setting in program.said
            assert "Traceback" not in program.said


@pytest.mark.broker
def test_the_metrics_page_tells_what_was_left_out_and_what_is_wrong(
    bench: Bench, desk: Desk, any_broker: EmbeddedBroker, free_port: int
) -> None:
    """Counts by reason, figures, the connection's counters; unwell while the disk refuses, well again after."""
    agent = bench.agent("pump-1", ONE, metrics__port=free_port)
    desk.until(lambda: desk.is_online("pump-1"))
    for payload in ("it rains", "it pours", '{"wind": 3}'):
        desk.say("sensors/pump-1", payload)
    desk.until(lambda: desk.dropped("pump-1", "no_known_field"))
    status, page = fetch(free_port, "metrics")
    assert status == 200
    lines = page.splitlines()
    assert 'fleetgp_left_out_total{reason="text"} 2' in lines
    assert 'fleetgp_left_out_total{reason="no_known_field"} 1' in lines
    assert "fleetgp_frames 0" in lines
    assert "fleetgp_connects 1" in lines
    assert "fleetgp_mqtt_connected 1" in lines
    assert fetch(free_port, "healthz")[0] == 200
    agent.limit_files(0)
    desk.say("sensors/pump-1", '{"flow": 3}')
    desk.until(lambda: fetch(free_port, "healthz")[0] == 503)
    assert "cannot write to the journal" in fetch(free_port, "healthz")[1]
    agent.limit_files(None)
    desk.until(lambda: fetch(free_port, "healthz")[0] == 200)
    any_broker.stop()
    desk.until(lambda: "not connected" in fetch(free_port, "healthz")[1])
    assert agent.stop() == 0


def fetch(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refusal:
        return refusal.code, refusal.read().decode()
