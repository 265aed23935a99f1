"""The ``bridge``, ``record``, ``doctor`` and ``store`` commands. Light: what they run is imported when they run."""

from __future__ import annotations


def bridge(argv: list[str]) -> int:
    """keep history: store readings, predictions, events and rounds; run a broker if asked"""
    import argparse
    import os

    from fleetgp.runtime.arguments import add_arguments, from_arguments

    parser = argparse.ArgumentParser(
        prog="fleetgp bridge",
        description="Stores what travels over the broker: sensors' readings (bridge.topics), predictions, events, rounds and "
        "health. With --own-broker it also runs the broker, for a machine that has none.",
    )
    add_arguments(parser)
    parser.add_argument(
        "--own-broker",
        nargs="?",
        const="auto",
        choices=("auto", "mosquitto", "nats"),
        help="run a broker on this machine's loopback (setting bridge.broker)",
    )
    args = parser.parse_args(argv)
    if args.own_broker:
        args.overrides.append(f"bridge.broker={args.own_broker}")
    settings = from_arguments(args, os.environ)

    from broker_bridge.service import run_bridge

    run_bridge(settings)
    return 0


def record(argv: list[str]) -> int:
    """record what travels over the broker to a file, with everything that matters"""
    import argparse
    from pathlib import Path

    from fleetgp.runtime.arguments import add_arguments

    parser = argparse.ArgumentParser(
        prog="fleetgp record",
        description="Records messages to an MCAP file: topic, payload, quality, retained flag, content type and times, with a "
        "mark where the connection was away. Ends after --seconds, or in order with Ctrl-C. fleetgp replay plays it again.",
    )
    add_arguments(parser)
    parser.add_argument(
        "--topics", nargs="+", default=["#"], metavar="FILTER", help="what to record, e.g. 'sensors/#' (all)"
    )
    parser.add_argument(
        "-o", "--output", type=Path, required=True, metavar="FILE", help="e.g. monday.mcap; never written over"
    )
    parser.add_argument("--seconds", type=float, metavar="N", help="how long (until Ctrl-C)")
    parser.add_argument(
        "--rotate", metavar="SIZE", help="begin another file at this size, e.g. 100MB: FILE-0001.mcap, ..."
    )
    parser.add_argument(
        "--retained",
        choices=("keep", "skip"),
        default="keep",
        help="with or without what the broker remembers from before the recording (keep)",
    )
    parser.add_argument("--json", metavar="FILE", help="write what was recorded to a file ('-' = standard output)")
    args = parser.parse_args(argv)

    from broker_bridge.run_record import run_record

    return run_record(args)


def doctor(argv: list[str]) -> int:
    """check broker, login, clock, store, settings and versions, and say what to do"""
    import argparse
    import os

    from fleetgp.runtime.arguments import add_arguments

    parser = argparse.ArgumentParser(
        prog="fleetgp doctor",
        description="Checks settings, broker, login, clock, store, disk and versions, and says in plain words what to do.",
    )
    add_arguments(parser)
    parser.add_argument("--json", metavar="FILE", help="write the findings to a file ('-' = standard output)")
    args = parser.parse_args(argv)

    from broker_bridge.doctor import examine, show

    findings = examine(args, os.environ)
    return show(findings, args.json)


def store(argv: list[str]) -> int:
    """the history: what is in it, a backup of it, less of it, its rows as a file"""
    from broker_bridge.store_command import run

    return run(argv)
