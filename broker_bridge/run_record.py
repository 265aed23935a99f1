"""From the ``record`` command's arguments to a recording and a report of it."""

from __future__ import annotations

import json
import os
import sys
import threading
from argparse import Namespace
from dataclasses import asdict
from pathlib import Path

from broker_bridge.record import MOST_TOPICS, Order, Recorded, Recorder
from broker_bridge.rolling import bytes_of
from broker_bridge.screen import size, span
from fleetgp.errors import ConfigError, ServiceError
from fleetgp.runtime.arguments import from_arguments
from fleetgp.runtime.link import check_filter
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
    for pattern in args.topics:
        check_filter(pattern, "--topics")
    if args.json and args.json != "-" and not Path(args.json).absolute().parent.is_dir():
        raise ConfigError("--json", f"there is no folder {Path(args.json).parent}")
    if args.output.suffix != ".mcap":
        raise ConfigError(
            "-o", f"{str(args.output)!r}: recordings are MCAP files, name it so: {args.output.with_suffix('.mcap')}"
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


SHOWN = 20  # gaps; the report for machines has more


def _summary(told: Recorded) -> str:
    files = "no file"
    if told.files:
        files = told.files[0] if len(told.files) == 1 else f"{told.files[0]} to {Path(told.files[-1]).name}"
    topics = f"{told.topics:,} topics" if told.topics < MOST_TOPICS else f"{MOST_TOPICS:,} topics or more"
    lines = [
        f"{told.messages:,} messages on {topics} in {span(told.seconds)} ({told.messages_per_s:,.0f}/s), "
        f"{size(told.bytes)} in {files}",
        f"gaps: {told.gap_count:,}",
        *(f"  {span(float(str(gap['seconds'])))}: {gap['why']}" for gap in told.gaps[:SHOWN]),
        *([f"  and {told.gap_count - SHOWN:,} more"] if told.gap_count > SHOWN else []),
        f"lost here: {told.lost:,}",
        f"dropped by the broker before: {_broker_words(told)}",
    ]
    if told.retained_left_out:
        lines.append(f"left out: {told.retained_left_out:,} retained messages (--retained skip)")
    return "\n".join(lines)


def _broker_words(told: Recorded) -> str:
    if told.broker_dropped is None or told.broker_told_s is None:
        return "not known, it does not tell"
    until = f"as it told until {span(told.broker_told_s)} before the end"
    if not told.broker_dropped:
        return f"0, {until}"
    count = f"{'at least ' if told.broker_dropped_more else ''}{told.broker_dropped:,}"
    return (
        f"{count} message{'s'[: told.broker_dropped > 1]}, of these or of others, {until}; publish with QoS 1, and give the broker longer "
        "queues (mosquitto: max_queued_messages)"
    )
