"""Logs of ``mosquitto_sub``: a line a message, in the formats that people give to ``-F``.

``%I %t %p``, ``%U %t %p``, ``%U %t %q %r %p`` and the same with tabs between them; ``%j`` and ``%J`` are read by
``recording.jsonl``. A payload may hold any bytes. A line that does not begin with a time belongs to the payload of the line
before it: payloads with line breaks are whole again, but for one that itself has a line that begins with a time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, MutableMapping
from pathlib import Path
from typing import Literal, NamedTuple

from fleetgp.errors import RecordingError
from fleetgp.recording.message import Message
from fleetgp.recording.moments import epoch_ns
from fleetgp.recording.text import MAX_LINE, Faults, head, lines

ADVICE = (
    "record with: mosquitto_sub -t '#' -F '%U %t %q %r %p' (or -F %j, which keeps line breaks too); or say when it began "
    "and how far its lines are apart: fleetgp recordings convert ... --start 2026-03-04T09:00 --every 1s"
)
_TIME = rb"(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?|\d{9,19}(?:\.\d+)?)"
_STRONG = re.compile(
    rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d)|\d{9,10}\.\d{9})[ \t]([^ \t\n]+)[ \t\r\n]"
)
_WEAK = re.compile(_TIME + rb"[ \t]([^ \t\n,;]*/[^ \t\n,;]*)[ \t\r\n]")
_UNTIMED = re.compile(rb"([^\d\s,;\"'{\[<#][^\s,;\"'{\[<]*/[^\s,;\"]*) ")
_QOS_RETAIN = rb"([012])%s([01])(?:%s|$)"


class Layout(NamedTuple):
    """How a log's lines are made: what stands between their parts and at their ends, whether QoS and retained flag are told."""

    separator: bytes
    has_flags: bool
    end: bytes


def looks_like(first: list[bytes]) -> Literal["timed", "untimed", ""]:
    """What the first lines of a file are: those of a log with times, without, or of something else."""
    whole = [line for line in first if line.strip()]
    if not whole:
        return ""
    if _STRONG.match(whole[0]) or all(_WEAK.match(line) for line in whole[:5]):
        return "timed"
    return "untimed" if all(_UNTIMED.match(line) for line in whole[:5]) else ""


def has_flags(path: Path) -> bool:
    """Whether a log's lines tell QoS and retained flag. Raises RecordingError where it cannot be opened."""
    return _layout(head(path)).has_flags


def read(path: Path, skipped: MutableMapping[str, int] | None = None) -> Iterator[Message]:
    """Messages of a log in its order.

    skipped: counts what is left out, ``bad_line`` and ``bad_time``; and ``continued``, lines put back into the payload
    before them. Without it RecordingError is raised for the former; always where the file has no times.
    """
    faults = Faults(path, skipped)
    first = head(path)
    if looks_like(first) == "untimed":
        raise RecordingError(f"{path} has no times in its lines; {ADVICE}")
    layout = _layout(first)
    last: Message | None = None
    more: list[bytes] = []
    size = 0
    for number, line in lines(path, faults):
        content = line.removesuffix(b"\n").removesuffix(layout.end)
        try:
            message = _parse(content, layout)
        except ValueError as err:
            faults.add("bad_time", f"line {number}: {err}")
            continue
        if message is not None:
            if last is not None:
                yield _joined(last, more)
            last, more, size = message, [], 0
        elif last is None:
            faults.add("bad_line", f"line {number} does not begin with a time")
        elif size + len(content) > MAX_LINE:
            faults.add("bad_line", f"line {number} continues a payload of more than {MAX_LINE:,} bytes")
        else:
            more.append(content)
            size += len(content)
            faults.tell("continued")
    if last is not None:
        yield _joined(last, more)


def read_untimed(
    path: Path, start_ns: int, every_ns: int, skipped: MutableMapping[str, int] | None = None
) -> Iterator[Message]:
    """Messages of a log of ``%t %p`` or ``-v``, which has no times: the first at start_ns, each every_ns after the one before.

    A line without a topic and a payload is counted as ``bad_line``, or raises RecordingError where nobody counts.
    """
    faults = Faults(path, skipped)
    at_ns = start_ns
    for number, line in lines(path, faults):
        topic, between, payload = line.rstrip(b"\r\n").partition(b" ")
        if not between or not topic:
            faults.add("bad_line", f"line {number} is not a topic and a payload")
            continue
        yield Message(topic.decode("utf-8", "replace"), b"" if payload == b"(null)" else payload, at_ns)
        at_ns += every_ns


def _layout(first: list[bytes]) -> Layout:
    time = re.compile(_TIME)
    begun = [(line.rstrip(b"\r\n"), match) for line in first if (match := time.match(line))]
    separator = b"\t" if begun and all(line[match.end() : match.end() + 1] == b"\t" for line, match in begun) else b" "
    flags = re.compile(_QOS_RETAIN % (separator, separator))
    rests = [line[match.end() + 1 :].partition(separator)[2] for line, match in begun]
    whole = [line for line in first if line.endswith(b"\n")]
    end = b"\r" if whole and all(line.endswith(b"\r\n") for line in whole) else b""  # of a log that Windows wrote
    return Layout(separator, bool(rests) and all(flags.match(rest) for rest in rests), end)


def _parse(line: bytes, layout: Layout) -> Message | None:
    """The message whose line this is; None where it does not begin with a time. Raises ValueError for an impossible one."""
    match = re.match(_TIME, line)
    if match is None or line[match.end() : match.end() + 1] != layout.separator:
        return None
    at_ns = epoch_ns(match[1].decode())
    topic, _, payload = line[match.end() + 1 :].partition(layout.separator)
    if not topic:
        return None
    qos, is_retained = 0, False
    if layout.has_flags:
        flags = re.match(_QOS_RETAIN % (layout.separator, layout.separator), payload)
        if flags is None:
            return None
        qos, is_retained, payload = int(flags[1]), flags[2] == b"1", payload[flags.end() :]
    try:
        return Message(topic.decode(), payload, at_ns, qos=qos, is_retained=is_retained)
    except UnicodeDecodeError:
        return None


def _joined(first: Message, more: list[bytes]) -> Message:
    return first._replace(payload=b"\n".join([first.payload, *more])) if more else first
