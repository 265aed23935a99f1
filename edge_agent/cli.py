"""The ``agent`` command. Light: what it runs is imported when it runs."""

from __future__ import annotations


def agent(argv: list[str]) -> int:
    """watch one device: learn its streams, predict every reading, say what is odd"""
    import argparse
    import os

    from fleetgp.models import MODELS
    from fleetgp.runtime import allocator
    from fleetgp.runtime.arguments import add_arguments, from_arguments

    parser = argparse.ArgumentParser(
        prog="fleetgp agent",
        description="Watches one device: learns its streams, predicts every reading, says what is odd. "
        "Which channels it watches stands in the settings file (--config); examples/fleetgp.toml is one to start from.",
    )
    add_arguments(parser)
    parser.add_argument("--id", metavar="NAME", help="name of this agent (setting agent.id)")
    parser.add_argument(
        "--model",
        metavar="NAME",
        help=f"which parts of the model it works with: {', '.join(MODELS)} (setting agent.model)",
    )
    args = parser.parse_args(argv)
    if args.model:
        args.overrides.append(f"agent.model={args.model}")
    if args.id:
        args.overrides.append(f"agent.id={args.id}")
    settings = from_arguments(args, os.environ)

    allocator.keep_small()
    from edge_agent.life import Life

    Life(settings).run()
    return 0
