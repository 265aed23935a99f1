"""Rollups of a minute, which the server itself makes of its raw rows: InfluxDB 1.x, whose InfluxQL has SELECT INTO.

A minute is rolled up once it is over and sent, and again when a late row comes: what ``..._1m`` holds is always made of the
rows themselves, and rolling up twice is the same. Without rollups a month of one channel would take the server seconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from fleetgp.runtime.influx import Client
from fleetgp.store.influx_backlog import Backlog, Minute
from fleetgp.store.influx_lines import MEASUREMENTS, MINUTES, MS, where
from fleetgp.store.sqlite_schema import MINUTE_MS

MINUTES_A_STEP = 2000
RUNS_A_QUERY = 20


def roll(client: Client, backlog: Backlog) -> bool:
    """One step; True where there may be more. Raises InfluxError, StorageError."""
    minutes = backlog.unrolled(MINUTES_A_STEP)
    if not minutes:
        return False
    if client.probe().kind == "influxdb1":
        statements = [_statement(backlog.fleet, run) for run in _runs(minutes)]
        for first in range(0, len(statements), RUNS_A_QUERY):
            client.query("; ".join(statements[first : first + RUNS_A_QUERY]))
        client.write(backlog.rolled(minutes))
    else:
        backlog.keep_first_unrolled()  # no rollups there, ever: readers are to know, the file is not to grow
        return False
    return len(minutes) == MINUTES_A_STEP


def _runs(minutes: Sequence[Minute]) -> Iterator[list[Minute]]:
    """Minutes of one series that follow each other. minutes: by series and time."""
    for _, run in groupby(enumerate(minutes), lambda pair: (pair[1].source, pair[1].minute - pair[0])):
        yield [minute for _, minute in run]


def _statement(fleet: str, run: Sequence[Minute]) -> str:
    first = run[0]
    measurement = MEASUREMENTS[first.kind]
    begin_ms, end_ms = first.minute * MINUTE_MS, (run[-1].minute + 1) * MINUTE_MS
    span = f"time >= {begin_ms * MS} AND time < {end_ms * MS}"
    return (
        f'SELECT sum(*), count(*), min(*), max(*) INTO "{measurement}{MINUTES}" FROM "{measurement}" '
        f'WHERE {where({"fleet": fleet, "series": first.series}, span)} GROUP BY time(1m), "fleet", "series" fill(none)'
    )
