"""The command: starts, says where it is, ends when told to, and refuses in plain words."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from running_dashboard import command, running

from dashboard import cli
from fleetgp.errors import ConfigError, ServiceError


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_it_answers_at_the_printed_address_and_ends_when_told(tmp_path: Path, how: signal.Signals):
    with running(tmp_path / "none.sqlite") as dashboard:
        assert dashboard.url.startswith("http://127.0.0.1:")
        with urllib.request.urlopen(f"{dashboard.url}/_stcore/health", timeout=5) as answer:
            assert answer.status == 200
        assert dashboard.stop(how, within_s=3.0) == 0
    assert not (tmp_path / "none.sqlite").exists(), "a viewer makes no store"


@pytest.fixture
def taken_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


def test_a_port_in_use_names_the_setting(taken_port: int):
    with pytest.raises(ServiceError, match=rf"127\.0\.0\.1:{taken_port}.*dashboard\.port"):
        cli.dashboard(["--port", str(taken_port)])


def test_a_port_in_use_is_exit_status_2_and_one_line(taken_port: int, tmp_path: Path):
    ended = subprocess.run(
        command(["--set", f"dashboard.port={taken_port}"]), capture_output=True, text=True, cwd=tmp_path, timeout=60
    )
    assert ended.returncode == 2
    assert ended.stderr.count("\n") == 1
    assert "dashboard.port" in ended.stderr


def test_an_address_that_is_not_ours_names_the_setting():
    with pytest.raises(ServiceError, match=r"dashboard\.host"):
        cli.dashboard(["--port", "0", "--set", "dashboard.host=203.0.113.7"])


def test_a_wrong_setting_is_named():
    with pytest.raises(ConfigError, match=r"dashboard\.refresh_s"):
        cli.dashboard(["--set", "dashboard.refresh_s=often"])


def test_port_0_is_a_free_one():
    port = cli.free_port("127.0.0.1", 0)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", port))


def test_its_help_costs_no_streamlit(tmp_path: Path):
    code = "import sys; import dashboard.cli; print([m for m in ('streamlit', 'pandas', 'numpy', 'altair') if m in sys.modules])"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert said.stdout.strip() == "[]"
    assert cli.dashboard.__doc__ is not None
    assert len(cli.dashboard.__doc__.splitlines()[0]) < 100
