"""Recordings of messages as lines of JSON, one a message, plain or gzip: ours without loss, and those that others write.

Ours: ``{"topic": "a/b", "received": "2026-03-04T09:15:30.250000000Z", "payload": "21.4"}``; ``published``, ``qos``,
``retain`` and ``content_type`` where they are not what a ``Message`` has by default; ``payload_base64`` in place of
``payload`` where it is not UTF-8. ``{"gap": {"start": ..., "end": ..., "why": ...}}`` is a gap, ``{"session": {...}}`` tells
of the recording. Of others: a topic, a payload (text, or any JSON, kept as it is written) and a time under one of TIME_KEYS,
as ``mosquitto_sub -F %j`` and ``%J`` write them.
"""

from __future__ import annotations

import binascii
import gzip
import re
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from pathlib import Path
from types import TracebackType
from typing import IO, cast

import msgspec

from fleetgp.errors import RecordingError
from fleetgp.recording.message import Gap, Message, Recorded
from fleetgp.recording.moments import epoch_ns, iso
from fleetgp.recording.text import Faults, lines

TIME_KEYS = ("received", "time", "timestamp", "ts", "tst", "received_at")
_MOSQUITTO_ZONE = re.compile(r"Z(?=[+-]\d{4}$)")  # mosquitto_sub 2.0 writes 2026-03-04T09:15:30.250000Z+0100
_NOTHING = msgspec.Raw()


class _GapLine(msgspec.Struct):
    start: str
    end: str
    why: str = ""


class _Line(msgspec.Struct, kw_only=True):
    """What a line may have. Raw: the JSON as it is written; empty where the line has no such key."""

    topic: str | None = None
    payload: msgspec.Raw = _NOTHING
    payload_base64: str | None = None
    received: msgspec.Raw = _NOTHING
    time: msgspec.Raw = _NOTHING
    timestamp: msgspec.Raw = _NOTHING
    ts: msgspec.Raw = _NOTHING
    tst: msgspec.Raw = _NOTHING
    received_at: msgspec.Raw = _NOTHING
    published: str | None = None
    qos: int = 0
    retain: bool | int = False
    content_type: str = ""
    properties: dict[str, msgspec.Raw] = {}
    payloadlen: int | None = None
    gap: _GapLine | None = None
    session: dict[str, str] | None = None


_DECODER = msgspec.json.Decoder(_Line)
_TEXT = msgspec.json.Decoder(str)


def read(path: Path, skipped: MutableMapping[str, int] | None = None) -> Iterator[Recorded]:
    """Messages and gaps in the file's order.

    skipped: counts what is left out: ``bad_line``, ``bad_time``, ``payload_cut`` (its length is not the one told),
    ``cut_line`` (the last one), ``cut``. Without it RecordingError is raised for these; always where the file cannot be read.
    """
    faults = Faults(path, skipped)
    for number, line in lines(path, faults):
        if not line.strip():
            continue
        try:
            recorded = parse(line)
        except LineError as err:
            is_cut = err.reason == "bad_line" and not line.endswith(b"\n")
            faults.add("cut_line" if is_cut else err.reason, f"line {number}: {err}")
            continue
        if recorded is not None:
            yield recorded


class LineError(ValueError):
    """A line is no message; reason: a short word for counters."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


def parse(line: bytes) -> Recorded | None:
    """The message or gap of a line; None where it tells of the session. Raises LineError."""
    try:
        told = _DECODER.decode(line)
        if told.session is not None and told.topic is None:
            return None
        if told.gap is not None:
            return Gap(epoch_ns(told.gap.start), epoch_ns(told.gap.end), told.gap.why)
        return _message(told)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as err:
        raise LineError("bad_line", f"not a message as JSON: {err}") from err
    except LineError:
        raise
    except (ValueError, OverflowError) as err:
        raise LineError("bad_time", str(err)) from err


def _message(told: _Line) -> Message:
    if told.topic is None:
        raise LineError("bad_line", "it has no topic")
    if told.qos not in (0, 1, 2):
        raise LineError("bad_line", f"a QoS of {told.qos}")
    raw_time = next((raw for raw in (getattr(told, key) for key in TIME_KEYS) if bytes(raw)), None)
    if raw_time is None:
        raise LineError("bad_time", f"it has no time; one of {', '.join(TIME_KEYS)} is read")
    payload = _payload(told)
    if told.payloadlen not in (None, len(payload)) and bytes(told.payload)[:1] == b'"':
        raise LineError("payload_cut", f"its payload has {len(payload)} bytes, not {told.payloadlen} as it says")
    content_type = told.content_type
    if "content-type" in told.properties:  # mosquitto_sub -V mqttv5
        content_type = _TEXT.decode(told.properties["content-type"])
    return Message(
        topic=told.topic,
        payload=payload,
        received_ns=epoch_ns(_as_text(raw_time)),
        published_ns=epoch_ns(told.published) if told.published else 0,
        qos=told.qos,
        is_retained=bool(told.retain),
        content_type=content_type,
    )


def _payload(told: _Line) -> bytes:
    raw = bytes(told.payload)
    if told.payload_base64 is not None:
        try:
            return b64decode(told.payload_base64, validate=True)
        except binascii.Error as err:
            raise LineError("bad_line", f"payload_base64: {err}") from err
    if not raw:
        raise LineError("bad_line", "it has no payload")
    if raw[:1] == b'"':
        return _TEXT.decode(raw).encode()
    return b"" if raw == b"null" else raw


def _as_text(raw: msgspec.Raw) -> str:
    text = bytes(raw).decode()
    return _MOSQUITTO_ZONE.sub("", _TEXT.decode(raw)) if text[:1] == '"' else text


def session_of(path: Path) -> Mapping[str, str]:
    """What the first line tells of the recording; nothing where it is a message. Raises RecordingError."""
    for _, line in lines(path, Faults(path, {})):
        try:
            return _DECODER.decode(line).session or {}
        except msgspec.MsgspecError:
            return {}
    return {}


def line_of(recorded: Recorded) -> bytes:
    """A message or gap as a line, without its end."""
    if isinstance(recorded, Gap):
        gap = {"start": iso(recorded.start_ns), "end": iso(recorded.end_ns), "why": recorded.why}
        return msgspec.json.encode({"gap": gap})
    told: dict[str, object] = {"topic": recorded.topic, "received": iso(recorded.received_ns)}
    if recorded.published_ns:
        told["published"] = iso(recorded.published_ns)
    if recorded.qos:
        told["qos"] = recorded.qos
    if recorded.is_retained:
        told["retain"] = True
    if recorded.content_type:
        told["content_type"] = recorded.content_type
    try:
        told["payload"] = recorded.payload.decode("utf-8")
    except UnicodeDecodeError:
        told["payload_base64"] = b64encode(recorded.payload).decode("ascii")
    return msgspec.json.encode(told)


class JsonlWriter:
    """A recording while it is written; gzip where the path ends in ``.gz``. Raises RecordingError where the file exists."""

    def __init__(self, path: Path, session: Mapping[str, str]) -> None:
        self._path = path
        try:
            self._file = _create(path)
        except FileExistsError:
            raise RecordingError(f"{path} is there already; a recording is never written over, name another") from None
        except OSError as err:
            raise RecordingError(f"{path} cannot be written: {err.strerror}") from err
        if session:
            self._put(msgspec.json.encode({"session": dict(session)}))

    def write(self, message: Message) -> None:
        self._put(line_of(message))

    def mark_gap(self, gap: Gap) -> None:
        self._put(line_of(gap))

    def _put(self, line: bytes) -> None:
        try:
            self._file.write(line + b"\n")
        except OSError as err:
            raise RecordingError(f"{self._path} cannot be written on: {err.strerror}") from err

    def close(self, **told: str) -> None:
        """told: what is known at the end; this form has no place for it."""
        try:
            self._file.close()
        except OSError as err:
            raise RecordingError(f"{self._path} cannot be written on: {err.strerror}") from err

    def __enter__(self) -> JsonlWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _create(path: Path) -> IO[bytes]:
    if path.suffix == ".gz":
        return cast(IO[bytes], gzip.open(path, "xb", compresslevel=6))
    return path.open("xb")


def write_jsonl(path: Path, recorded: Iterable[Recorded], session: Mapping[str, str] | None = None) -> int:
    """Write a whole recording; how many messages and gaps it has. Raises RecordingError where the file exists."""
    count = 0
    with JsonlWriter(path, session or {}) as writer:
        for item in recorded:
            count += 1
            if isinstance(item, Gap):
                writer.mark_gap(item)
            else:
                writer.write(item)
    return count
