"""What ``fleetgp recordings`` does: list, info, verify and recover; for convert see ``run_convert``."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from broker_bridge.run_record import write_json
from broker_bridge.screen import Screen, size, span
from fleetgp.errors import RecordingError
from fleetgp.recording import mcap
from fleetgp.recording.describe import Description, Overview
from fleetgp.recording.digest import Digest
from fleetgp.recording.jsonl import session_of
from fleetgp.recording.mcap_glance import glance
from fleetgp.recording.messages import OF_MESSAGES, Kind, kind_of, read_messages
from fleetgp.recording.moments import iso
from fleetgp.recording.mosquitto import has_flags
from fleetgp.recording.spec import RecordingSpec, load
from fleetgp.recording.streams import as_messages
from fleetgp.recording.table import Skipped
from fleetgp.runtime.clock import SystemClock
from simulator.left_out import WORDS, words
from simulator.run_convert import NO_FLAGS, Output, convert, write_messages
from simulator.run_query import query
from simulator.watching import total_of, watched

FORMS: Mapping[Kind, str] = {
    "mcap": "MCAP",
    "messages": "lines of JSON",
    "mosquitto": "log of mosquitto_sub",
    "jsonl": "table in JSON",
    "csv": "table in CSV",
    "parquet": "table in Parquet",
}
TABLE_ENDINGS = (".csv", ".csv.gz", ".parquet")
SHOWN = 20  # gaps and damages told to people; JSON has them all
SHOWN_TOPICS = 200
STATES = {"cut": "cut, or being written"}  # in words; "closed": ended in order by its index, which is all that was read
DAMAGE_OF_TABLES = ("bad_time", "short_row", "bad_line", "no_device")


@dataclass
class Finding:
    """What a file holds, and where it is damaged, in words. saved: messages that can be read; lost: None = not known.

    notes: what else should be known of it.
    """

    path: Path
    kind: Kind
    description: Description
    damages: list[str] = field(default_factory=list)
    lost: int | None = 0
    sha256: str = ""
    notes: list[str] = field(default_factory=list)


def examine(path: Path, described: RecordingSpec | None = None) -> Finding:
    """Read all of a file; a table's rows count as the messages that devices would send. Raises RecordingError where it cannot
    be opened or read."""
    kind = kind_of(path)
    screen, overview, digest = Screen(SystemClock()), Overview(), Digest()
    skipped = Skipped()
    scan = mcap.recover(path) if kind == "mcap" or path.suffix == ".mcap" else None
    found = scan if scan is not None else as_messages(path, described, (), skipped)
    for recorded in watched(iter(found), screen, path.name, total_of(path)):
        overview.add(recorded)
        digest.add(recorded)
    screen.clear()
    if scan is None:
        return _of_lines(path, kind, overview, skipped, digest.hexdigest())
    description = overview.description(session=scan.session, end=scan.end, is_whole=not scan.damage_count)
    damages = [_damage(damage) for damage in scan.damages]
    if not damages and scan.end.get("sha256", digest.hexdigest()) != digest.hexdigest():
        damages = ["its messages are not those that were written: the hash differs"]
    is_known = scan.is_closed and all(damage.lost is not None for damage in scan.damages)
    lost = scan.lost if is_known or not scan.damage_count else None
    return Finding(path, "mcap", description, damages, lost, digest.hexdigest(), _notes(description))


def _of_lines(path: Path, kind: Kind, overview: Overview, skipped: Skipped, sha256: str) -> Finding:
    """Of a file without check sums: what could not be read is its damage; in tables, cells that are no number are none."""
    session = session_of(path) if kind == "messages" else {}
    joined = skipped.pop("continued", 0)
    of_damage = {reason for reason in skipped if kind in OF_MESSAGES or reason in DAMAGE_OF_TABLES}
    damages = [f"{WORDS.get(reason, reason)}: {skipped[reason]:,}" for reason in skipped if reason in of_damage]
    description = overview.description(session=session, end={}, is_whole=not damages)
    notes = _notes(description)
    if joined:
        notes.append(f"{joined:,} lines begin with no time and were joined to the payloads before them")
    if kind == "mosquitto" and not has_flags(path):
        notes.append(NO_FLAGS)
    if others := {reason: count for reason, count in skipped.items() if reason not in of_damage}:
        notes.append(words(others))
    return Finding(path, kind, description, damages, None if damages else 0, sha256, notes)


def _notes(description: Description) -> list[str]:
    count = description.backwards
    if not count:
        return []
    return [f"{count:,} messages were received earlier than the one before them: a clock was set, or files were joined"]


def _damage(damage: mcap.Damage) -> str:
    lost = f" ({damage.lost:,} messages lost)" if damage.lost else ""
    return f"at byte {damage.offset:,}: {damage.why}{lost}"


def _list(args: Namespace) -> int:
    """Files of a folder that hold recordings."""
    if not args.folder.is_dir():
        raise RecordingError(f"there is no folder {args.folder}")
    rows = [
        row
        for path in sorted(args.folder.iterdir())
        if path.is_file() and path.name[0] != "." and (row := _row(path)) is not None
    ]
    if args.json != "-":
        print(_table([LIST_HEAD, *map(_list_line, rows)]) if rows else f"no recordings in {args.folder}")
    _write(args, {"folder": str(args.folder), "files": rows})
    return 0


LIST_HEAD = ("file", "form", "from (UTC)", "to (UTC)", "duration", "messages", "size", "state")


def _row(path: Path) -> dict[str, Any] | None:
    """What a list tells of one file; None where it is no recording."""
    try:
        kind = kind_of(path)
    except RecordingError:
        return None
    row: dict[str, Any] = {"file": path.name, "form": kind, "bytes": path.stat().st_size}
    if kind not in OF_MESSAGES:
        return {**row, "state": ""} if path.name.endswith(TABLE_ENDINGS) else None
    seen = glance(path) if kind == "mcap" else None
    if seen is not None:
        told = {"first_ns": seen.first_ns, "last_ns": seen.last_ns, "messages": seen.messages, "state": "closed"}
        return {**row, **told}
    try:
        finding = examine(path)
    except RecordingError as err:
        return {**row, "state": str(err).removeprefix(f"{path} ").partition(";")[0]}
    about = finding.description
    state = "whole" if not finding.damages else "cut" if any("cut" in words for words in finding.damages) else "damaged"
    return {**row, "first_ns": about.first_ns, "last_ns": about.last_ns, "messages": about.messages, "state": state}


def _list_line(row: Mapping[str, Any]) -> tuple[str, ...]:
    first, last = row.get("first_ns"), row.get("last_ns")
    times = ("", "", "") if first is None or last is None else (_when(first), _when(last), span((last - first) / 1e9))
    count = f"{row['messages']:,}" if "messages" in row else ""
    return (row["file"], FORMS[row["form"]], *times, count, size(row["bytes"]), STATES.get(row["state"], row["state"]))


def _info(args: Namespace) -> int:
    finding = examine(args.file, load(args.spec) if args.spec else None)
    about = finding.description
    first, last = about.first_ns, about.last_ns
    seconds = 0.0 if first is None or last is None else (last - first) / 1e9
    report: dict[str, Any] = {
        "file": str(args.file), "form": finding.kind, "bytes": args.file.stat().st_size, "is_whole": about.is_whole,
        "damages": finding.damages, "notes": finding.notes, "messages": about.messages, "payload_bytes": about.payload_bytes,
        "first_ns": first, "last_ns": last, "seconds": seconds, "session": dict(about.session), "end": dict(about.end),
        "gaps": [gap._asdict() for gap in about.gaps], "gap_count": about.gap_count,
        "topics": {name: topic._asdict() for name, topic in about.topics.items()},
    }  # fmt: skip
    if args.json != "-":
        print("\n".join(_told(finding, seconds)))
    _write(args, report)
    return 0


def _told(finding: Finding, seconds: float) -> list[str]:
    """The same for people."""
    about = finding.description
    state = "whole" if about.is_whole else "damaged: fleetgp recordings verify says where"
    lines = [f"{finding.path}: {FORMS[finding.kind]}, {size(finding.path.stat().st_size)}, {state}"]
    if about.first_ns is not None and about.last_ns is not None:
        rate = f", {_rate(about.messages, seconds)}" if seconds else ""
        lines.append(f"from {_when(about.first_ns)} to {_when(about.last_ns)} UTC, {span(seconds)}")
        lines.append(f"{about.messages:,} messages{rate}, {size(about.payload_bytes)} of payloads")
    lines += [f"{name:<14} {_shown(value)}" for name, value in {**about.session, **about.end}.items()]
    lines += finding.notes
    lines += [f"gap            {_when(gap.start_ns)} to {_when(gap.end_ns)}: {gap.why}" for gap in about.gaps[:SHOWN]]
    if about.gap_count > SHOWN:
        lines.append(f"and {about.gap_count - SHOWN:,} more gaps; --json has them")
    rows = [("topic", "messages", "rate", "retained", "payloads", "first (UTC)", "last (UTC)")]
    most = sorted(about.topics, key=lambda name: -about.topics[name].messages)[:SHOWN_TOPICS]
    for name in sorted(most):
        topic = about.topics[name]
        rate = _rate(topic.messages, seconds) if seconds else ""
        counts = (f"{topic.messages:,}", rate, f"{topic.retained:,}", size(topic.bytes))
        rows.append((name, *counts, _when(topic.first_ns), _when(topic.last_ns)))
    left = len(about.topics) - len(most)
    return [
        *lines,
        "",
        _table(rows),
        *([f"and {left:,} more topics of fewer messages; --json has them"] if left else []),
    ]


def _rate(messages: int, seconds: float) -> str:
    """54.9/s, or where they are seldom 1 in 10:00 min."""
    return f"{messages / seconds:.3g}/s" if messages > seconds / 10 else f"1 in {span(seconds / max(messages - 1, 1))}"


def _verify(args: Namespace) -> int:
    finding = examine(args.file, load(args.spec) if args.spec else None)
    about = finding.description
    report: dict[str, Any] = {
        "file": str(args.file), "form": finding.kind, "is_whole": not finding.damages, "damages": finding.damages,
        "messages": about.messages, "gaps": about.gap_count, "lost": finding.lost, "sha256": finding.sha256,
        "notes": finding.notes,
        "first_ns": about.first_ns, "last_ns": about.last_ns,
    }  # fmt: skip
    if args.json != "-":
        print("\n".join(_verdict(finding)))
    _write(args, report)
    return 1 if finding.damages else 0


def _verdict(finding: Finding) -> list[str]:
    about = finding.description
    count = f"{about.messages:,} messages" + (f", {about.gap_count:,} gaps" if about.gap_count else "")
    if not finding.damages:
        return [f"{finding.path} is whole: {count}, sha256 {finding.sha256}", *finding.notes]
    lines = [f"{finding.path} is damaged", *(f"  {words}" for words in finding.damages[:SHOWN])]
    if len(finding.damages) > SHOWN:
        lines.append(f"  and {len(finding.damages) - SHOWN:,} more places; --json has them")
    lost = "how many are lost cannot be known" if finding.lost is None else f"{finding.lost:,} are lost"
    until = f", the last of {_when(about.last_ns)} UTC" if about.last_ns is not None else ""
    return [*lines, f"fleetgp recordings recover {finding.path} -o OUT saves {count}{until}; {lost}"]


def _recover(args: Namespace) -> int:
    """Save what can be read; 0 also where something was lost, for saving it was the job."""
    output = Output(args.output, is_forced=args.force, endings=(".mcap", ".jsonl", ".jsonl.gz"))
    if kind_of(args.file) not in OF_MESSAGES and args.file.suffix != ".mcap":
        raise RecordingError(f"{args.file} is a table; fleetgp recordings convert reads what can be read of it")
    finding = examine(args.file)
    if not finding.description.messages:
        raise RecordingError(f"nothing can be saved of {args.file}: no whole message is in it")
    session = {**finding.description.session, "recovered_from": args.file.name}
    with output.beside() as part:
        recorded = mcap.recover(args.file) if finding.kind == "mcap" else read_messages(args.file, {})
        messages, gaps = write_messages(part, iter(recorded), session)
    if args.json != "-":
        print("\n".join([*_verdict(finding)[:-1], f"{args.output}: {messages:,} messages saved, {gaps:,} gaps marked"]))
    report = {"file": str(args.file), "output": str(args.output), "messages": messages, "gaps": gaps}
    _write(args, {**report, "lost": finding.lost, "damages": finding.damages})
    return 0


def _write(args: Namespace, report: dict[str, Any]) -> None:
    if args.json:
        write_json(report, args.json)


def _when(at_ns: int) -> str:
    """To the second, as tables have room for."""
    return iso(at_ns)[:19].replace("T", " ")


def _shown(text: str) -> str:
    """Text of others as it may stand on a terminal: whatever steers one is written out."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _table(rows: Sequence[tuple[str, ...]]) -> str:
    """Columns aligned: text to the left, numbers to the right."""
    rows = [tuple(map(_shown, row)) for row in rows]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    is_number = [all(row[column][:1].isdigit() or not row[column] for row in rows[1:]) for column in range(len(widths))]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, is_number, strict=True)
        ).rstrip()
        for row in rows
    )


RUN: Mapping[str, Callable[[Namespace], int]] = {
    "list": _list,
    "info": _info,
    "verify": _verify,
    "recover": _recover,
    "convert": convert,
    "query": query,
}
