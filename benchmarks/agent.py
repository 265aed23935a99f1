"""What an agent needs: memory of the real process over many frames, and what a frame costs against River and in batches.

``agent.speedup_river``: River's models with their distribution, which forget nothing, over our engine, frame by frame.
``agent.speedup_river_forgetting``, without a bar: the same, with River forgetting as the engine does.
``agent.speedup_batch``: the whole agent, readings in and predictions out, one reading at a time over 256 in one event.
``agent.speedup_batch_engine``, without a bar: the bare engine, frame by frame over 256 at once; it was called
``agent.speedup_batch`` up to December 2026. A quick run prints these ratios but judges none: a look of seconds on a shared
machine cannot.
"""

from __future__ import annotations

import os
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from benchmarks import agent_process as process
from benchmarks import agent_timing as timing
from benchmarks.agent_timing import AGENT_BATCH, AGENT_SINGLE, BATCH, RIVER_FORGETTING, RIVER_LAW, RIVER_MEAN, SINGLE
from benchmarks.report import Bar, Report, finish, parser

BARS = (
    Bar("agent.rss_mb", "<=", 60),
    Bar("agent.rss_slope_mb_per_100k", "<=", 0.5),
    Bar("agent.speedup_river", ">=", 3),
    Bar("agent.speedup_batch", ">=", 10),
    Bar("agent.frames_lost", "==", 0),
    Bar("agent.features", "==", 57),
)
FRAMES, ROUND_S, REPEATS = 100_000, 2.0, 41
QUICK_FRAMES, QUICK_ROUND_S, QUICK_REPEATS = 3_000, 1.0, 5
# as every program of FleetGP runs: its matrices are small, one thread each is faster
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
RUNS = {
    AGENT_SINGLE: "whole agent, reading by reading",
    AGENT_BATCH: f"whole agent, {timing.FRAMES} readings in one event",
    SINGLE: "engine, predict + learn frame by frame",
    BATCH: f"engine, predict + learn {timing.FRAMES} frames at once",
    RIVER_LAW: "River, predicts mean and variance, learns",
    RIVER_MEAN: "River, predicts the mean alone, learns",
    RIVER_FORGETTING: "River, predicts mean and variance, learns and forgets",
}
# name, words, the slow run and the fast one
RATIOS = (
    ("agent.speedup_river", "engine than River", RIVER_LAW, SINGLE),
    ("agent.speedup_river_mean_only", "engine than River that predicts the mean alone", RIVER_MEAN, SINGLE),
    ("agent.speedup_river_forgetting", "engine than River that forgets", RIVER_FORGETTING, SINGLE),
    ("agent.speedup_river_in_batches", "engine in batches than River", RIVER_LAW, BATCH),
    ("agent.speedup_batch", "whole agent in batches than reading by reading", AGENT_SINGLE, AGENT_BATCH),
    ("agent.speedup_batch_engine", "engine in batches than frame by frame", SINGLE, BATCH),
)
LOOKS = (1_000, 10_000, 25_000, 50_000, 75_000)


def main(argv: list[str] | None = None) -> int:
    args = parser("agent", __doc__ or "").parse_args(argv)
    report = Report("agent", BARS)
    return finish(report, args, lambda: measure(report, is_quick=args.quick))


def measure(report: Report, *, is_quick: bool) -> None:
    """Time the engine in a process of its own, then feed an agent; one after the other, so that they do not meet."""
    os.environ.update(ONE_THREAD)
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:  # where numpy sees the environment above
        timed = pool.submit(timing.measure, QUICK_REPEATS if is_quick else REPEATS, report.seed).result()
    tell_timing(report, timed, is_judged=not is_quick)
    frames, round_s = (QUICK_FRAMES, QUICK_ROUND_S) if is_quick else (FRAMES, ROUND_S)
    tell_process(report, process.run(frames, report.seed, round_s))


def tell_timing(report: Report, timed: timing.Timing, *, is_judged: bool = True) -> None:
    """Figures and rows of what a frame costs. Not judged, ratios with a bar are rows alone: not evaluated."""
    for name, text, slow, fast in RATIOS:
        ratio = timed.ratio(slow, fast)
        add(report, f"times as fast: {text}", ratio, "")
        if ratio is not None and (is_judged or name not in {bar.name for bar in BARS}):
            report.figures[name] = round(ratio, 2)
    report.figures["agent.features_timed"] = float(timed.features)
    report.figures["agent.alarmed_timed"] = float(timed.alarmed)
    for run, text in RUNS.items():
        add(report, f"CPU: {text}", timed.per_channel_us(run), "us a channel and frame")
    for run, value in timed.rmse.items():
        add(report, f"error of the means: {RUNS[run]}", value, "RMSE, scaled steps")


def tell_process(report: Report, outcome: process.Outcome) -> None:
    """Figures and rows of the agent's process."""
    samples = outcome.samples
    report.figures["agent.rss_mb"] = round(samples[-1].rss_mb, 2)
    slope = process.slope_per_100k(samples)
    if slope is not None:
        report.figures["agent.rss_slope_mb_per_100k"] = round(slope, 3)
    # for information: what still grows late is a leak, what grew before may have been caches
    late = process.slope_per_100k(samples, after=outcome.sent // 2) if slope is not None else None
    if late is not None:
        report.figures["agent.rss_slope_second_half_mb_per_100k"] = round(late, 3)
    report.figures["agent.frames_lost"] = float(outcome.lost)
    report.figures["agent.frames"] = float(outcome.sent)
    report.figures["agent.frames_per_s"] = round(outcome.frames_per_s, 1)
    report.figures["agent.rounds"] = float(outcome.rounds)
    report.figures["agent.features"] = float(outcome.features)
    for look in (*LOOKS, samples[-1].frames):
        seen = next((one for one in samples if one.frames >= look), None)
        if seen is not None:
            add(report, f"agent's process after {seen.frames:,} frames", seen.rss_mb, "MB resident")


def add(report: Report, measured: str, value: float | None, unit: str) -> None:
    report.rows.append({"measured": measured, "value": value, "unit": unit})


if __name__ == "__main__":
    sys.exit(main())
