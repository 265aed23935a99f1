"""Torch is for the paper's own algorithm only: one file imports it, and nothing that a program needs does."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
MAY = {"fleetgp/gp/meanfield.py"}


def test_one_file_imports_torch() -> None:
    importing = {
        str(path.relative_to(ROOT))
        for package in ("fleetgp", "edge_agent", "coordinator", "broker_bridge", "dashboard", "simulator")
        for path in (ROOT / package).rglob("*.py")
        if re.search(r"^\s*(?:import|from) torch\b", path.read_text(), re.MULTILINE)
    }
    assert importing == MAY


def test_programs_and_all_learning_of_hyperparameters_do_without_torch() -> None:
    code = (
        "import sys, edge_agent.service, coordinator.service, fleetgp.gp.estimator;"
        "print(sorted(name for name in sys.modules if name.partition('.')[0] == 'torch'))"
    )
    told = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True, cwd=ROOT
    )
    assert told.stdout.strip() == "[]"


def test_the_gate_has_torch_so_that_no_test_of_it_is_skipped_there() -> None:
    assert os.environ.get("REQUIRE_TORCH") != "1" or importlib.util.find_spec("torch") is not None
