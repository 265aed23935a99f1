"""Section 4 of the pFedHGP paper with all its models, side by side on the same data.

Every run of one seed is appended to FILE.runs.jsonl beside --json FILE; --resume goes on from there. Figures of fewer seeds than
the bars ask for (30; 5 with Algorithm 1) are told as ``look.section4...`` and judge nothing. One thread for all models.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import multiprocessing
import os
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks import section4_metrics as metrics
from benchmarks import section4_models as models
from benchmarks.report import Bar, Report, finish, parser
from benchmarks.section4_data import CLIENTS, simulate
from benchmarks.section4_page import page
from fleetgp.arrays import Array

SCENARIOS = ("A", "B", "C", "D")
INPUTS = (60, 15, 8)
SEEDS, SEEDS_ALGORITHM1 = 30, 5
# one device with few inputs among others with many
FEW, MANY = 8, 60
WORSE = 1.02
QUICK = ("full", "local-only", "oracle")
# the setting of peers that learn one device by themselves: the first device of scenario A
GPYTORCH = "gpytorch"
TABLE = ("rmse", "nll", "crps", "coverage90", "coverage95", "pit", "covariance", "seconds")
TOLD = (
    *TABLE,
    "coverage50",
    "coverage80",
    "width50",
    "width80",
    "width90",
    "width95",
    "cpu_seconds",
    "rounds",
    "bytes",
)

BARS = (
    Bar("section4.A.full.rmse", "<=", 0.093),
    Bar("section4.A.full.rmse_vs_oracle", "<=", 1.20),
    Bar("section4.A.full.nll", "<=", -1.12),
    Bar("section4.A.full.coverage95", ">=", 0.94),
    Bar("section4.A.full.coverage95", "<=", 0.965),
    Bar("section4.A.rmse_vs_algorithm1", "<=", 0.75),
    Bar("section4.A.speedup_vs_algorithm1", ">=", 8),
    *(Bar(f"section4.{s}.full_better_than_ablations", "==", 1) for s in "AD"),
    *(Bar(f"section4.{s}.full_vs_best_ablation", "<=", 1.03) for s in "BC"),
    *(Bar(f"section4.{s}.full.coverage90", op, b) for s in SCENARIOS for op, b in ((">=", 0.87), ("<=", 0.93))),
    Bar("section4.A15.full_vs_local_only", "<=", 0.82),
    Bar("section4.A15.full_vs_alone", "<=", 0.95),
    Bar("section4.A15.full.coverage95", ">=", 0.89),
    Bar("section4.unbalanced.worse_clients", "==", 0),
    Bar("section4.gpytorch.rmse_ratio", "<=", 1.0),
    Bar("section4.gpytorch.speedup", ">=", 5),
)

Run = dict[str, Any]


class Setting(NamedTuple):
    """A scenario with so many inputs a device; 8: of the first device only, the others have 60. Or GPYTORCH, of A's data."""

    scenario: str
    inputs: int

    @property
    def name(self) -> str:
        if self.inputs == FEW:
            return "unbalanced" if self.scenario == "A" else f"unbalanced{self.scenario}"
        return self.scenario + ("" if self.inputs == MANY else str(self.inputs))

    @property
    def counts(self) -> tuple[int, ...]:
        return (FEW, *(MANY,) * (CLIENTS - 1)) if self.inputs == FEW else (self.inputs,) * CLIENTS


def run(setting: Setting, model: str, seed: int) -> Run:
    """One model on the data of one seed: metrics averaged over devices, and what it took."""
    if setting.scenario == GPYTORCH:
        devices = simulate(seed, "A", setting.counts)
        fitted, devices = models.fit_one(model, devices, seed), devices[:1]
    else:
        devices = simulate(seed, setting.scenario, setting.counts)  # type: ignore[arg-type]
        fitted = models.fit(model, devices, setting.scenario, seed)  # type: ignore[arg-type]
    told = [
        metrics.judge(d.Ys, mean, np.diagonal(cov, axis1=1, axis2=2))
        for d, (mean, cov) in zip(devices, fitted.laws, strict=True)
    ]
    result: Run = {"setting": setting.name, "model": model, "seed": seed}
    result |= {name: float(np.mean([one[name] for one in told])) for name in told[0]}
    errors = [
        metrics.covariance_error(found, d.covariance) for d, found in zip(devices, fitted.covariances, strict=True)
    ]
    result |= {"covariance": float(np.mean(errors)), "rmse_by_client": [one["rmse"] for one in told]}
    result |= {"seconds": fitted.seconds, "cpu_seconds": fitted.cpu_seconds, "rounds": fitted.rounds}
    return result | {"bytes": fitted.bytes_a_round, "ms_per_step": fitted.ms_per_step}


def quiet() -> None:
    """One thread for every library of a worker, whichever model it fits."""
    try:
        import torch
    except ImportError:
        return  # only Algorithm 1 and gpytorch ask for it
    torch.set_num_threads(1)


def runs(setting: Setting, wanted: Iterable[tuple[str, int]], workers: int) -> Iterator[Run]:
    """Models and seeds as they are done, in processes that were started with one thread each."""
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context, initializer=quiet) as pool:
        for done in as_completed([pool.submit(run, setting, model, seed) for model, seed in wanted]):
            yield done.result()


class Table:
    """All runs, by setting and model, as arrays over the seeds that both sides of a comparison have."""

    def __init__(self, told: list[Run]) -> None:
        self._runs = {(r["setting"], r["model"], r["seed"]): r for r in told}

    def seeds(self, setting: str, *names: str) -> list[int]:
        """Seeds that all of these models have."""
        of = [{seed for s, m, seed in self._runs if (s, m) == (setting, name)} for name in names]
        return sorted(set.intersection(*of)) if of else []

    def values(self, setting: str, model: str, metric: str, seeds: list[int]) -> Array:
        return np.array([self._runs[setting, model, seed][metric] for seed in seeds])

    def pairs(self) -> list[tuple[str, str]]:
        return sorted({(s, m) for s, m, _ in self._runs})


def figures(table: Table) -> dict[str, float]:
    """Means and 95 % intervals of every model, and the comparisons that bars are about; ``look.`` where seeds are few."""
    result: dict[str, float] = {}
    for setting, model in table.pairs():
        seeds = table.seeds(setting, model)
        for metric in TOLD:
            mean, half = metrics.mean_and_interval(table.values(setting, model, metric, seeds))
            prefix = _prefix(seeds, model)
            result[f"{prefix}section4.{setting}.{model}.{metric}"] = mean
            if np.isfinite(half):
                result[f"{prefix}section4.{setting}.{model}.{metric}_ci95"] = half
    for setting in sorted({s for s, _ in table.pairs()}):
        for name, value, seeds, other in comparisons(table, setting):
            result[f"{_prefix(seeds, other)}section4.{setting}.{name}"] = value
    return result


def comparisons(table: Table, setting: str) -> Iterator[tuple[str, float, list[int], str]]:
    """Name, value, seeds and the other model of each comparison of the whole model that these runs allow."""
    if setting == GPYTORCH:
        yield from _against_peers(table)
        return
    ratios = {"oracle": "full.rmse_vs_oracle", "local-only": "full_vs_local_only", "alone": "full_vs_alone"}
    for other, name in (ratios | {"algorithm1": "rmse_vs_algorithm1"}).items():
        if seeds := table.seeds(setting, "full", other):
            yield name, _ratio(table, setting, "rmse", other, seeds), seeds, other
    if seeds := table.seeds(setting, "full", "algorithm1"):
        yield "speedup_vs_algorithm1", 1 / _ratio(table, setting, "seconds", "algorithm1", seeds), seeds, "algorithm1"
        yield (
            "cpu_speedup_vs_algorithm1",
            1 / _ratio(table, setting, "cpu_seconds", "algorithm1", seeds),
            seeds,
            "algorithm1",
        )
        yield (
            "algorithm1.ms_per_step",
            float(np.mean(table.values(setting, "algorithm1", "ms_per_step", seeds))),
            seeds,
            "algorithm1",
        )
    others = (*models.ABLATIONS, "alone")
    if seeds := table.seeds(setting, "full", *others):
        yield "full_vs_best_ablation", max(_ratio(table, setting, "rmse", m, seeds) for m in others), seeds, ""
    if len(seeds := table.seeds(setting, "full", "alone", *models.ABLATIONS)) > 1:
        yield "full_better_than_ablations", float(_is_better(table, setting, seeds)), seeds, ""
    if setting.startswith("unbalanced") and (seeds := table.seeds(setting, "full", "local-only")):
        ours, theirs = (table.values(setting, m, "rmse_by_client", seeds).mean(axis=0) for m in ("full", "local-only"))
        yield "worse_clients", float(np.sum(ours > WORSE * theirs)), seeds, ""


def _against_peers(table: Table) -> Iterator[tuple[str, float, list[int], str]]:
    """Ours on one device against the peer that foresees it better: errors, and how much longer that peer takes."""
    seeds = table.seeds(GPYTORCH, models.OURS, *models.PEERS)
    if not seeds:
        return

    def mean(model: str, metric: str) -> float:
        return float(np.mean(table.values(GPYTORCH, model, metric, seeds)))

    best = min(models.PEERS, key=lambda peer: mean(peer, "rmse"))
    yield "rmse_ratio", mean(models.OURS, "rmse") / mean(best, "rmse"), seeds, best
    yield "speedup", mean(best, "seconds") / mean(models.OURS, "seconds"), seeds, best
    for peer in models.PEERS:
        yield f"speedup_{peer}", mean(peer, "seconds") / mean(models.OURS, "seconds"), seeds, peer
        yield f"{peer}.steps", mean(peer, "rounds"), seeds, peer


def _is_better(table: Table, setting: str, seeds: list[int]) -> bool:
    """Log RMSE and NLL below those of every ablation, paired over seeds, the 95 % interval away from 0; NLL alone of ``alone``."""
    against = [(m, metric) for m in models.ABLATIONS for metric in ("rmse", "nll")] + [("alone", "nll")]
    for model, metric in against:
        ours, theirs = (table.values(setting, m, metric, seeds) for m in ("full", model))
        change = np.log(ours / theirs) if metric == "rmse" else ours - theirs
        mean, half = metrics.mean_and_interval(change)
        if not mean + half < 0:
            return False
    return True


def _ratio(table: Table, setting: str, metric: str, other: str, seeds: list[int]) -> float:
    """Mean of the whole model's over that of another, on the same seeds."""
    ours, theirs = (table.values(setting, model, metric, seeds) for model in ("full", other))
    return float(np.mean(ours) / np.mean(theirs))


def _prefix(seeds: list[int], model: str) -> str:
    return "" if len(seeds) >= (SEEDS_ALGORITHM1 if model == "algorithm1" else SEEDS) else "look."


def measure(report: Report, args: argparse.Namespace) -> None:
    """What is missing of what is asked for, then everything there is as figures."""
    file = Path(f"{args.json}.runs.jsonl") if args.json else None
    told = (
        [json.loads(line) for line in file.read_text().splitlines()] if file and args.resume and file.exists() else []
    )
    if file and not args.resume:
        if file.exists() and file.stat().st_size:  # hours of work, perhaps
            file.replace(kept := Path(f"{file}.before"))
            print(f"the runs of before are kept in {kept}; --resume would have gone on from them", file=sys.stderr)
        file.write_text("")
    asked = [(Setting(scenario, inputs), args.models) for scenario in args.scenario for inputs in args.inputs]
    asked += [(Setting(peers, MANY), models.ON_ONE) for peers in args.peers if has_peers()]
    for setting, names in asked:
        done = {(r["model"], r["seed"]) for r in told if r["setting"] == setting.name}
        wanted = [(model, seed) for seed in args.seeds for model in names if (model, seed) not in done]
        for one in runs(setting, wanted, args.workers) if wanted else ():
            told.append(one)
            if file:
                with file.open("a") as lines:
                    lines.write(json.dumps(one) + "\n")
    table = Table(told)
    report.figures = figures(table)
    for name, model in table.pairs():
        seeds = table.seeds(name, model)
        means = {metric: float(np.mean(table.values(name, model, metric, seeds))) for metric in TABLE}
        report.rows.append({"model": f"{name} {model}", "seeds": len(seeds), **means})


def has_peers() -> bool:
    """Whether gpytorch is installed; says how to get it where not."""
    if importlib.util.find_spec(GPYTORCH):
        return True
    print("gpytorch is not installed, its runs are left out: pip install -c constraints.txt -e '.[peers]'")
    return False


def main(argv: list[str] | None = None) -> int:
    flags = parser("section4", (__doc__ or "").splitlines()[0])
    flags.add_argument("--scenario", nargs="*", choices=SCENARIOS, default=["A"])
    flags.add_argument(
        "--models", nargs="+", choices=models.MODELS, default=[m for m in models.MODELS if m != "algorithm1"]
    )
    flags.add_argument("--seeds", type=int, default=SEEDS, metavar="N", help="runs of seeds 0 to N - 1")
    flags.add_argument(
        "--inputs", type=int, nargs="+", choices=INPUTS, default=[MANY], help="inputs a device; 8: of one device only"
    )
    flags.add_argument(
        "--peers", nargs="+", choices=[GPYTORCH], default=[], help="also sparse variational peers, on one device of A"
    )
    flags.add_argument("--resume", action="store_true", help="go on from the runs kept beside --json FILE")
    flags.add_argument(
        "--workers", type=int, default=1, metavar="N", help="processes at once; times are told of one as they are"
    )
    flags.add_argument("--markdown", type=Path, metavar="FILE", help="also write the tables as a page")
    args = flags.parse_args(argv)
    if args.seeds < 1 or args.workers < 1:
        flags.error("--seeds and --workers need 1 or more")
    if args.resume and not args.json:
        flags.error("--resume goes on from the runs beside --json FILE, and none is given")
    if "algorithm1" in args.models and importlib.util.find_spec("torch") is None:
        flags.error("algorithm1 needs torch: pip install -c constraints.txt -e '.[learn]'")
    args.seeds = list(range(1 if args.quick else args.seeds))
    if args.quick:
        args.scenario, args.models, args.inputs = ["A"], list(QUICK), [MANY]
    report = Report("section4", BARS)
    status = finish(report, args, lambda: measure(report, args))
    if args.markdown:
        args.markdown.write_text(page(report))
    return status


if __name__ == "__main__":
    sys.exit(main())
