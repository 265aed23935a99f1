"""Events, rounds, presence and health: documents beside the rows, each kept once in its newest state.

Of an event or a round the state furthest on wins, then the later report, in whatever order they come. Of presence and
health the last one written wins, whatever its time: a will that says offline carries the time it was made at, and a
device without a battery clock starts in the past.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from fleetgp.errors import LocalError, PeerError, StorageError
from fleetgp.store.base import Batch
from fleetgp.store.sqlite_rows import EARLIEST_MS, LATEST_MS
from fleetgp.wire.codec import decode, encode
from fleetgp.wire.messages import AnomalyEvent, Health, Message, RoundNotice, Status

MAX_EVENTS = 100_000
MAX_ROUNDS = 100_000
MAX_PROGRAMS = 20_000
_MAX_ROUND = 2**63 - 1

EVENT_RANK = {"opened": 0, "updated": 1, "closed": 2}
ROUND_RANK = {"opened": 0, "closed": 1}

# The body as last word, so that two reports of one state and time are decided alike in whatever order they come.
_PUT_EVENT = """
INSERT INTO events VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE
SET rank = excluded.rank, at_ms = excluded.at_ms, start_ms = excluded.start_ms, body = excluded.body
WHERE (excluded.rank, excluded.at_ms, excluded.body) > (events.rank, events.at_ms, events.body)
"""
_PUT_ROUND = """
INSERT INTO rounds VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE
SET rank = excluded.rank, at_ms = excluded.at_ms, body = excluded.body
WHERE (excluded.rank, excluded.at_ms, excluded.body) > (rounds.rank, rounds.at_ms, rounds.body)
"""
_PUT_STATUS = "INSERT OR REPLACE INTO statuses VALUES (?, ?, ?, ?)"
_PUT_HEALTH = "INSERT OR REPLACE INTO healths VALUES (?, ?, ?, ?)"

M = TypeVar("M", bound=Message)
Fields = tuple[str | int | bytes, ...]


def write_documents(connection: sqlite3.Connection, batch: Batch) -> Counter[str]:
    """Put the documents of a batch into the open transaction; counts by reason of those refused."""
    refused: Counter[str] = Counter()

    def put(sql: str, messages: Sequence[M], fields_of: Callable[[M], Fields]) -> None:
        connection.executemany(sql, list(_taken(messages, fields_of, refused)))

    put(_PUT_STATUS, batch.statuses, lambda m: (m.name, m.role, m.at_ms))
    put(_PUT_HEALTH, batch.healths, lambda m: (m.name, m.role, m.at_ms))
    put(_PUT_EVENT, batch.events, lambda m: (m.agent, m.event_id, EVENT_RANK[m.state], m.at_ms, m.start_ms))
    put(_PUT_ROUND, batch.rounds, lambda m: (m.round, ROUND_RANK[m.state], m.at_ms))
    return refused


def _taken(messages: Iterable[M], fields_of: Callable[[M], Fields], refused: Counter[str]) -> Iterable[Fields]:
    for message in messages:
        times = (message.at_ms, getattr(message, "start_ms", message.at_ms))
        if not all(EARLIEST_MS <= at_ms <= LATEST_MS for at_ms in times):
            refused["document_time_out_of_range"] += 1
        elif not 0 <= getattr(message, "round", 0) <= _MAX_ROUND:
            refused["document_round_out_of_range"] += 1
        else:
            try:
                body = encode(message)
            except (LocalError, UnicodeEncodeError):
                refused["document_not_writable"] += 1
                continue
            yield (*fields_of(message), body)


def trim_documents(connection: sqlite3.Connection) -> None:
    """Drop the oldest documents beyond the bounds, inside the open transaction."""
    bounds = (
        ("events", "start_ms", MAX_EVENTS),
        ("rounds", "at_ms", MAX_ROUNDS),
        ("statuses", "rowid", MAX_PROGRAMS),
        ("healths", "rowid", MAX_PROGRAMS),
    )
    for table, age, most in bounds:
        excess = connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0] - most
        if excess > 0:
            connection.execute(
                f"DELETE FROM {table} WHERE rowid IN (SELECT rowid FROM {table} ORDER BY {age} LIMIT ?)", (excess,)
            )


def read_statuses(connection: sqlite3.Connection) -> list[Status]:
    """The last presence of every program, by role and name."""
    return _read(connection.execute("SELECT body FROM statuses ORDER BY role, name"), Status)


def read_healths(connection: sqlite3.Connection) -> list[Health]:
    """The last health of every program, by role and name."""
    return _read(connection.execute("SELECT body FROM healths ORDER BY role, name"), Health)


def read_events(connection: sqlite3.Connection, agent: str | None, limit: int) -> list[AnomalyEvent]:
    """The newest state of each event, of one agent or of all, latest start first."""
    where, arguments = ("", (limit,)) if agent is None else ("WHERE agent = ?", (agent, limit))
    sql = f"SELECT body FROM events {where} ORDER BY start_ms DESC, agent, event_id LIMIT ?"
    return _read(connection.execute(sql, arguments), AnomalyEvent)


def read_rounds(connection: sqlite3.Connection, limit: int) -> list[RoundNotice]:
    """The newest state of each round, latest first by its notice, so that a count that started anew comes first."""
    sql = "SELECT body FROM rounds ORDER BY at_ms DESC, round DESC LIMIT ?"
    return _read(connection.execute(sql, (limit,)), RoundNotice)


def _read(cursor: sqlite3.Cursor, kind: type[M]) -> list[M]:
    try:
        return [decode(body, kind) for (body,) in cursor]
    except PeerError as err:
        raise StorageError(f"the history store holds a {kind.__name__} that cannot be read: {err}") from err
