"""What a history store must do, whatever it is made of.

A store keeps wide time series (one row an instant, one value a column) and the documents that travel beside them: events,
rounds, presence and health. One process writes, any number read. ``write`` is atomic: when it returns, all of the batch
is safe; when it raises, none of it is there and the same batch may be tried again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, runtime_checkable

from fleetgp.arrays import Array
from fleetgp.wire.messages import AnomalyEvent, Health, RoundNotice, Status

Kind = Literal["reading", "prediction", "health"]


@dataclass(frozen=True)
class Row:
    """All values of one series at one instant.

    series: topic of a reading, agent id of a prediction, program name of health. at_ms: the row's own time; received_ms:
    when it reached us; both UTC epoch ms. sequence: the sender's count, None where it sends none. values: None = missing.
    """

    kind: Kind
    series: str
    at_ms: int
    values: Mapping[str, float | None]
    received_ms: int
    sequence: int | None = None


@dataclass(frozen=True)
class Batch:
    """What is committed together. Documents may repeat: the newest of each identity is kept."""

    rows: Sequence[Row] = ()
    statuses: Sequence[Status] = ()
    healths: Sequence[Health] = ()
    events: Sequence[AnomalyEvent] = ()
    rounds: Sequence[RoundNotice] = ()


@dataclass(frozen=True)
class WriteReport:
    """What became of a batch: rows new (or merged into one of the same instant), rows that were there already, rows and
    documents refused by reason. written + duplicates + refused rows is the number of rows of the batch."""

    written: int = 0
    duplicates: int = 0
    refused: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class SeriesInfo:
    """A series in the store. channels: column names in order of arrival; first_ms, last_ms: range of at_ms; rows: raw."""

    kind: Kind
    name: str
    channels: tuple[str, ...]
    first_ms: int
    last_ms: int
    rows: int


@dataclass(frozen=True)
class Window:
    """Values over a span, at most as many points as were asked for, in order of time.

    Of raw rows an instant may come more than once, where rows of one time contradict each other.

    at_ms: [n] start of each point. mean, low, high: per column [n], NaN where missing; low and high are the extremes of
    the readings behind a point and equal mean where each point is one row. step_ms: width of a point, 0 for raw rows.
    """

    at_ms: Array
    mean: Mapping[str, Array]
    low: Mapping[str, Array]
    high: Mapping[str, Array]
    step_ms: int = 0


@dataclass(frozen=True)
class StoreInfo:
    """Size and content of a store, for people and for ``doctor``."""

    location: str
    megabytes: float
    series: int
    rows: int
    first_ms: int | None
    last_ms: int | None


class Writer(Protocol):
    """The one writing side of a store. Every method raises StorageError when the store refuses."""

    def write(self, batch: Batch) -> WriteReport: ...

    def maintain(self, now_ms: int) -> None:
        """Bring rollups up to date and drop what is older than retention allows. Called every few seconds."""
        ...

    def close(self) -> None: ...


@runtime_checkable
class Forwarding(Protocol):
    """What a writer also offers that keeps a batch on this machine first and sends it on to a server."""

    def figures(self) -> Mapping[str, float]:
        """How much waits, and how much was sent."""
        ...

    def losses(self) -> Mapping[str, int]:
        """What never came to the server, by reason."""
        ...

    def news(self) -> str:
        """What was done at the server since this was asked last, in plain words; "" where nothing was."""
        ...

    def note(self) -> str:
        """What is wrong with the way to the server, in plain words; "" where nothing is."""
        ...


class Reader(Protocol):
    """The reading side; safe to use while another process writes. Every method raises StorageError on failure."""

    def series(self, kind: Kind) -> list[SeriesInfo]: ...

    def window(
        self, kind: Kind, name: str, columns: Sequence[str], start_ms: int, end_ms: int, max_points: int = 600
    ) -> Window:
        """Rows of a series with start_ms <= at_ms <= end_ms; rollups where raw rows would be more than max_points."""
        ...

    def sequences(self, name: str) -> list[int]:
        """Sequence numbers of all stored rows of a reading series, sorted."""
        ...

    def statuses(self) -> list[Status]: ...

    def healths(self) -> list[Health]:
        """The newest health of every program."""
        ...

    def events(self, agent: str | None = None, limit: int = 1000) -> list[AnomalyEvent]:
        """The newest state of each event, latest start first."""
        ...

    def rounds(self, limit: int = 1000) -> list[RoundNotice]:
        """Rounds, latest first; the closed notice where a round is closed, else the opened one."""
        ...

    def info(self) -> StoreInfo: ...

    def close(self) -> None: ...
