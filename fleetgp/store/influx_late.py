"""Rows that may be at the server already though this machine has forgotten them: settled by what the server holds.

The rules are those of ``sqlite_rows``: what is there already is not sent, what contradicts nothing joins the point it belongs
to, what contradicts gets a place beside it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from fleetgp.runtime.influx import Client
from fleetgp.runtime.influx_answers import Cell, Table
from fleetgp.runtime.influx_names import RECEIVED, SEQUENCE, quoted, stored_name
from fleetgp.store.base import Kind
from fleetgp.store.influx_lines import MEASUREMENTS, MS, UNNUMBERED_SLOTS, field_name, key, row_line, slot, where
from fleetgp.store.sqlite_rows import MAX_AT_ONE_INSTANT

INSTANTS_A_QUERY = 1000
CELLS_A_QUERY = 100_000  # most that a query for several instants brings: a few MB; a query costs as much as 10,000 rows
SAME_NANOSECOND = "another row has the same nanosecond"

Point = dict[str, Cell]


class LateRow(NamedTuple):
    """A row of an instant that was forgotten here. source: its series' number here; values: received_ms, then one for each
    column."""

    source: int
    kind: Kind
    series: str
    at_ms: int
    ordinal: int
    columns: Sequence[str]
    values: Sequence[float | int | None]


class Known(NamedTuple):
    """A row that is at the server already, or joins one that is: it was counted before. received_ms: as the server has it
    from now on."""

    source: int
    at_ms: int
    ordinal: int
    received_ms: int


class Settled(NamedTuple):
    """Lines to send, lines for which there is no place, and rows that were known."""

    lines: list[str]
    refused: list[tuple[str, str]]
    known: list[Known]


def plain_line(row: LateRow, fleet: str) -> str:
    """The row as a point of its own place."""
    series_key = key(MEASUREMENTS[row.kind], fleet=fleet, series=row.series)
    return row_line(series_key, [field_name(name) for name in row.columns], row.at_ms, row.ordinal, row.values)


def settle(client: Client, fleet: str, rows: Sequence[LateRow]) -> Settled:
    """Ask the server about the instants of the rows and find each a place. Raises InfluxError."""
    settled = Settled([], [], [])
    by_series: dict[int, list[LateRow]] = {}
    for row in rows:
        by_series.setdefault(row.source, []).append(row)
    for some in by_series.values():
        held = _held(client, fleet, some[0], sorted({row.at_ms for row in some}))
        for row in some:
            _place(row, fleet, held[row.at_ms], settled)
    return settled


def _held(client: Client, fleet: str, series: LateRow, times: Sequence[int]) -> dict[int, dict[int, Point]]:
    """Points of the server at the times (ms, ascending) of a series, by their nanosecond within the ms.

    Times that lie close are asked for together, with what lies between. Where that is much, fewer together.
    """
    held: dict[int, dict[int, Point]] = {at_ms: {} for at_ms in times}
    names = ", ".join(quoted(name) for name in (RECEIVED, SEQUENCE, *map(stored_name, series.columns)))
    source = f'SELECT {names} FROM "{MEASUREMENTS[series.kind]}" WHERE '
    tags = {"fleet": fleet, "series": series.series}
    most = max(1, CELLS_A_QUERY // (len(series.columns) + 3))
    first, number = 0, INSTANTS_A_QUERY
    while first < len(times):
        some = times[first : first + number]
        span = f"time >= {some[0] * MS} AND time < {(some[-1] + 1) * MS}"
        limit = f" LIMIT {most}" if len(some) > 1 else ""
        points = list(_points(client.query(source + where(tags, span) + limit)))
        for at_ns, point in points:
            if (beside := held.get(at_ns // MS)) is not None:
                beside[at_ns % MS] = point
        is_whole = len(points) < most or len(some) == 1
        known = len(some) if is_whole else bisect_left(some, points[-1][0] // MS)  # the last ms may be cut
        number = min(2 * number, INSTANTS_A_QUERY) if is_whole else max(1, known)
        first += known
    return held


def _points(tables: Iterable[Table]) -> Iterator[tuple[int, Point]]:
    for table in tables:
        for at_ns, *cells in table.values:
            yield (
                int(at_ns or 0),
                {name: cell for name, cell in zip(table.columns[1:], cells, strict=True) if cell is not None},
            )


def _place(row: LateRow, fleet: str, points: dict[int, Point], settled: Settled) -> None:
    values: Point = {
        stored_name(name): value for name, value in zip(row.columns, row.values[1:], strict=True) if value is not None
    }
    own = slot(row.ordinal)
    if row.ordinal >= 0 and points.get(own, {}).get(SEQUENCE, row.ordinal) != row.ordinal:
        settled.refused.append((plain_line(row, fleet), SAME_NANOSECOND))
        return
    candidates = [place for place in (own, *sorted(points, reverse=True)) if place == own or place < UNNUMBERED_SLOTS]
    known = [place for place in candidates if place in points]
    # A row that has lost its sequence here, to one of the same sequence that came first today, may be there under it.
    rivals = points if row.ordinal < 0 else known if own in points else ()
    holding = next((points[place] for place in rivals if _holds(points[place], values)), None)
    if holding is not None:
        # What we sent ourselves before we could note it is no repetition.
        if holding.get(RECEIVED) != row.values[0]:
            settled.known.append(_known(row, holding.get(RECEIVED)))
        return
    places = [own] if own not in points else [place for place in known if not _contradicts(points[place], values)]
    places += [
        place
        for place in range(UNNUMBERED_SLOTS - 1, UNNUMBERED_SLOTS - 1 - MAX_AT_ONE_INSTANT, -1)
        if place not in points
    ]
    if not places:
        settled.refused.append((plain_line(row, fleet), "too many rows of one instant that contradict each other"))
        return
    place = places[0]
    if place in points:
        settled.known.append(_known(row, row.values[0]))
    ordinal = row.ordinal if place == own else place - UNNUMBERED_SLOTS
    settled.lines.append(plain_line(row._replace(ordinal=ordinal), fleet))
    points[place] = points.get(place, {}) | values | {RECEIVED: row.values[0]}


def _known(row: LateRow, received_ms: Cell) -> Known:
    return Known(row.source, row.at_ms, row.ordinal, int(received_ms or 0))


def _holds(point: Point, values: Point) -> bool:
    return all(point.get(name) == value for name, value in values.items())


def _contradicts(point: Point, values: Point) -> bool:
    return any(name in point and point[name] != value for name, value in values.items())
