"""README and docs: short enough, every link leads somewhere, every command they name exists with the flags they give."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
CODE = re.compile(r"```.*?```|`[^`\n]+`", re.DOTALL)
COMMAND = re.compile(r"(?:^|[\s`(])(?:\.venv/bin/)?fleetgp +([a-z]+)((?:[ \t]+[^\s`|#]+)*)", re.MULTILINE)
FLAG = re.compile(r"--[a-z][a-z-]*")


def commands() -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return set(project["entry-points"]["fleetgp.commands"])


def named(text: str) -> list[tuple[str, tuple[str, ...]]]:
    """(command, flags) of every ``fleetgp ...`` in code spans and blocks of a page, continued lines joined."""
    code = "\n".join(CODE.findall(text)).replace("\\\n", " ")
    return [(command, tuple(FLAG.findall(rest))) for command, rest in COMMAND.findall(code)]


@cache
def help_of(command: str) -> str:
    line = [sys.executable, "-m", "fleetgp", command, "--help"]
    return subprocess.run(line, capture_output=True, text=True, timeout=60, check=True).stdout


def anchor(heading: str) -> str:
    """The anchor that a heading gets where Markdown is rendered."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def anchors(page: Path) -> set[str]:
    return {anchor(line.lstrip("#")) for line in page.read_text(encoding="utf-8").splitlines() if line.startswith("#")}


def test_the_reader_of_commands_reads() -> None:
    text = "try `fleetgp agent --config x` or\n```sh\n.venv/bin/fleetgp demo --headless \\\n  --json o\n```\nfleetgp is fine"
    assert named(text) == [("agent", ("--config",)), ("demo", ("--headless", "--json"))]


def test_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) < 150


def test_readme_names_both_commands_and_every_program() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "make demo" in text
    assert "make test" in text
    assert {command for command, _ in named(text)} >= {"agent", "coordinator", "bridge", "dashboard", "demo", "doctor"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    for target in LINK.findall(re.sub(r"<!--.*?-->", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)):
        if re.match(r"https?://|mailto:", target):
            continue
        path, _, fragment = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        if not found.exists() or (fragment and fragment not in anchors(found)):
            broken.append(target)
    assert broken == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_and_flags_exist(page: Path) -> None:
    wrong = []
    for command, flags in named(page.read_text(encoding="utf-8")):
        if command not in commands():
            wrong.append(f"fleetgp {command}")
        else:
            wrong += [
                f"fleetgp {command} {flag}" for flag in flags if flag != "--help" and flag not in help_of(command)
            ]
    assert wrong == []


def test_every_decision_is_listed_and_complete() -> None:
    index = (ROOT / "docs" / "adr" / "README.md").read_text(encoding="utf-8")
    pages = sorted((ROOT / "docs" / "adr").glob("[0-9]*.md"))
    assert [page.name[:4] for page in pages] == [f"{number:04d}" for number in range(1, len(pages) + 1)]
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert page.name in index
        assert re.search(r"^Status: (accepted|proposed|superseded by \d{4},?) \d{4}-\d\d-\d\d$", text, re.MULTILINE), (
            page.name
        )
        assert [line for line in text.splitlines() if line.startswith("## ")] == [
            "## Context",
            "## Decision",
            "## Consequences",
        ], page.name
