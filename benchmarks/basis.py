"""What a learnt basis is worth: Beijing's ten stations as one fleet, with the basis learnt while they go, and without.

All runs are of the live system's brains (``simulator.fleet``), one step ahead, a round a day, with the settings of
examples/beijing.toml and a year of readings:

- first: inducing inputs are placed by k-means and stay what they are; scales of the blocks go on being learnt;
- learnt: the same, and the coordinator chooses what the basis looks at by the evidence of the agents' frames, and climbs from
  there by gradients (docs/adr/0022-what-the-basis-looks-at.md);
- wide: learnt, with WIDE inducing inputs instead of the 24 of the settings, which costs what the figures say;
- linear: no inducing inputs at all.

Judged is the log density of every reading from day 30 on under the law that was published before it, paired over stations.
The candidates were thought of on every other station (``STUDIED``), so that the figures of the others are told apart.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from benchmarks.report import Bar, Report, finish, parser
from edge_agent.state import AgentConfig
from fleetgp import student
from fleetgp.arrays import Array
from fleetgp.recording import csv, spec
from fleetgp.wire.messages import Prediction
from simulator.accuracy import Accuracy
from simulator.fleet import Plan, run

SPEC = Path(__file__).parent.parent / "examples" / "beijing.toml"
DAY_MS = 86_400_000
DAYS, FROM_DAY = 365, 30
WIDE = 60
WORKERS = 2
# a look: fewer stations and days
QUICK_DAYS, QUICK_STATIONS = 55, 2
STUDIED = ("Aotizhongxin", "Dingling", "Guanyuan", "Nongzhanguan", "Tiantan")
BARS = (Bar("basis.nll_gain", ">=", 0.02), Bar("basis.nll_gain_low", ">=", 0.0))


@dataclass(frozen=True)
class Setting:
    """Where the recordings are, by station, and how many days of them."""

    files: dict[str, Path]
    days: int = DAYS


@dataclass(frozen=True)
class Learnt:
    """What came of a run: accuracy from day FROM_DAY on, by station; what all messages were, what the tuning was of that, and its
    notes."""

    accuracy: dict[str, Any]
    bytes: int
    tuning_bytes: int
    tuning_s: float
    proposals: int
    changes: tuple[str, ...]
    seconds: float


def year(setting: Setting, way: str) -> Learnt:
    """A fleet's year by one way: first, learnt, wide or linear."""
    described = spec.load(SPEC)
    inducing = {"linear": 0, "wide": WIDE}.get(way, described.schema.inducing)
    schema = msgspec.structs.replace(described.schema, inducing=inducing)
    plan = Plan(
        agent=AgentConfig(agent_id="station", schema=schema, is_live=False),
        round_ms=DAY_MS,
        tuning=way in ("learnt", "wide"),
    )
    skipped = csv.Skipped()

    def records(name: str) -> Iterator[csv.Record]:
        return islice(csv.read(setting.files[name], described, skipped), setting.days * 24)

    accuracy, begin_ms = Accuracy(schema), 0

    def take(prediction: Prediction) -> None:
        nonlocal begin_ms
        begin_ms = begin_ms or prediction.at_ms
        if prediction.at_ms >= begin_ms + FROM_DAY * DAY_MS:
            accuracy.add(prediction)

    begin_s = time.process_time()
    outcome = run({name: records(name) for name in setting.files}, plan, take)
    return Learnt(
        accuracy.report(),
        outcome.bytes,
        outcome.tuning_bytes,
        outcome.tuning_s,
        outcome.tuning_steps,
        tuple(f"round {notice.round}: {notice.note}" for notice in outcome.learnt),
        time.process_time() - begin_s,
    )


def gains(learnt: dict[str, Learnt], over: str, way: str = "learnt") -> dict[str, float]:
    """Nats per reading that one way is better by than another, by station."""
    agents, others = learnt[way].accuracy["agents"], learnt[over].accuracy["agents"]
    return {name: float(others[name]["nll"] - agents[name]["nll"]) for name in agents}


def lower(values: Array) -> float:
    """Lower end of the 95 % interval of the mean of paired differences [n]."""
    n = len(values)
    return float(np.mean(values) - student.quantile(0.975, max(n - 1, 2)) * np.std(values, ddof=1) / np.sqrt(n))


def figures(learnt: dict[str, Learnt]) -> dict[str, float]:
    """The benchmark's figures from its runs by way."""
    by_first, tuned, first = gains(learnt, "first"), learnt["learnt"], learnt["first"]
    of = np.array(list(by_first.values()))
    result = {
        "basis.nll_gain": float(np.mean(of)),
        "basis.nll_gain_low": lower(of),
        "basis.nll_gain_worst_station": float(np.min(of)),
        "basis.nll_gain_over_linear": float(np.mean(list(gains(learnt, "linear").values()))),
        "basis.nll_gain_wide": float(np.mean(list(gains(learnt, "first", "wide").values()))),
        "basis.rmse_ratio": tuned.accuracy["overall"]["rmse"] / first.accuracy["overall"]["rmse"],
        "basis.coverage90": tuned.accuracy["overall"]["coverage90"],
        "basis.bytes": float(tuned.tuning_bytes),
        "basis.bytes_share": tuned.tuning_bytes / tuned.bytes,
        "basis.rounds": float(tuned.proposals),
        "basis.agent_seconds": tuned.tuning_s,
        "basis.changes": float(len(tuned.changes)),
        "basis.seconds_ratio": tuned.seconds / first.seconds,
        "basis.seconds_ratio_wide": learnt["wide"].seconds / first.seconds,
        "basis.bytes_ratio_wide": learnt["wide"].bytes / first.bytes,
    }
    for word, half in (("studied", True), ("unseen", False)):
        part = [gain for name, gain in by_first.items() if (name in STUDIED) is half]
        if part:
            result[f"basis.nll_gain_{word}"] = float(np.mean(part))
    return result


def rows(learnt: dict[str, Learnt]) -> list[dict[str, Any]]:
    """One line a station, and one a channel, for people."""
    table = []
    for kind in ("agents", "channels"):
        for name in learnt["first"].accuracy[kind]:
            of = {way: one.accuracy[kind][name] for way, one in learnt.items()}
            table.append(
                {
                    "station, channel": name,
                    "NLL linear": of["linear"]["nll"],
                    "NLL first": of["first"]["nll"],
                    "NLL learnt": of["learnt"]["nll"],
                    "gain": of["first"]["nll"] - of["learnt"]["nll"],
                    "NLL wide": of["wide"]["nll"],
                    "RMSE first": of["first"]["rmse"],
                    "RMSE learnt": of["learnt"]["rmse"],
                }
            )
    return table


def measure(report: Report, setting: Setting) -> None:
    """All ways, two at a time."""
    ways = ("wide", "learnt", "first", "linear")
    with ProcessPoolExecutor(WORKERS) as pool:
        learnt = dict(zip(ways, pool.map(year, [setting] * len(ways), ways), strict=True))
    report.rows, report.figures = rows(learnt), figures(learnt)
    for change in learnt["learnt"].changes:
        print(change)


def main(arguments: list[str] | None = None) -> int:
    args = parser("basis", __doc__.splitlines()[0]).parse_args(arguments)
    files = {path.name.split("_")[2]: path for path in sorted((args.data / "beijing_air").glob("*.csv.gz"))}
    if not files:
        print(f"basis: no recordings in {args.data / 'beijing_air'}; name their folder with --data", file=sys.stderr)
        return 2
    setting = Setting(files)
    if args.quick:
        setting = Setting(dict(islice(files.items(), QUICK_STATIONS)), QUICK_DAYS)
    report = Report("basis", BARS if not args.quick else ())
    return finish(report, args, partial(measure, report, setting))


if __name__ == "__main__":
    sys.exit(main())
