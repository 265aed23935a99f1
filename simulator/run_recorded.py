"""``fleetgp backtest FILE --as-recorded``: whether a recorded fleet, run again, says what it said."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fleetgp.errors import ConfigError
from fleetgp.recording.message import Recorded
from fleetgp.recording.messages import read_messages
from fleetgp.runtime.settings import load
from simulator.recorded_fleet import Outcome, run_again
from simulator.recorded_likeness import Tally


def run_recorded(args: Namespace) -> int:
    """0 where every prediction, event, answer, model and notice came out as recorded, 1 where one did not.

    Raises ConfigError or RecordingError where the arguments or files do not fit.
    """
    if args.json not in (None, "-") and not Path(args.json).resolve().parent.is_dir():
        raise ConfigError("--json", f"there is no folder {Path(args.json).parent} to write {args.json} in")
    given = [flag for flag, value in (("--spec", args.spec), ("--start", args.start), ("--end", args.end), ("--round", args.round),
             ("--join", args.join), ("--mode alone", args.mode == "alone"), ("--model", args.model)) if value]  # fmt: skip
    if given:
        raise ConfigError("--as-recorded", f"runs a fleet as it was: leave out {', '.join(given)}")
    outcome = run_again(lambda: _messages(args.files), load(None, {}, {}))
    found = report(outcome)
    if args.json == "-":
        print(json.dumps(found, indent=2))
    else:
        print(*lines(outcome), sep="\n")
        if args.json:
            Path(args.json).write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    return 0 if found["as_recorded"] else 1


def _messages(files: list[Path]) -> Iterator[Recorded]:
    """The parts of one recording, one after the other."""
    for file in files:
        yield from read_messages(file)


def totals(outcome: Outcome) -> dict[str, Tally]:
    """What was compared, by kind, of all agents and coordinators."""
    total = {kind: Tally() for kind in ("predictions", "events", "answers", "models", "notices")}
    for agent in outcome.agents.values():
        total["predictions"].merge(agent.predictions)
        total["events"].merge(agent.events)
        total["answers"].merge(agent.answers)
    for coordinator in outcome.coordinators.values():
        total["models"].merge(coordinator.models)
        total["notices"].merge(coordinator.notices)
    return total


def report(outcome: Outcome) -> dict[str, Any]:
    """For machines: docs/as_recorded.md says what its keys are."""
    total = totals(outcome)
    troubles = {f"{fleet}/{name}": one.trouble for (fleet, name), one in outcome.agents.items() if one.trouble}
    troubles |= {f"{fleet}/coordinator": one.trouble for fleet, one in outcome.coordinators.items() if one.trouble}
    return {
        "as_recorded": all(tally.is_alike for tally in total.values()) and total["predictions"].recorded > 0,
        "messages": outcome.messages,
        **{kind: _numbers(tally) for kind, tally in total.items()},
        "agents": {
            f"{fleet}/{name}": {
                "predictions": _numbers(one.predictions),
                "events": _numbers(one.events),
                "answers": _numbers(one.answers),
                "left_out": one.left_out,
            }
            for (fleet, name), one in outcome.agents.items()
            if not one.trouble
        },
        "not_run_again": troubles,
        "gaps": len(outcome.gaps),
        "unreadable": outcome.unreadable,
        "notes": outcome.notes,
    }


def _numbers(tally: Tally) -> dict[str, Any]:
    return {
        "recorded": tally.recorded,
        "same": tally.counts["same"],
        "close": tally.counts["close"],
        "different": tally.counts["different"],
        "missing": tally.missing,
        "repeated": tally.repeated,
        "not_in_the_recording": tally.extra,
        "largest_difference": tally.largest,
        "first_difference": tally.first,
    }


def lines(outcome: Outcome) -> list[str]:
    """For people."""
    result = [f"{'agent':16s} {'predictions':>20s} {'events':>14s} {'answers':>14s}"]
    for (_, name), one in outcome.agents.items():
        if one.trouble:
            result.append(f"{name:16s} not run again: {one.trouble}")
            continue
        result.append(f"{name:16s} {_of(one.predictions):>20s} {_of(one.events):>14s} {_of(one.answers):>14s}")
    for fleet, rounds in outcome.coordinators.items():
        word = f"coordinator of {fleet}: "
        if rounds.trouble:
            result.append(f"{word}not run again: {rounds.trouble}")
        else:
            result.append(f"{word}{_of(rounds.models)} models, {_of(rounds.notices)} notices of rounds")
    total = totals(outcome)
    result += ["", *(f"note: {note}" for note in outcome.notes)]
    for gap in outcome.gaps:
        result.append(f"note: the recording has a gap of {(gap.end_ns - gap.start_ns) / 1e9:.1f} s: {gap.why}")
    for tally in total.values():
        if tally.first:
            result.append(f"first difference: {tally.first}")
    close = sum(tally.counts["close"] for tally in total.values())
    kinds = ", ".join(f"{_of(total[kind])} {kind}" for kind in ("predictions", "events"))
    largest = max(tally.largest for tally in total.values())
    digits = f"; {close} of them differ in last digits, by at most {largest:.1e}" if close else ""
    return [*result, f"{kinds} as recorded{digits}"]


def _of(tally: Tally) -> str:
    """As many as recorded of those recorded."""
    return f"{tally.counts['same'] + tally.counts['close']} of {tally.recorded}"
