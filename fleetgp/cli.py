"""The ``fleetgp`` command: finds the programs' commands by entry point and runs one of them.

It imports no program. A command is a function ``command(argv: list[str]) -> int`` that a package registers under
``[project.entry-points."fleetgp.commands"]``; the first line of its docstring is its line in ``fleetgp --help``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import EntryPoint, entry_points

from fleetgp import __version__
from fleetgp.errors import FleetError, ServiceError

Command = Callable[[list[str]], int]

GROUP = "fleetgp.commands"
OK, INTERRUPTED, PIPE_CLOSED = 0, 130, 141  # 128 + signal number, as shells count
USAGE = 2

# The order of `fleetgp --help`. A command that is registered but not named here is listed last, under "more".
SHELVES: Mapping[str, tuple[str, ...]] = {
    "try it": ("demo", "devices"),
    "run it": ("agent", "coordinator", "bridge", "dashboard", "discover", "doctor", "store"),
    "study it": ("backtest", "detect", "record", "replay", "recordings"),
}

# Which extra brings a package that a command could not import.
EXTRAS: Mapping[str, str] = {
    "streamlit": "dashboard",
    "altair": "dashboard",
    "pandas": "dashboard",
    "influxdb_client": "influx",
    "mcap": "bridge",
    "zstandard": "bridge",
    "pyarrow": "parquet",
    "torch": "learn",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``fleetgp`` with these arguments (default: those of the process) and return its exit status.

    0: the command did its job; 2: it could not, and said why in one line; 130: Ctrl-C; 141: nobody reads our output.
    """
    # before any program imports numpy: our matrices are small, and threads that share them only wait for each other
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    arguments = list(sys.argv[1:] if argv is None else argv)
    name = arguments[0] if arguments and not arguments[0].startswith("-") else ""
    try:
        try:
            status = _run(arguments)
        except ImportError as error:  # a package that only shows to be missing once the command works
            if not (remedy := _remedy(error)):
                raise
            raise ServiceError(remedy) from error
        sys.stdout.flush()  # here, so that a closed pipe shows now and not while the interpreter ends
        return status
    except FleetError as error:
        print(f"fleetgp {name}: {error}" if name else f"fleetgp: {error}", file=sys.stderr)
        return USAGE
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the last flush would complain once more
        return PIPE_CLOSED


def _run(arguments: list[str]) -> int:
    commands = {entry.name: entry for entry in entry_points(group=GROUP)}
    match arguments:
        case [] | ["help"]:
            print(overview(commands.values()))
            return OK if arguments else USAGE
        case ["-h" | "--help", *_]:
            print(overview(commands.values()))
            return OK
        case ["--version" | "-V", *_]:
            print(f"fleetgp {__version__}")
            return OK
        case ["help", name, *_]:
            return _find(name, commands)(["--help"])
        case [name, *rest]:
            return _find(name, commands)(rest)
    raise AssertionError("every list of arguments matches one case")


def overview(commands: Iterable[EntryPoint]) -> str:
    """Text of ``fleetgp --help``: commands by shelf, each with the first line of its docstring."""
    left = {entry.name: entry for entry in commands}
    lines = [
        "usage: fleetgp COMMAND [options]        (fleetgp COMMAND --help says more)",
        "",
        "Watches the streams of small devices: each learns its own, and all share what the fleet knows.",
    ]
    shelves = [(title, [left.pop(name) for name in names if name in left]) for title, names in SHELVES.items()]
    for title, entries in [*shelves, ("more", [left[name] for name in sorted(left)])]:
        if entries:
            lines += ["", f"{title}:", *(f"  {entry.name:<13}{_summary(entry)}" for entry in entries)]
    return "\n".join([*lines, "", "First steps: fleetgp demo. Versions: fleetgp --version."])


def _summary(entry: EntryPoint) -> str:
    """One line on a command; what is missing where it cannot be loaded, for help must work on any installation."""
    try:
        docstring = entry.load().__doc__
    except ImportError as error:
        return _remedy(error) or f"cannot be loaded: {error}"
    except AttributeError as error:
        return f"cannot be loaded: {error}"
    first = docstring.strip().partition("\n")[0].rstrip(".") if docstring else ""
    return first[:1].upper() + first[1:]


def _find(name: str, commands: Mapping[str, EntryPoint]) -> Command:
    """The command of that name.  Raises FleetError for an unknown one, ServiceError where an extra is missing."""
    if name not in commands:
        raise FleetError(f"no such command{_nearest(name, commands)}; fleetgp --help lists them all")
    try:
        command: Command = commands[name].load()
    except ImportError as error:
        if remedy := _remedy(error):
            raise ServiceError(remedy) from error
        raise
    return command


def _remedy(error: ImportError) -> str:
    """What to install for a package that is missing; empty where no extra of ours brings it."""
    package = (error.name or "").partition(".")[0]
    return f'needs: pip install "fleetgp[{EXTRAS[package]}]"' if package in EXTRAS else ""


def _nearest(name: str, commands: Iterable[str]) -> str:
    from difflib import get_close_matches  # only after a slip of the finger: an agent's start does not pay for it

    near = get_close_matches(name, commands, n=1, cutoff=0.5)
    return f", did you mean {near[0]}" if near else ""
