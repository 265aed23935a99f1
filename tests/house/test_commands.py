"""The real commands: each starts, says what it does, and does not load what only its work needs."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import EntryPoint, entry_points

import pytest

ENTRIES = sorted(entry_points(group="fleetgp.commands"), key=lambda entry: entry.name)
PROMISED = {"demo", "agent", "coordinator", "bridge", "dashboard", "backtest", "doctor"}


def test_every_promised_command_is_registered() -> None:
    assert {entry.name for entry in ENTRIES} >= PROMISED


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_a_command_has_a_line_for_help(entry: EntryPoint) -> None:
    first = (entry.load().__doc__ or "").strip().partition("\n")[0]
    assert 10 <= len(first) <= 110, "the first docstring line of a command is its line in fleetgp --help"


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_help_of_a_command(entry: EntryPoint) -> None:
    command = [sys.executable, "-m", "fleetgp", entry.name, "--help"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert f"fleetgp {entry.name}" in done.stdout


def test_overview_loads_only_light_modules() -> None:
    code = (
        "import sys, fleetgp.cli; fleetgp.cli.main(['--help']);"
        "print([name for name in ('scipy', 'torch', 'pandas', 'streamlit', 'altair') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
