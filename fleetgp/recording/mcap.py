"""Recordings of messages as MCAP: write, read, recover what a damaged file still holds, verify."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from fleetgp.recording.describe import Description, Overview
from fleetgp.recording.digest import Digest
from fleetgp.recording.mcap_read import Damage, Scan
from fleetgp.recording.mcap_write import McapWriter
from fleetgp.recording.message import Message, Recorded

__all__ = ["Damage", "McapWriter", "Scan", "Verdict", "describe", "read", "recover", "verify"]


class Verdict(NamedTuple):
    """What a check of a whole file found. damages: empty where it is whole; lost: messages known to be lost; sha256: over
    what could be read, in canonical form; out_of_order: messages received earlier than the one before them."""

    path: Path
    is_closed: bool
    damages: tuple[Damage, ...]
    damage_count: int
    lost: int
    messages: int
    gaps: int
    out_of_order: int
    first_ns: int | None
    last_ns: int | None
    sha256: str

    @property
    def is_whole(self) -> bool:
        return not self.damage_count


def read(path: Path) -> Iterator[Recorded]:
    """Messages and gaps in the order they were written. Raises RecordingError at the first damage, what is before it given."""
    yield from Scan(path, is_strict=True)


def recover(path: Path, begin_ns: int | None = None) -> Scan:
    """What a damaged file still holds: iterate over it, then its attributes say how far it went and what was lost.

    begin_ns: what is earlier (UTC epoch ns) need not be read, and is not where the file has an index.
    Iterating raises RecordingError only where there is no file, or nothing of MCAP in it.
    """
    return Scan(path, is_strict=False, begin_ns=begin_ns)


def verify(path: Path) -> Verdict:
    """Read all of a file, check its CRCs, counts and hash. Raises RecordingError as ``recover`` does."""
    scan = recover(path)
    digest, order = Digest(), 0
    first_ns: int | None = None
    last_ns: int | None = None
    for recorded in scan:
        digest.add(recorded)
        if isinstance(recorded, Message):
            order += last_ns is not None and recorded.received_ns < last_ns
            last_ns = recorded.received_ns
            first_ns = last_ns if first_ns is None else first_ns
    damages, count = scan.damages, scan.damage_count
    if not count and scan.end.get("sha256", digest.hexdigest()) != digest.hexdigest():
        damages, count = [Damage(0, "its messages are not those that were written: the hash differs", None)], 1
    return Verdict(
        path=path,
        is_closed=scan.is_closed,
        damages=tuple(damages),
        damage_count=count,
        lost=scan.lost,
        messages=digest.messages,
        gaps=digest.gaps,
        out_of_order=order,
        first_ns=first_ns,
        last_ns=last_ns,
        sha256=digest.hexdigest(),
    )


def describe(path: Path) -> Description:
    """Topics, counts, times, gaps and session of a file, damaged or not. Raises RecordingError as ``recover`` does."""
    scan = recover(path)
    overview = Overview()
    for recorded in scan:
        overview.add(recorded)
    return overview.description(session=scan.session, end=scan.end, is_whole=not scan.damage_count)
