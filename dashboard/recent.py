"""The newest prediction rows of every agent, kept in a bounded ring so that each look reads only what is new."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fleetgp.store.base import Reader, SeriesInfo, Window

MAX_ROWS = 1000  # per agent; a coverage of 90 % is then known to about 1 %
MAX_TOTAL_ROWS = 60_000  # over the fleet: some 8 MB at four channels
MIN_ROWS = 100
KEPT = (".mean", ".low", ".high", ".observed")


class Recent:
    """Rings of rows by agent. Rows that arrive late, behind the newest known frame, are left to the charts."""

    def __init__(self) -> None:
        self._windows: dict[str, Window] = {}
        self._noticed_ms: dict[str, int] = {}

    def windows(self) -> dict[str, Window]:
        return dict(self._windows)

    def noticed_ms(self) -> dict[str, int]:
        return dict(self._noticed_ms)

    def update(
        self, reader: Reader, predictions: Mapping[str, SeriesInfo], intervals_ms: Mapping[str, int], now_ms: int
    ) -> None:
        """Read the rows that are newer than those we hold. intervals_ms: frame interval by agent, where known."""
        rows = max(MIN_ROWS, min(MAX_ROWS, MAX_TOTAL_ROWS // max(1, len(predictions))))
        for gone in self._windows.keys() - predictions.keys():
            del self._windows[gone]
            self._noticed_ms.pop(gone, None)
        for agent, series in predictions.items():
            held = self._windows.get(agent)
            after_ms = int(held.at_ms[-1]) if held is not None and held.at_ms.size else None
            if after_ms is not None and series.last_ms <= after_ms:
                continue
            interval_ms = intervals_ms.get(agent) or guess_interval_ms(series)
            news = read_newest(reader, series, after_ms, rows, interval_ms)
            if after_ms is not None:
                self._noticed_ms[agent] = now_ms
            self._windows[agent] = join(held, news, rows) if held is not None else news


def guess_interval_ms(series: SeriesInfo) -> int:
    """Mean spacing of a series' rows, at least 1 ms."""
    return max(1, (series.last_ms - series.first_ms) // max(1, series.rows - 1))


def read_newest(reader: Reader, series: SeriesInfo, after_ms: int | None, rows: int, interval_ms: int) -> Window:
    """Raw rows after ``after_ms``, about the newest ``rows`` of them: a span that the store would thin out is halved."""
    columns = [name for name in series.channels if name.endswith(KEPT) or name in ("score", "threshold")]
    span_ms = rows * interval_ms
    while True:
        start_ms = max(series.last_ms - span_ms + 1, series.first_ms if after_ms is None else after_ms + 1)
        window = reader.window("prediction", series.name, columns, start_ms, series.last_ms, rows)
        if window.step_ms == 0 or span_ms <= 1:
            return window
        span_ms = min(span_ms, series.last_ms - start_ms + 1) // 2


def join(old: Window, new: Window, rows: int) -> Window:
    """Both windows one after the other, the newest ``rows`` of them. A column that one side lacks is NaN there."""
    at_ms = np.concatenate([old.at_ms, new.at_ms])[-rows:]
    names = dict.fromkeys([*old.mean, *new.mean])

    def column(name: str) -> np.ndarray:
        parts = [w.mean.get(name, np.full(w.at_ms.size, np.nan)) for w in (old, new)]
        return np.concatenate(parts)[-rows:]

    mean = {name: column(name) for name in names}
    return Window(at_ms=at_ms, mean=mean, low=mean, high=mean)
