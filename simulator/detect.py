"""``fleetgp detect``: anomalies of recorded streams, found by the agent's own brain alone, without a fleet."""

from __future__ import annotations

import csv
import json
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from edge_agent.state import AgentConfig
from fleetgp.errors import ConfigError, RecordingError
from fleetgp.recording import spec
from fleetgp.recording.spec import RecordingSpec
from fleetgp.recording.streams import Stream, find
from fleetgp.recording.table import Skipped
from fleetgp.wire.messages import AnomalyEvent, Prediction
from simulator.backtest import paced
from simulator.choosing import complete, lines, told
from simulator.fleet import Outcome, Plan, run
from simulator.left_out import words
from simulator.watching import look_for_devices

EVENTS_SHOWN = 40
NAME = 18
BLAMED = 4
COLUMNS = ("time", "score", "threshold", "is_alarmed")

Told = Callable[[Prediction], None]


class Group(NamedTuple):
    """Streams that are read and learnt alike, and are therefore run in one pass."""

    described: RecordingSpec
    streams: list[Stream]


def detect(args: Namespace) -> dict[str, Any]:
    """Run it; the report. Raises ConfigError or RecordingError where the arguments or files do not fit."""
    for flag, name in (("--json", args.json), ("--scores", args.scores)):
        if name not in (None, "-") and not Path(name).parent.is_dir():
            raise ConfigError(flag, f"there is no folder {Path(name).parent} to write {name} to")
    described = spec.load(args.spec) if args.spec else None
    found = find(args.files, described, look_for_devices)
    say: Callable[[str], None] = _silent if args.json == "-" else print
    report: dict[str, Any] = {"devices": {}, "events": 0, "event_list": [], "left_out": {}, "warnings": []}
    for reason in found.reasons:
        say(f"chosen: {reason}")
    groups = _groups(found.streams, described, str(args.spec or "what was chosen"), report, say)
    with _scores(args.scores, is_named=len(found.streams) > 1) as tell:
        for group in groups:
            _watch(group, report, tell)
    if not any(device.get("frames") for device in report["devices"].values()):
        raise RecordingError("these recordings hold no row")
    report["event_list"].sort(key=lambda event: (event["start"], event["device"]))
    report["events"] = len(report["event_list"])
    return report


def _groups(
    streams: Iterable[Stream],
    described: RecordingSpec | None,
    source: str,
    report: dict[str, Any],
    say: Callable[[str], None],
) -> list[Group]:
    """Each stream with a spec of its own. One that none can be chosen for is left out and named; the error if all are."""
    groups: dict[RecordingSpec, Group] = {}
    refused: list[ConfigError | RecordingError] = []
    for stream in streams:
        try:
            whole, choice = complete([stream], described, source)
        except (ConfigError, RecordingError) as err:
            refused.append(err)
            report["devices"][stream.name] = {"frames": 0, "why": str(err)}
            continue
        groups.setdefault(whole, Group(whole, [])).streams.append(stream)
        report["devices"][stream.name] = {"frames": 0, "chosen": told(whole, choice)}
        for line in lines(choice, 1):
            say(f"{stream.name}  {line}" if line else "")
    if not groups:
        raise refused[0]
    return list(groups.values())


def _watch(group: Group, report: dict[str, Any], tell: Told) -> None:
    skipped = Skipped()
    frames = dict.fromkeys((stream.name for stream in group.streams), 0)

    def hear(prediction: Prediction) -> None:
        frames[prediction.agent] += 1
        tell(prediction)

    interval_s = group.described.schema.interval_s
    recordings = {
        stream.name: paced(stream.name, stream.read(group.described, skipped), interval_s, report["warnings"])
        for stream in group.streams
    }
    plan = Plan(agent=AgentConfig(agent_id="detect", schema=group.described.schema, is_live=False))
    outcome = run(recordings, plan, hear)
    for name, count in frames.items():
        report["devices"][name]["frames"] = count
    report["event_list"] += [_event(event) for event in _last(outcome)]
    for reason, number in {**outcome.counts, **skipped}.items():
        report["left_out"][reason] = report["left_out"].get(reason, 0) + number


def _last(outcome: Outcome) -> list[AnomalyEvent]:
    """Of each event its last word."""
    return list({event.event_id: event for event in outcome.events}.values())


def _event(event: AnomalyEvent) -> dict[str, Any]:
    return {
        "device": event.agent,
        "start": _iso(event.start_ms),
        "end": None if event.end_ms is None else _iso(event.end_ms),
        "frames": event.frames,
        "peak": _iso(event.peak_ms),
        "peak_score": round(event.peak_score, 2),
        "blame": event.blame,
    }


@contextmanager
def _scores(file: str | None, *, is_named: bool) -> Iterator[Told]:
    """Takes every prediction as one line of CSV; with the device before it where there are several."""
    if file is None:
        yield _silent
        return
    try:
        with Path(file).open("w", newline="", encoding="utf-8") as opened:
            writer = csv.writer(opened)
            writer.writerow(("device",) * is_named + COLUMNS)

            def tell(made: Prediction) -> None:
                row = (_iso(made.at_ms), f"{made.score:.4g}", f"{made.threshold:.4g}", int(made.is_alarmed))
                writer.writerow((made.agent,) * is_named + row)

            yield tell
    except OSError as err:
        raise ConfigError("--scores", f"{file} cannot be written: {err}") from err


def _silent(_: object) -> None:
    """Say nothing."""


def _iso(at_ms: int) -> str:
    moment = datetime.fromtimestamp(at_ms / 1000, tz=UTC)
    return moment.isoformat(timespec="milliseconds" if at_ms % 1000 else "seconds").replace("+00:00", "Z")


def show(report: dict[str, Any], file: str | None) -> None:
    """The report for people; as JSON to a file, or instead of the table with '-'."""
    if file == "-":
        print(json.dumps(report, indent=2))
        return
    print(*table(report), sep="\n")
    if file:
        try:
            Path(file).write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
        except OSError as err:
            raise ConfigError("--json", f"{file} cannot be written: {err}") from err


def table(report: dict[str, Any]) -> list[str]:
    """Lines: one an event, then what was watched and what left out."""
    events: Sequence[dict[str, Any]] = report["event_list"]
    rows = [f"{'since':<25}{'until':<25}{'device':<{NAME}}{'score':>6}{'frames':>8}  channels blamed"] * bool(events)
    for event in events[:EVENTS_SHOWN]:
        blamed = sorted(event["blame"].items(), key=lambda item: -item[1])
        channels = ", ".join(f"{name} {100 * share:.0f} %" for name, share in blamed[:BLAMED])
        rows.append(
            f"{event['start']:<25}{event['end'] or 'the end of the recording':<25}{event['device'][: NAME - 1]:<{NAME}}"
            f"{event['peak_score']:>6.0f}{event['frames']:>8}  {channels}"
        )
    if len(events) > EVENTS_SHOWN:
        rows.append(f"... and {len(events) - EVENTS_SHOWN} more; --json lists all")
    watched = {name: device for name, device in report["devices"].items() if "why" not in device}
    frames = sum(device["frames"] for device in watched.values())
    rows.append(
        f"{len(events)} event{'' if len(events) == 1 else 's'} in {frames:,} frames of {len(watched)} "
        f"device{'' if len(watched) == 1 else 's'}"
    )
    rows += [f"not watched  {name}: {device['why']}" for name, device in report["devices"].items() if "why" in device]
    rows += [f"warning: {warning}; mend [stream] interval" for warning in report["warnings"]]
    return [*rows, *([words(report["left_out"])] if report["left_out"] else [])]
