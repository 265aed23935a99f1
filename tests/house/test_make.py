"""Makefile, packaging and gate: what they promise without anything being installed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
CONSTRAINTS = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="no make on this machine")


def normal(requirement: str) -> str:
    """The distribution's name in a requirement, as indexes compare names."""
    return re.sub(r"[-_.]+", "-", re.split(r"[\[<>=!~; ]", requirement, maxsplit=1)[0]).lower()


def closure(extra: str) -> set[str]:
    """Names that an extra asks for directly, extras of our own followed."""
    names: set[str] = set()
    for requirement in PROJECT["optional-dependencies"][extra]:
        if own := re.fullmatch(r"fleetgp\[([\w,]+)\]", requirement):
            names |= set().union(*(closure(inner) for inner in own[1].split(",")))
        else:
            names.add(normal(requirement))
    return names


def run(*arguments: str, path: Path | None = None) -> subprocess.CompletedProcess[str]:
    """make, as a stranger would call it: without the variables of a make that may have started these tests."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    environment |= {"PATH": str(path)} if path else {}
    make = shutil.which("make") or "make"
    return subprocess.run(
        [make, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """A folder with the few tools that the Makefile uses, but no Python, to be the whole PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("sh", "sed", "touch", "test", "printf", "rm", "find"):
        if found := shutil.which(name):
            (folder / name).symlink_to(found)
    return folder


def script(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def test_help_is_the_default_and_names_every_documented_target() -> None:
    done = run()
    assert done.returncode == 0
    for target in ("demo", "test", "check", "docs", "clean"):
        assert f"make {target} " in done.stdout


def test_without_python_the_message_says_what_to_do(tools: Path, tmp_path: Path) -> None:
    done = run("test", f"VENV={tmp_path}/venv", path=tools)
    assert done.returncode != 0
    assert "FleetGP needs Python 3.11 or newer" in done.stderr
    assert "apt-get install python3 python3-venv" in done.stderr
    assert not (tmp_path / "venv").exists()


def test_an_old_python_is_passed_over(tools: Path, tmp_path: Path) -> None:
    script(tools / "python3.11", "exit 1")  # a shim of a version manager without that version
    script(tools / "python3", 'case "$1" in -c) exit 0;; *) echo "chosen: $*" >&2; exit 1;; esac')
    done = run("test", f"VENV={tmp_path}/venv", path=tools)
    assert f"chosen: -m venv --clear {tmp_path}/venv" in done.stderr


def test_a_second_run_installs_nothing_and_a_changed_pin_does(tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    (venv / "bin").mkdir(parents=True)
    newest = max((ROOT / name).stat().st_mtime for name in ("pyproject.toml", "constraints.txt"))
    for name in ("bin/python", ".installed-demo", ".installed-dev"):
        (venv / name).touch()
        os.utime(venv / name, (newest + 10, newest + 10))
    for target in ("demo", "test"):
        assert "pip install" not in run("--dry-run", target, f"VENV={venv}").stdout
    os.utime(venv / ".installed-dev", (newest - 10, newest - 10))
    again = run("--dry-run", "test", f"VENV={venv}").stdout
    assert "pip install" in again
    assert "--constraint constraints.txt" in again


def test_the_demo_needs_no_torch_and_the_agent_three_packages() -> None:
    assert "torch" not in closure("demo") | closure("dev")
    assert {normal(requirement) for requirement in PROJECT["dependencies"]} == {"numpy", "paho-mqtt", "msgspec"}


def test_everything_asked_for_is_pinned_exactly() -> None:
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[^=\s]+", line) for line in CONSTRAINTS if line)
    pinned = {normal(line) for line in CONSTRAINTS}
    asked = closure("all") | closure("dev") | {normal(requirement) for requirement in PROJECT["dependencies"]}
    assert asked - pinned == set()


def test_the_gate_is_a_script_that_bash_reads() -> None:
    gate = ROOT / ".ci" / "run"
    assert os.access(gate, os.X_OK)
    assert subprocess.run(["bash", "-n", str(gate)], capture_output=True, timeout=20, check=False).returncode == 0
    assert "set -euo pipefail" in gate.read_text(encoding="utf-8")


def test_pages_made_from_the_code_are_in_step() -> None:
    from fleetgp.runtime import settings
    from fleetgp.wire import document

    for name, text in (("settings.md", settings.markdown()), ("wire.md", document.markdown())):
        assert (ROOT / "docs" / name).read_text(encoding="utf-8") == text, f"docs/{name}: run make docs"
