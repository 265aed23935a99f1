"""``fleetgp recordings convert``: a recording in another form, or a part of it; written beside and renamed when it is whole."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from paho.mqtt.client import topic_matches_sub

from broker_bridge.run_record import write_json
from broker_bridge.screen import Screen
from fleetgp.errors import ConfigError, RecordingError
from fleetgp.recording import export, influx, mosquitto, spec
from fleetgp.recording.jsonl import JsonlWriter, session_of
from fleetgp.recording.mcap import McapWriter, recover
from fleetgp.recording.message import Gap, Message, Recorded
from fleetgp.recording.messages import kind_of, read_messages
from fleetgp.recording.moments import epoch_ns
from fleetgp.recording.spec import RecordingSpec
from fleetgp.recording.streams import as_messages
from fleetgp.recording.table import Skipped
from fleetgp.runtime.arguments import from_arguments
from fleetgp.runtime.clock import SystemClock
from fleetgp.runtime.influx import Client
from fleetgp.runtime.link import check_filter
from fleetgp.runtime.spec import parse_span
from fleetgp.store.open import access, pointed_at
from simulator.faults import inject_into, parse, truth_path
from simulator.left_out import words
from simulator.watching import total_of, watched

OF_MESSAGES = (".mcap", ".jsonl", ".jsonl.gz")
OF_READINGS = (".csv", ".csv.gz", ".parquet")
NO_FLAGS = "its lines tell no QoS and no retained flag: all count as QoS 0, not retained; mosquitto_sub -F '%U %t %q %r %p' tells them"


class Output:
    """A new file, complete or not there at all. Raises RecordingError where it is there already and not to be replaced."""

    def __init__(self, path: Path, *, is_forced: bool, endings: tuple[str, ...]) -> None:
        self.path = path
        self.ending = next((ending for ending in endings if path.name.endswith(ending)), "")
        if not self.ending:
            raise ConfigError(
                "OUT", f"{path.name} does not tell a form; its name must end in one of {', '.join(endings)}"
            )
        if path.exists() and not is_forced:
            raise RecordingError(f"{path} is there already; --force replaces it")

    @contextmanager
    def beside(self) -> Iterator[Path]:
        """A path to write to, which takes the place of the file when the block ends well and is removed otherwise."""
        part = self.path.with_name(f".part-{os.getpid()}-{self.path.name}")
        try:
            yield part
            os.replace(part, self.path)
        except OSError as err:
            raise RecordingError(f"{self.path} cannot be written: {err.strerror or err}") from err
        finally:
            part.unlink(missing_ok=True)


class Choice(NamedTuple):
    """Which messages are wanted: on any of the filters (none = all), received from begin to before end, UTC epoch ns."""

    filters: tuple[str, ...]
    begin_ns: int | None
    end_ns: int | None

    def of(self, recorded: Iterator[Recorded], left_out: dict[str, int]) -> Iterator[Recorded]:
        return (item for item in recorded if self.takes(item, left_out))

    def takes(self, item: Recorded, left_out: dict[str, int]) -> bool:
        """Whether it is wanted; a message that is not is counted."""
        first, last = (item.start_ns, item.end_ns) if isinstance(item, Gap) else (item.received_ns, item.received_ns)
        reason = ""
        if (self.begin_ns is not None and last < self.begin_ns) or (self.end_ns is not None and first >= self.end_ns):
            reason = "other times"
        elif isinstance(item, Message) and self.filters and not self._is_on(item.topic):
            reason = "other topics"
        if reason and isinstance(item, Message):
            left_out[reason] = left_out.get(reason, 0) + 1
        return not reason

    def _is_on(self, topic: str) -> bool:
        return any(topic_matches_sub(pattern, topic) for pattern in self.filters)


def convert(args: Namespace) -> int:
    """0 when OUT holds all that was asked for, 1 when a fault changed nothing. Raises FleetError in plain words else."""
    output = Output(args.output, is_forced=args.force, endings=OF_MESSAGES + OF_READINGS)
    described = spec.load(args.spec) if args.spec else None
    source = _source(args, described)
    faults = [fault for text in args.inject for fault in parse(text)]
    choice = _choice(args, source)
    clock = SystemClock()
    screen, begun_s = Screen(clock), clock.monotonic_s()
    left_out = Skipped()
    recorded, truth = choice.of(source.read(left_out), left_out), None
    if faults:  # into what is chosen, and nothing else
        recorded, truth = inject_into(
            lambda: source.read(Skipped()), faults, args.seed, lambda item: choice.takes(item, left_out)
        )
    recorded = watched(recorded, screen, source.name, source.total)
    with output.beside() as part:
        if output.ending in OF_MESSAGES:
            messages, gaps = write_messages(part, recorded, source.session)
            if not messages:
                raise RecordingError(f"{source.name} holds no message that was asked for: nothing was written")
        else:
            first = watched(
                choice.of(source.read(Skipped()), {}),
                screen,
                f"{source.name}, a first pass to find its fields",
                source.total,
            )
            names = _names(export.readings(first, {}), described, source.name)
            write = export.write_parquet if output.ending == ".parquet" else export.write_csv
            messages, gaps = write(part, _renamed(export.readings(recorded, left_out), names), list(names.values())), 0
    screen.clear()
    if truth is not None:
        truth.write(truth_path(args.output))
    report: dict[str, object] = {
        "input": str(args.file), "output": str(args.output), "messages": messages, "gaps": gaps,
        "continued": left_out.pop("continued", 0), "note": source.note,
        "left_out": {reason: count for reason, count in left_out.items() if count},
        "truth": str(truth_path(args.output)) if truth is not None else None,
        "seconds": round(clock.monotonic_s() - begun_s, 3), "bytes": args.output.stat().st_size,
    }  # fmt: skip
    report["idle_faults"] = idle = truth.idle() if truth is not None else []
    print("\n".join([_sentence(report, output), *idle]), file=sys.stderr if args.json == "-" else sys.stdout)
    if args.json:
        write_json(report, args.json)
    return 1 if idle else 0


def _sentence(report: dict[str, Any], output: Output) -> str:
    unit = "messages" if output.ending in OF_MESSAGES else "rows"
    gaps = f", {report['gaps']:,} gaps" if report["gaps"] else ""
    joined = f", {report['continued']:,} lines joined to those before them" if report["continued"] else ""
    lines = [f"{output.path}: {report['messages']:,} {unit}{gaps}{joined}", words(report["left_out"]), report["note"]]
    lines.append(f"what the faults did: {report['truth']}" if report["truth"] else "")
    return "\n".join(line for line in lines if line)


def _names(rows: Iterator[export.Reading], described: RecordingSpec | None, path: str) -> dict[str, str]:
    """Columns of a table by field: all that are there, or those that a spec names. Raises RecordingError where none is."""
    found = export.fields(rows)
    if described is not None and described.inputs:
        wanted = {item.field or item.name: item.name for item in described.inputs}
        missing = [field for field in wanted if field not in found]
        if missing:
            raise RecordingError(
                f"{path} has no field {missing[0]!r}, which the spec names; it has {', '.join(found[:20])}"
            )
        return wanted
    if not found:
        raise RecordingError(f"{path} holds no message with a number that was asked for: nothing was written")
    return {name: name for name in found}


def _renamed(rows: Iterator[export.Reading], names: dict[str, str]) -> Iterator[export.Reading]:
    """Rows with those fields alone, under their new names; a row of none of them is left out."""
    for at_ms, device, values in rows:
        if kept := {names[field]: value for field, value in values.items() if field in names}:
            yield export.Reading(at_ms, device, kept)


def write_messages(path: Path, recorded: Iterator[Recorded], session: dict[str, str]) -> tuple[int, int]:
    """Write a file of messages in the form that its name ends in. How many messages and gaps there are."""
    counts = [0, 0]
    with McapWriter(path, session) if path.suffix == ".mcap" else JsonlWriter(path, session) as writer:
        for item in recorded:
            if isinstance(item, Gap):
                writer.mark_gap(item)
                counts[1] += 1
            else:
                writer.write(item)
                counts[0] += 1
    return counts[0], counts[1]


class Source(NamedTuple):
    """read: the input, as often as it is called, counting what it leaves out. session: what is told of the recording.

    note: what a user should know of the form. total: how many there are, where it tells that, else 0.
    """

    name: str
    read: Callable[[Skipped], Iterator[Recorded]]
    session: dict[str, str]
    note: str = ""
    total: int = 0


def _source(args: Namespace, described: RecordingSpec | None) -> Source:
    if isinstance(args.file, str):
        return _answer(args)
    if args.query:
        raise ConfigError("--query", "is of a database: name it as IN, like http://HOST:8086/DATABASE")
    path: Path = args.file
    kind = kind_of(path)
    if bool(args.start) != bool(args.every):
        raise ConfigError("--start", "a log without times needs both --start and --every")
    session = {"converted_from": path.name}
    if args.start:
        start_ns, every_ns = moment_ns(args.start, "--start", None), round(parse_span(args.every, "--every", "") * 1e9)
        return Source(
            path.name, lambda counts: mosquitto.read_untimed(path, start_ns, every_ns, counts), session, NO_FLAGS
        )
    if kind == "mcap":
        scan = recover(path)
        next(iter(scan), None)  # the session stands before the first message
        return Source(path.name, lambda counts: read_messages(path), {**session, **scan.session}, "", total_of(path))
    if kind == "messages":
        session |= session_of(path)
    note = NO_FLAGS if kind == "mosquitto" and not mosquitto.has_flags(path) else ""
    return Source(path.name, lambda counts: as_messages(path, described, (), counts), session, note)


def _answer(args: Namespace) -> Source:
    """The rows of a query, asked for as often as they are read."""
    if not args.query:
        raise ConfigError("--query", f"{args.file} is a database: say which rows, like --query 'SELECT * FROM weather'")
    client = Client(access(pointed_at(from_arguments(args, os.environ), args.file)))

    def rows(counts: Skipped) -> Iterator[Recorded]:
        with closing(Client(client.access)) as one:
            yield from influx.stream(one, args.query)

    return Source(client.location, rows, {"query": args.query, "queried_from": client.location})


def _choice(args: Namespace, source: Source) -> Choice:
    for pattern in args.topic:
        check_filter(pattern, "--topic")
    is_offset = any((text or "").startswith("+") for text in (args.begin, args.end))
    first = next((_time(item) for item in source.read(Skipped())), 0) if is_offset else None
    begin = moment_ns(args.begin, "--from", first) if args.begin else None
    return Choice(tuple(args.topic), begin, moment_ns(args.end, "--to", first) if args.end else None)


def _time(item: Recorded) -> int:
    return item.start_ns if isinstance(item, Gap) else item.received_ns


def moment_ns(text: str, flag: str, first_ns: int | None) -> int:
    """UTC epoch ns of an ISO time or, where first_ns is known, of +SPAN after it. Raises ConfigError."""
    if text.startswith("+") and first_ns is not None:
        return first_ns + round(parse_span(text[1:], flag, "") * 1e9)
    try:
        return epoch_ns(text)
    except ValueError:
        also = "" if first_ns is None else ", or +10min after the first message"
        raise ConfigError(flag, f"{text!r} is no time; expected like 2026-03-04T10:00 (UTC){also}") from None
