"""``fleetgp backtest``: recordings through the live system's brains on a simulated clock, and a report."""

from __future__ import annotations

import json
import sys
import time
from argparse import Namespace
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import numpy as np

from edge_agent.state import AgentConfig
from fleetgp.errors import ConfigError, RecordingError
from fleetgp.models import Model, parts
from fleetgp.recording.discover import BACKWARD
from fleetgp.recording.table import Record, Skipped
from fleetgp.runtime.spec import parse_span
from fleetgp.wire.messages import AnomalyEvent
from simulator.accuracy import Accuracy
from simulator.backtest_tables import tables
from simulator.choosing import Understood, lines, told, understood
from simulator.compared import tables as compared
from simulator.compared import wanted
from simulator.fleet import Outcome, Plan, run
from simulator.left_out import words

ROUND_FRAMES = 24
SAY_EVERY = 20_000
EVENTS_SHOWN = 10
FIRST_ROWS = 50
PACE = (0.6, 1.7)  # of rows against the spec's interval: beyond it one of the two is wrong


class Task(NamedTuple):
    """Recordings and what to do with them; joins: by agent, UTC epoch ms."""

    understood: Understood
    joins: dict[str, int]
    round_ms: int
    start_ms: int | None
    end_ms: int | None
    is_tuned: bool
    is_quiet: bool


def backtest(args: Namespace) -> dict[str, Any]:
    """Run it; the report, of several models one for each. Raises ConfigError or RecordingError where the arguments or files
    do not fit."""
    if args.json not in (None, "-") and not Path(args.json).parent.is_dir():
        raise ConfigError("--json", f"there is no folder {Path(args.json).parent} to write {args.json} to")
    models = wanted(args.model, args.mode)
    found = understood(args.files, args.spec)
    if args.json != "-":
        print(*lines(found.choice, len(found.streams)), sep="\n", end="")
    task = _task(found, args)
    reports = {model: _run(task, model) for model in models}
    if len(reports) == 1:
        return reports[models[0]]
    first = reports[models[0]]
    return {"models": reports, "warnings": first["warnings"], "chosen": first["chosen"]}


def _task(found: Understood, args: Namespace) -> Task:
    zone = found.described.time.zone
    names = [stream.name for stream in found.streams]
    joins = dict(_join(text, names, zone) for text in args.join)
    round_s = parse_span(args.round, "--round", "") if args.round else None
    return Task(
        found,
        joins,
        round((round_s or ROUND_FRAMES * found.described.schema.interval_s) * 1000),
        instant(args.start, "--start", zone) if args.start else None,
        instant(args.end, "--end", zone) if args.end else None,
        args.tuning == "on",
        args.json == "-",
    )


def _run(task: Task, model: Model) -> dict[str, Any]:
    """All recordings through a fleet whose agents work with this model; the report."""
    streams, described, choice = task.understood
    plan = Plan(
        agent=AgentConfig(agent_id="backtest", schema=described.schema, is_live=False, model=model),
        round_ms=task.round_ms if _has_rounds(model) else 0,
        start_ms=task.start_ms,
        end_ms=task.end_ms,
        joins=task.joins,
        tuning=task.is_tuned,
    )
    # an agent that joins before --start first exists at --start
    begins = {name: max(moment, plan.start_ms or moment) for name, moment in task.joins.items()}
    accuracy = Accuracy(described.schema, joins=begins)
    warnings: list[str] = []
    skipped = Skipped()
    progress = Progress(quiet=task.is_quiet)
    recordings = {
        stream.name: progress.count(
            paced(stream.name, stream.read(described, skipped), described.schema.interval_s, warnings)
        )
        for stream in streams
    }
    outcome = run(recordings, plan, accuracy.add)
    progress.end()
    if not outcome.frames:
        if not progress.rows:
            raise RecordingError("these recordings hold no row")
        raise RecordingError("no row of these recordings lies between --start and --end (or after its agent's --join)")
    return {
        **_report(accuracy, outcome, skipped, model, progress.seconds),
        "warnings": warnings,
        "chosen": told(described, choice),
    }


def _has_rounds(model: Model) -> bool:
    return parts(model).shared or parts(model).kernel


def paced(name: str, records: Iterator[Record], interval_s: float, warnings: list[str]) -> Iterator[Record]:
    """The records as they are; a warning where their first rows are not an interval apart.

    Raises RecordingError where these are in no order: nearly all rows would come too late to be learnt.
    """
    first = list(islice(records, FIRST_ROWS))
    steps_s = np.diff([record.at_ms for record in first]) / 1000
    if np.sum(steps_s < 0) > BACKWARD * len(steps_s):
        raise RecordingError(f"the times of {name} go back from row to row: sort its rows by time, oldest first")
    steps_s = steps_s[steps_s > 0]  # a row that stands twice says nothing of the pace
    if len(steps_s) and not PACE[0] <= float(np.median(steps_s)) / interval_s <= PACE[1]:
        warnings.append(f"{name} has a row every {np.median(steps_s):g} s, the spec's interval is {interval_s:g} s")
    yield from first
    yield from records


class Progress:
    """Says on stderr now and then how far a long run is."""

    def __init__(self, *, quiet: bool) -> None:
        self._begin_s = time.monotonic()
        self.rows = 0
        self._is_shown = not quiet and sys.stderr.isatty()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._begin_s

    def count(self, records: Iterator[Record]) -> Iterator[Record]:
        for record in records:
            self.rows += 1
            if self._is_shown and self.rows % SAY_EVERY == 0:
                day = datetime.fromtimestamp(record.at_ms / 1000, tz=UTC).date()
                rate = self.rows / max(self.seconds, 1e-9)
                print(f"\r{day}  {self.rows:,} rows, {rate:,.0f} a second ", end="", file=sys.stderr, flush=True)
            yield record

    def end(self) -> None:
        if self._is_shown and self.rows >= SAY_EVERY:
            print(file=sys.stderr)


def instant(text: str, flag: str, zone: str) -> int:
    """UTC epoch ms of an ISO date or time; without a zone of its own it is in the recording's. Raises ConfigError."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(flag, f"{text!r} is no date or time; an example is 2014-03-01 or 2014-03-01T12:00") from None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=ZoneInfo(zone))
    return round(moment.timestamp() * 1000)


def _join(text: str, names: list[str], zone: str) -> tuple[str, int]:
    name, equals, moment = text.partition("=")
    if not equals or name not in names:
        raise ConfigError("--join", f"{text!r}: expected AGENT=TIME with an agent of {', '.join(names)}")
    return name, instant(moment, "--join", zone)


def _report(accuracy: Accuracy, outcome: Outcome, skipped: Skipped, model: Model, seconds: float) -> dict[str, Any]:
    last = {event.event_id: event for event in outcome.events}
    return {
        "model": model,
        "mode": "fleet" if _has_rounds(model) else "alone",
        **accuracy.report(),
        "frames": outcome.frames,
        "seconds": round(seconds, 3),
        "frames_per_second": round(outcome.frames / max(seconds, 1e-9), 1),
        "rounds_closed": outcome.rounds,
        "bytes_per_round": round(outcome.bytes / outcome.rounds, 1) if outcome.rounds else None,
        "tuning": {
            "steps": outcome.tuning_steps,
            "bytes": outcome.tuning_bytes,
            "agent_seconds": round(outcome.tuning_s, 3),
            "bases": [{"round": one.round, "gain": one.gain, "note": one.note} for one in outcome.learnt],
        },
        "events": len(last),
        "event_list": [_event(event) for event in last.values()],
        "left_out": {**outcome.counts, **skipped},
    }


def _event(event: AnomalyEvent) -> dict[str, Any]:
    start = datetime.fromtimestamp(event.start_ms / 1000, tz=UTC)
    return {
        "agent": event.agent,
        "start": start.isoformat(timespec="seconds").replace("+00:00", "Z"),
        "frames": event.frames,
        "peak_score": round(event.peak_score, 2),
        "blame": event.blame,
    }


def show(report: dict[str, Any], file: str | None) -> None:
    """The report as tables people read; as JSON to a file, or instead of the tables with '-'."""
    if file == "-":
        print(json.dumps(report, indent=2))
        return
    if "models" in report:
        print(*compared(report["models"]), sep="\n")
        _warn(report)
    else:
        _show_one(report)
    if file:
        try:
            Path(file).write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
        except OSError as err:
            raise ConfigError("--json", f"{file} cannot be written: {err}") from err


def _show_one(report: dict[str, Any]) -> None:
    for line in tables(report):
        print(line)
    print(
        f"\n{report['frames']:,} frames in {report['seconds']:.1f} s ({report['frames_per_second']:,.0f} a second), "
        f"{report['rounds_closed']} rounds, {report['events']} event{'' if report['events'] == 1 else 's'}"
    )
    for event in report["event_list"][:EVENTS_SHOWN]:
        print(f"  {event['start']}  {event['agent']}: {', '.join(event['blame'])}, score {event['peak_score']:.0f}, "
              f"{event['frames']} frames")  # fmt: skip
    if report["events"] > EVENTS_SHOWN:
        print(f"  ... and {report['events'] - EVENTS_SHOWN} more; --json lists all")
    _warn(report)
    if report["left_out"]:
        print(words(report["left_out"]))


def _warn(report: dict[str, Any]) -> None:
    for warning in report["warnings"]:
        print(f"warning: {warning}; mend [stream] interval")
