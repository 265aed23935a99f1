"""Faults put into a recording as it streams by, the same ones for the same seed, and the truth of what was done.

Each fault is a stage that messages pass through, in the order in which the faults are named. Times are receive times. What
waits is bounded: a reorder looks ahead over its window, and a late message waits until its time has come.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from fleetgp.errors import ConfigError
from fleetgp.recording.message import Gap, Message, Recorded
from simulator import fault_payload
from simulator.fault_spec import FLAG, Fault, parse
from simulator.fault_stages import Filter, Item, begin_ns, stage
from simulator.fault_truth import Truth

__all__ = [
    "Fault", "Truth", "inject", "inject_chosen", "inject_into", "measured", "numbered", "parse", "truth_path",
]  # fmt: skip

MOST_TOPICS = 10_000


def inject(messages: Iterator[Recorded], faults: Sequence[Fault], seed: int) -> tuple[Iterator[Recorded], Truth]:
    """The messages with faults in them, and the truth, which is whole once the last message was taken.

    Raises ConfigError where a size is in standard deviations that nobody measured (``measured``, ``inject_into``).
    """
    first = next(messages, None)
    whole = messages if first is None else itertools.chain([first], messages)
    return inject_chosen(numbered(whole), 0 if first is None else begin_ns(first), faults, seed)


def inject_chosen(
    items: Iterator[tuple[int, Recorded]], first_ns: int, faults: Sequence[Fault], seed: int
) -> tuple[Iterator[Recorded], Truth]:
    """The same for a part of a recording. items: messages and gaps, each with its number in the whole; first_ns: when that
    begins (UTC epoch ns), which is where the times of faults count from."""
    for fault in faults:
        if fault.is_in_sd and not fault.sds:
            raise ConfigError(
                FLAG,
                f"{fault.text!r}: no number of {fault.field or 'a plain value'} stands on {fault.topic} in this recording",
            )
    if seed < 0:
        raise ConfigError("--seed", f"{seed} is below 0; any whole number from 0 on will do")
    truth = Truth(seed, faults)
    return _run(items, first_ns, faults, truth), truth


def numbered(messages: Iterator[Recorded]) -> Iterator[tuple[int, Recorded]]:
    """Each with its number among all messages, from 0; a gap has the next one's."""
    number = 0
    for one in messages:
        yield number, one
        number += isinstance(one, Message)


def inject_into(
    read: Callable[[], Iterator[Recorded]],
    faults: Sequence[Fault],
    seed: int,
    is_wanted: Callable[[Recorded], bool] = lambda one: True,
) -> tuple[Iterator[Recorded], Truth]:
    """The same for a recording that can be read twice: a first pass measures standard deviations, where any are wanted.

    is_wanted: which messages and gaps there are to put faults into; all others are left out.
    """
    faults = measured(read(), faults)
    whole = read()
    first = next(whole, None)
    items = numbered(whole if first is None else itertools.chain([first], whole))
    chosen = (item for item in items if is_wanted(item[1]))
    return inject_chosen(chosen, 0 if first is None else begin_ns(first), faults, seed)


def measured(messages: Iterator[Recorded], faults: Sequence[Fault]) -> list[Fault]:
    """Faults with the standard deviations that their sizes are told in: of the field over the whole recording, by topic."""
    if not any(fault.is_in_sd for fault in faults):
        return list(faults)
    moments: list[dict[str, _Moments]] = [{} for _ in faults]
    filters = [Filter(fault.topic) for fault in faults]
    wanted = [index for index, fault in enumerate(faults) if fault.is_in_sd]
    for one in messages:
        if isinstance(one, Gap) or one.is_retained:
            continue
        for index in wanted:
            if not filters[index].matches(one.topic):
                continue
            place = fault_payload.find(one.payload, faults[index].field)
            known = moments[index]
            if not isinstance(place, str) and (one.topic in known or len(known) < MOST_TOPICS):
                known.setdefault(one.topic, _Moments()).add(place.value)
    return [
        replace(fault, sds={topic: one.sd for topic, one in known.items()}) if fault.is_in_sd else fault
        for fault, known in zip(faults, moments, strict=True)
    ]


def truth_path(output: Path) -> Path:
    """Where the truth about a recording is written: beside it, ``OUT.truth.json``."""
    return output.with_name(f"{output.name}.truth.json")


class _Moments:
    """Count, mean and sum of squares about it (Welford 1962)."""

    def __init__(self) -> None:
        self.n = 0
        self.mean = 0.0
        self.square = 0.0

    def add(self, value: float) -> None:
        self.n += 1
        step = value - self.mean
        self.mean += step / self.n
        self.square += step * (value - self.mean)

    @property
    def sd(self) -> float:
        return float((self.square / (self.n - 1)) ** 0.5) if self.n > 1 else 0.0


def _run(
    numbered_ones: Iterator[tuple[int, Recorded]], first_ns: int, faults: Sequence[Fault], truth: Truth
) -> Iterator[Recorded]:
    rngs = np.random.default_rng(truth.seed).spawn(len(faults))
    items = _seen(numbered_ones, truth)
    for fault, told, rng in zip(faults, truth.faults, rngs, strict=True):
        items = stage(fault, first_ns, told, rng)(items)
    for item in items:
        truth.messages_out += isinstance(item.one, Message)
        yield item.one


def _seen(numbered_ones: Iterator[tuple[int, Recorded]], truth: Truth) -> Iterator[Item]:
    for number, one in numbered_ones:
        if isinstance(one, Message):
            truth.see(one.topic, one.received_ns)
        yield Item(number, one)
