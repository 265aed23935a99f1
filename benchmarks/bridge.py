"""From the broker into the store, into recordings, and back: how fast, how soon, and that nothing is lost.

A reading is one channel's value; messages carry eight. Ratios are medians of runs that take turns in one go. A quick run tells
ratios of speeds and lateness as rows but judges none, for a look of seconds on a shared machine cannot; and it kills nothing, which
tests do.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import NamedTuple, TypeVar

from benchmarks import bridge_drain as drain
from benchmarks import bridge_faults as faults
from benchmarks import bridge_influx as influx
from benchmarks import bridge_pace as pace
from benchmarks import bridge_peers as peers
from benchmarks.bridge_faults import BrokerKind
from benchmarks.report import Bar, Report, finish, parser

BARS = (
    Bar("bridge.readings_per_s", ">=", 12_000),
    Bar("bridge.ratio_subscriber", ">=", 0.5),
    Bar("bridge.p99_ms", "<=", 1_000),
    Bar("bridge.rss_mb", "<=", 120),
    Bar("record.ratio_subscriber", ">=", 0.85),
    Bar("record.lost", "==", 0),
    Bar("replay.ratio_publisher", ">=", 0.85),
    Bar("replay.p99_late_ms", "<=", 5),
    Bar("bridge.lost", "==", 0),
    Bar("bridge.duplicated", "==", 0),
    Bar("influx.lost", "==", 0),
)
PER_S = 1_000.0
REPLAY_PER_S = 200.0
T = TypeVar("T")


class Size(NamedTuple):
    """How much a run measures. messages: of a drain; repeats: of what is compared; seconds: at a pace; kills:
    on each stage; outage_s: of InfluxDB, 0 = none."""

    messages: int
    repeats: int
    seconds: float
    kills: int
    outage_s: float


FULL, QUICK = Size(40_000, 7, 30.0, 20, 300.0), Size(8_000, 1, 2.0, 0, 0.0)
SEED = 4


def main(argv: list[str] | None = None) -> int:
    args = parser("bridge", __doc__ or "").parse_args(argv)
    report = Report("bridge", BARS, SEED)
    return finish(report, args, lambda: measure(report, QUICK if args.quick else FULL, is_judged=not args.quick))


def measure(report: Report, size: Size, *, is_judged: bool) -> None:
    tell_drains(report, size, is_judged=is_judged)
    tell_paces(report, size, is_judged=is_judged)
    if is_judged:
        tell_faults(report, size)


def afresh(work: Callable[[Path], T]) -> T:
    """In a folder of its own, which is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="fleetgp-bench-") as name:
        return work(Path(name))


def tell_drains(report: Report, size: Size, *, is_judged: bool) -> None:
    """A full queue, worked off in turns by the three readers."""
    readers = {"subscriber": drain.by_subscriber, "bridge": drain.by_bridge, "record": drain.by_recorder}
    found: dict[str, list[drain.Drain]] = {name: [] for name in readers}
    for _ in range(size.repeats):
        for name, read in readers.items():
            found[name].append(afresh(partial(read, number=size.messages)))
    rates = {name: [one.per_s for one in runs] for name, runs in found.items()}
    for name, words in (("subscriber", "paho subscriber that counts"), ("bridge", "bridge"), ("record", "recorder")):
        report.rows.append(row(f"{words}: messages/s", rates[name]))
    ratios = {
        name: [a / b for a, b in zip(rates[name], rates["subscriber"], strict=True)] for name in ("bridge", "record")
    }
    for name, values in ratios.items():
        report.rows.append(row(f"{name} / subscriber", values))
        if is_judged:
            report.figures[f"{name}.ratio_subscriber"] = round(median(values), 3)
    report.figures |= {
        "bridge.messages_per_s": round(median(rates["bridge"])),
        "bridge.readings_per_s": round(median(rates["bridge"]) * peers.CHANNELS),
        "bridge.rss_mb": round(max(one.rss_mb for one in found["bridge"]), 1),
        "record.messages_per_s": round(median(rates["record"])),
        "record.rss_mb": round(max(one.rss_mb for one in found["record"]), 1),
        "record.lost": float(sum(one.lost for one in found["record"])),
    }


def tell_paces(report: Report, size: Size, *, is_judged: bool) -> None:
    """At a pace: how soon, how punctual; and the replay as fast as it goes, in turns with a bare publisher."""
    soon_ms = afresh(partial(pace.queryable_ms, number=round(PER_S * size.seconds), per_s=PER_S))
    report.figures["bridge.p99_ms"] = round(soon_ms, 1)
    number = round(REPLAY_PER_S * size.seconds)
    late = afresh(partial(pace.replay_late_ms, number=number, per_s=REPLAY_PER_S))
    report.rows += [row(f"replay at speed 1, ms late, p99: {name}", [ms]) for name, ms in late._asdict().items()]
    bare, replayed = [], []
    for _ in range(size.repeats):
        bare.append(afresh(partial(pace.bare_per_s, number=size.messages)))
        replayed.append(afresh(partial(pace.replay_per_s, number=size.messages)))
    ratios = [a / b for a, b in zip(replayed, bare, strict=True)]
    report.rows += [row("paho publisher: messages/s", bare), row("replay at max: messages/s", replayed)]
    report.rows.append(row("replay / publisher", ratios))
    report.figures["replay.messages_per_s"] = round(median(replayed))
    if is_judged:
        report.figures["replay.ratio_publisher"] = round(median(ratios), 3)
        report.figures |= {"replay.p99_late_ms": round(late.own, 2), "replay.p99_late_heard_ms": round(late.heard, 2)}
        report.figures["replay.p99_late_bare_ms"] = round(late.bare, 2)


def tell_faults(report: Report, size: Size) -> None:
    """Kills with each store and each broker, and an outage of InfluxDB; those with InfluxDB only where it is installed."""
    stages: list[tuple[BrokerKind, bool]] = [("mosquitto", False)]
    if influx.is_there():
        stages += [("mosquitto", True), ("nats", True)]
    lost = doubled = 0
    for kind, has_influx in stages:
        work = partial(faults.kills, kind=kind, number=size.kills, has_influx=has_influx, seed=report.seed)
        found = afresh(work)
        lost, doubled = lost + found.lost, doubled + found.duplicated
        words = f"{size.kills} kills, {kind}, {'InfluxDB' if has_influx else 'SQLite'}"
        report.rows += [row(f"{words}: {name}", [float(value)]) for name, value in found._asdict().items()]
    if influx.is_there():
        report.figures |= {"bridge.lost": float(lost), "bridge.duplicated": float(doubled)}
        found = afresh(partial(faults.outage, seconds=size.outage_s))
        report.figures |= {f"influx.{name}": float(value) for name, value in found._asdict().items()}


def row(words: str, values: list[float]) -> dict[str, object]:
    return {"what": words, "median": median(values), "least": min(values), "most": max(values), "runs": len(values)}


if __name__ == "__main__":
    sys.exit(main())
