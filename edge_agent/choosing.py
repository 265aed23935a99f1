"""Before the brain: which of the first readings are kept, when they are enough, and whose choice is taken. Pure.

A fleet shares one schema. So what the fleet's model says is taken where it contradicts nothing that the owner said, however
few readings there are; only without it an agent chooses for itself, as soon as it has 30 readings of every channel, or has
waited for half an hour or 400 samples.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from edge_agent.frames import Sample
from fleetgp.columns import First
from fleetgp.defaults import Choice, choose
from fleetgp.errors import ConfigError
from fleetgp.schema import Schema
from fleetgp.wanted import Wanted, span

MOST_KEPT = 400
DEADLINE_S = 1800.0
ENOUGH = 30  # readings of every channel
LEAST = 5  # at different times, of one channel: below it no interval can be told, whatever the deadline


class Kept(msgspec.Struct, frozen=True, array_like=True):
    """A sample from before there was a schema: inputs by name. It goes to the brain once there is one."""

    at_ms: int
    received_ms: int
    names: tuple[str, ...]
    values: tuple[float, ...]


def kept(sample: Sample, said: Wanted) -> Kept:
    """A sample whose positions are those of what the owner said."""
    return Kept(sample.at_ms, sample.received_ms, tuple(said.inputs[p].name for p in sample.positions), sample.values)


def samples(kept: Sequence[Kept], schema: Schema) -> list[Sample]:
    """The same for a brain of this schema, whose order may be another; names that it does not have are left out."""
    positions = {item.name: position for position, item in enumerate(schema.inputs)}
    result = []
    for one in kept:
        found = [
            (positions[name], value) for name, value in zip(one.names, one.values, strict=True) if name in positions
        ]
        if found:
            result.append(
                Sample(one.at_ms, one.received_ms, tuple(p for p, _ in found), tuple(value for _, value in found))
            )
    return result


def is_enough(said: Wanted, kept: Sequence[Kept], waited_s: float) -> bool:
    """Whether to choose now. waited_s: since the first reading came."""
    counts = _counts(said, kept)
    is_due = min(counts.values()) >= ENOUGH or len(kept) >= MOST_KEPT or waited_s >= DEADLINE_S
    can_tell = any(counts.values()) if said.interval_s is not None else _most_times(said, kept) >= LEAST
    return is_due and can_tell


def by_itself(said: Wanted, kept: Sequence[Kept], refusal: str = "") -> Choice:
    """Choose from the readings kept. refusal: why the fleet's choice is not taken, where it has one.

    Raises ConfigError in plain words where what the owner said does not fit the readings.
    """
    inputs = {item.name: position for position, item in enumerate(said.inputs)}
    values = np.full((len(kept), len(inputs)), np.nan)
    for row, one in enumerate(kept):
        for name, value in zip(one.names, one.values, strict=True):
            if name in inputs:
                values[row, inputs[name]] = value
    choice = choose(said, tuple(inputs), [First(np.array([one.at_ms for one in kept], dtype=float), values)])
    never = [name for name, count in _counts(said, kept).items() if not count]
    more = [f"nothing came for {', '.join(never)} so far"] if never else []
    return msgspec.structs.replace(choice, reasons=(*choice.reasons, *more, *filter(None, [refusal])))


def from_fleet(said: Wanted, fleet: Schema) -> Choice | str:
    """The fleet's choice where it fits what the owner said; otherwise why it does not, in plain words."""
    why = said.contradiction(fleet)
    if why:
        return why
    try:
        schema = said.as_in(fleet)
    except ConfigError as err:
        return str(err)
    return Choice(schema, (f"taken from the fleet: {described(schema)}",), "fleet")


def remembered(said: Wanted, earlier: Choice) -> tuple[Choice | None, str]:
    """An earlier choice as it holds today, and what changed; None where it does not hold any more.

    What the owner has said since then replaces what was chosen; all else stays. Other inputs need another choice.
    """
    inputs = Wanted(channels=said.channels, covariates=said.covariates)
    why = inputs.contradiction(earlier.schema)
    if why:
        return None, f"the earlier choice does not fit: {why}"
    schema = inputs.as_in(earlier.schema)
    why = said.contradiction(schema)
    if not why:
        return msgspec.structs.replace(earlier, schema=schema), ""
    try:
        said = msgspec.structs.replace(said, channels=schema.channels, covariates=schema.covariates)
        schema = said.filled(schema)
    except ConfigError as err:
        return None, f"the earlier choice does not fit: {err}"
    return msgspec.structs.replace(earlier, schema=schema), f"of the earlier choice {why}, which holds now"


def described(schema: Schema) -> str:
    """The stream's settings in one line."""
    phases = ", ".join(span(period) for period in schema.phases) or "none"
    return f"interval {span(schema.interval_s)}, lags {schema.lags}, phases {phases}, inducing {schema.inducing}"


def progress(said: Wanted, kept: Sequence[Kept]) -> str:
    """How far it is, for the owner."""
    counts = _counts(said, kept)
    fewest = min(counts, key=lambda name: counts[name])
    note = f"choosing the stream's settings ({', '.join(said.open)}): {counts[fewest]} of {ENOUGH} readings of {fewest}"
    if len(kept) >= MOST_KEPT and said.interval_s is None and _most_times(said, kept) < LEAST:
        note += "; but all readings have the same few times: see the device's clock, or set agent.clock to receive"
    return note


def unheard(said: Wanted, kept: Sequence[Kept]) -> tuple[str, ...]:
    """Channels without a reading where another has enough of them: perhaps their names are not those that are sent."""
    counts = _counts(said, kept)
    return tuple(name for name, count in counts.items() if not count) if max(counts.values()) >= ENOUGH else ()


def _counts(said: Wanted, kept: Sequence[Kept]) -> dict[str, int]:
    """Readings by channel."""
    counts = {channel.name: 0 for channel in said.channels}
    for one in kept:
        for name, value in zip(one.names, one.values, strict=True):
            if name in counts and np.isfinite(value):
                counts[name] += 1
    return counts


def _most_times(said: Wanted, kept: Sequence[Kept]) -> int:
    """At how many different times the channel that was read at most of them was read."""
    times: dict[str, set[int]] = {channel.name: set() for channel in said.channels}
    for one in kept:
        for name, value in zip(one.names, one.values, strict=True):
            if name in times and np.isfinite(value):
                times[name].add(one.at_ms)
    return max(len(found) for found in times.values())
