"""The [stream], [channels] and [covariates] tables of a settings file or a recording's spec: what an owner wants."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar, get_args

import msgspec

from fleetgp.errors import ConfigError
from fleetgp.schema import Channel, Covariate, Kernel, Mixing, Ranks
from fleetgp.wanted import Wanted, mixed

TABLES = ("stream", "channels", "covariates")
MIXED_KEYS = ("cycle", "position", "position_period", "ranks")
STREAM_KEYS = ("interval", "lags", "phases", "harmonics", "inducing", "kernel", "mixing", *MIXED_KEYS)

_SECONDS = {"ms": 0.001, "s": 1.0, "sec": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_SPAN = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*")

T = TypeVar("T", Channel, Covariate)


def read_wanted(document: Mapping[str, Any], source: str) -> Wanted:
    """What the three tables of a TOML document say; other tables are left alone. source: named in errors.

    A key of [stream] that is not there is left open. Raises ConfigError when covariates stand without channels, on a key
    that is not known, or on a wrong value.
    """
    stream = _table(document.get("stream", {}), "stream", source)
    refuse_unknown(stream, STREAM_KEYS, "stream", source)
    channels = _table(document.get("channels", {}), "channels", source)
    covariates = _table(document.get("covariates", {}), "covariates", source)
    if covariates and not channels:
        raise ConfigError("channels", "none is given, but covariates are; name what they are to predict", source)
    kernel = stream.get("kernel")
    if kernel is not None and kernel not in get_args(Kernel):
        raise ConfigError("stream.kernel", f"expected {', '.join(get_args(Kernel))}; got {kernel!r}", source)
    wanted = Wanted(
        channels=tuple(_input(Channel, name, entry, "channels", source) for name, entry in channels.items()),
        covariates=tuple(_input(Covariate, name, entry, "covariates", source) for name, entry in covariates.items()),
        interval_s=parse_span(stream["interval"], "stream.interval", source) if "interval" in stream else None,
        lags=_whole(stream, "lags", source),
        phases=_phases(stream, source),
        harmonics=_whole(stream, "harmonics", source),
        inducing=_whole(stream, "inducing", source),
        kernel=kernel,
    )
    try:
        return _mixed(stream, wanted, source).checked()
    except ConfigError as err:
        raise ConfigError(err.key, err.problem, source) from err


def _mixed(stream: Mapping[str, Any], wanted: Wanted, source: str) -> Wanted:
    """What the keys on mixing say beside the others."""
    mixing = stream.get("mixing")
    if mixing is not None and mixing not in get_args(Mixing):
        raise ConfigError("stream.mixing", f"expected {' or '.join(get_args(Mixing))}; got {mixing!r}", source)
    wanted = msgspec.structs.replace(wanted, mixing=mixing)
    if mixing != "ilmm":
        for key in MIXED_KEYS:
            if key in stream:
                raise ConfigError(f"stream.{key}", 'is for mixing = "ilmm" only; add that, or leave it out', source)
        return wanted
    position = stream.get("position")
    if not isinstance(position, str | None):
        raise ConfigError("stream.position", f"expected the name of a covariate, got {position!r}", source)
    cycle_s = parse_span(stream["cycle"], "stream.cycle", source) if "cycle" in stream else None
    period, ranks = _period(stream, source), _ranks(stream, source)
    return mixed(msgspec.structs.replace(wanted, position=position, position_period=period, ranks=ranks), cycle_s)


def _period(stream: Mapping[str, Any], source: str) -> float | None:
    period = stream.get("position_period")
    if period is None:
        return None
    if isinstance(period, bool) or not isinstance(period, (int, float)) or not 0 < period < math.inf:
        problem = f"expected where the position begins anew, such as 360 of degrees; got {period!r}"
        raise ConfigError("stream.position_period", problem, source)
    return float(period)


def _ranks(stream: Mapping[str, Any], source: str) -> Ranks | None:
    ranks = stream.get("ranks")
    if ranks is None:
        return None
    if not (isinstance(ranks, list) and len(ranks) == 3 and all(type(rank) is int and rank >= 0 for rank in ranks)):
        problem = f"expected three whole numbers, shared, deviation and local, such as [2, 2, 2]; got {ranks!r}"
        raise ConfigError("stream.ranks", problem, source)
    return ranks[0], ranks[1], ranks[2]


def _phases(stream: Mapping[str, Any], source: str) -> tuple[float, ...] | None:
    phases = stream.get("phases")
    if phases is None:
        return None
    if not isinstance(phases, list):
        raise ConfigError("stream.phases", f'expected a list of periods such as ["1d"], got {phases!r}', source)
    return tuple(parse_span(period, "stream.phases", source) for period in phases)


def _whole(stream: Mapping[str, Any], key: str, source: str) -> int | None:
    value = stream.get(key)
    if isinstance(value, bool) or not isinstance(value, (int, type(None))):
        raise ConfigError(f"stream.{key}", f"expected a whole number, got {value!r}", source)
    return value


def parse_span(value: object, key: str, source: str) -> float:
    """Seconds in ``"5min"``, ``"1h"``, ``"500ms"`` or a plain number of seconds. Raises ConfigError otherwise."""
    seconds = math.nan
    if isinstance(value, str) and (match := _SPAN.fullmatch(value)):
        seconds = float(match[1]) * _SECONDS.get(match[2] or "s", math.nan)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        seconds = float(value)
    if not (math.isfinite(seconds) and seconds > 0):
        units = ", ".join(_SECONDS)
        raise ConfigError(key, f'expected a time such as "1s", "5min" or "1h" (units {units}), got {value!r}', source)
    return seconds


def refuse_unknown(given: Iterable[str], known: Iterable[str], table: str, source: str) -> None:
    """Raise ConfigError for the first given key that is not known, naming the nearest one that is."""
    names = tuple(known)
    for key in given:
        if key not in names:
            raise ConfigError(f"{table}.{key}", f"no such key in [{table}]; {nearest(key, names)}", source)


def nearest(word: str, known: Iterable[str]) -> str:
    """``did you mean "..."?`` with the nearest known word, or all of them where none is near."""
    names = sorted(known)
    near = closest(word, names)
    return f'did you mean "{near}"?' if near else f"known are {', '.join(names)}"


def closest(word: str, known: Iterable[str]) -> str:
    """The known word most like this one, "" where none is like it."""
    return next(iter(difflib.get_close_matches(word, sorted(known), n=1, cutoff=0.5)), "")


def _table(value: object, key: str, source: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ConfigError(key, f"expected a table, [{key}], got {value!r}", source)
    return value


def _input(kind: type[T], name: str, entry: object, table: str, source: str) -> T:
    """One channel or covariate from its table."""
    key = f"{table}.{name}"
    fields = _table(entry, key, source)
    known = [field for field in kind.__struct_fields__ if field != "name"]
    for field, value in fields.items():
        if field not in known and isinstance(value, Mapping):
            raise ConfigError(
                f"{key}.{field}", f'a name with a dot in it needs quotes: [{table}."{name}.{field}"]', source
            )
    refuse_unknown(fields, known, key, source)
    try:
        return msgspec.convert({"name": name, **fields}, kind)
    except msgspec.ValidationError as err:
        raise ConfigError(key, _explain(fields, err), source) from err


def _explain(fields: Mapping[str, Any], err: msgspec.ValidationError) -> str:
    """What is wrong with a channel's fields, in plain words."""
    for field, value in fields.items():
        if field == "transform" and value not in ("identity", "log1p"):
            return f'transform is {value!r}; expected "identity" or "log1p"'
        expected, words = (bool, "true or false") if field == "known_ahead" else (str, "text in quotes")
        if not isinstance(value, expected):
            return f"{field} is {value!r}; expected {words}"
    return str(err)
