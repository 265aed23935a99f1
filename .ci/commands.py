"""Check the installed ``fleetgp`` as a newcomer meets it: its help, and the help of every command.

``--bare`` is for an environment without extras: there a command may say which extra it needs, but must not fail otherwise.
Standard library only: it runs in environments that hold nothing but the wheel.
"""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

FLEETGP = Path(sys.executable).with_name("fleetgp")
SECONDS = 60


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(FLEETGP), *arguments], capture_output=True, text=True, timeout=SECONDS, check=False)


def problem_of(name: str, is_bare: bool) -> str:
    """Empty when ``fleetgp NAME --help`` does its job (or, bare, names the extra that is missing)."""
    done = run(name, "--help")
    if done.returncode == 0 and "usage" in done.stdout.lower():
        return ""
    if is_bare and done.returncode == 2 and "pip install" in done.stderr and "Traceback" not in done.stderr:
        return ""
    return f"fleetgp {name} --help ended with {done.returncode}:\n{done.stdout}{done.stderr}"


def main() -> int:
    is_bare = "--bare" in sys.argv[1:]
    names = sorted(entry.name for entry in entry_points(group="fleetgp.commands"))
    overview = run("--help")
    problems = (
        [] if overview.returncode == 0 else [f"fleetgp --help ended with {overview.returncode}: {overview.stderr}"]
    )
    problems += [f"fleetgp --help does not name {name}" for name in names if name not in overview.stdout]
    problems += ["fleetgp --help names something that cannot be loaded"] * ("cannot be loaded" in overview.stdout)
    problems += [problem for name in names if (problem := problem_of(name, is_bare))]
    if not names:
        problems.append("the wheel registers no command")
    if not is_bare:
        print(overview.stdout)
    print("\n".join(problems) or f"{len(names)} commands answer --help{' or name the extra they need' * is_bare}")
    return 1 if problems else 0


sys.exit(main())
