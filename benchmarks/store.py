"""The history store with 100 million rows: how fast it opens, writes, answers, tidies up and drops, and in what memory.

Series of 8 channels, one row a second, of equal length; one of them has a past of five years of which only rollups are left,
as retention leaves it. The file is filled by plain SQL and rolled up by the store's own upkeep; what is timed is done by the
store itself, in a process that has done nothing else. Disk: about 120 bytes a row.
"""

from __future__ import annotations

import argparse
import multiprocessing
import shutil
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import numpy as np

from benchmarks.report import Bar, Report, finish, parser
from fleetgp.store.base import Batch, Reader, Row
from fleetgp.store.sqlite import open_reader, open_writer
from fleetgp.store.sqlite_prune import Choice, doomed, prune
from fleetgp.store.sqlite_schema import connect_writer, table_of, transaction

BARS = (
    Bar("store.open_ms", "<=", 500),
    Bar("store.hour_ms", "<=", 50),
    Bar("store.month_ms", "<=", 150),
    Bar("store.years_ms", "<=", 500),
    Bar("store.write_rows_per_s", ">=", 12_000),
    Bar("store.maintain_s", "<=", 0.5),
    Bar("store.rss_mb", "<=", 150),
)
ROWS, QUICK_ROWS = 100_000_000, 300_000
SERIES, CHANNELS, POINTS = 12, 8, 600
PIECE = 20_000
SECOND, MINUTE, HOUR, DAY = 1000, 60_000, 3_600_000, 86_400_000
NOW = 1_790_000_040_000 // HOUR * HOUR
YEARS = 5 * 365 * DAY
COLUMNS = tuple(f"c{position}" for position in range(CHANNELS))
RETENTION_DAYS = 10_000.0  # while others are timed nothing goes

T = TypeVar("T")


def name(number: int) -> str:
    return f"sensors/{number}"


def fill(path: Path, rows: int, years_ms: int) -> None:
    """The store as it is found: raw rows up to NOW, all closed minutes rolled up, a long past in the first series."""
    each = rows // SERIES
    start = NOW - each * SECOND
    writer = open_writer(path, raw_days=RETENTION_DAYS, rollup_days=RETENTION_DAYS)
    empty = dict.fromkeys(COLUMNS, 0.0)
    writer.write(Batch(rows=[Row("reading", name(i), start, empty, start, 0) for i in range(SERIES)]))
    connection = connect_writer(path)
    connection.execute("PRAGMA cache_size = -64000")
    for number in range(1, SERIES + 1):
        rng = np.random.default_rng(number)
        level = rng.normal(20.0, 5.0, CHANNELS)
        for first in range(1, each, PIECE):
            _add_piece(connection, number, start, range(first, min(first + PIECE, each)), level, rng)
            if first // PIECE % 4 == 0:
                writer.maintain(NOW)
    _add_past(connection, start, years_ms)
    connection.close()
    while _dirty(path) > SERIES:
        writer.maintain(NOW)
    for _ in range(1 + rows // 3600 // 200):
        writer.maintain(NOW)
    writer.close()


def _add_piece(
    connection: sqlite3.Connection,
    series_id: int,
    start: int,
    places: range,
    level: np.ndarray[tuple[int], np.dtype[np.float64]],
    rng: np.random.Generator,
) -> None:
    values = np.round(level + np.cumsum(rng.normal(0.0, 0.01, (len(places), CHANNELS)), axis=0), 3).tolist()
    times = [start + SECOND * place for place in places]
    marks = ", ?" * (3 + CHANNELS)
    with transaction(connection):
        connection.executemany(
            f"INSERT INTO {table_of(series_id)} (at_ms, ordinal, received_ms, {', '.join(COLUMNS)}) VALUES ({marks[2:]})",
            [(at, place, at, *row) for at, place, row in zip(times, places, values, strict=True)],
        )
        connection.executemany(
            "INSERT OR IGNORE INTO dirty VALUES (?, ?)", [(series_id, at // MINUTE) for at in times[::30] + times[-1:]]
        )
        connection.execute(
            "UPDATE series SET rows = rows + ?, last_ms = ? WHERE id = ?", (len(places), times[-1], series_id)
        )


def _add_past(connection: sqlite3.Connection, start: int, years_ms: int) -> None:
    """Rollups of the first series for all the years before its first raw row."""
    first, last = (NOW - years_ms) // HOUR, start // HOUR - 1
    if first > last:
        return
    rng = np.random.default_rng(0)
    for position in range(CHANNELS):
        for hour in range(first, last + 1, 1000):
            hours = np.arange(hour, min(hour + 1000, last + 1))
            minutes = (hours[:, None] * 60 + np.arange(60)).ravel()
            low = np.round(rng.normal(20.0, 1.0, len(minutes)), 3)
            of_hour = low.reshape(-1, 60)
            with transaction(connection):
                connection.executemany(
                    "INSERT INTO rollup VALUES (1, ?, ?, 60, ?, ?, ?)",
                    (
                        (position, m, 60 * (v + 0.5), v, v + 1)
                        for m, v in zip(minutes.tolist(), low.tolist(), strict=True)
                    ),
                )
                connection.executemany(
                    "INSERT INTO hourly VALUES (1, ?, ?, 3600, ?, ?, ?)",
                    (
                        (position, int(h), 60 * float((row + 0.5).sum()), float(row.min()), float(row.max()) + 1)
                        for h, row in zip(hours, of_hour, strict=True)
                    ),
                )
    connection.execute(
        "UPDATE series SET first_ms = ?, floor_ms = ? WHERE id = 1", (first * HOUR, start // MINUTE * MINUTE)
    )


def _dirty(path: Path) -> int:
    connection = sqlite3.connect(path)
    count: int = connection.execute("SELECT count(*) FROM dirty").fetchone()[0]
    connection.close()
    return count


def timed(task: Callable[[], T]) -> tuple[T, float]:
    begin_s = time.perf_counter()
    result = task()
    return result, time.perf_counter() - begin_s


def look(path: Path, years_ms: int) -> dict[str, float]:
    """Every figure, measured by the store's own means."""
    figures: dict[str, float] = {}
    writer, open_writer_s = timed(lambda: open_writer(path, raw_days=RETENTION_DAYS, rollup_days=RETENTION_DAYS))
    reader, open_reader_s = timed(lambda: open_reader(path))
    _, first_s = timed(lambda: reader.series("reading"))
    figures["open_ms"] = 1000 * (open_writer_s + open_reader_s + first_s)
    figures["mb"] = reader.info().megabytes
    figures["rows"] = float(reader.info().rows)
    for title, span_ms in (("hour", HOUR), ("month", 30 * DAY), ("years", years_ms)):
        figures[f"{title}_ms"] = 1000 * statistics.median(_windows(reader, span_ms))
    _write(writer.write, writer.maintain, figures)
    writer.close()
    reader.close()
    figures["retention_s"] = _retention_step(path)
    before = NOW - int(figures["rows"] / SERIES) * SECOND * 3 // 4
    choice = Choice(("reading",), (name(SERIES - 1),), before)
    victims = doomed(path, choice)
    gone, prune_s = timed(lambda: prune(path, choice, victims, lambda _: None))
    figures["prune_rows_per_s"] = sum(gone.values()) / prune_s
    figures["rss_mb"] = peak_mb()
    return figures


def _windows(reader: Reader, span_ms: int) -> list[float]:
    """Seconds of windows that end here and there, of the series with the long past and, where it has the span, others."""
    taken = []
    for i in range(9):
        of = name(0) if span_ms > 30 * DAY else name(i % SERIES)
        end_ms = NOW - (i * 7919 * MINUTE) % (3 * HOUR)
        _, seconds = timed(lambda of=of, end=end_ms: reader.window("reading", of, COLUMNS, end - span_ms, end, POINTS))  # type: ignore[misc]
        taken.append(seconds)
    return taken


def _write(
    write: Callable[[Batch], object], maintain: Callable[[int], None], figures: dict[str, float], batches: int = 100
) -> None:
    """Live rows of all series, 2,000 a batch, with upkeep every ten batches; the longest upkeep counts."""
    each = 2000 // SERIES
    spent_s, steps_s, rows = 0.0, [0.0], 0
    for number in range(batches):
        times = [NOW + SECOND * (number * each + i) for i in range(each)]
        batch = Batch(
            rows=[
                Row("reading", name(of), at, dict.fromkeys(COLUMNS, at % 97 + 0.5), at, 10**9 + at // SECOND)
                for at in times
                for of in range(SERIES)
            ]
        )
        _, seconds = timed(lambda batch=batch: write(batch))  # type: ignore[misc]
        spent_s, rows = spent_s + seconds, rows + len(batch.rows)
        if number % 10 == 9:
            steps_s.append(timed(lambda at=times[-1]: maintain(at))[1])  # type: ignore[misc]
    # 5,000 late rows, each in another minute: all that one call may roll up, and anew the hours they are in
    span_ms = int(figures["rows"]) // SERIES * SECOND
    late = [
        Row("reading", name(i % SERIES), NOW - span_ms * (i + 1) // 5002, dict.fromkeys(COLUMNS, 1.0), NOW)
        for i in range(5000)
    ]
    _, late_s = timed(lambda: write(Batch(rows=late)))
    steps_s += [timed(lambda: maintain(NOW + DAY))[1] for _ in range(3)]
    figures["late_rows_per_s"] = len(late) / late_s
    figures["write_rows_per_s"] = rows / spent_s
    figures["maintain_s"] = max(steps_s)


def _retention_step(path: Path) -> float:
    """The longest of five calls of upkeep that have rows of all series to drop: the last quarter is to be kept."""
    days = (NOW - _first_raw(path)) / DAY / 4
    writer = open_writer(path, raw_days=days, rollup_days=RETENTION_DAYS)
    taken = [timed(lambda: writer.maintain(NOW + DAY))[1] for _ in range(5)]
    writer.close()
    return max(taken)


def _first_raw(path: Path) -> int:
    connection = sqlite3.connect(path)
    first: int = connection.execute("SELECT min(at_ms) FROM s2").fetchone()[0]
    connection.close()
    return first


def peak_mb() -> float:
    """The most memory this process has had, MB of 2**20 bytes; Linux."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def measure(report: Report, rows: int, years_ms: int, folder: Path) -> None:
    path = folder / "history.sqlite"
    child = multiprocessing.get_context("spawn").Process(target=fill, args=(path, rows, years_ms))
    _, fill_s = timed(lambda: (child.start(), child.join()))
    if child.exitcode:
        raise SystemExit(f"filling the store failed with {child.exitcode}")
    figures = look(path, years_ms)
    figures["fill_s"] = fill_s
    report.figures.update({f"store.{key}": round(value, 3) for key, value in figures.items()})
    report.rows.append(
        {"rows": f"{figures['rows']:,.0f}", **{key: value for key, value in figures.items() if key != "rows"}}
    )


def main(argv: list[str] | None = None) -> int:
    arguments: argparse.ArgumentParser = parser("store", __doc__ or "")
    arguments.add_argument("--rows", type=int, help=f"raw rows ({ROWS:,}; quick: {QUICK_ROWS:,})")
    arguments.add_argument("--folder", type=Path, metavar="DIR", help="where the store is made (a temporary folder)")
    args = arguments.parse_args(argv)
    rows = args.rows or (QUICK_ROWS if args.quick else ROWS)
    folder = Path(tempfile.mkdtemp(prefix="store-", dir=args.folder))
    report = Report("store", BARS)
    try:
        return finish(report, args, lambda: measure(report, rows, YEARS // 10 if args.quick else YEARS, folder))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
