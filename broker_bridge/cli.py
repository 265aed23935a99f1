"""The ``bridge``, ``doctor`` and ``store`` commands. Light: what they run is imported when they run."""

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
