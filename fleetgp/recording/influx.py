"""The answer to an InfluxQL query as messages: a row becomes what a device would have sent.

Rows of a bridge's own history get their topic, time and sequence back. Of anybody else's, tags make the name: ``SELECT * FROM
weather`` with a tag ``site`` gives ``sensors/NAME`` with the site as the name, its other columns as JSON fields. A message
counts as received at the row's own time, for that is the order they come in.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence

from fleetgp.errors import RecordingError
from fleetgp.recording.message import Message, Recorded
from fleetgp.runtime.influx import Client
from fleetgp.runtime.influx_answers import Cell, Table
from fleetgp.runtime.influx_names import RECEIVED, SEQUENCE, own_name, quoted

TOPIC = "sensors/"
OWN = "fleetgp_reading"
_NO_TOPIC = re.compile(r"[+#\x00/]")


def stream(client: Client, query: str) -> Iterator[Recorded]:
    """Rows of one SELECT as messages, in the order of their times; so many in memory as the server sends in one part.

    The query must not group by tags, for its rows would then come group after group: ``SELECT *`` brings the tags as columns.
    Raises RecordingError for a query that gives no rows of that kind, InfluxError where the server refuses.
    """
    tags: dict[str, list[str]] = {}
    last_ns = None
    for table in client.stream(query):
        if table.tags:
            raise RecordingError(
                "a query with GROUP BY does not come in the order of its times; SELECT * brings tags too"
            )
        if not table.columns or table.columns[0] != "time":
            raise RecordingError(
                "this query gives no rows with times; expected like SELECT * FROM weather WHERE time > ..."
            )
        if table.name not in tags:
            tags[table.name] = _tags(client, table.name)
        for row in table.values:
            at_ns = int(row[0] or 0)
            if last_ns is not None and at_ns < last_ns:
                raise RecordingError(
                    "this query's rows are not in the order of their times; ask for one measurement only"
                )
            last_ns = at_ns
            message = _message(table, row, tags[table.name])
            if message is not None:
                yield message


def _tags(client: Client, measurement: str) -> list[str]:
    # a client of its own: the answer that is being read is in the way on this one
    other = Client(client.access)
    try:
        return [
            str(row[0]) for table in other.query(f"SHOW TAG KEYS FROM {quoted(measurement)}") for row in table.values
        ]
    finally:
        other.close()


def _message(table: Table, row: Sequence[Cell], tags: Sequence[str]) -> Message | None:
    at_ns = int(row[0] or 0)
    cells: dict[str, Cell] = {
        name: cell for name, cell in zip(table.columns[1:], row[1:], strict=True) if cell is not None
    }
    if table.name == OWN:
        return _own_message(at_ns, cells)
    name = "-".join(str(cells.pop(tag)) for tag in tags if tag in cells) or table.name
    if not cells:
        return None
    topic = TOPIC + _NO_TOPIC.sub("_", name)
    return Message(topic, json.dumps({"time": at_ns / 1e6, **cells}).encode(), at_ns, at_ns)


def _own_message(at_ns: int, cells: dict[str, Cell]) -> Message:
    at_ms = at_ns // 1_000_000
    if "series" not in cells:
        raise RecordingError(f"a query of {OWN} must bring the tag series: SELECT * FROM {OWN} WHERE ...")
    topic = own_name(str(cells.pop("series")))
    cells.pop("fleet", None)
    cells.pop(RECEIVED, None)
    sequence = cells.pop(SEQUENCE, None)
    told = {own_name(name): cell for name, cell in cells.items()} | {"time": at_ms}
    if sequence is not None:
        told["seq"] = sequence
    return Message(topic, json.dumps(told).encode(), at_ms * 1_000_000, at_ms * 1_000_000)
