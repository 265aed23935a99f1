"""Structured log lines on stderr: an event and its facts, as text for people or as JSON lines for machines.

    14:03:07 info    coordinator  round_closed  round=12 agents=6 missing=pump-3 seconds=0.8

Writing a log line never raises and never blocks for long: a full disk or a closed terminal must not stop a program.
"""

from __future__ import annotations

import sys
import threading
import time
from typing import IO, Literal, get_args

import msgspec

from fleetgp.runtime.clock import Clock, SystemClock

Level = Literal["debug", "info", "warning", "error"]
Form = Literal["text", "json"]

LEVELS: tuple[str, ...] = get_args(Level)
MAX_VALUE_CHARS = 400
MAX_ONCE_KEYS = 1000
ONCE_PERIOD_S = 3600.0
_SECRET_WORDS = ("password", "secret", "token")


class Log:
    """Writes facts. Safe to share between threads.

    program: whose lines these are. form: ``text`` or ``json``. level: the least level that is written. stream: where to;
    None is stderr as it is at the time of writing.
    """

    def __init__(
        self,
        program: str,
        *,
        form: Form = "text",
        level: Level = "info",
        clock: Clock | None = None,
        stream: IO[str] | None = None,
    ) -> None:
        self._program = program
        self._form = form
        self._least = LEVELS.index(level)
        self._clock = clock or SystemClock()
        self._stream = stream
        self._lock = threading.Lock()
        self._once_keys: set[str] = set()
        self._once_since_s = self._clock.monotonic_s()
        self.suppressed = 0

    def debug(self, event: str, /, **fields: object) -> None:
        self._write("debug", event, fields)

    def info(self, event: str, /, **fields: object) -> None:
        self._write("info", event, fields)

    def warning(self, event: str, /, **fields: object) -> None:
        self._write("warning", event, fields)

    def error(self, event: str, /, **fields: object) -> None:
        self._write("error", event, fields)

    def once(self, key: str, level: Level, event: str, /, **fields: object) -> None:
        """Write the line unless one with this key was written before.

        At most MAX_ONCE_KEYS keys are remembered. When a flood of new keys fills them within an hour, further new keys
        are counted in ``suppressed`` until the hour is over; then remembering starts afresh.
        """
        with self._lock:
            if key in self._once_keys:
                return
            is_full = len(self._once_keys) >= MAX_ONCE_KEYS
            if is_full and self._clock.monotonic_s() - self._once_since_s >= ONCE_PERIOD_S:
                self._once_keys.clear()
                self._once_since_s = self._clock.monotonic_s()
                is_full = False
            if is_full:
                self.suppressed += 1
                is_first_of_flood = self.suppressed == 1
            else:
                self._once_keys.add(key)
        if not is_full:
            self._write(level, event, fields)
        elif is_first_of_flood:
            self._write("warning", "too many different complaints; new ones are only counted for now", {"last": event})

    def _write(self, level: Level, event: str, fields: dict[str, object]) -> None:
        if LEVELS.index(level) < self._least:
            return
        at_ms = self._clock.now_ms()
        render = _as_json if self._form == "json" else _as_text
        line = render(at_ms, level, self._program, event, fields)
        with self._lock:
            stream = self._stream or sys.stderr
            try:
                stream.write(line + "\n")
                stream.flush()
            except (OSError, ValueError):  # disk full, pipe or stream closed: there is nobody left to tell
                return


def make_log(
    program: str,
    form: str = "text",
    level: str = "info",
    *,
    clock: Clock | None = None,
    stream: IO[str] | None = None,
) -> Log:
    """A log from the words of the settings ``logs.form`` and ``logs.level``. Raises ValueError on any other word."""
    if form not in get_args(Form) or level not in LEVELS:
        raise ValueError(f"no log of form {form!r} and level {level!r}")
    return Log(program, form=form, level=level, clock=clock, stream=stream)  # type: ignore[arg-type]


def _as_text(at_ms: int, level: str, program: str, event: str, fields: dict[str, object]) -> str:
    stamp = time.strftime("%H:%M:%S", time.localtime(at_ms / 1000))
    facts = " ".join(f"{name}={_quoted(_plain(_guarded(name, value)))}" for name, value in fields.items())
    return f"{stamp} {level:<7} {program:<11}  {_printable(event)}" + (f"  {facts}" if facts else "")


def _as_json(at_ms: int, level: str, program: str, event: str, fields: dict[str, object]) -> str:
    seconds, thousandths = divmod(at_ms, 1000)
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{thousandths:03d}Z"
    guarded = {name: _guarded(name, value) for name, value in fields.items()}
    record = {"at": stamp, "level": level, "program": program, "event": event, "fields": guarded}
    try:
        return msgspec.json.encode(record, enc_hook=str).decode()
    except (TypeError, ValueError, RecursionError):  # odd keys or text: rather said as text than not
        record["event"] = _printable(event)
        record["fields"] = {name: _printable(_plain(value)) for name, value in guarded.items()}
        return msgspec.json.encode(record).decode()


def _guarded(name: str, value: object) -> object:
    return "***" if value and any(word in name.lower() for word in _SECRET_WORDS) else value


def _plain(value: object) -> str:
    """A value as a newcomer would write it: six digits are enough, lists with commas."""
    match value:
        case None:
            text = "none"
        case bool():
            text = "yes" if value else "no"
        case float():
            text = f"{value:.6g}"
        case list() | tuple() | set() | frozenset():
            text = ",".join(_plain(item) for item in value)
        case dict():
            text = ",".join(f"{key}:{_plain(item)}" for key, item in value.items())
        case _:
            text = str(value)
    return text if len(text) <= MAX_VALUE_CHARS else text[:MAX_VALUE_CHARS] + "..."


def _quoted(text: str) -> str:
    """In quotes where a blank or a sign in it would blur where the value ends; one line whatever a stranger sent."""
    if text and text.isprintable() and not any(sign in text for sign in ' "='):
        return text
    return '"' + _printable(text).replace('"', "'") + '"'


def _printable(text: str) -> str:
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
