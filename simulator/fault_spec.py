"""What is to be done to a recording, in words: ``KIND:TOPIC[:FIELD][@WHEN][=SIZE]`` to a ``Fault``, or a TOML file of them.

docs/faults.md has the table of kinds with an example of each.
"""

from __future__ import annotations

import dataclasses
import re
import tomllib
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from fleetgp.errors import ConfigError
from fleetgp.runtime.spec import nearest, refuse_unknown

Kind = Literal[
    "duplicate", "reorder", "late", "drop", "skew", "spike", "offset", "drift", "stuck", "noise", "dropout"
]  # fmt: skip
SENSOR_KINDS = ("spike", "offset", "drift", "stuck", "noise", "dropout")
FLAG = "--inject"
KEYS = ("kind", "topic", "field", "from", "for", "until", "size")
MOST_COUNT = 100_000

_SECONDS = {"ms": 0.001, "s": 1.0, "sec": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
MOST_S = 36_525 * 86_400.0  # a span: a hundred years
MOST_SIZE = 1e100
YEARS = range(1970, 2200)

_NUMBER = r"[+-]?[0-9]+(?:\.[0-9]+)?"
_SPAN = re.compile(rf"({_NUMBER})\s*(ms|sec|s|min|h|d)")
_SPAN_LAST = re.compile(r"(.*)\+([0-9]+(?:\.[0-9]+)?(?:ms|sec|s|min|h|d))")
_PART = re.compile(rf"({_NUMBER})\s*(%|x|ppm|sd|ms|sec|s|min|h|d|)")


class Takes(NamedTuple):
    """Which parts a size of this kind is made of: at least one of ``needs`` (where there are any), and any of ``may``."""

    needs: tuple[str, ...]
    may: tuple[str, ...]
    example: str


TAKES: dict[Kind, Takes] = {
    "duplicate": Takes((), ("share", "count"), "20%"),
    "reorder": Takes(("number", "span"), (), "5 or 2s"),
    "late": Takes(("span",), ("share", "count"), "30s or 30s,10%"),
    "drop": Takes((), ("share", "count"), "20%"),
    "skew": Takes(("span", "ppm"), (), "+3s or +3s,50ppm"),
    "spike": Takes(("number", "sd"), ("share", "count"), "3sd or 5.5,4x"),
    "offset": Takes(("number", "sd"), (), "2.5 or 3sd"),
    "drift": Takes(("number", "sd"), (), "2.5 or 3sd"),
    "stuck": Takes((), ("number",), "21.5"),
    "noise": Takes(("number", "sd"), (), "0.4 or 1sd"),
    "dropout": Takes((), ("share", "count", "removed"), "30%"),
}


class Instant(NamedTuple):
    """A time, UTC epoch ns; or, is_offset, so long after a recording's first message."""

    ns: int
    is_offset: bool

    def of(self, first_ns: int) -> int:
        """UTC epoch ns in a recording that begins at first_ns."""
        return self.ns + first_ns if self.is_offset else self.ns


@dataclasses.dataclass(frozen=True)
class Fault:
    """One fault. topic: an MQTT filter. field: of the payload, "" = it is a plain number. begin, end: None = the recording's.

    size: in the field's own unit, or in standard deviations of it (is_in_sd); of a reorder, messages. span_s: a delay, the
    offset of a clock, or the time a reorder reaches over. drift_ppm: of a clock. share: of the messages, 0 to 1; count: of
    messages. sds: standard deviation of the field by topic, from a first pass over the recording (``faults.measured``).
    """

    text: str
    kind: Kind
    topic: str
    field: str = ""
    begin: Instant | None = None
    end: Instant | None = None
    size: float | None = None
    is_in_sd: bool = False
    span_s: float = 0.0
    drift_ppm: float = 0.0
    share: float | None = None
    count: int | None = None
    is_removed: bool = False
    sds: Mapping[str, float] = dataclasses.field(default_factory=dict)


def parse(text: str) -> list[Fault]:
    """The faults in one ``--inject``: a fault's text, or the name of a TOML file of [[fault]] tables. Raises ConfigError."""
    if text.lower().endswith(".toml"):
        return _from_file(Path(text))
    kind, colon, rest = text.partition(":")
    if not colon or not rest:
        raise ConfigError(
            FLAG, f"{text!r}: expected KIND:TOPIC[:FIELD][@WHEN][=SIZE], e.g. spike:sensors/pump-1:flow@+10min=3sd"
        )
    rest, _, size = rest.rpartition("=") if "=" in rest else (rest, "", "")
    rest, _, when = rest.rpartition("@") if "@" in rest else (rest, "", "")
    topic, _, name = rest.partition(":") if kind.strip() in SENSOR_KINDS else (rest, "", "")
    begin, until, lasting = _when(when.strip())
    told = {"kind": kind, "topic": topic, "field": name, "from": begin, "until": until, "for": lasting, "size": size}
    return [_fault(told, text)]


def _from_file(path: Path) -> list[Fault]:
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as err:
        raise ConfigError(FLAG, f"{path} cannot be read: {err.strerror}") from err
    except (ValueError, RecursionError) as err:  # of TOML, of UTF-8, of a name that is none
        raise ConfigError(FLAG, f"not TOML: {err}", str(path)) from err
    refuse_unknown(document, ("fault",), "faults", str(path))
    tables = document.get("fault", [])
    if not isinstance(tables, list) or not tables or not all(isinstance(one, dict) for one in tables):
        raise ConfigError(FLAG, "expected one [[fault]] table or more", str(path))
    faults = []
    for number, table in enumerate(tables, 1):
        refuse_unknown(table, KEYS, "fault", str(path))
        faults.append(_fault({key: _text(value) for key, value in table.items()}, f"{path} [[fault]] {number}"))
    return faults


def _text(value: Any) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)


def _when(text: str) -> tuple[str, str, str]:
    """FROM, UNTIL and how long, of ``FROM``, ``FROM+SPAN`` or ``FROM..UNTIL``."""
    begin, dots, until = text.partition("..")
    if dots:
        return begin, until, ""
    if match := _SPAN_LAST.fullmatch(text):
        # ``+10min`` alone is a beginning
        return (match[1], "", match[2]) if match[1] else (text, "", "")
    return text, "", ""


def _fault(told: Mapping[str, str], text: str) -> Fault:
    kind = _kind(told.get("kind", "").strip(), text)
    topic = told.get("topic", "").strip()
    _check_filter(topic, text)
    name = told.get("field", "").strip()
    if name and kind not in SENSOR_KINDS:
        raise ConfigError(FLAG, f"{text!r}: {kind} is done to whole messages and takes no field")
    begin, end = _span(told, text)
    if kind == "drift" and (begin is None or end is None):
        raise ConfigError(
            FLAG, f"{text!r}: a drift needs its beginning and its end, e.g. @+10min+1h: it has its size there"
        )
    return Fault(text, kind, topic, name, begin, end, **_size(kind, told.get("size", "").strip(), text))


def _kind(word: str, text: str) -> Kind:
    for kind in get_args(Kind):
        if word == kind:
            return kind  # type: ignore[no-any-return]
    raise ConfigError(FLAG, f"{text!r}: {word!r} is no kind of fault; {nearest(word, get_args(Kind))}")


def _check_filter(topic: str, text: str) -> None:
    levels = topic.split("/")
    is_sound = bool(topic) and "#" not in levels[:-1]
    if not is_sound or any(level not in ("#", "+") and ("#" in level or "+" in level) for level in levels):
        raise ConfigError(FLAG, f"{text!r}: {topic!r} is no topic and no filter such as sensors/# or sensors/+/flow")


def _span(told: Mapping[str, str], text: str) -> tuple[Instant | None, Instant | None]:
    begin = _instant(told["from"], text) if told.get("from") else None
    end = _instant(told["until"], text) if told.get("until") else None
    if lasting := told.get("for", ""):
        if end is not None:
            raise ConfigError(FLAG, f"{text!r}: say how long it lasts, or until when, not both")
        begin = begin or Instant(0, True)
        end = Instant(begin.ns + round(_seconds(lasting, text) * 1e9), begin.is_offset)
    comparable = begin is not None and end is not None and begin.is_offset == end.is_offset
    if comparable and begin is not None and end is not None and end.ns <= begin.ns:
        raise ConfigError(FLAG, f"{text!r}: ends before it begins")
    return begin, end


def _instant(word: str, text: str) -> Instant:
    word = word.strip()
    if word.startswith("+"):
        return Instant(round(_seconds(word, text) * 1e9), True)
    try:
        moment = datetime.fromisoformat(word)
    except ValueError:
        raise ConfigError(
            FLAG,
            f"{text!r}: {word!r} is no time; examples are 2026-03-04T10:00 (UTC where no zone is named) and +10min after "
            "the first message",
        ) from None
    if moment.year not in YEARS:
        raise ConfigError(FLAG, f"{text!r}: {word!r} is not in the years {YEARS[0]} to {YEARS[-1]}")
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return Instant(round(moment.timestamp() * 1e6) * 1000, False)


def _seconds(word: str, text: str) -> float:
    match = _SPAN.fullmatch(word.strip())
    if not match or float(match[1]) < 0:
        raise ConfigError(FLAG, f"{text!r}: {word.strip()!r} is no span of time; examples are 500ms, 30s, 5min, 1h, 2d")
    seconds = float(match[1]) * _SECONDS[match[2]]
    if seconds > MOST_S:
        raise ConfigError(FLAG, f"{text!r}: {word.strip()!r} is longer than a hundred years")
    return seconds


def _size(kind: Kind, text: str, whole: str) -> dict[str, Any]:
    """Fields of a fault from its size. Raises ConfigError where the kind needs another one."""
    takes = TAKES[kind]
    found: dict[str, float] = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        name, value = _part(part, whole, takes)
        if name not in (*takes.needs, *takes.may):
            raise ConfigError(FLAG, f"{whole!r}: a {kind} has no size {part!r}; examples are {takes.example}")
        if name in found:
            raise ConfigError(FLAG, f"{whole!r}: {part!r} is one size too many; examples are {takes.example}")
        found[name] = value
    if takes.needs and not any(name in found for name in takes.needs):
        raise ConfigError(FLAG, f"{whole!r}: a {kind} needs a size, =SIZE; examples are {takes.example}")
    if any(pair <= {*found} for pair in ({"number", "sd"}, {"number", "span"}, {"share", "count"})):
        raise ConfigError(FLAG, f"{whole!r}: two sizes where one is meant; examples are {takes.example}")
    _check_range(kind, found, whole)
    return {
        "size": found.get("number", found.get("sd")),
        "is_in_sd": "sd" in found,
        "span_s": found.get("span", 0.0),
        "drift_ppm": found.get("ppm", 0.0),
        "share": found.get("share"),
        "count": int(found["count"]) if "count" in found else None,
        "is_removed": "removed" in found,
    }


def _part(part: str, whole: str, takes: Takes) -> tuple[str, float]:
    if part == "removed":
        return "removed", 1.0
    match = _PART.fullmatch(part)
    if not match:
        raise ConfigError(FLAG, f"{whole!r}: {part!r} is no size; examples are {takes.example}")
    value, unit = float(match[1]), match[2]
    names = {"": "number", "%": "share", "x": "count", "ppm": "ppm", "sd": "sd"}
    if unit in _SECONDS:
        return "span", value * _SECONDS[unit]
    return names[unit], value / 100 if unit == "%" else value


def _check_range(kind: Kind, found: Mapping[str, float], whole: str) -> None:
    problem = ""
    if not 0 < found.get("share", 1.0) <= 1:
        problem = "a share is above 0% and at most 100%"
    elif not (1 <= found.get("count", 1.0) <= MOST_COUNT and found.get("count", 1.0) % 1 == 0):
        problem = f"a count is a whole number from 1x to {MOST_COUNT}x"
    elif kind in ("late", "reorder") and "span" in found and found["span"] <= 0:
        problem = "a span of time above 0 is needed"
    elif kind == "reorder" and "number" in found and not (2 <= found["number"] <= 10_000 and found["number"] % 1 == 0):
        problem = "messages change places among 2 to 10000 of them"
    elif kind == "noise" and found.get("number", found.get("sd", 1.0)) <= 0:
        problem = "the size of noise is its standard deviation, above 0"
    elif abs(found.get("ppm", 0.0)) > 1e5:
        problem = "a clock drifts by at most 100000ppm"
    elif abs(found.get("span", 0.0)) > MOST_S:
        problem = "no span is longer than a hundred years"
    elif max(abs(found.get("number", 0.0)), abs(found.get("sd", 0.0))) > MOST_SIZE:
        problem = f"a size is at most {MOST_SIZE:g}"
    elif kind in ("spike", "offset", "drift") and not found.get("number", found.get("sd", 0.0)):
        problem = f"a {kind} of 0 changes nothing"
    elif kind == "skew" and not (found.get("span") or found.get("ppm")):
        problem = "a clock that is right changes nothing"
    if problem:
        raise ConfigError(FLAG, f"{whole!r}: {problem}")
