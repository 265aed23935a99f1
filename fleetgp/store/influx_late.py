"""Rows that may be at the server already though this machine has forgotten them: settled by what the server holds.

The rules are those of ``sqlite_rows``: what is there already is not sent, what contradicts nothing joins the point it belongs
to, what contradicts gets a place beside it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from fleetgp.runtime.influx import Client
from fleetgp.runtime.influx_answers import Cell
from fleetgp.runtime.influx_names import RECEIVED, SEQUENCE, stored_name
from fleetgp.store.base import Kind
from fleetgp.store.influx_lines import MEASUREMENTS, MS, UNNUMBERED_SLOTS, field_name, key, row_line, slot, where
from fleetgp.store.sqlite_rows import MAX_AT_ONE_INSTANT

INSTANTS_A_QUERY = 100
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


_Instant = tuple[Kind, str, int]


def settle(client: Client, fleet: str, rows: Sequence[LateRow]) -> Settled:
    """Ask the server about the instants of the rows and find each a place. Raises InfluxError."""
    settled = Settled([], [], [])
    instants = list(dict.fromkeys((row.kind, row.series, row.at_ms) for row in rows))
    for first in range(0, len(instants), INSTANTS_A_QUERY):
        some = instants[first : first + INSTANTS_A_QUERY]
        held = _held(client, fleet, some)
        for row in rows:
            if (instant := (row.kind, row.series, row.at_ms)) in held:
                _place(row, fleet, held[instant], settled)
    return settled


def _held(client: Client, fleet: str, instants: Sequence[_Instant]) -> Mapping[_Instant, dict[int, Point]]:
    """Points of the server by their nanosecond within the instant."""
    held: dict[_Instant, dict[int, Point]] = {instant: {} for instant in instants}
    kinds = {measurement: kind for kind, measurement in MEASUREMENTS.items()}
    names = {stored_name(series): series for _, series, _ in instants}
    for table in client.query("; ".join(_questions(fleet, instants))):
        for at_ns, *cells in table.values:
            instant = kinds[table.name], names[table.tags["series"]], int(at_ns or 0) // MS
            point: Point = {name: cell for name, cell in zip(table.columns[1:], cells, strict=True) if cell is not None}
            held[instant][int(at_ns or 0) % MS] = point
    return held


def _questions(fleet: str, instants: Sequence[_Instant]) -> Iterator[str]:
    for kind, series, at_ms in instants:
        span = f"time >= {at_ms * MS} AND time < {(at_ms + 1) * MS}"
        yield f'SELECT * FROM "{MEASUREMENTS[kind]}" WHERE {where({"fleet": fleet, "series": series}, span)} GROUP BY "series"'


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
