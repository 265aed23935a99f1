"""How like two messages are: the same, the same but for the last digits, or not; and where they differ first."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import msgspec

from fleetgp.wire.convert import to_array
from fleetgp.wire.messages import Bootstrap, Summary, Tensor

CLOSE = 1e-9
MOST_SHOWN = 40

Verdict = Literal["same", "close", "different"]


@dataclass
class Tally:
    """Messages of one kind that were compared, by verdict; first: the first that was not the same, in plain words.

    missing: recorded, and not made again; extra: made, and not recorded; repeated: recorded once more. largest: relative difference of two numbers where only last digits differ.
    """

    counts: Counter[Verdict] = field(default_factory=Counter)
    missing: int = 0
    extra: int = 0
    repeated: int = 0
    first: str = ""
    largest: float = 0.0

    @property
    def recorded(self) -> int:
        return sum(self.counts.values()) + self.missing

    @property
    def is_alike(self) -> bool:
        """Whether all that was recorded was made again, but for last digits."""
        return not self.missing and not self.counts["different"]

    def compare(self, what: str, recorded: msgspec.Struct, made: msgspec.Struct) -> None:
        """what: names the message for a person."""
        if recorded == made:
            self.counts["same"] += 1
            return
        verdict, largest, where = _difference(recorded, made)
        self.counts[verdict] += 1
        if verdict == "close":
            self.largest = max(self.largest, largest)
        self.first = self.first or f"{what}: {where}"

    def miss(self, what: str) -> None:
        self.missing += 1
        self.first = self.first or f"{what}: not made again"

    def merge(self, other: Tally) -> None:
        self.counts += other.counts
        self.missing += other.missing
        self.extra += other.extra
        self.repeated += other.repeated
        self.first = self.first or other.first
        self.largest = max(self.largest, other.largest)


def is_close(recorded: Summary | Bootstrap, made: Summary | Bootstrap) -> bool:
    """Whether nothing but last digits differs. Looks first at what differs most often, how many frames are behind it."""
    return _difference(recorded.count, made.count)[0] == "close" and _difference(recorded, made)[0] == "close"


class _Leaf(NamedTuple):
    """A number or text; scale: what a difference of it is measured by, at least."""

    value: object
    scale: float = 1e-3


def _difference(recorded: object, made: object) -> tuple[Verdict, float, str]:
    """Verdict, largest relative difference of numbers, and the first field that differs."""
    verdict: Verdict = "close"
    largest, where = 0.0, ""
    left, right = dict(_leaves(recorded, "")), dict(_leaves(made, ""))
    for name in [*left, *(name for name in right if name not in left)]:
        one, other = left.get(name, _Leaf("absent")), right.get(name, _Leaf("absent"))
        a, b = one.value, other.value
        if a == b:
            continue
        where = where or f"{name} was {str(a)[:MOST_SHOWN]}, is {str(b)[:MOST_SHOWN]}"
        if isinstance(a, float) and isinstance(b, float):
            ratio = abs(a - b) / max(abs(a), abs(b), one.scale)
            largest = max(largest, ratio)
            verdict = "different" if ratio > CLOSE else verdict
        else:
            verdict = "different"
    return verdict, largest, where


def _leaves(value: object, name: str) -> list[tuple[str, _Leaf]]:
    """Numbers and texts by the names of the fields and places they stand in; numbers of a matrix on its own scale."""
    items: list[tuple[str, object]]
    if isinstance(value, Tensor):
        numbers = to_array(value, value.shape, name).ravel().tolist()
        scale = max(map(abs, numbers), default=1.0)
        entries = [(f"{name}.{index}", _Leaf(number, scale)) for index, number in enumerate(numbers)]
        return [(f"{name}.shape", _Leaf(value.shape)), *entries]
    if isinstance(value, msgspec.Struct):
        items = [(field, getattr(value, field)) for field in value.__struct_fields__]
    elif isinstance(value, dict):
        items = [(str(key), item) for key, item in value.items()]
    elif isinstance(value, (list, tuple)):
        items = [(str(index), item) for index, item in enumerate(value)]
    else:
        return [(name, _Leaf(value))]
    return [leaf for key, item in items for leaf in _leaves(item, f"{name}.{key}" if name else key)]
