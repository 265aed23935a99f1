"""From the ``record`` command's arguments to a recording and a report of it."""

from __future__ import annotations

import json
import os
import sys
import threading
from argparse import Namespace
from dataclasses import asdict
from pathlib import Path

from broker_bridge.record import Order, Recorded, Recorder
from broker_bridge.rolling import bytes_of
from broker_bridge.screen import size, span
from fleetgp.errors import ConfigError, ServiceError
from fleetgp.runtime.arguments import from_arguments
from fleetgp.runtime.program import stop_on_signals


def run_record(args: Namespace) -> int:
    """0 when all that came was recorded and something came, else 1. Raises FleetError in plain words where it cannot run."""
    order = _order(args)
    stopping = threading.Event()
    stop_on_signals(stopping)
    told = Recorder(from_arguments(args, os.environ), order, stopping).run()
    print(_summary(told), file=sys.stderr if args.json == "-" else sys.stdout)
    if args.json:
        write_json(asdict(told), args.json)
    if told.trouble:
        raise ServiceError(f"the recording ended early: {told.trouble}")
    if not told.messages:
        print(f"nothing came on {' '.join(order.topics)}; fleetgp doctor looks at the broker", file=sys.stderr)
    return 0 if told.messages and not told.lost else 1


def write_json(report: dict[str, object], where: str) -> None:
    """Write a report to a file, or standard output for "-". Raises ServiceError where it cannot be written."""
    text = json.dumps(report, indent=2) + "\n"
    if where == "-":
        sys.stdout.write(text)
        return
    try:
        Path(where).write_text(text)
    except OSError as err:
        raise ServiceError(f"cannot write {where}: {err.strerror}") from err


def _order(args: Namespace) -> Order:
    if args.output.suffix != ".mcap":
        raise ConfigError(
            "-o", f"{args.output.name!r}: recordings are MCAP files, name it so: {args.output.with_suffix('.mcap')}"
        )
    if args.seconds is not None and not 0 < args.seconds < 1e9:
        raise ConfigError("--seconds", f"{args.seconds} is no number of seconds above 0")
    rotate_bytes = None
    if args.rotate:
        try:
            rotate_bytes = bytes_of(args.rotate)
        except ValueError:
            raise ConfigError("--rotate", f"{args.rotate!r}: expected a size of 64kB at least, e.g. 100MB") from None
    return Order(tuple(args.topics), args.output, args.seconds, rotate_bytes, args.retained == "keep")


def _summary(told: Recorded) -> str:
    files = told.files[0] if len(told.files) == 1 else f"{told.files[0]} to {Path(told.files[-1]).name}"
    lines = [
        f"{told.messages:,} messages on {told.topics:,} topics in {span(told.seconds)} ({told.messages_per_s:,.0f}/s), "
        f"{size(told.bytes)} in {files}",
        f"gaps: {len(told.gaps)}" + "".join(f"\n  {span(float(str(g['seconds'])))}: {g['why']}" for g in told.gaps),
        f"lost: {told.lost}",
    ]
    if told.retained_left_out:
        lines.append(f"left out: {told.retained_left_out} retained messages (--retained skip)")
    return "\n".join(lines)
