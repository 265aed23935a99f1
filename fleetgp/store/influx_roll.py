"""Rollups of a minute, which the server itself makes of its raw rows: InfluxDB 1.x, whose InfluxQL has SELECT INTO.

A minute is rolled up once it is over and sent, and again when a late row comes: what ``..._1m`` holds is always made of the
rows themselves, and rolling up twice is the same. Without rollups a month of one channel would take the server seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from fleetgp.runtime.influx import Client
from fleetgp.store.influx_backlog import Backlog, Minute
from fleetgp.store.influx_lines import MEASUREMENTS, MINUTES, MS, where
from fleetgp.store.sqlite_schema import MINUTE_MS

MINUTES_A_STEP = 2000
RUNS_A_STEP = 5  # what waits is sent between steps
# A statement costs as much as reading so many rows: minutes that lie close are rolled up with those between, once more.
GAP_ROWS, RUN_ROWS = 5000, 50_000


def roll(client: Client, backlog: Backlog) -> bool:
    """One step; True where there may be more. Raises InfluxError, StorageError."""
    minutes = backlog.unrolled(MINUTES_A_STEP)
    if not minutes:
        return False
    if client.probe().kind != "influxdb1":
        backlog.keep_first_unrolled()  # no rollups there, ever: readers are to know, the file is not to grow
        return False
    runs = list(_runs(minutes))
    some = runs[:RUNS_A_STEP]
    client.query("; ".join(_statement(backlog.fleet, run) for run in some))
    client.write(backlog.rolled([minute for run in some for minute in run]))
    return len(runs) > len(some) or len(minutes) == MINUTES_A_STEP


def _runs(minutes: Iterable[Minute]) -> Iterator[list[Minute]]:
    """Minutes of one series to be rolled up by one statement. minutes: by series and time."""
    run: list[Minute] = []
    for minute in minutes:
        if run and not _fits(run, minute):
            yield run
            run = []
        run.append(minute)
    if run:
        yield run


def _fits(run: Sequence[Minute], minute: Minute) -> bool:
    gap, length = minute.minute - run[-1].minute - 1, minute.minute - run[0].minute
    is_near = gap * minute.rows_a_minute <= GAP_ROWS and length * minute.rows_a_minute <= RUN_ROWS
    return minute.source == run[0].source and (gap == 0 or is_near)


def _statement(fleet: str, run: Sequence[Minute]) -> str:
    first = run[0]
    measurement = MEASUREMENTS[first.kind]
    begin_ms, end_ms = first.minute * MINUTE_MS, (run[-1].minute + 1) * MINUTE_MS
    span = f"time >= {begin_ms * MS} AND time < {end_ms * MS}"
    return (
        f'SELECT sum(*), count(*), min(*), max(*) INTO "{measurement}{MINUTES}" FROM "{measurement}" '
        f'WHERE {where({"fleet": fleet, "series": first.series}, span)} GROUP BY time(1m), "fleet", "series" fill(none)'
    )
