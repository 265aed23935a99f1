"""What recordings hold and how they are to be learnt, where their owner did not say: from the first rows of all of them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from fleetgp.columns import First
from fleetgp.defaults import Choice, choose
from fleetgp.errors import ConfigError, RecordingError
from fleetgp.recording import csv, spec
from fleetgp.recording.discover import ROWS, discover, find_time
from fleetgp.recording.spec import RecordingSpec
from fleetgp.schema import Channel
from fleetgp.wanted import Wanted, wanted


def completed(files: Sequence[Path], spec_file: Path | None) -> tuple[RecordingSpec, Choice]:
    """A whole spec of the files, and what of it was chosen and why.

    Raises ConfigError or RecordingError where spec and files do not fit, or nothing can be chosen.
    """
    described = spec.load(spec_file) if spec_file is not None else None
    said = Wanted() if described is None else described.wanted
    found: tuple[str, ...] = ()
    if described is not None and said.channels and not described.time.columns:
        time, why = find_time(files, described.time)
        described, found = msgspec.structs.replace(described, time=time), (why,)
    if described is not None and not said.open:
        return described, Choice(said.schema(), found, "owner")
    if described is None or not said.channels:
        seen = discover(files, None if described is None else described.time)
        found = seen.reasons
        described = RecordingSpec(time=seen.time, wanted=Wanted(channels=tuple(Channel(name=n) for n in seen.columns)))
    names = [item.name for item in described.inputs]
    devices = [_first(file, described) for file in files]
    if not any(len(device.times_ms) for device in devices):
        raise RecordingError("these recordings hold no row")
    try:
        choice = choose(said, names, devices)
    except ConfigError as err:
        raise ConfigError(err.key, err.problem, f"{spec_file or 'what was chosen'} and the first rows") from err
    choice = msgspec.structs.replace(choice, reasons=(*found, *choice.reasons))
    return RecordingSpec(time=described.time, wanted=wanted(choice.schema)), choice


def told(described: RecordingSpec, choice: Choice) -> dict[str, Any]:
    """What was chosen, for the report's JSON; no reasons where the spec said all."""
    return {
        "time": msgspec.to_builtins(described.time),
        "stream": msgspec.to_builtins(choice.schema),
        "reasons": list(choice.reasons),
    }


def lines(choice: Choice, files: int) -> list[str]:
    """The same for people; nothing where the spec said all."""
    if not choice.reasons:
        return []
    where = "the file" if files == 1 else f"each of {files} files"
    return [f"chosen from the first {ROWS} rows of {where}:", *(f"  {reason}" for reason in choice.reasons), ""]


def _first(file: Path, described: RecordingSpec) -> First:
    rows = list(islice(csv.read(file, described), ROWS))
    values = np.array([row.values for row in rows], dtype=float).reshape(len(rows), len(described.inputs))
    return First(np.array([row.at_ms for row in rows], dtype=float), values)
