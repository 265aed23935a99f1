"""The devices of recordings of messages: which there are, and each one's readings as a stream.

All files of messages that are given together are one recording: a device goes on from one file to the next. Its time is what
its payloads say, else when they were received. Left out and counted are messages that the broker kept from earlier
(``retained``), the fleet's own (``fleet``), those that describe a device or the broker (``attribute``), those on topics that hold no number (``no_number``), and what cannot be read.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from fleetgp.errors import PeerError, RecordingError
from fleetgp.payloads import Content, plain
from fleetgp.payloads import read as read_payload
from fleetgp.payloads.content import settle
from fleetgp.recording import csv, devices
from fleetgp.recording.message import Gap, Message
from fleetgp.recording.messages import read_messages
from fleetgp.recording.shared import Pass, Watch, unwatched
from fleetgp.recording.spec import RecordingSpec
from fleetgp.recording.table import Cells, Record, Skipped
from fleetgp.schema import Channel, Covariate
from fleetgp.wire import topics

FIRST = 400
MOST_TOPICS = 20_000
MOST_SAMPLES = 200_000
OURS = f"{topics.ROOT}/"


class Seen(NamedTuple):
    """First readings of one topic: their place in the recording, fields and values. is_scalar: its payloads are one value."""

    is_scalar: bool
    contents: list[tuple[int, Content]]


class MessageStream:
    """One device. carried: by topic of its own the channel of a single value, "" where payloads are objects."""

    has_clock = True

    def __init__(self, name: str, board: Board, carried: Mapping[str, str]) -> None:
        self.name = self._device = name
        self.path = board.paths[0]
        self.carried = carried
        self._board = board

    def peek(self, count: int) -> tuple[list[str], list[Cells]]:
        """Names of fields, and the first readings as text, None where a message does not speak of a field."""
        first = sorted(
            (place, channel, content)
            for topic, channel in self.carried.items()
            for place, content in self._board.seen[topic].contents
        )
        rows = [_named(content, channel) for _, channel, content in first]
        header = list(dict.fromkeys(name for row in rows for name in row))
        return header, [[row.get(name) for name in header] for row in rows[:count]]

    def leave_out(self) -> None:
        """It is not read: its messages count as those of a device that was left out."""
        self._board.leave_out(self._device)

    def read(self, spec: RecordingSpec, skipped: Skipped | None = None) -> Iterator[Record]:
        """Readings of a spec's inputs, in the recording's own order. Raises RecordingError where a file is damaged."""
        skipped = Skipped() if skipped is None else skipped
        messages = self._board.join(self._device, skipped)
        wiring = {
            topic: _fields(spec.inputs, topic, self.carried.get(topic)) for topic in self._board.topics_of(self._device)
        }
        return self._records(messages, wiring, len(spec.inputs), skipped)

    def _records(
        self, messages: Iterator[Message], wiring: Mapping[str, Mapping[str, int]], size: int, skipped: Skipped
    ) -> Iterator[Record]:
        for message in messages:
            fields = wiring[message.topic]
            try:
                content = read_payload(message.payload)
                at_ms = settle(content.at_ms, message.received_ns // 1_000_000, "recording")
            except PeerError as err:
                skipped.add(err.code)
                continue
            # a field of the input's own name counts before a plain ``value``
            named = sorted(content.values.items(), key=lambda item: item[0] != plain.FIELD)
            found = {fields[name]: value for name, value in named if name in fields}
            if content.rejected and (lost := min(len(fields) - len(found), sum(content.rejected.values()))) > 0:
                skipped.add("not_a_number", lost)
            if not found:
                skipped.add("no_known_field")
                continue
            values = [math.nan] * size
            for position, value in found.items():
                values[position] = math.nan if value is None else value
            yield Record(at_ms, tuple(values), None if len(found) == size else tuple(sorted(found)))


class Board:
    """Recordings of messages as devices. One pass finds them; what is read is read in as few passes as can be."""

    def __init__(self, paths: Sequence[Path], spec: RecordingSpec | None = None, watch: Watch = unwatched) -> None:
        self.paths = tuple(paths)
        self.seen: dict[str, Seen] = {}
        self._owners: dict[str, tuple[str, ...]] = {}
        self._pass: Pass[Message] | None = None
        self._look(watch)
        self.streams = self._devices(() if spec is None else spec.inputs)

    def join(self, name: str, skipped: Skipped) -> Iterator[Message]:
        """A device's messages; readers that are made before any of them begins share a pass."""
        if self._pass is None or not self._pass.is_open_to(name):
            self._pass = Pass(lambda is_counted: self._owned(skipped if is_counted else Skipped()))
        return self._pass.join(name)

    def leave_out(self, name: str) -> None:
        """From now on nobody owns this device's messages."""
        self._owners = {
            topic: tuple(owner for owner in owners if owner != name) for topic, owners in self._owners.items()
        }

    def topics_of(self, name: str) -> list[str]:
        return [topic for topic, owners in self._owners.items() if name in owners]

    def messages(self, skipped: Skipped) -> Iterator[Message]:
        """All messages of all files in the order in which they were received, as far as they can be read; what cannot is
        counted. Raises RecordingError where a file cannot be opened."""
        files = [_messages(path, skipped) for path in self.paths]
        return heapq.merge(*files, key=lambda message: message.received_ns) if len(files) > 1 else files[0]

    def _owned(self, skipped: Skipped) -> Iterator[tuple[str, Message]]:
        for message in self.messages(skipped):
            if why := _useless(message):
                skipped.add(why)
                continue
            owners = self._owners.get(message.topic, ())
            if not owners:
                skipped.add("other_device" if message.topic in self.seen else "no_number")
            for name in owners:
                yield name, message

    def _look(self, watch: Watch) -> None:
        """Find topics that hold numbers, and keep the first readings of each."""
        places = kept = 0
        for message in watch(self.messages(Skipped()), self.paths[0]):
            places += 1
            seen = self.seen.get(message.topic)
            if kept >= MOST_SAMPLES or _useless(message) or (seen is not None and len(seen.contents) >= FIRST):
                continue
            try:
                content = read_payload(message.payload)
            except PeerError:
                continue
            if not content.values or (seen is None and len(self.seen) >= MOST_TOPICS):
                continue
            if seen is None:
                is_scalar = message.payload.lstrip()[:1] not in (b"{", b"[")
                seen = self.seen[message.topic] = Seen(is_scalar, [])
            seen.contents.append((places, content))
            kept += 1
        self.seen = {topic: seen for topic, seen in self.seen.items() if _has_number(seen)}

    def _devices(self, inputs: Sequence[Channel | Covariate]) -> list[MessageStream]:
        bound = {item.topic for item in inputs if item.topic}
        fallback = csv.names(self.paths)[0]
        if bound and all(item.topic for item in inputs):
            self._owners = dict.fromkeys(bound, (fallback,))
            return [MessageStream(fallback, self, {topic: "" for topic in bound if topic in self.seen})]
        kinds: dict[str, devices.Kind] = {
            topic: "scalar" if seen.is_scalar else "object" for topic, seen in self.seen.items() if topic not in bound
        }
        found = devices.grouped(kinds)
        # all have a part in the names, so that a device is called the same whatever a spec asks for
        named = dict(zip(csv.unique(devices.ids(list(found), fallback)), found.values(), strict=True))
        if inputs:  # what tells none of them is no device of this spec
            named = {name: carried for name, carried in named.items() if _carries(carried, inputs, self.seen)}
        if not named:
            raise RecordingError(
                f"{self.paths[0]} holds no message of a device with a number {'of the spec ' if inputs else ''}in it; "
                f"fleetgp recordings info {self.paths[0]} says what it holds"
            )
        self._owners = {topic: (name,) for name, carried in named.items() for topic in carried}
        self._owners |= {topic: tuple(named) for topic in bound}
        return [MessageStream(name, self, carried) for name, carried in named.items()]


def _messages(path: Path, skipped: Skipped) -> Iterator[Message]:
    for found in read_messages(path, skipped):
        if isinstance(found, Gap):
            skipped.add("gap")
        else:
            yield found


def _useless(message: Message) -> str:
    """Why a message is no reading, whatever it holds; "" where it may be one."""
    if message.topic.startswith(OURS):
        return "fleet"
    if message.topic.startswith("$") or "/$" in message.topic:  # of Homie, and of brokers about themselves
        return "attribute"
    return "retained" if message.is_retained else ""


def _carries(carried: Mapping[str, str], inputs: Sequence[Channel | Covariate], seen: Mapping[str, Seen]) -> bool:
    """Whether a device's first readings hold any input of a spec."""
    for topic, channel in carried.items():
        fields = _fields([item for item in inputs if not item.topic], topic, channel)
        if any(name in fields for _, content in seen[topic].contents for name in content.values):
            return True
    return False


def _has_number(seen: Seen) -> bool:
    return any(value is not None for _, content in seen.contents for value in content.values.values())


def _named(content: Content, channel: str) -> dict[str, str]:
    """Fields of a payload as text; a single value under its channel's name."""
    rename = {plain.FIELD: channel} if channel else {}
    return {rename.get(name, name): "" if value is None else repr(value) for name, value in content.values.items()}


def _fields(inputs: Sequence[Channel | Covariate], topic: str, channel: str | None) -> dict[str, int]:
    """Fields of a topic's payloads to positions among the inputs. channel: None = the topic is no device's own."""
    fields: dict[str, int] = {}
    for position, item in enumerate(inputs):
        name = item.field or item.name
        if item.topic == topic:
            fields[name] = position
        elif not item.topic and channel is not None:
            if not channel:
                fields[name] = position
            elif name == channel:
                fields[plain.FIELD] = position
    if len(fields) == 1 and plain.FIELD not in fields:  # the only input of a topic may be a plain number
        fields[plain.FIELD] = next(iter(fields.values()))
    return fields
