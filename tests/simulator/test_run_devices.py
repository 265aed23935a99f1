"""``fleetgp devices`` where nobody listens: what was not taken is not said to be sent."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from simulator import cli, feeder, run_devices


def test_without_a_broker_it_fails_and_says_what_was_not_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for module, name in ((run_devices, "CONNECT_S"), (run_devices, "PART_S"), (feeder, "DRAIN_S")):
        monkeypatch.setattr(module, name, 0.0)
    monkeypatch.setattr(run_devices, "stop_on_signals", lambda _: None)  # those of the test run stay
    with socket.socket() as taken:  # bound, but nobody listens: a connection is refused
        taken.bind(("127.0.0.1", 0))
        url = f"mqtt://127.0.0.1:{taken.getsockname()[1]}"
        said = ["--broker", url, "--data-dir", str(tmp_path), "--interval", "0.01", "--seconds", "0.025"]
        assert cli.devices(said) == 1
    out = "".join(capfd.readouterr())
    assert "devices_done  sent=0 unsent=3" in out
