"""The dispatcher, with commands registered as a package would register them: a dist-info folder on the path."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fleetgp import __version__
from fleetgp.cli import INTERRUPTED, PIPE_CLOSED, USAGE, main

COMMANDS = '''
"""Commands of a package that exists only in this test."""
from fleetgp.errors import ServiceError

def greet(argv):
    """greet whoever is named.

    More that only --help of the command tells.
    """
    print("hello", *argv)
    return len(argv)

def refuse(argv):
    """Refuse."""
    raise ServiceError("port 1883 is taken; set bridge.port")

def interrupt(argv):
    """Be interrupted."""
    raise KeyboardInterrupt

def talk(argv):
    """Talk without end."""
    while True:
        print("and on" * 100)
'''
ENTRY_POINTS = """
[fleetgp.commands]
greet = house_commands:greet
refuse = house_commands:refuse
interrupt = house_commands:interrupt
talk = house_commands:talk
screen = house_screen:show
broken = house_broken:show
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on the path that holds an installed package with commands, two of which cannot be imported."""
    info = tmp_path / "house_commands-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: house-commands\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    (tmp_path / "house_commands.py").write_text(COMMANDS)
    (tmp_path / "house_screen.py").write_text("raise ImportError('No module named streamlit', name='streamlit.web')\n")
    (tmp_path / "house_broken.py").write_text("import a_package_that_nobody_wrote\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_a_command_gets_its_arguments_and_its_status_is_the_exit_status(
    package: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["greet", "Ada", "--loud"]) == 2
    assert capsys.readouterr().out == "hello Ada --loud\n"


def test_help_shows_first_docstring_lines_and_survives_commands_that_cannot_load(
    package: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--help"]) == 0
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines() if line.startswith("  ")}
    assert lines["greet"].endswith("  Greet whoever is named")
    assert lines["screen"].endswith('needs: pip install "fleetgp[dashboard]"')
    assert "a_package_that_nobody_wrote" in lines["broken"]


def test_help_of_a_command_is_asked_of_the_command(package: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help", "greet"]) == 1
    assert capsys.readouterr().out == "hello --help\n"


def test_no_command_shows_help_but_is_not_success(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == USAGE
    assert "usage: fleetgp COMMAND" in capsys.readouterr().out


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"fleetgp {__version__}\n"


def test_errors_of_ours_are_one_plain_line(package: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["refuse"]) == USAGE
    captured = capsys.readouterr()
    assert captured.err == "fleetgp refuse: port 1883 is taken; set bridge.port\n"
    assert captured.out == ""


def test_an_unknown_command_names_the_nearest(package: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gret"]) == USAGE
    assert "did you mean greet" in capsys.readouterr().err


def test_an_unknown_command_near_nothing_points_to_help(package: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["zzzzzz"]) == USAGE
    error = capsys.readouterr().err
    assert "fleetgp --help" in error
    assert "did you mean" not in error


def test_a_missing_extra_is_named(package: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["screen"]) == USAGE
    assert capsys.readouterr().err == 'fleetgp screen: needs: pip install "fleetgp[dashboard]"\n'


def test_a_bug_in_a_command_stays_loud(package: Path) -> None:
    with pytest.raises(ModuleNotFoundError, match="a_package_that_nobody_wrote"):
        main(["broken"])


def test_interruption_is_quiet(package: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["interrupt"]) == INTERRUPTED
    assert capsys.readouterr().err == ""


def test_a_reader_that_goes_away_ends_the_command_quietly(package: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(package)}
    command = [sys.executable, "-m", "fleetgp", "talk"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as talking:
        assert talking.stdout is not None
        assert talking.stderr is not None
        talking.stdout.readline()
        talking.stdout.close()
        assert talking.wait(timeout=20) == PIPE_CLOSED
        assert talking.stderr.read() == b""


def test_starting_the_dispatcher_imports_no_program_and_no_numpy() -> None:
    code = (
        "import sys, fleetgp.cli; names = ('numpy', 'paho', 'edge_agent', 'simulator', 'dashboard', 'argparse', 'difflib');"
        "print([name for name in names if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=20, check=True)
    assert done.stdout.strip() == "[]"
