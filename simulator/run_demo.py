"""From the ``demo`` command's arguments to a running demo, and its results for people and machines."""

from __future__ import annotations

import json
import sys
import threading
from argparse import Namespace
from pathlib import Path

from fleetgp.errors import ConfigError
from fleetgp.runtime.program import stop_on_signals
from simulator.demo import Demo, DemoPlan, new_folder
from simulator.results import Results

HEADLESS_SECONDS = 90.0


def run_demo(args: Namespace) -> int:
    """0 when it ran to its end, or until it was stopped, lost nothing and the dashboard was up.

    Raises FleetError in plain words where it cannot run.
    """
    for path in args.recording:
        if not path.exists():
            raise ConfigError("--recording", f"there is no file {path}")
    if args.json not in (None, "-") and not Path(args.json).resolve().parent.is_dir():
        raise ConfigError("--json", f"there is no folder {Path(args.json).parent} to write {args.json} in")
    stop = threading.Event()
    stop_on_signals(stop)
    out = sys.stderr if args.json == "-" else sys.stdout
    folder = new_folder(args.data_dir)
    plan = DemoPlan(
        folder=folder,
        seconds=args.seconds or (HEADLESS_SECONDS if args.headless else None),
        broker=args.broker,
        recordings=tuple(args.recording),
        spec=args.spec,
        speed=args.speed,
        dashboard_port=args.port,
        say=lambda text: print(text, file=out, flush=True),
    )
    if plan.seconds is None:
        plan.say("FleetGP demo: a fleet on this machine. Ctrl-C stops it.")
    try:
        found = Demo(plan, stop).run()
        for line in summary(found):
            plan.say(line)
    finally:
        if folder.exists():
            plan.say(f"data        {folder.resolve()}")
            if (store := folder / "bridge" / "history.sqlite").exists():
                plan.say(f"look again  fleetgp dashboard --store {store}")
    if args.json == "-":
        print(json.dumps(found.as_dict(), indent=2))
    elif args.json:
        Path(args.json).write_text(json.dumps(found.as_dict(), indent=2) + "\n")
    return 0 if found.frames_lost == 0 and (found.dashboard_ok or stop.is_set()) else 1


def summary(found: Results) -> list[str]:
    """What came of it, in plain words."""
    if not found.frames:
        return ["readings    none: it was stopped before the streams began"]
    lines = [
        f"readings    {found.frames} sent, {found.frames_lost} lost; {found.predictions_stored} predicted by "
        f"{found.agents} agents, {found.rounds_closed} rounds"
    ]
    if found.rmse is not None and found.rmse_persistence and found.coverage90 is not None:
        gain = round(100 * (1 - found.rmse / found.rmse_persistence))
        words = f"{gain} % better" if gain > 0 else f"{-gain} % worse" if gain < 0 else "no better"
        lines.append(
            f"accuracy    error {found.rmse:.3f} against {found.rmse_persistence:.3f} for 'as it was' ({words}), "
            f"{100 * found.coverage90:.0f} % of readings in their 90 % band"
        )
    lines.append(
        f"anomalies   {found.events} event{'' if found.events == 1 else 's'}"
        + (f" on {', '.join(found.event_agents)}" if found.events else "")
    )
    return lines
