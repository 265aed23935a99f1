"""The ``demo``, ``devices``, ``backtest``, ``detect`` and ``replay`` commands. Light: what they run is imported when they run."""

from __future__ import annotations

import argparse
from pathlib import Path

FORMS = "recordings of any form: CSV, Parquet, JSON lines, MCAP, mosquitto_sub logs; one agent a device"
SPEC = "what the files hold; what it lacks is chosen from their first rows"


def demo(argv: list[str]) -> int:
    """show a whole fleet on this machine: broker, devices, agents, coordinator, bridge, dashboard"""
    parser = argparse.ArgumentParser(
        prog="fleetgp demo",
        description="Runs a whole fleet on this machine and prints where its dashboard is; Ctrl-C stops it. Six simulated "
        "pumps by default, or the devices of recorded files (--recording).",
    )
    parser.add_argument("--headless", action="store_true", help="end by itself after --seconds; for machines")
    parser.add_argument("--seconds", type=_positive, metavar="N", help="how long (default with --headless: 90)")
    parser.add_argument("--json", metavar="FILE", help="write the results to a file ('-' = standard output)")
    parser.add_argument("--broker", choices=("auto", "mosquitto", "nats"), default="auto", help="which broker to run")
    parser.add_argument("--recording", nargs="+", type=Path, default=[], metavar="FILE", help="play these instead")
    parser.add_argument(
        "--spec", type=Path, metavar="SPEC", help="what the recordings hold, e.g. examples/beijing.toml"
    )
    parser.add_argument("--speed", type=_positive, default=3600.0, metavar="X", help="how many times faster (3600)")
    parser.add_argument(
        "--data-dir", type=Path, default=Path("fleetgp-data"), metavar="DIR", help="where data are kept"
    )
    parser.add_argument("--port", type=int, default=0, metavar="PORT", help="the dashboard's port (0 = a free one)")
    args = parser.parse_args(argv)
    if args.spec and not args.recording:
        parser.error("--spec says what recorded files hold; name them with --recording")

    from simulator.run_demo import run_demo

    return run_demo(args)


def devices(argv: list[str]) -> int:
    """publish streams as devices would: simulated pumps or presses, or recorded files at any speed"""
    from fleetgp.runtime.arguments import add_arguments

    parser = argparse.ArgumentParser(
        prog="fleetgp devices",
        description="Publishes streams to a broker as devices would, on sensors/NAME: simulated pumps or "
        "presses once a second, or recorded files (--recording) of any form.",
    )
    add_arguments(parser)
    parser.add_argument("--names", nargs="+", default=["pump-1"], metavar="NAME", help="simulated devices")
    parser.add_argument(
        "--kind",
        choices=("pump", "press"),
        default="pump",
        help="what is simulated; presses follow a cycle of a minute",
    )
    parser.add_argument("--interval", type=_positive, default=1.0, metavar="S", help="seconds between readings (1)")
    parser.add_argument(
        "--fault", action="append", default=[], metavar="INDEX@S", help="a loose contact after S seconds"
    )
    parser.add_argument(
        "--join", action="append", default=[], metavar="INDEX@S", help="a device begins after S seconds"
    )
    parser.add_argument("--recording", nargs="+", type=Path, default=[], metavar="FILE", help="play these instead")
    parser.add_argument("--spec", type=Path, metavar="SPEC", help="what the recordings hold")
    parser.add_argument("--speed", type=_positive, default=1.0, metavar="X", help="how many times faster (1)")
    parser.add_argument("--seconds", type=_positive, metavar="N", help="stop after so many seconds")
    parser.add_argument("--report", type=Path, metavar="FILE", help="write how many messages each device sent")
    args = parser.parse_args(argv)
    if args.spec and not args.recording:
        parser.error("--spec says what recorded files hold; name them with --recording")

    from simulator.run_devices import run_devices

    return run_devices(args)


def backtest(argv: list[str]) -> int:
    """run recordings through a fleet as fast as they go, and report accuracy and coverage"""
    from fleetgp.models import MODELS, WORDS

    parser = argparse.ArgumentParser(
        prog="fleetgp backtest",
        description="Runs recorded files through the agents' and the coordinator's own brains on a simulated clock, one\n"
        "device an agent: the live system, as fast as this machine can.",
        epilog="\n".join(["models:", *(f"  {model:<14}{WORDS[model]}" for model in MODELS)]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help=FORMS)
    parser.add_argument("--spec", type=Path, metavar="SPEC", help=SPEC)
    parser.add_argument(
        "--model", nargs="+", default=[], metavar="NAME", help="which parts of the model; several are compared (full)"
    )
    parser.add_argument("--mode", choices=("fleet", "alone"), help="the older form of --model full or --model alone")
    parser.add_argument("--start", metavar="T", help="leave out rows before this time, e.g. 2014-03-01")
    parser.add_argument("--end", metavar="T", help="leave out rows from this time on")
    parser.add_argument("--join", action="append", default=[], metavar="AGENT=T", help="this agent first exists at T")
    parser.add_argument("--round", metavar="SPAN", help="time between rounds, e.g. 6h (default: 24 intervals)")
    parser.add_argument(
        "--tuning", choices=("on", "off"), default="on", help="whether the fleet's basis is learnt by gradients (on)"
    )
    parser.add_argument("--json", metavar="FILE", help="write the report to a file ('-' = standard output)")
    parser.add_argument(
        "--as-recorded",
        action="store_true",
        help="run a recorded fleet again, and compare what it says with what it said",
    )
    args = parser.parse_args(argv)
    if args.as_recorded:
        from simulator.run_recorded import run_recorded

        return run_recorded(args)

    from simulator import backtest as running

    running.show(running.backtest(args), args.json)
    return 0


def detect(argv: list[str]) -> int:
    """find anomalies in recordings: since when, until when, which channels, how odd"""
    parser = argparse.ArgumentParser(
        prog="fleetgp detect",
        description="Runs recorded files through an agent's own brain, each device for itself, and lists its anomalies.",
    )
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help=FORMS)
    parser.add_argument("--spec", type=Path, metavar="SPEC", help=SPEC)
    parser.add_argument("--json", metavar="FILE", help="write the report to a file ('-' = standard output)")
    parser.add_argument(
        "--scores", metavar="FILE", help="write time, score, threshold, is_alarmed of every frame as CSV"
    )
    args = parser.parse_args(argv)

    from simulator import detect as running

    running.show(running.detect(args), args.json)
    return 0


def replay(argv: list[str]) -> int:
    """play recordings to a broker at any speed, in their order and spacing"""
    from fleetgp.runtime.arguments import add_arguments

    parser = argparse.ArgumentParser(
        prog="fleetgp replay",
        description="Plays recorded messages to a broker, each at its own moment, with the quality and the retained flag that "
        "it was recorded with. Late messages go at once, and how late they were is reported. docs/replay.md says more.",
    )
    add_arguments(parser)
    parser.add_argument(
        "files", nargs="+", type=Path, metavar="FILE", help="recordings; several are merged by their times"
    )
    parser.add_argument("--speed", default="1", metavar="X", help="how many times faster, or max (1)")
    parser.add_argument(
        "--from", dest="begin", metavar="T", help="begin here: a time, or +10min after the first message"
    )
    parser.add_argument(
        "--to", dest="end", metavar="T", help="end before this time, or so long after the first message"
    )
    parser.add_argument(
        "--topic", action="append", default=[], metavar="FILTER", help="only these, e.g. 'sensors/#'; may be repeated"
    )
    parser.add_argument("--prefix", default="", metavar="PREFIX", help="put before every topic, e.g. replay/")
    parser.add_argument(
        "--rebase", metavar="SHIFT", help="move times inside payloads: now (the first message is now), +1h, -2d"
    )
    parser.add_argument("--max-pause", metavar="SPAN", help="shorten longer pauses of the recording to this, e.g. 10s")
    parser.add_argument("--loop", nargs="?", const=0, type=int, metavar="N", help="again and again, or N times")
    parser.add_argument(
        "--own-topics", action="store_true", help="also what the fleet's programs said of themselves (fleetgp/...)"
    )
    parser.add_argument(
        "--retained",
        choices=("keep", "plain", "skip"),
        default="keep",
        help="messages that were retained: retained again, as plain messages, or not at all (keep)",
    )
    parser.add_argument(
        "--inject", action="append", default=[], metavar="FAULT", help="put a fault in; docs/faults.md has the words"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the faults' chances (0)")
    parser.add_argument("--spec", type=Path, metavar="SPEC", help="what tables (CSV, Parquet) hold")
    parser.add_argument("--json", metavar="FILE", help="write the report to a file ('-' = standard output)")
    args = parser.parse_args(_joined(argv, "--rebase"))

    from simulator.run_replay import run_replay

    return run_replay(args)


def _joined(argv: list[str], flag: str) -> list[str]:
    """A flag and its value in one, where the value begins as a flag does: ``--rebase -2d``."""
    result: list[str] = []
    for word in argv:
        if result[-1:] == [flag] and word.startswith("-") and word[1:2].isdecimal():
            result[-1] = f"{flag}={word}"
        else:
            result.append(word)
    return result


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e12:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return value
