"""What recordings hold and how they are to be learnt, where their owner did not say: from the first rows of all of them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from fleetgp.columns import First
from fleetgp.defaults import Choice, choose
from fleetgp.errors import ConfigError, RecordingError
from fleetgp.recording import spec
from fleetgp.recording.board import MessageStream
from fleetgp.recording.discover import ROWS, discover, find_time, numbers
from fleetgp.recording.spec import RecordingSpec, TimeSpec
from fleetgp.recording.streams import Stream, find
from fleetgp.schema import Channel
from fleetgp.wanted import Wanted, wanted
from simulator.watching import look_for_devices

NAMED = 8


class Understood(NamedTuple):
    """Files as streams, a whole spec of them, and what of it was chosen and why."""

    streams: list[Stream]
    described: RecordingSpec
    choice: Choice


def understood(files: Sequence[Path], spec_file: Path | None) -> Understood:
    """Raises ConfigError or RecordingError where spec and files do not fit, or nothing can be chosen."""
    described = spec.load(spec_file) if spec_file is not None else None
    found = find(files, described, look_for_devices)
    streams, why = (found.streams, ()) if described is not None and described.inputs else alike(found.streams)
    described, choice = complete(streams, described, str(spec_file or "what was chosen"))
    reasons = (*found.reasons, *why, *choice.reasons)
    return Understood(streams, described, msgspec.structs.replace(choice, reasons=reasons))


def readable(files: Sequence[Path], spec_file: Path | None) -> tuple[list[Stream], RecordingSpec]:
    """Files as streams and what is needed to read them, no more. Raises as ``understood`` does."""
    described = spec.load(spec_file) if spec_file is not None else None
    if described is None or not described.inputs or described.time.is_open:
        return understood(files, spec_file)[:2]
    return find(files, described, look_for_devices).streams, described


def completed(files: Sequence[Path], spec_file: Path | None) -> tuple[RecordingSpec, Choice]:
    """The last two of what is understood."""
    return understood(files, spec_file)[1:]


def complete(streams: Sequence[Stream], described: RecordingSpec | None, source: str) -> tuple[RecordingSpec, Choice]:
    """A whole spec of streams, and what of it was chosen and why. source: named in errors. Raises as ``understood`` does."""
    said = Wanted() if described is None else described.wanted
    rest = RecordingSpec(time=TimeSpec(), wanted=said) if described is None else described
    found: tuple[str, ...] = ()
    if described is not None and said.channels and described.time.is_open:
        time, why = find_time(streams, described.time)
        described, found = msgspec.structs.replace(described, time=time), (why,)
    if described is not None and not said.open:
        return described, Choice(said.schema(), found, "owner")
    if described is None or not said.channels:
        seen = discover(streams, None if described is None else described.time)
        found = seen.reasons
        inputs = Wanted(channels=tuple(Channel(name=name) for name in seen.columns))
        described = msgspec.structs.replace(rest, time=seen.time, wanted=inputs)
    names = [item.name for item in described.inputs]
    devices = [_first(stream, described) for stream in streams]
    if not any(len(device.times_ms) for device in devices):
        raise RecordingError("these recordings hold no row")
    try:
        choice = choose(said, names, devices)
    except ConfigError as err:
        raise ConfigError(err.key, err.problem, f"{source} and the first rows") from err
    choice = msgspec.structs.replace(choice, reasons=(*found, *choice.reasons))
    return msgspec.structs.replace(described, wanted=wanted(choice.schema)), choice


def alike(streams: Sequence[Stream]) -> tuple[list[Stream], tuple[str, ...]]:
    """The most devices of messages that tell the same, for a fleet shares one schema; which others are left out, and why.

    Tables are all kept: what not all of them have is left out of them.
    """
    kinds: dict[frozenset[str], list[str]] = {}
    for stream in streams:
        if stream.has_clock:
            kinds.setdefault(numbers(stream), []).append(stream.name)
    if len(kinds) < 2:
        return list(streams), ()
    # as many readings as can be in one schema: devices that tell all of it, times what it holds
    most = max(kinds, key=lambda kind: len(kind) * sum(len(names) for other, names in kinds.items() if kind <= other))
    chosen = {name for kind, names in kinds.items() if kind >= most for name in names}
    kept = [stream for stream in streams if not stream.has_clock or stream.name in chosen]
    for stream in streams:
        if stream.name not in chosen and isinstance(stream, MessageStream):
            stream.leave_out()
    reasons = tuple(
        f"left out {', '.join(names[:NAMED])}{', ...' if len(names) > NAMED else ''}: tells {', '.join(sorted(kind)[:NAMED])}, "
        f"not what {len(chosen)} other{'s tell' if len(chosen) > 1 else ' tells'}; name channels in a spec (--spec) for another choice"
        for kind, names in kinds.items()
        if not kind >= most
    )
    return kept, reasons


def told(described: RecordingSpec, choice: Choice) -> dict[str, Any]:
    """What was chosen, for the report's JSON; no reasons where the spec said all."""
    return {
        "time": msgspec.to_builtins(described.time),
        "stream": msgspec.to_builtins(choice.schema),
        "reasons": list(choice.reasons),
    }


def lines(choice: Choice, devices: int) -> list[str]:
    """The same for people; nothing where the spec said all."""
    if not choice.reasons:
        return []
    where = "the file" if devices == 1 else f"each of {devices} devices"
    return [f"chosen from the first {ROWS} rows of {where}:", *(f"  {reason}" for reason in choice.reasons), ""]


def _first(stream: Stream, described: RecordingSpec) -> First:
    rows = list(islice(stream.read(described), ROWS))
    values = np.array([row.values for row in rows], dtype=float).reshape(len(rows), len(described.inputs))
    return First(np.array([row.at_ms for row in rows], dtype=float), values)
