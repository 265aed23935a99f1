"""The history store that the settings name, opened for writing or reading."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from fleetgp.errors import ConfigError, StorageError
from fleetgp.runtime.clock import Clock, SystemClock
from fleetgp.runtime.influx import Access, Client
from fleetgp.runtime.influx_http import Address
from fleetgp.runtime.settings import Settings, secret, variable_of
from fleetgp.store import sqlite
from fleetgp.store.base import Reader, Writer
from fleetgp.store.influx_backlog import Backlog, Bounds
from fleetgp.store.influx_read import InfluxReader
from fleetgp.store.influx_write import InfluxWriter
from fleetgp.store.sqlite_retention import retention

_DAY_MS = 86_400_000


def is_influx(settings: Settings) -> bool:
    """Whether history is kept by a server."""
    return settings.text("store.kind") == "influx"


def location(settings: Settings) -> str:
    """Where history is kept, for people: a file, or server and database."""
    if is_influx(settings):
        return f"{Address.of(settings.text('store.url')).url}/{settings.text('store.database')}"
    return str(history_path(settings))


def history_path(settings: Settings) -> Path:
    """The history file, where history is kept in one."""
    given = settings.text("store.path")
    return Path(given).expanduser() if given else _folder(settings) / "history.sqlite"


def backlog_path(settings: Settings) -> Path:
    """What waits for the server, where history is kept by one."""
    return _folder(settings) / "backlog.sqlite"


def access(settings: Settings) -> Access:
    """The server and how to be let in. Raises ConfigError in plain words."""
    database = settings.text("store.database")
    if not database:
        raise ConfigError("store.database", "is empty; name the database or bucket")
    token, username = secret(settings, "store.token"), settings.text("store.username")
    if token and username:
        raise ConfigError("store.username", "store.token is set too; keep one of the two")
    found = Access(
        url=settings.text("store.url").rstrip("/"),
        database=database,
        org=settings.text("store.org"),
        username=username,
        password=secret(settings, "store.password"),
        token=token,
        timeout_s=settings.number("store.timeout_s"),
    )
    Address.of(found.url)
    return found


def open_writer(settings: Settings, clock: Clock | None = None) -> Writer:
    """Open the store for writing. A server need not answer: what is written waits on disk. Raises ConfigError, StorageError."""
    if not is_influx(settings):
        return sqlite.open_keeping(history_path(settings), retention(settings))
    clock = clock or SystemClock()
    client = Client(access(settings))
    bounds = Bounds(settings.whole("store.backlog_mb") * 1_000_000, settings.whole("store.backlog_days") * _DAY_MS)
    backlog = Backlog(backlog_path(settings), bounds, clock, settings.text("fleet"))
    return InfluxWriter(backlog, client, clock, bounds)


def open_reader(settings: Settings) -> Reader:
    """Open the store for reading. Raises ConfigError, StorageError; of a VictoriaMetrics, which cannot be read back, the
    bridge's own file on this machine is read: documents, and what was sent or waits since about an hour."""
    if not is_influx(settings):
        return sqlite.open_reader(history_path(settings))
    client = Client(access(settings))
    if client.probe().kind != "victoriametrics":
        return InfluxReader(client, settings.text("fleet"))
    client.close()
    path = backlog_path(settings)
    if not path.is_file():
        raise StorageError(
            f"a VictoriaMetrics ({client.location}) can be written but not read back; look at it with Grafana, or run the "
            f"dashboard beside the bridge, whose last hour is in {path}"
        )
    return sqlite.open_reader(path)


def pointed_at(settings: Settings, store: str) -> Settings:
    """Settings whose store is the one that a user named: a file, or ``http://HOST:PORT/DATABASE``."""
    source = f"flag --store {store}"
    if "://" not in store:
        return settings.with_values({"store.kind": "sqlite", "store.path": store}, source)
    parts = urlsplit(store)
    path, _, database = parts.path.rstrip("/").rpartition("/")
    changed = {"store.kind": "influx", "store.url": urlunsplit((parts.scheme, parts.netloc, path, "", ""))}
    return settings.with_values(changed | ({"store.database": database} if database else {}), source)


def as_environment(settings: Settings) -> dict[str, str]:
    """What says which store is meant and how to be let in, as environment variables for a part of the same program."""
    names = [name for name in settings.values if name.startswith("store.")]
    return {variable_of(name): str(settings.values[name]) for name in (*names, "fleet", "data.dir")}


def _folder(settings: Settings) -> Path:
    return Path(settings.text("data.dir")).expanduser() / "bridge"
