"""What a recorded file holds: which columns are time, channels and covariates. The same tables as a settings file.

What [stream] leaves out, or all channels, are chosen from the first rows (``fleetgp.defaults``); so are the time's columns.

[time]
columns = ["year", "month", "day", "hour"]     # or ["timestamp"]
zone = "UTC"                                   # of times that name none
format = ""                                    # strptime form; "" = ISO 8601 or epoch s, ms, us, ns

[stream]
interval = "1h"

[channels]
"PM2.5" = { transform = "log1p", unit = "ug/m3" }     # field = "other column" where the column has another name
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

from fleetgp.errors import ConfigError
from fleetgp.runtime.spec import read_wanted, refuse_unknown
from fleetgp.schema import Channel, Covariate, Schema
from fleetgp.wanted import Wanted

TABLES = ("time", "stream", "channels", "covariates")
CALENDAR = ("year", "month", "day", "hour", "minute", "second")


class TimeSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One time column, or calendar columns named year, month, day, hour, minute, second (the first three at least).

    No column: left open, to be found in the files.
    """

    columns: tuple[str, ...] = ()
    zone: str = "UTC"
    format: str = ""


class RecordingSpec(msgspec.Struct, frozen=True, kw_only=True):
    """How to read a recording: its time, and what its owner wants of it."""

    time: TimeSpec
    wanted: Wanted

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
    said = document.get("time", {})
    if isinstance(said, dict):
        refuse_unknown(said, TimeSpec.__struct_fields__, "time", source)
        if said.get("columns") == []:
            raise ConfigError("time.columns", "names no column", source)
    try:
        time = msgspec.convert(said, TimeSpec)
    except msgspec.ValidationError as err:
        raise ConfigError("time", str(err), source) from err
    _check_time(time, source)
    return RecordingSpec(time=time, wanted=read_wanted(document, source))


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
