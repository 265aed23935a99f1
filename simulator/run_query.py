"""``fleetgp recordings query``: the answer to an InfluxQL query as a recording."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from contextlib import closing

from broker_bridge.run_record import write_json
from fleetgp.errors import RecordingError
from fleetgp.recording.influx import stream
from fleetgp.runtime.arguments import from_arguments
from fleetgp.runtime.influx import Client
from fleetgp.store.open import access, pointed_at
from simulator.run_convert import OF_MESSAGES, Output, write_messages


def query(args: Namespace) -> int:
    """0 when OUT holds every row of the answer. Raises FleetError in plain words else."""
    settings = from_arguments(args, os.environ)
    if args.store:
        settings = pointed_at(settings, args.store)
    output = Output(args.output, is_forced=args.force, endings=OF_MESSAGES)
    with closing(Client(access(settings))) as client, output.beside() as part:
        session = {"query": args.query, "queried_from": client.location}
        messages, _ = write_messages(part, stream(client, args.query), session)
        if not messages:
            raise RecordingError(f"{client.location} has no row for this query: nothing was written")
    report: dict[str, object] = {"query": args.query, "output": str(output.path), "messages": messages}
    print(f"{output.path}: {messages:,} messages", file=sys.stderr if args.json == "-" else sys.stdout)
    if args.json:
        write_json(report, args.json)
    return 0
