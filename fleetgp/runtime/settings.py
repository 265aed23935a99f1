"""The one table of settings, and how their values come together: defaults < TOML file < environment < flags.

Whatever is not in the table is an error that names the nearest known key. ``python -m fleetgp.runtime.settings`` prints
docs/settings.md from it.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from fleetgp.errors import ConfigError
from fleetgp.runtime import spec
from fleetgp.runtime.settings_table import SETTINGS, Setting, Value
from fleetgp.schema import Schema, check_id
from fleetgp.wanted import Wanted

__all__ = [
    "CONFIG_VARIABLE",
    "SETTINGS",
    "Setting",
    "Settings",
    "load",
    "markdown",
    "mqtt_password",
    "secret",
    "variable_of",
]

PREFIX = "FLEETGP_"
CONFIG_VARIABLE = "FLEETGP_CONFIG"
DEFAULT_SOURCE = "default"
MAX_FILE_BYTES = 1_000_000
MAX_PASSWORD_BYTES = 4096

_BY_NAME: Mapping[str, Setting] = MappingProxyType({setting.name: setting for setting in SETTINGS})
_BY_VARIABLE: Mapping[str, Setting] = MappingProxyType({setting.variable: setting for setting in SETTINGS})
_TABLES = frozenset(setting.name.split(".")[0] for setting in SETTINGS if "." in setting.name)
_TRUTH = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}


@dataclass(frozen=True)
class Settings:
    """All settings, fixed after loading. Printing it never shows a secret.

    Asking for a name that is not in the table, or by the wrong type, is our own bug: KeyError, TypeError.
    """

    values: Mapping[str, Value] = field(repr=False)
    sources: Mapping[str, str]
    streams: Wanted | None = None

    def text(self, name: str) -> str:
        value = self.values[name]
        if not isinstance(value, str):
            raise TypeError(f"setting {name} is not text")
        return value

    def number(self, name: str) -> float:
        value = self.values[name]
        if isinstance(value, (bool, str)):
            raise TypeError(f"setting {name} is not a number")
        return float(value)

    def whole(self, name: str) -> int:
        value = self.values[name]
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError(f"setting {name} is not a whole number")
        return value

    def flag(self, name: str) -> bool:
        value = self.values[name]
        if not isinstance(value, bool):
            raise TypeError(f"setting {name} is not a flag")
        return value

    def source(self, name: str) -> str:
        """Where the value came from: ``default``, a file with its line, an environment variable or a flag."""
        return self.sources[name]

    def told(self, names: Iterable[str]) -> dict[str, str | float]:
        """Values of these names, for others to read; a flag as "true" or "false". A secret is our own bug: TypeError."""
        told: dict[str, str | float] = {}
        for name in names:
            value = self.values[name]
            if _BY_NAME[name].is_secret:
                raise TypeError(f"setting {name} is not for others to read")
            told[name] = str(value).lower() if isinstance(value, bool) else value
        return told

    def with_told(self, told: Mapping[str, str | float], source: str) -> Settings:
        """The same settings but for what another program told of its own; names that are not known here are left out."""
        known = {name: _BY_NAME[name].as_meant(value) for name, value in told.items() if name in _BY_NAME}
        return self.with_values(known, source)

    def wanted(self) -> Wanted:
        """What the owner said of the streams. Raises ConfigError where the file named no channels."""
        if self.streams is None or not self.streams.channels:
            problem = "none is given; the settings file (--config) needs a [channels.NAME] table for each channel"
            raise ConfigError("channels", problem)
        return self.streams

    def schema(self) -> Schema:
        """What the agent watches, where the file says all of it. Raises ConfigError where something is left open."""
        return self.wanted().schema()

    def with_values(self, values: Mapping[str, Value], source: str) -> Settings:
        """The same settings but for these values, checked as any other. Raises ConfigError."""
        changed = {name: _checked(_known(name, source), value, source) for name, value in values.items()}
        return Settings(
            MappingProxyType({**self.values, **changed}),
            MappingProxyType({**self.sources, **dict.fromkeys(changed, source)}),
            self.streams,
        )

    def rows(self) -> Iterator[tuple[str, str, str]]:
        """(name, value, source) of every setting for printing; a secret that is set shows as ``***``."""
        for setting in SETTINGS:
            value = self.values[setting.name]
            yield setting.name, "***" if setting.is_secret and value else _show(value), self.sources[setting.name]


def load(
    file: Path | None,
    environment: Mapping[str, str],
    flags: Mapping[str, str],
    flag_names: Mapping[str, str] = MappingProxyType({}),
) -> Settings:
    """Settings from a TOML file (None = none), the environment and flags (setting name to text), each over the one before.

    flag_names: what the user typed, by setting name, where it was not ``--set NAME=...``. Raises ConfigError on a file
    that cannot be read, on anything unknown and on any value of the wrong type or out of range.
    """
    values: dict[str, Value] = {setting.name: setting.default for setting in SETTINGS}
    sources = dict.fromkeys(values, DEFAULT_SOURCE)
    streams = None
    if file is not None:
        content = _read(file)
        document = _parse_toml(content, file)
        for name, raw in _flatten(document, file, content):
            source = _place(file, content, name)
            values[name], sources[name] = _from_toml(_BY_NAME[name], raw, source), source
        if any(table in document for table in spec.TABLES):
            streams = spec.read_wanted(document, str(file))
            if not streams.channels:
                problem = 'none is given; name at least one, e.g. [channels.temperature] unit = "°C"'
                raise ConfigError("channels", problem, str(file))
    for variable, text in environment.items():
        if variable.startswith(PREFIX) and variable != CONFIG_VARIABLE:
            setting = _known_variable(variable)
            source = f"environment variable {variable}"
            values[setting.name], sources[setting.name] = parse(setting, text, source), source
    for name, text in flags.items():
        source = f"flag {flag_names.get(name, f'--set {name}')}"
        values[name], sources[name] = parse(_known(name, source), text, source), source
    return Settings(MappingProxyType(values), MappingProxyType(sources), streams)


def parse(setting: Setting, text: str, source: str) -> Value:
    """The value that a text stands for, by the setting's type. Raises ConfigError in plain words."""
    stripped = text.strip()
    try:
        match setting.default:
            case bool():
                value: Value = _TRUTH[stripped.lower()]
            case int():
                value = _whole(stripped)
            case float():
                value = _number(stripped)
            case _:
                value = text
    except (KeyError, ValueError) as err:
        raise _refusal(setting, text, source) from err
    return _checked(setting, value, source)


def variable_of(name: str) -> str:
    """The environment variable of a setting."""
    return _BY_NAME[name].variable


def mqtt_password(settings: Settings) -> str:
    """The broker's password, see ``secret``."""
    return secret(settings, "mqtt.password")


def secret(settings: Settings, name: str) -> str:
    """A secret: the setting ``NAME``, or the first line of the file that ``NAME_file`` names; "" where neither is set.

    Raises ConfigError when both are set, or the file cannot be read or holds nothing.
    """
    key = f"{name}_file"
    value, path, source = settings.text(name), settings.text(key), settings.source(key)
    what = name.rpartition(".")[2]
    if not path:
        return value
    if value:
        raise ConfigError(key, f"{name} is set too; keep one of the two", source)
    try:
        with Path(path).expanduser().open("rb") as file:
            line = file.read(MAX_PASSWORD_BYTES).split(b"\n")[0].rstrip(b"\r").decode()
    except OSError as err:
        problem = f"cannot read {path}: {err.strerror or err}; put the {what} on its first line"
        raise ConfigError(key, problem, source) from err
    except UnicodeDecodeError as err:
        raise ConfigError(key, f"{path} is not UTF-8 text", source) from err
    if not line:
        raise ConfigError(key, f"the first line of {path} is empty; it must be the {what}", source)
    return line


def markdown() -> str:
    """The text of docs/settings.md."""
    lines = [
        "# Settings",
        "",
        "Generated by `python -m fleetgp.runtime.settings`; edit `fleetgp/runtime/settings_table.py` instead.",
        "",
        "Every program takes every setting from, each over the one before: its default, the TOML file named by `--config`",
        "(or `FLEETGP_CONFIG`), an environment variable, `--set NAME=VALUE`. In the file, the part before the dot is the table:",
        "",
        "```toml",
        'fleet = "home"',
        "",
        "[mqtt]",
        'url = "mqtt://192.168.1.10:1883"',
        "",
        "[stream]",
        'interval = "1s"        # "500ms", "5min", "1h" or a number of seconds',
        "lags = 2               # how many steps back a prediction looks",
        'phases = ["1d"]        # what the calendar repeats in, each with `harmonics` (3) sines and cosines',
        'inducing = 24          # inducing inputs of the nonlinear part, 0 = linear; kernel = "se", "matern32", "matern52"',
        '# mixing = "ilmm"       # for a machine that repeats a cycle, with cycle = "60s" or position = "angle", position_period = 360: docs/mixing.md',
        "",
        "[channels.temperature] # one table for each quantity to predict",
        'unit = "°C"            # also: transform = "identity" | "log1p", topic, field (its name in a JSON payload)',
        "",
        "[covariates.heating]   # quantities to predict from; known_ahead = true where its value is known before the frame",
        "```",
        "",
        "A key that is not listed here is an error. Of `[stream]`, what is not given is taken from the fleet, where it has one",
        "already, or chosen from the first readings ([defaults.md](defaults.md) says how), except that `harmonics` is then 3 and",
        '`kernel` is "se". An agent that is given `interval`, `lags`, `phases` and `inducing` chooses nothing and begins at once.',
        "",
        "| setting | default | unit, range | meaning | environment |",
        "|---|---|---|---|---|",
    ]
    for setting in SETTINGS:
        default = f"`{_show(setting.default)}`" if setting.default != "" else "empty"
        allowed = setting.allowed().replace("|", "\\|")
        lines.append(
            f"| `{setting.name}` | {default} | {allowed} | {setting.help}{' (secret)' if setting.is_secret else ''} "
            f"| `{setting.variable}` |"
        )
    return "\n".join(lines) + "\n"


def _read(file: Path) -> str:
    try:
        with file.open("rb") as stream:
            content = stream.read(MAX_FILE_BYTES + 1)
    except OSError as err:
        raise ConfigError(str(file), f"the settings file cannot be read: {err.strerror or err}") from err
    if len(content) > MAX_FILE_BYTES:
        raise ConfigError(str(file), f"more than {MAX_FILE_BYTES} bytes; this is not a settings file")
    try:
        return content.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as err:
        line = content.count(b"\n", 0, err.start) + 1
        raise ConfigError(str(file), f"is not UTF-8 text (line {line}); save it as UTF-8") from err


def _parse_toml(content: str, file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(content)
    except tomllib.TOMLDecodeError as err:
        raise ConfigError(str(file), f"is not valid TOML: {err}") from err
    except (RecursionError, ValueError) as err:
        raise ConfigError(
            str(file), f"is not valid TOML: {type(err).__name__}, nested or numbered beyond reason"
        ) from err


def _flatten(document: Mapping[str, Any], file: Path, content: str) -> Iterator[tuple[str, object]]:
    """Dotted names and raw values of a document, the spec's tables left out. Raises ConfigError on an unknown name."""
    for top, entry in document.items():
        if top in spec.TABLES:
            continue
        if top in _TABLES:
            if not isinstance(entry, Mapping):
                raise ConfigError(top, f"expected a table, [{top}], got {entry!r}", _place(file, content, top))
            for key, raw in entry.items():
                name = f"{top}.{key}"
                _known(name, _place(file, content, name))
                yield name, raw
        elif top in _BY_NAME:
            yield top, entry
        else:
            known = [*_BY_NAME.keys() - {name for name in _BY_NAME if "." in name}, *_TABLES, *spec.TABLES]
            raise ConfigError(top, f"unknown; {spec.nearest(top, known)}", _place(file, content, top))


def _from_toml(setting: Setting, raw: object, source: str) -> Value:
    """A value as TOML gave it, checked by the setting's type: no text for numbers, no numbers for text."""
    is_whole = isinstance(raw, int) and not isinstance(raw, bool)
    if isinstance(raw, Value) and (type(raw) is type(setting.default) or (is_whole and type(setting.default) is float)):
        return _checked(setting, raw, source)
    raise _refusal(setting, raw, source)


def _checked(setting: Setting, value: Value, source: str) -> Value:
    if setting.is_id and (value or setting.default):
        try:
            check_id(str(value), setting.name)
        except ConfigError as err:
            raise ConfigError(err.key, err.problem, source) from err
    if setting.choices and value not in setting.choices:
        raise _refusal(setting, value, source)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        low = -sys.float_info.max if setting.low is None else setting.low
        high = sys.float_info.max if setting.high is None else setting.high
        if not low <= value <= high:  # false for NaN and infinities too
            raise _refusal(setting, value, source)
        return type(setting.default)(value)
    return value


def _known(name: str, source: str) -> Setting:
    if name in _BY_NAME:
        return _BY_NAME[name]
    if name in spec.TABLES or name.split(".")[0] in spec.TABLES:
        raise ConfigError(name, "can only be set in the settings file", source)
    raise ConfigError(name, f"there is no such setting; {_advice(name, _BY_NAME)}", source)


def _known_variable(variable: str) -> Setting:
    if variable in _BY_VARIABLE:
        return _BY_VARIABLE[variable]
    raise ConfigError(
        variable, f"there is no such setting; {_advice(variable, [*_BY_VARIABLE, CONFIG_VARIABLE])}", "the environment"
    )


def _advice(name: str, known: Iterable[str]) -> str:
    """The nearest of the known names; within a table that exists, of that table's."""
    table, _, key = name.partition(".")
    keys = [other.partition(".")[2] for other in known if other.startswith(f"{table}.")]
    near = f"{table}.{near_key}" if (near_key := spec.closest(key, keys)) else spec.closest(name, known)
    return f'did you mean "{near}"?' if near else "docs/settings.md lists all of them"


def _whole(text: str) -> int:
    if not re.fullmatch(r"[+-]?[0-9]{1,18}", text):
        raise ValueError(text)
    return int(text)


def _number(text: str) -> float:
    if not re.fullmatch(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,4})?", text):
        raise ValueError(text)
    return float(text)


def _refusal(setting: Setting, given: object, source: str) -> ConfigError:
    shown = "***" if setting.is_secret else repr(given)[:80]
    near = spec.closest(given, setting.choices) if isinstance(given, str) else ""
    advice = f'; did you mean "{near}"?' if near else ""
    return ConfigError(setting.name, f"expected {setting.expected()}, got {shown}{advice}", source)


def _place(file: Path, content: str, name: str) -> str:
    """The file, with the line where a dotted name is set, found by its table header and key."""
    table, _, key = name.rpartition(".")
    current = ""
    for number, line in enumerate(content.splitlines(), start=1):
        if header := re.match(r"\s*\[\s*([^\[\]]+?)\s*\]", line):
            current = header[1]
            if current == name:
                return f"{file}, line {number}"
        elif (assigned := re.match(r"\s*([\w.\"' -]+?)\s*=", line)) and (
            (current == table and assigned[1].strip("\"'") == key) or (not current and assigned[1] == name)
        ):
            return f"{file}, line {number}"
    return str(file)


def _show(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    print(markdown(), end="")
