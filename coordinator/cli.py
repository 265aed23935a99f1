"""The ``coordinator`` command. Light: what it runs is imported when it runs."""

from __future__ import annotations


def coordinator(argv: list[str]) -> int:
    """close rounds: add the agents' summaries and give back what the fleet knows"""
    import argparse
    import os

    from fleetgp.runtime.arguments import add_arguments, from_arguments

    parser = argparse.ArgumentParser(
        prog="fleetgp coordinator",
        description="Opens a round now and then, adds the summaries that agents answer with, and publishes what the fleet "
        "knows. One for each fleet; it may be stopped and started at any time.",
    )
    add_arguments(parser)
    settings = from_arguments(parser.parse_args(argv), os.environ)

    from coordinator.service import Coordinator

    Coordinator(settings).run()
    return 0
