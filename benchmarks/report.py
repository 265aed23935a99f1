"""The one language of all benchmarks: figures by dotted name, bars that hold or do not, a table for people, JSON for machines."""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

VERSION = 1
DATA = "../shared/data"


@dataclass(frozen=True)
class Bar:
    """A bound on a figure. op: ``<=``, ``>=`` or ``==``."""

    name: str
    op: str
    bound: float

    def holds(self, value: float | None) -> bool | None:
        """None where this run did not evaluate it."""
        if value is None:
            return None
        return {"<=": value <= self.bound, ">=": value >= self.bound, "==": value == self.bound}[self.op]


@dataclass
class Report:
    """What a run measured. rows: a table for people, one dict a line."""

    benchmark: str
    bars: tuple[Bar, ...]
    seed: int = 0
    figures: dict[str, float] = field(default_factory=dict)
    rows: list[dict[str, Any]] = field(default_factory=list)
    seconds: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        judged = [
            {
                "name": bar.name,
                "value": self.figures.get(bar.name),
                "op": bar.op,
                "bound": bar.bound,
                "holds": bar.holds(self.figures.get(bar.name)),
            }
            for bar in self.bars
        ]
        return {
            "benchmark": self.benchmark,
            "version": VERSION,
            "date": date.today().isoformat(),
            "commit": commit(),
            "machine": machine(),
            "seed": self.seed,
            "seconds": round(self.seconds, 1),
            "figures": self.figures,
            "bars": judged,
            "rows": self.rows,
        }


def machine() -> dict[str, Any]:
    return {
        "cpu": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "system": platform.system(),
    }


def commit() -> str:
    """Short name of the commit that is measured, with ``+`` where files differ from it; "" outside of a checkout."""
    try:
        name = subprocess.run(
            ["git", "describe", "--always", "--dirty=+", "--exclude=*"],
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return name.stdout.strip()


def parser(name: str, text: str) -> argparse.ArgumentParser:
    """The flags that every benchmark has."""
    result = argparse.ArgumentParser(prog=f"python -m benchmarks.{name}", description=text)
    result.add_argument("--quick", action="store_true", help="a look of at most 45 s instead of the full run")
    result.add_argument("--data", type=Path, default=Path(DATA), metavar="DIR", help=f"recorded streams ({DATA})")
    result.add_argument("--json", type=_writable, metavar="FILE", help="write figures and bars to a file")
    result.add_argument("--check", action="store_true", help="exit status 1 when a bar does not hold")
    return result


def _writable(name: str) -> str:
    """A file whose folder is there: a run of hours is not to end with its figures lost."""
    if not Path(name).parent.is_dir():
        raise argparse.ArgumentTypeError(f"there is no folder {Path(name).parent}")
    return name


def finish(report: Report, args: argparse.Namespace, run: Callable[[], None]) -> int:
    """Run, print, write; the exit status."""
    begin_s = time.monotonic()
    run()
    report.seconds = time.monotonic() - begin_s
    result = report.as_dict()
    print_table(report.rows)
    print_bars(result["bars"], is_whole=args.check)
    if args.json:
        Path(args.json).write_text(json.dumps(result, indent=2) + "\n")
    return int(args.check and any(bar["holds"] is False for bar in result["bars"]))


def print_bars(bars: list[dict[str, Any]], *, is_whole: bool) -> None:
    """A line a bar; those without a figure by name where the whole is wanted, else how many they are."""
    idle = 0 if is_whole else sum(bar["holds"] is None for bar in bars)
    for bar in bars:
        if bar["holds"] is None and not is_whole:
            continue
        verdict = {True: "holds", False: "DOES NOT HOLD", None: "not evaluated"}[bar["holds"]]
        value = "-" if bar["value"] is None else f"{bar['value']:.4g}"
        print(f"{bar['name']:<40} {value:>10} {bar['op']} {bar['bound']:g}  {verdict}")
    if idle:
        print(f"{idle} of {len(bars)} bars not evaluated: this run has no figure for them; --check names them")


def print_table(rows: list[dict[str, Any]]) -> None:
    if not rows:
        return
    names = list(rows[0])
    cells = [[_cell(row.get(name)) for name in names] for row in rows]
    widths = [max(len(name), *(len(line[i]) for line in cells)) for i, name in enumerate(names)]
    for line in [names, *cells]:
        print(
            "  ".join(
                text.ljust(w) if i == 0 else text.rjust(w) for i, (text, w) in enumerate(zip(line, widths, strict=True))
            )
        )
    print()


def _cell(value: Any) -> str:
    return "-" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
