"""A device that joins: how good its first days are with the fleet's knowledge, against starting alone and against not adapting.

Each of Beijing's ten stations joins in turn on 2014-03-01; the nine others have learnt as a fleet since 2013-03-01. All runs
are of the live system's brains (``simulator.fleet``), one step ahead, with covariates lagged one step:

- fleet: the joiner takes the fleet's model and takes part from then on;
- alone: the same engine, features, federated scaling, noise prior and prior mean 1 of lag 1, without the fleet's posterior;
- alone, zero prior: the same with a prior mean of zero;
- global: the fleet's posterior of the day it joined, not adapted;
- persistence: the last observed value, on the same frames.

Errors are of the transformed reading over the standard deviation of the other stations before the join.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from benchmarks.report import Bar, Report, finish, parser
from edge_agent import agent
from edge_agent.frames import Sample
from edge_agent.state import AgentConfig, ModelArrived, Publish, Readings
from fleetgp import features
from fleetgp.arrays import Array
from fleetgp.gp import aggregate, hyper
from fleetgp.gp.aggregate import Belief
from fleetgp.recording import csv, spec
from fleetgp.wire import codec, knowledge
from fleetgp.wire.convert import to_tensor, to_triangles
from fleetgp.wire.messages import FleetModel, Prediction
from simulator.accuracy import Accuracy
from simulator.fleet import Plan, run
from simulator.terms import learnt

SPEC = Path(__file__).parent.parent / "examples" / "beijing.toml"
ZONE = timedelta(hours=8)
BEGIN = datetime(2013, 3, 1, tzinfo=UTC) - ZONE
JOIN = datetime(2014, 3, 1, tzinfo=UTC) - ZONE
DAYS = 30
ROUND_H = 7 * 24
WORKERS = 2
# a look: fewer stations join after fewer weeks
QUICK_BEGIN, QUICK_DAYS, QUICK_STATIONS = JOIN - timedelta(days=42), 7, 2
BARS = (
    Bar("cold_start.ratio_alone", "<=", 0.95),
    Bar("cold_start.ratio_alone_zero_prior", "<=", 0.86),
    Bar("cold_start.ratio_persistence", "<=", 0.91),
    Bar("cold_start.ratio_global", "<=", 0.99),
    Bar("cold_start.nll_30d", "<=", 0.10),
    Bar("cold_start.nll_worse_stations", "==", 0),
    Bar("cold_start.coverage90_30d_worst", ">=", 0.87),
    Bar("cold_start.coverage90_30d_best", "<=", 0.95),
    Bar("cold_start.seconds", "<=", 600),
)


Start = Callable[[FleetModel], FleetModel]


@dataclass(frozen=True)
class Setting:
    """A leave-one-out run: where the recordings are, since when the others learn, how long the joiner is watched."""

    files: dict[str, Path]
    begin: datetime = BEGIN
    days: int = DAYS


def join(setting: Setting, station: str) -> dict[str, dict[str, Any]]:
    """Reports of the station's first days, by way of starting, after the others have learnt as a fleet."""
    described = spec.load(SPEC)
    begin_ms, join_ms, end_ms = _ms(setting.begin), _ms(JOIN), _ms(JOIN + timedelta(days=setting.days))
    skipped = csv.Skipped()

    def records(name: str) -> Iterator[csv.Record]:
        rows = takewhile(lambda r: r.at_ms < end_ms, csv.read(setting.files[name], described, skipped))
        return (r for r in rows if r.at_ms >= begin_ms)

    plan = Plan(
        agent=AgentConfig(agent_id=station, schema=described.schema, is_live=False),
        round_ms=ROUND_H * 3_600_000,
        joins={station: join_ms},
    )
    others = [name for name in setting.files if name != station]
    rows_of = {name: list(records(name)) for name in setting.files}
    deviation = _deviation([r for name in others for r in rows_of[name] if r.at_ms < join_ms], described)
    taken: dict[str, list[Prediction]] = {"fleet": []}
    outcome = run(
        {name: iter(rows) for name, rows in rows_of.items()},
        plan,
        lambda prediction: taken["fleet"].append(prediction) if prediction.agent == station else None,
    )
    model = codec.decode(outcome.joined_with[station], FleetModel)
    joiner = [r for r in rows_of[station] if r.at_ms >= join_ms]
    for way, start in STARTS.items():
        taken[way] = drive(plan.agent, start(model), joiner, is_adapting=way != "global")
    return {way: _report(described, deviation, station, join_ms, some) for way, some in taken.items()}


def without_posterior(model: FleetModel, *, is_zero_prior: bool = False, is_learnt_prior: bool = False) -> FleetModel:
    """The model without what the fleet learnt of the weights: a prior around persistence, or around zero.

    is_learnt_prior: with the fleet's scales of the blocks, which a lone agent does not know.
    """
    published = knowledge.read(model, model.schema)
    basis, prior_var = published.basis, published.prior_var
    first = hyper.start(basis.shape.channels)
    blocks = features.blocks(basis.shape, basis.size - basis.shape.linear)
    deviation_var = published.deviation_var
    if not is_learnt_prior:
        prior_var, deviation_var = hyper.by_feature(first.shared, blocks), hyper.by_feature(first.deviation, blocks)
    belief = aggregate.prior(prior_var)
    if is_zero_prior:
        # a step of minus the scaled last reading: then the reading itself is foreseen at the centre
        mean = np.zeros_like(prior_var)
        channels = np.arange(basis.shape.channels)
        mean[channels, 1 + channels] = -1.0 / features.PRIOR_SD["lags"]
        belief = Belief(belief.precision, (belief.precision @ mean[..., None])[..., 0])
    return msgspec.structs.replace(
        model,
        precision=to_tensor(to_triangles(belief.precision)),
        shift=to_tensor(belief.shift),
        prior_variance=to_tensor(prior_var),
        deviation_variance=to_tensor(deviation_var),
        included={},
    )


STARTS: dict[str, Start] = {
    "alone": without_posterior,
    "alone_zero_prior": partial(without_posterior, is_zero_prior=True),
    "alone_learnt_scales": partial(without_posterior, is_learnt_prior=True),
    "global": lambda model: model,
}


def drive(config: AgentConfig, model: FleetModel, records: list[csv.Record], *, is_adapting: bool) -> list[Prediction]:
    """Predictions of an agent that begins with a model and meets no fleet again; one that does not adapt stays as it began."""
    state, _ = agent.step(agent.init(config, records[0].at_ms), ModelArrived(records[0].at_ms, codec.encode(model)))
    first, predictions = state.learner, []
    for record in records:
        state, effects = agent.step(state, Readings(record.at_ms, (_sample(record),)))
        predictions += [e.message for e in effects if isinstance(e, Publish) and isinstance(e.message, Prediction)]
        if not is_adapting:
            state = msgspec.structs.replace(state, learner=first, shadow=None)
    return predictions


def _sample(record: csv.Record) -> Sample:
    return Sample(record.at_ms, record.at_ms, tuple(range(len(record.values))), record.values)


def _ms(at: datetime) -> int:
    return round(at.timestamp() * 1000)


def _deviation(records: list[csv.Record], described: spec.RecordingSpec) -> Array:
    """Standard deviation [Q] of transformed readings."""
    channels = described.schema.channels
    values = np.array([record.values[: len(channels)] for record in records])
    is_log = np.array([channel.transform == "log1p" for channel in channels])
    return np.asarray(np.nanstd(learnt(values, is_log), axis=0))


def _report(
    described: spec.RecordingSpec, deviation: Array, station: str, join_ms: int, predictions: list[Prediction]
) -> dict[str, Any]:
    accuracy = Accuracy(described.schema, deviation, {station: join_ms})
    for prediction in predictions:
        accuracy.add(prediction)
    return accuracy.report()


def figures(joined: dict[str, dict[str, dict[str, Any]]], days: int) -> dict[str, float]:
    """The benchmark's figures from each station's reports."""

    def of(station: str, way: str, stretch: str, name: str) -> float:
        return float(joined[station][way]["joiners"][station][stretch][name])

    def ratio(way: str, stretch: str) -> float:
        return float(np.mean([of(s, "fleet", stretch, "rmse") / of(s, way, stretch, "rmse") for s in joined]))

    week, month = "first_7_days", "first_30_days"
    coverage = [of(s, "fleet", month, "coverage90") for s in joined]
    nll = {way: np.array([of(s, way, month, "nll") for s in joined]) for way in ("fleet", "alone")}
    persistence = [of(s, "fleet", week, "rmse") / of(s, "fleet", week, "rmse_persistence") for s in joined]
    result = {
        "cold_start.ratio_alone": ratio("alone", week),
        "cold_start.ratio_alone_zero_prior": ratio("alone_zero_prior", week),
        "cold_start.ratio_alone_learnt_scales": ratio("alone_learnt_scales", week),
        "cold_start.ratio_persistence": float(np.mean(persistence)),
    }
    if days >= DAYS:
        result |= {
            "cold_start.ratio_global": ratio("global", month),
            "cold_start.nll_30d": float(np.mean(nll["fleet"])),
            "cold_start.nll_30d_alone": float(np.mean(nll["alone"])),
            "cold_start.nll_worse_stations": float(np.sum(nll["fleet"] >= nll["alone"])),
            "cold_start.coverage90_30d_worst": min(coverage),
            "cold_start.coverage90_30d_best": max(coverage),
        }
    return result


def rows(joined: dict[str, dict[str, dict[str, Any]]]) -> list[dict[str, Any]]:
    """One line a station, for people."""
    table = []
    for station, reports in joined.items():
        week = {way: report["joiners"][station]["first_7_days"] for way, report in reports.items()}
        month = {way: report["joiners"][station]["first_30_days"] for way, report in reports.items()}
        table.append(
            {
                "station": station,
                "fleet 7 d": week["fleet"]["rmse"],
                "alone": week["alone"]["rmse"],
                "zero prior": week["alone_zero_prior"]["rmse"],
                "persistence": week["fleet"]["rmse_persistence"],
                "fleet 30 d": month["fleet"]["rmse"],
                "global": month["global"]["rmse"],
                "NLL": month["fleet"]["nll"],
                "NLL alone": month["alone"]["nll"],
                "in 90 %": month["fleet"]["coverage90"],
            }
        )
    return table


def measure(report: Report, setting: Setting, stations: list[str]) -> None:
    """Every station in turn, two at a time."""
    begin_s = time.monotonic()
    with ProcessPoolExecutor(WORKERS) as pool:
        joined = dict(zip(stations, pool.map(partial(join, setting), stations), strict=True))
    report.rows = rows(joined)
    report.figures = figures(joined, setting.days)
    report.figures["cold_start.seconds"] = time.monotonic() - begin_s


def page(report: Report) -> str:
    """The text of docs/cold_start.md."""
    told = report.as_dict()
    names = list(told["rows"][0])
    bound = {bar["name"]: f"{bar['op']} {bar['bound']:g}" for bar in told["bars"]}
    return "\n".join(
        [
            "# A device that joins",
            "",
            "Each of ten air-quality stations joins, in turn, a fleet of the nine others that has learnt for a year. Made by",
            "`python -m benchmarks.cold_start --markdown docs/cold_start.md`.",
            "",
            f"{told['date']}, commit {told['commit']}, {told['machine']['cores']} cores, Python {told['machine']['python']}.",
            "",
            "Errors (RMSE) one step ahead, in standard deviations of the other stations; a smaller NLL is better; the last column is",
            "the share of readings inside the 90 % band in 30 days. *Alone*: the same engine and scaling without what the fleet",
            "learnt. *Zero prior*: alone, and not even expecting the last reading again. *Global*: the fleet's model, not adapting.",
            "",
            "| " + " | ".join(names) + " |",
            "|" + "---|" * len(names),
            *("| " + " | ".join(_cell(row[name]) for name in names) + " |" for row in told["rows"]),
            "",
            "| figure | value | bound |",
            "|---|---|---|",
            *(f"| `{name}` | {value:.4g} | {bound.get(name, '')} |" for name, value in told["figures"].items()),
            "",
        ]
    )


def _cell(value: Any) -> str:
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def main(arguments: list[str] | None = None) -> int:
    flags = parser("cold_start", __doc__.splitlines()[0])
    flags.add_argument("--markdown", type=Path, metavar="FILE", help="also write the tables as a page")
    args = flags.parse_args(arguments)
    files = {path.name.split("_")[2]: path for path in sorted((args.data / "beijing_air").glob("*.csv.gz"))}
    if not files:
        print(
            f"cold_start: no recordings in {args.data / 'beijing_air'}; name their folder with --data", file=sys.stderr
        )
        return 2
    setting, stations = Setting(files), list(files)
    if args.quick:
        setting, stations = Setting(files, QUICK_BEGIN, QUICK_DAYS), stations[:QUICK_STATIONS]
    report = Report("cold_start", BARS if not args.quick else ())
    status = finish(report, args, partial(measure, report, setting, stations))
    if args.markdown:
        args.markdown.write_text(page(report))
    return status


if __name__ == "__main__":
    sys.exit(main())
