"""The ``coordinator`` command: its settings reach the brain, and what is wrong is one plain line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from coordinator.cli import coordinator
from coordinator.config import coordinator_config
from coordinator.state import CoordinatorConfig
from fleetgp.errors import ConfigError
from fleetgp.runtime.settings import load


def test_settings_reach_the_brain() -> None:
    flags = {
        "coordinator.round_s": "12.5",
        "coordinator.answer_s": "3",
        "coordinator.half_life_rounds": "77",
        "coordinator.tuning": "off",
        "coordinator.tuning_rounds": "5",
    }
    config = coordinator_config(load(None, {}, flags))
    own = CoordinatorConfig(round_s=12.5, answer_s=3.0, half_life_rounds=77.0, tuning=False, tuning_rounds=5)
    assert config == own


def test_default_settings_are_the_brains_own() -> None:
    """No second place knows another default."""
    assert coordinator_config(load(None, {}, {})) == CoordinatorConfig()


@pytest.mark.parametrize(
    ("flag", "words"),
    [
        ("coordinator.round_s=0", "coordinator.round_s"),
        ("coordinator.half_life_rounds=soon", "coordinator.half_life_rounds"),
        ("coordinator.rounds_s=5", "coordinator.round_s"),
    ],
)
def test_wrong_setting_is_named_before_anything_is_touched(tmp_path: Path, flag: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        coordinator(["--data-dir", str(tmp_path / "data"), "--set", flag])
    assert not (tmp_path / "data").exists()


def test_damaged_journal_is_one_plain_line(tmp_path: Path) -> None:
    """As a process: exit status 2, what to do, and no traceback."""
    journal = tmp_path / "coordinator" / "journal.sqlite"
    journal.parent.mkdir()
    journal.write_text("my diary\n" * 1000)
    command = [sys.executable, "-m", "coordinator", "--data-dir", str(tmp_path), "--broker", "mqtt://127.0.0.1:1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 2
    assert done.stderr.strip().splitlines()[-1].startswith("fleetgp coordinator: the coordinator's journal")
    assert "move it away" in done.stderr
    assert "Traceback" not in done.stderr
