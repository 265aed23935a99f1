"""What ``fleetgp doctor`` says of a history that a server keeps: the server, and what waits for it on this machine."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from broker_bridge.finding import Finding
from fleetgp.errors import StorageError
from fleetgp.runtime.clock import SystemClock
from fleetgp.runtime.influx import Client
from fleetgp.runtime.influx_answers import InfluxError
from fleetgp.runtime.settings import Settings
from fleetgp.store.influx_backlog import Dead, read_counts, read_dead, read_waiting
from fleetgp.store.open import access, backlog_path
from fleetgp.store.sqlite_errors import plain_words
from fleetgp.store.sqlite_schema import connect_reader

_LINE_SHOWN = 160


def examine_server(settings: Settings) -> Iterator[Finding]:
    """Whether the server answers, is one we know, and has our database. Raises ConfigError on a wrong setting."""
    client = Client(access(settings))
    with closing(client):
        try:
            server = client.probe()
            if server.kind == "victoriametrics":
                words = f"{server} at {client.location}; it keeps no texts: events, rounds and presence stay on this machine"
                advice = (
                    "the dashboard beside the bridge shows the last hour; look further back with Grafana and PromQL"
                )
                yield Finding("influx", "warning", words, advice)
                return
            client.query('SELECT last("rows") FROM "fleetgp_series"')
        except InfluxError as err:
            if err.status == 404 and client.probe().kind == "influxdb1":
                words = f"{client.location} is not there yet: {err.detail}"
                advice = "the bridge makes it when it first writes, where its login may; else: influx -execute "
                yield Finding("database", "warning", words, f"{advice}'CREATE DATABASE \"{client.access.database}\"'")
                return
            yield Finding("influx", "fault", str(err), "nothing is lost meanwhile: the bridge keeps it on its disk")
            return
        yield Finding("influx", "ok", f"{server} at {client.location}")


def examine_backlog(settings: Settings) -> Iterator[Finding]:
    """What waits, what was dropped, what the server refuses for good."""
    path = backlog_path(settings)
    if not path.is_file():
        yield Finding("backlog", "ok", f"nothing waits at {path}")
        return
    try:
        waiting, oldest_ms, counts, dead = _look(path)
    except StorageError as err:
        yield Finding("backlog", "fault", str(err), "see which folder data.dir names")
        return
    most_mb, size_mb = settings.whole("store.backlog_mb"), path.stat().st_size / 1e6
    seen = f"{waiting} instants wait in {path} ({size_mb:.0f} of {most_mb} MB)"
    if oldest_ms is not None:
        seen += f", the oldest for {max(0, SystemClock().now_ms() - oldest_ms) / 1000:.0f} s"
    dropped = {name: number for name, number in counts.items() if name != "dead"}
    if dropped:
        gone = ", ".join(f"{name} {number}" for name, number in sorted(dropped.items()))
        yield Finding("backlog", "fault", f"{seen}; {gone}", "mend the way to the server, or raise store.backlog_mb")
    elif waiting and oldest_ms is not None and SystemClock().now_ms() - oldest_ms > 60_000:
        yield Finding("backlog", "warning", seen, "is the bridge running, and does the server answer?")
    else:
        yield Finding("backlog", "ok", seen)
    for letter in dead:
        line = letter.line if len(letter.line) <= _LINE_SHOWN else letter.line[:_LINE_SHOWN] + "..."
        words = f"{letter.number} lines refused for good: {letter.reason}; the last: {line}"
        yield Finding("dead", "warning", words, f"they are kept in the table dead of {path}")


def _look(path: Path) -> tuple[int, int | None, dict[str, int], list[Dead]]:
    with plain_words(path, "read"), closing(connect_reader(path)) as connection:
        try:
            return *read_waiting(connection), read_counts(connection), read_dead(connection)
        except sqlite3.OperationalError as err:
            raise StorageError(f"{path} is no backlog of a bridge: {err}") from err
