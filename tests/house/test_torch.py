"""Torch is for learning hyperparameters only: two files import it, and no program does by starting."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
MAY = {"fleetgp/gp/tune.py", "fleetgp/gp/meanfield.py"}


def test_two_files_import_torch() -> None:
    importing = {
        str(path.relative_to(ROOT))
        for package in ("fleetgp", "edge_agent", "coordinator", "broker_bridge", "dashboard", "simulator")
        for path in (ROOT / package).rglob("*.py")
        if re.search(r"^\s*(?:import|from) torch\b", path.read_text(), re.MULTILINE)
    }
    assert importing == MAY


def test_programs_and_the_mathematics_of_rounds_start_without_torch() -> None:
    code = (
        "import sys, edge_agent.service, coordinator.service, fleetgp.gp.mixing, fleetgp.gp.tuning;"
        "print(sorted(name for name in sys.modules if name.partition('.')[0] == 'torch'))"
    )
    told = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True, cwd=ROOT
    )
    assert told.stdout.strip() == "[]"
