"""Figures of a running program for Prometheus and for health checks: a registry, its text form, a page that shows it.

The text form is version 0.0.4 of the Prometheus exposition format. The page is off unless ``metrics.port`` is set.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Literal

Kind = Literal["counter", "gauge"]

MAX_SERIES = 200
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")


class Metric:
    """One figure, a value for each combination of its labels.

    At most MAX_SERIES combinations are kept; values of further ones go to one whose labels all say ``other``, so that
    names made up by strangers cannot fill the memory. Safe to share between threads.
    """

    def __init__(self, kind: Kind, name: str, help: str, labels: tuple[str, ...]) -> None:
        self.kind = kind
        self.name = name
        self.help = help
        self.labels = labels
        self._values: dict[tuple[str, ...], float] = {}
        self._lock = threading.Lock()

    def add(self, amount: float = 1.0, /, **labels: str) -> None:
        """Count up. Raises ValueError on a negative amount for a counter, or on wrong labels."""
        if self.kind == "counter" and not amount >= 0:
            raise ValueError(f"counter {self.name} only goes up, not by {amount}")
        with self._lock:
            key = self._key(labels)
            self._values[key] = self._values.get(key, 0.0) + amount

    def set(self, value: float, /, **labels: str) -> None:
        """Show this value from now on. Raises ValueError on wrong labels."""
        with self._lock:
            self._values[self._key(labels)] = float(value)

    def samples(self) -> list[tuple[tuple[str, ...], float]]:
        """(label values, value) of every combination seen; a figure without labels always has one, at first 0."""
        with self._lock:
            found = sorted(self._values.items())
        return found if found or self.labels else [((), 0.0)]

    def _key(self, labels: Mapping[str, str]) -> tuple[str, ...]:
        if labels.keys() != set(self.labels):
            raise ValueError(f"{self.name} has the labels {self.labels}, not {tuple(labels)}")
        key = tuple(labels[name] for name in self.labels)
        if key in self._values or len(self._values) < MAX_SERIES:
            return key
        return ("other",) * len(self.labels)


class Registry:
    """All figures of one program. Names get the prefix ``fleetgp_``."""

    def __init__(self, prefix: str = "fleetgp") -> None:
        self._prefix = prefix
        self._metrics: dict[str, Metric] = {}
        self._watched: list[tuple[Kind, str, Callable[[], Mapping[str, float]]]] = []

    def counter(self, name: str, help: str, labels: tuple[str, ...] = ()) -> Metric:
        """A figure that only goes up. The same name gives the same figure; ValueError where the two differ."""
        return self._metric("counter", name, help, labels)

    def gauge(self, name: str, help: str, labels: tuple[str, ...] = ()) -> Metric:
        """A figure that goes up and down. The same name gives the same figure; ValueError where the two differ."""
        return self._metric("gauge", name, help, labels)

    def watch(self, kind: Kind, help: str, read: Callable[[], Mapping[str, float]]) -> None:
        """Show what ``read`` returns (name to value), asked anew whenever the page is; called from the page's thread."""
        self._watched.append((kind, help, read))

    def exposition(self) -> str:
        """All figures in Prometheus' text form."""
        return "".join(f"{line}\n" for metric in self._all() for line in _lines(metric))

    def _metric(self, kind: Kind, name: str, help: str, labels: tuple[str, ...]) -> Metric:
        full = f"{self._prefix}_{name}"
        if not all(_NAME.fullmatch(word) for word in (full, *labels)):
            raise ValueError(f"{full} {labels}: names are letters, digits and _")
        metric = self._metrics.setdefault(full, Metric(kind, full, help, labels))
        if (metric.kind, metric.labels) != (kind, labels):
            raise ValueError(f"{full} is already a {metric.kind} with the labels {metric.labels}")
        return metric

    def _all(self) -> Iterator[Metric]:
        """Figures of our own, then watched ones; of two with one name only the first, as the format demands."""
        shown = set(self._metrics)
        yield from list(self._metrics.values())
        for kind, help, read in list(self._watched):
            for name, value in read().items():
                full = f"{self._prefix}_{re.sub(r'[^a-zA-Z0-9_]', '_', name)}"
                if full not in shown:
                    shown.add(full)
                    metric = Metric(kind, full, help, ())
                    metric.set(value)
                    yield metric


def _lines(metric: Metric) -> Iterator[str]:
    help = metric.help.replace("\\", "\\\\").replace("\n", "\\n")
    yield f"# HELP {metric.name} {help}"
    yield f"# TYPE {metric.name} {metric.kind}"
    for values, value in metric.samples():
        pairs = ",".join(f'{name}="{_escaped(text)}"' for name, text in zip(metric.labels, values, strict=True))
        yield f"{metric.name}{{{pairs}}} {_number(value)}" if pairs else f"{metric.name} {_number(value)}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _number(value: float) -> str:
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) and abs(value) < 2**53 else repr(float(value))


def resident_megabytes() -> float:
    """Memory of this process that is in RAM, MB of 2**20 bytes; NaN where the system does not tell (no /proc)."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, IndexError, ValueError):
        return float("nan")
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20
