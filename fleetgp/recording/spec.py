"""What a recorded file holds: which columns are time, channels and covariates. The same tables as a settings file.

What [stream] leaves out, or all channels, are chosen from the first rows (``fleetgp.defaults``); so are the time's columns.

[time]
columns = ["year", "month", "day", "hour"]     # or ["timestamp"]
zone = "UTC"                                   # of times that name none
format = ""                                    # strptime form; "" = ISO 8601 or epoch s, ms, us, ns
# or, of a table without a time: start = "2026-01-01T00:00" and every = "1min", from row to row of a device

[devices]
column = "mote_id"                             # rows of several devices: whose each is; "" = all are of one

[file]
encoding = "cp1252"                            # of text that is neither UTF-8 nor marked as UTF-16

[stream]
interval = "1h"

[channels]
"PM2.5" = { transform = "log1p", unit = "ug/m3" }     # field = "other column" where the column has another name
"""

from __future__ import annotations

import tomllib
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

from fleetgp.errors import ConfigError
from fleetgp.runtime.spec import parse_span, read_wanted, refuse_unknown
from fleetgp.schema import Channel, Covariate, Schema
from fleetgp.wanted import Wanted

TABLES = ("time", "devices", "file", "stream", "channels", "covariates")
CALENDAR = ("year", "month", "day", "hour", "minute", "second")

S = TypeVar("S", bound=msgspec.Struct)


class TimeSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One time column, or calendar columns named year, month, day, hour, minute, second (the first three at least).

    No column: left open, to be found in the files; or rows that begin at ``start`` and come ``every`` so long.
    """

    columns: tuple[str, ...] = ()
    zone: str = "UTC"
    format: str = ""
    start: str = ""
    every: str = ""

    @property
    def is_open(self) -> bool:
        return not self.columns and not self.every


class FileSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """encoding: of text, "" = UTF-8, or UTF-16 where a byte order mark says so."""

    encoding: str = ""


class DevicesSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """column: whose value says whose row it is; "" = all rows are of one device, None = left open."""

    column: str | None = None


class RecordingSpec(msgspec.Struct, frozen=True, kw_only=True):
    """How to read a recording: its time, and what its owner wants of it."""

    time: TimeSpec
    wanted: Wanted
    devices: DevicesSpec = DevicesSpec()
    file: FileSpec = FileSpec()

    @property
    def encoding(self) -> str:
        return self.file.encoding

    @property
    def inputs(self) -> tuple[Channel | Covariate, ...]:
        """What a row's values are, in their order."""
        return self.wanted.inputs

    @property
    def schema(self) -> Schema:
        """Raises ConfigError where something is left open."""
        return self.wanted.schema()


def load(path: Path) -> RecordingSpec:
    """Read a spec file. Raises ConfigError in plain words where it is missing, not TOML, or wrong."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError("--spec", f"there is no file {path}") from None
    except (OSError, UnicodeDecodeError) as err:
        raise ConfigError("--spec", f"{path} cannot be read: {err}") from err
    except tomllib.TOMLDecodeError as err:
        raise ConfigError("--spec", f"{path} is not TOML: {err}") from err
    return parse(document, str(path))


def parse(document: dict[str, Any], source: str) -> RecordingSpec:
    """The spec in a TOML document. Raises ConfigError."""
    for table in document:
        if table not in TABLES:
            raise ConfigError(table, f"a recording's spec has the tables {', '.join(TABLES)} only", source)
    time = _read(TimeSpec, document, "time", source)
    said = document.get("time", {})
    if said.get("columns") == []:
        raise ConfigError("time.columns", "names no column", source)
    _check_time(time, source)
    _check_steps(time, source)
    file = _read(FileSpec, document, "file", source)
    _check_encoding(file.encoding, source)
    devices = _read(DevicesSpec, document, "devices", source)
    return RecordingSpec(time=time, wanted=read_wanted(document, source), devices=devices, file=file)


def _read(kind: type[S], document: dict[str, Any], table: str, source: str) -> S:
    said = document.get(table, {})
    if isinstance(said, dict):
        refuse_unknown(said, kind.__struct_fields__, table, source)
    try:
        return msgspec.convert(said, kind)
    except msgspec.ValidationError as err:
        raise ConfigError(table, str(err), source) from err


def _check_steps(time: TimeSpec, source: str) -> None:
    if not (time.start or time.every):
        return
    if not (time.start and time.every) or time.columns:
        problem = "start and every stand together and without columns: they are for tables that have no time"
        raise ConfigError("time.start" if time.start else "time.every", problem, source)
    try:
        datetime.fromisoformat(time.start)
    except ValueError:
        raise ConfigError("time.start", f"{time.start!r} is no time; an example is 2026-01-01T00:00", source) from None
    parse_span(time.every, "time.every", source)


def _check_encoding(encoding: str, source: str) -> None:
    try:
        "".encode(encoding or "utf-8")
    except (LookupError, UnicodeError):  # no text encoding of that name
        problem = f"{encoding!r} is no text encoding; examples are utf-8, cp1252, latin-1, utf-16"
        raise ConfigError("file.encoding", problem, source) from None


def _check_time(time: TimeSpec, source: str) -> None:
    if len(time.columns) > 1:
        known = [name.lower() for name in time.columns]
        if known != list(CALENDAR[: len(known)]) or len(known) < 3:
            raise ConfigError("time.columns", f"several columns must be the first of {', '.join(CALENDAR)}", source)
        if time.format:
            raise ConfigError("time.format", "is for one column; several columns are numbers and need none", source)
    try:
        ZoneInfo(time.zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):  # OSError: a folder of zones, such as Europe
        raise ConfigError("time.zone", f"{time.zone!r} is no time zone; an example is Europe/Berlin", source) from None
