"""Rows and documents as points of the line protocol, and names back from it. Pure.

    fleetgp_reading, fleetgp_prediction, fleetgp_health    tags fleet, series; a float field for each column,
                            _received_ms and, where the sender counts, _sequence (both integers)
    ..._1m                  the same tags; of each minute sum_NAME, count_NAME, min_NAME, max_NAME, made by the server (1.x)
    fleetgp_series          tags fleet, kind, series, origin; channels (JSON), first_ms, last_ms, rows, and rolled_ms: minutes
                            before it are right in ..._1m
    fleetgp_event           tags fleet, agent; at start_ms: event_id, state, peak_score, frames, body (JSON), ...
    fleetgp_round           tag fleet; body and figures at the notice's time
    fleetgp_status, fleetgp_program_health      tags fleet, name, role; body at the time it was written

A point is found again by its tags and time. Rows of one millisecond that are different rows (by sequence, or because they
contradict each other) differ in the nanoseconds within it, in the order SQLite keeps them: ``slot``. So a point sent twice
is one point, and rows that differ are never one. How names are kept: ``fleetgp.runtime.influx_names``.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from fleetgp.runtime.influx_names import RECEIVED, SEQUENCE, literal, quoted, stored_name
from fleetgp.store.base import Kind, SeriesInfo
from fleetgp.wire.codec import encode
from fleetgp.wire.messages import AnomalyEvent, Health, RoundNotice, Status

MS = 1_000_000  # ns
# Times that InfluxDB takes, in whole ms: 64 bits of ns.
EARLIEST_MS, LATEST_MS = -9_223_372_036_854, 9_223_372_036_853
UNNUMBERED_SLOTS = 1000
MEASUREMENTS: Mapping[Kind, str] = {
    "reading": "fleetgp_reading",
    "prediction": "fleetgp_prediction",
    "health": "fleetgp_health",
}
MINUTES = "_1m"  # after the name of a measurement
SERIES, EVENT, ROUND = "fleetgp_series", "fleetgp_event", "fleetgp_round"
STATUS, PROGRAM = "fleetgp_status", "fleetgp_program_health"

_SPECIAL = str.maketrans({",": "\\,", "=": "\\=", " ": "\\ "})


def slot(ordinal: int) -> int:
    """Nanoseconds within the millisecond of a row: by its sequence, or by its rank among rows without (-1, -2, ...)."""
    return UNNUMBERED_SLOTS + (ordinal if ordinal < 0 else ordinal % (MS - UNNUMBERED_SLOTS))


def key(measurement: str, **tags: str) -> str:
    """Measurement and tags; tags without a value are left out."""
    return measurement + "".join(f",{name}={_tag(value)}" for name, value in sorted(tags.items()) if value)


def row_line(
    series_key: str, names: Sequence[str], at_ms: int, ordinal: int, values: Sequence[float | int | None]
) -> str:
    """A row as a point. names: escaped by ``field_name``; values: received_ms, then one for each name."""
    fields = [f"{RECEIVED}={values[0]}i"]
    if ordinal >= 0:
        fields.append(f"{SEQUENCE}={ordinal}i")
    fields += [f"{name}={value!r}" for name, value in zip(names, values[1:], strict=True) if value is not None]
    return f"{series_key} {','.join(fields)} {at_ms * MS + slot(ordinal)}"


def field_name(column: str) -> str:
    """Name of a column as a field, escaped for the line protocol."""
    return stored_name(column).translate(_SPECIAL)


def series_line(fleet: str, info: SeriesInfo, origin: str, times_ms: tuple[int, int]) -> str:
    """What a series holds; the last point counts. origin: which backlog counted; times_ms: of the point, and rolled_ms."""
    at_ms, rolled_ms = times_ms
    channels = msgspec.json.encode(info.channels).decode()
    fields = f"channels={text(channels)},first_ms={info.first_ms}i,last_ms={info.last_ms}i,rows={info.rows}i,rolled_ms={rolled_ms}i"
    return f"{key(SERIES, fleet=fleet, kind=info.kind, series=info.name, origin=origin)} {fields} {at_ms * MS}"


def event_line(fleet: str, event: AnomalyEvent, beside: Sequence[str]) -> str:
    """The newest state of an event: one point at its start, whatever state came before. beside: ids of all events that the
    agent began in that ms, in the order they came: no two of them get one nanosecond."""
    fields = {
        "event_id": text(event.event_id),
        "state": text(event.state),
        "blamed": text(", ".join(sorted(event.blame, key=lambda name: -event.blame[name])[:3])),
        "peak_score": repr(float(event.peak_score)),
        "frames": f"{event.frames}i",
        "seconds": repr(max(0, (event.end_ms or event.at_ms) - event.start_ms) / 1000),
        "body": text(encode(event).decode()),
    }
    at_ns = event.start_ms * MS + _place_of(event.event_id, beside)
    return f"{key(EVENT, fleet=fleet, agent=event.agent)} {_join(fields)} {at_ns}"


def _place_of(event_id: str, beside: Sequence[str]) -> int:
    taken: set[int] = set()
    place = 0
    for one in dict.fromkeys((*beside, event_id)):
        place = zlib.crc32(one.encode()) % MS
        while place in taken:
            place = (place + 1) % MS
        if one == event_id:
            break
        taken.add(place)
    return place


def round_line(fleet: str, notice: RoundNotice) -> str:
    """A notice of a round at its own time; opened and closed ones are different points."""
    is_closed = notice.state == "closed"
    fields = {
        "round": f"{notice.round}i",
        "state": text(notice.state),
        "answered": f"{len(notice.answered)}i",
        "missing": f"{len(notice.missing)}i",
        "body": text(encode(notice).decode()),
    }
    at_ns = notice.at_ms * MS + (2 * notice.round + is_closed) % MS
    return f"{key(ROUND, fleet=fleet)} {_join(fields)} {at_ns}"


def program_line(fleet: str, document: Status | Health, at_ns: int) -> str:
    """Presence or health of a program, at the time it was written."""
    fields = {"body": text(encode(document).decode()), "note": text(document.note)}
    if isinstance(document, Status):
        measurement = STATUS
        fields |= {"is_online": "true" if document.is_online else "false", "state": text(document.state)}
    else:
        measurement = PROGRAM
        fields["left_out"] = f"{sum(document.dropped.values())}i"
    return f"{key(measurement, fleet=fleet, name=document.name, role=document.role)} {_join(fields)} {at_ns}"


def text(value: str) -> str:
    """A string field."""
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _join(fields: Mapping[str, str]) -> str:
    return ",".join(f"{name}={value}" for name, value in fields.items())


def _tag(value: str) -> str:
    return stored_name(value).translate(_SPECIAL)


def where(tags: Mapping[str, str], *more: str) -> str:
    """A WHERE clause: tags that have their values, and what else must hold."""
    equal: Iterable[str] = (f"{quoted(name)} = {literal(stored_name(value))}" for name, value in tags.items())
    return " AND ".join((*equal, *more))
