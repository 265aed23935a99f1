"""What an agent needs: memory of the real process over many frames, and what a frame costs against River and in batches."""

from __future__ import annotations

import os
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from benchmarks import agent_process as process
from benchmarks import agent_timing as timing
from benchmarks.agent_timing import BATCH, RIVER_LAW, RIVER_MEAN, SINGLE
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
    tell_timing(report, timed)
    frames, round_s = (QUICK_FRAMES, QUICK_ROUND_S) if is_quick else (FRAMES, ROUND_S)
    tell_process(report, process.run(frames, report.seed, round_s))


def tell_timing(report: Report, timed: timing.Timing) -> None:
    """Figures and rows of what a frame costs. A ratio that this engine cannot have is left out: not evaluated."""
    ratios = {
        "agent.speedup_river": timed.ratio(RIVER_LAW, SINGLE),
        "agent.speedup_river_mean_only": timed.ratio(RIVER_MEAN, SINGLE),
        "agent.speedup_river_in_batches": timed.ratio(RIVER_LAW, BATCH),
        "agent.speedup_batch": timed.ratio(SINGLE, BATCH),
    }
    report.figures.update({name: round(ratio, 2) for name, ratio in ratios.items() if ratio is not None})
    report.figures["agent.features_timed"] = float(timed.features)
    words = {
        SINGLE: "engine, frame by frame",
        BATCH: f"engine, {timing.FRAMES} frames at once",
        RIVER_LAW: "River, predicts mean and variance",
        RIVER_MEAN: "River, predicts the mean alone",
    }
    for run, text in words.items():
        add(report, f"predict + learn: {text}", timed.per_channel_us(run), "us CPU a channel and frame")
    for run, value in timed.rmse.items():
        add(report, f"error of the means: {words[run]}", value, "RMSE, scaled steps")


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
