"""What no tracked file may hold: paths of one machine, pickle, more than 400 lines of code."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Split so that this file does not hold what it looks for.
MACHINE_PATHS = re.compile(
    r"(?<![\w.~-])/(?:" + "|".join(["ro" + "ot", "wo" + "rk", "ho" + "me/[a-z][a-z0-9_-]*", "Us" + "ers"]) + r")/"
)
PICKLE = re.compile(
    r"\b(?:import|from)\s+(?:c?"
    + "pick"
    + r"le|dill|cloud"
    + "pick"
    + r"le|joblib|shelve)\b|allow_"
    + "pick"
    + "le=True"
)
REGISTRIES = re.compile(
    "|".join(["py" + r"pi\.org", "python" + r"hosted\.org", "npm" + r"js\.(?:org|com)", "deb" + r"\.debian\.org"])
)
WALL = 400


def tracked() -> list[Path]:
    """All tracked files; where this is no git checkout (an unpacked archive), all files but those of tools."""
    git = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, timeout=20, check=False)
    if git.returncode == 0:
        return [path for name in git.stdout.split("\0") if name and (path := ROOT / name).is_file()]
    return [path for path in ROOT.rglob("*") if path.is_file() and not any(part.startswith(".") for part in path.parts)]


def texts(suffixes: tuple[str, ...] = ()) -> list[tuple[Path, str]]:
    """Tracked files that are text, with their text."""
    found = []
    for path in tracked():
        if suffixes and path.suffix not in suffixes:
            continue
        raw = path.read_bytes()
        if b"\0" not in raw:
            found.append((path.relative_to(ROOT), raw.decode("utf-8", errors="replace")))
    return found


def places(pattern: re.Pattern[str], files: list[tuple[Path, str]]) -> list[str]:
    return [
        f"{path}:{number}: {line.strip()[:100]}"
        for path, text in files
        for number, line in enumerate(text.splitlines(), start=1)
        if pattern.search(line)
    ]


def test_there_are_files_to_look_at() -> None:
    names = {str(path) for path, _ in texts()}
    assert {"pyproject.toml", "fleetgp/cli.py", "README.md"} <= names


@pytest.mark.parametrize("line", ["cd /" + "wo" + "rk/main", '"/' + "ro" + 'ot/.cache"', "DIR=/" + "ho" + "me/ada/x"])
def test_the_rule_finds_a_machine_path(line: str) -> None:
    assert MACHINE_PATHS.search(line)


@pytest.mark.parametrize(
    "line", ["shared/work/x", "https://example.org/root/x", "the /rooms/ of the house", "~/home/x"]
)
def test_the_rule_leaves_other_paths_alone(line: str) -> None:
    assert not MACHINE_PATHS.search(line)


def test_no_paths_of_one_machine() -> None:
    assert places(MACHINE_PATHS, texts()) == []


def test_no_addresses_of_package_registries() -> None:
    """Where packages come from is each machine's own business: pip and apt know."""
    assert REGISTRIES.search("https://" + "py" + "pi.org/simple")
    assert places(REGISTRIES, texts()) == []


def test_no_pickle() -> None:
    assert PICKLE.search("import " + "pick" + "le")
    assert places(PICKLE, texts((".py",))) == []


def test_no_file_of_code_beyond_the_wall() -> None:
    long = [
        f"{path}: {len(text.splitlines())} lines" for path, text in texts((".py",)) if len(text.splitlines()) > WALL
    ]
    assert long == []


def test_no_names_without_a_thought() -> None:
    vague = {"utils", "util", "helpers", "helper", "common", "misc", "manager"}
    assert [str(path) for path, _ in texts((".py",)) if vague & {path.stem, *path.parts}] == []


def test_no_large_file_slips_in() -> None:
    assert [str(path.relative_to(ROOT)) for path in tracked() if path.stat().st_size > 2_000_000] == []
