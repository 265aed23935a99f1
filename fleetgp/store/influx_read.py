"""The reading side of the InfluxDB store: InfluxQL, which 1.x, 2.x (mapped) and 3.x answer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

import msgspec

from fleetgp.errors import PeerError, StorageError
from fleetgp.runtime.influx import Client
from fleetgp.runtime.influx_answers import Cell, Table
from fleetgp.runtime.influx_names import SEQUENCE, own_name
from fleetgp.store.base import Kind, SeriesInfo, StoreInfo, Window
from fleetgp.store.influx_lines import EARLIEST_MS, EVENT, MEASUREMENTS, PROGRAM, ROUND, SERIES, STATUS, where
from fleetgp.store.influx_window import Series, read_window
from fleetgp.store.sqlite_documents import EVENT_RANK, ROUND_RANK
from fleetgp.wire.codec import decode, encode
from fleetgp.wire.messages import AnomalyEvent, Health, Message, RoundNotice, Status

M = TypeVar("M", bound=Message)


class InfluxReader:
    """Reads what a bridge has sent; may be used from any thread. Every method raises StorageError.

    Of a fleet only: several may share a database. How many rows a series has is what the bridges have counted.
    """

    def __init__(self, client: Client, fleet: str) -> None:
        """client: owned by the reader from now on."""
        self._client = client
        self._fleet = {"fleet": fleet}
        self._is_closed = False

    def series(self, kind: Kind) -> list[SeriesInfo]:
        """All series of a kind by name."""
        merged: dict[str, SeriesInfo] = {}
        for table in self._query(
            'SELECT last("channels"), last("first_ms"), last("last_ms"), last("rows") '
            f'FROM "{SERIES}" WHERE {where(self._fleet | {"kind": kind})} GROUP BY "series", "origin"'
        ):
            name = own_name(table.tags["series"])
            info = _info(kind, name, table.values[0][1:])
            merged[name] = _merge(merged[name], info) if name in merged else info
        return [merged[name] for name in sorted(merged)]

    def window(
        self, kind: Kind, name: str, columns: Sequence[str], start_ms: int, end_ms: int, max_points: int = 600
    ) -> Window:
        """See Reader.window; the server makes the steps. Raises ValueError when max_points is below 1."""
        if max_points < 1:
            raise ValueError(f"max_points is {max_points}; a window needs at least 1")
        tags = where(self._fleet | {"series": name})
        series = Series(MEASUREMENTS[kind], tags, self._rolled_ms(kind, name))
        return read_window(self._query, series, columns, (start_ms, end_ms), max_points)

    def sequences(self, name: str) -> list[int]:
        """Sequence numbers of the rows of a reading series, sorted; none for rows that came without."""
        tags = self._fleet | {"series": name}
        found = self._query(f'SELECT "{SEQUENCE}" FROM "{MEASUREMENTS["reading"]}" WHERE {where(tags)}')
        return sorted(value for table in found for _, value in table.values if isinstance(value, int))

    def statuses(self) -> list[Status]:
        """The last presence of every program, by role and name."""
        return sorted(self._last(STATUS, Status), key=lambda one: (one.role, one.name))

    def healths(self) -> list[Health]:
        """The last health of every program, by role and name."""
        return sorted(self._last(PROGRAM, Health), key=lambda one: (one.role, one.name))

    def events(self, agent: str | None = None, limit: int = 1000) -> list[AnomalyEvent]:
        """The newest state of each event, latest start first."""
        tags = self._fleet | ({} if agent is None else {"agent": agent})
        newest: dict[tuple[str, str], AnomalyEvent] = {}
        for event in self._bodies(f'"{EVENT}" WHERE {where(tags)} ORDER BY time DESC LIMIT {2 * limit}', AnomalyEvent):
            identity = event.agent, event.event_id
            old = newest.get(identity)
            if old is None or _event_order(event) > _event_order(old):
                newest[identity] = event
        return sorted(newest.values(), key=lambda one: (-one.start_ms, one.agent, one.event_id))[:limit]

    def rounds(self, limit: int = 1000) -> list[RoundNotice]:
        """Rounds, latest first; the closed notice where a round is closed, else the opened one."""
        newest: dict[int, RoundNotice] = {}
        sql = f'"{ROUND}" WHERE {where(self._fleet)} ORDER BY time DESC LIMIT {2 * limit + 100}'
        for notice in self._bodies(sql, RoundNotice):
            old = newest.get(notice.round)
            if old is None or _round_order(notice) > _round_order(old):
                newest[notice.round] = notice
        return sorted(newest.values(), key=lambda one: (-one.at_ms, -one.round))[:limit]

    def info(self) -> StoreInfo:
        """Content, as the bridges have counted it; megabytes: what the server says its database takes, 0 where it does not."""
        found = [info for kind in MEASUREMENTS for info in self.series(kind)]
        return StoreInfo(
            location=self._client.location,
            megabytes=self._megabytes(),
            series=len(found),
            rows=sum(info.rows for info in found),
            first_ms=min((info.first_ms for info in found), default=None),
            last_ms=max((info.last_ms for info in found), default=None),
        )

    def close(self) -> None:
        """A second time does nothing."""
        self._is_closed = True
        self._client.close()

    def _rolled_ms(self, kind: Kind, name: str) -> int:
        """Up to when minutes are rolled up, of all backlogs that have written the series."""
        tags = where(self._fleet | {"kind": kind, "series": name})
        found = self._query(f'SELECT last("rolled_ms") FROM "{SERIES}" WHERE {tags} GROUP BY "origin"')
        return min((int(row[1] or 0) for table in found for row in table.values), default=EARLIEST_MS)

    def _query(self, text: str) -> list[Table]:
        if self._is_closed:
            raise StorageError(f"cannot read the history at {self._client.location}: it was closed already")
        return self._client.query(text)

    def _last(self, measurement: str, kind: type[M]) -> Iterable[M]:
        tables = self._query(
            f'SELECT last("body") FROM "{measurement}" WHERE {where(self._fleet)} GROUP BY "name", "role"'
        )
        return (self._read(row[1], kind) for table in tables for row in table.values)

    def _bodies(self, source: str, kind: type[M]) -> Iterable[M]:
        tables = self._query(f'SELECT "body" FROM {source}')
        return (self._read(row[1], kind) for table in tables for row in table.values)

    def _read(self, body: Cell, kind: type[M]) -> M:
        try:
            return decode(str(body).encode(), kind)
        except PeerError as err:
            place = self._client.location
            raise StorageError(f"the history at {place} holds a {kind.__name__} that cannot be read: {err}") from err

    def _megabytes(self) -> float:
        try:
            tables = self._client.query("SHOW STATS FOR 'shard'")
        except StorageError:
            return 0.0
        sizes = (
            table.values[0][table.columns.index("diskBytes")]
            for table in tables
            if table.tags.get("database") == self._client.access.database and "diskBytes" in table.columns
        )
        return sum(float(size) for size in sizes if isinstance(size, (int, float))) / 1e6


def _info(kind: Kind, name: str, cells: Sequence[Cell]) -> SeriesInfo:
    channels, first_ms, last_ms, rows = cells
    try:
        names = msgspec.json.decode(str(channels), type=tuple[str, ...])
        return SeriesInfo(kind, name, names, int(first_ms or 0), int(last_ms or 0), int(rows or 0))
    except (msgspec.DecodeError, ValueError) as err:
        raise StorageError(f"the InfluxDB holds a description of {name!r} that cannot be read: {err}") from err


def _merge(one: SeriesInfo, other: SeriesInfo) -> SeriesInfo:
    """Of two backlogs that have written the same series, one after the other."""
    earlier, later = sorted((one, other), key=lambda info: info.first_ms)
    channels = tuple(dict.fromkeys(earlier.channels + later.channels))
    first_ms, last_ms = min(one.first_ms, other.first_ms), max(one.last_ms, other.last_ms)
    return SeriesInfo(one.kind, one.name, channels, first_ms, last_ms, one.rows + other.rows)


def _event_order(event: AnomalyEvent) -> tuple[int, int, bytes]:
    return EVENT_RANK[event.state], event.at_ms, encode(event)


def _round_order(notice: RoundNotice) -> tuple[int, int, bytes]:
    return ROUND_RANK[notice.state], notice.at_ms, encode(notice)
