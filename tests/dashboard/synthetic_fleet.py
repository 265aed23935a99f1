"""A made-up fleet whose history tests can know by heart, and a store in memory that holds it."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from dashboard.source import Source
from fleetgp.errors import StorageError
from fleetgp.runtime.clock import FakeClock
from fleetgp.schema import Channel, Schema
from fleetgp.store.base import Batch, Row, SeriesInfo, StoreInfo, Window
from fleetgp.wire.messages import AnomalyEvent, Health, RoundNotice, Status

NOW_MS = 1_780_000_000_000  # a whole second
CHANNELS = (
    Channel(name="temperature", unit="°C"),
    Channel(name="pressure", unit="kPa"),
    Channel(name="vibration", unit="mm/s"),
    Channel(name="current", unit="A"),
)
PULL = 0.25  # by which the fleet's knowledge takes a device back in a frame
CHANGES = {
    2: ("first basis", None),
    5: ("new basis: the fleet's scale has moved", None),
    9: ("new basis: kernels tuned on 6 agents", 0.031),
}
LEVELS = {"temperature": (21.0, 3.0), "pressure": (101.3, 0.8), "vibration": (2.4, 0.5), "current": (7.5, 1.4)}


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What the made-up fleet looks like. faulty, dead, silent: names of agents; end_ms: time of the newest frame."""

    agents: int = 6
    frames: int = 900
    interval_s: float = 1.0
    end_ms: int = NOW_MS
    now_ms: int = NOW_MS
    faulty: str = "press-2"
    dead: str = ""
    silent: str = ""
    missing_channel: str = ""
    with_layers: bool = True
    rounds: int = 40
    seed: int = 7


def agent_names(plan: Plan) -> list[str]:
    return [f"press-{number}" for number in range(1, plan.agents + 1)]


def history(plan: Plan) -> Batch:
    """Everything a store of that fleet holds."""
    rng = random.Random(plan.seed)
    rows: list[Row] = []
    statuses: list[Status] = [
        Status(at_ms=plan.now_ms - 5000, name="coordinator", role="coordinator", is_online=True),
        Status(at_ms=plan.now_ms - 5000, name="bridge", role="bridge", is_online=True),
    ]
    healths = [
        Health(at_ms=plan.now_ms - 4000, name="coordinator", role="coordinator"),
        Health(at_ms=plan.now_ms - 4000, name="bridge", role="bridge"),
    ]
    for number, agent in enumerate(agent_names(plan)):
        rows += _rows(plan, agent, number, rng)
        statuses.append(_status(plan, agent))
        heard_ms = plan.now_ms - (600_000 if agent in (plan.dead, plan.silent) else 3000)
        healths.append(Health(at_ms=heard_ms, name=agent, role="agent", figures={"frames": float(plan.frames)}))
    return Batch(rows=rows, statuses=statuses, healths=healths, events=_events(plan), rounds=_rounds(plan, rng))


def _status(plan: Plan, agent: str) -> Status:
    schema = Schema(channels=CHANNELS, interval_s=plan.interval_s)
    return Status(
        at_ms=plan.now_ms - 600_000,
        name=agent,
        role="agent",
        is_online=agent != plan.dead,
        state="federated" if agent != agent_names(plan)[-1] else "learning",
        schema=schema,
    )


def fault_span(plan: Plan) -> tuple[int, int]:
    """First and last frame of the fault."""
    return int(plan.frames * 0.7), int(plan.frames * 0.7) + max(6, plan.frames // 22)


def _rows(plan: Plan, agent: str, number: int, rng: random.Random) -> list[Row]:
    rows = []
    first, last = fault_span(plan)
    for frame in range(plan.frames):
        at_ms = plan.end_ms - round((plan.frames - 1 - frame) * plan.interval_s * 1000)
        is_odd = agent == plan.faulty and first <= frame <= last
        values: dict[str, float | None] = {}
        readings: dict[str, float | None] = {}
        for place, (name, (level, swing)) in enumerate(LEVELS.items()):
            wave = math.sin(frame / (40 + 13 * place) + number) + 0.4 * math.sin(frame / 11 + place)
            mean = level + 0.3 * number * swing + swing * wave
            std = 0.12 * swing
            noise = rng.gauss(0, 1) + (
                9 if is_odd and name == "vibration" else 4 if is_odd and name == "current" else 0
            )
            observed = None if name == plan.missing_channel else mean + std * noise
            values |= {f"{name}.mean": mean, f"{name}.low": mean - 1.645 * std, f"{name}.high": mean + 1.645 * std}
            values |= {f"{name}.observed": observed, f"{name}.z": None if observed is None else noise}
            if plan.with_layers:
                values |= {f"{name}.{part}": value for part, value in _layers(number, frame, swing).items()}
            readings[name] = observed
        score = rng.expovariate(2.3) + (rng.uniform(14, 30) if is_odd else 0)
        values |= {"score": score, "threshold": 8.0, "is_alarmed": float(is_odd)}
        rows.append(Row("prediction", agent, at_ms, values, plan.now_ms, frame))
        rows.append(Row("reading", f"sensors/{agent}", at_ms, readings, plan.now_ms, frame))
    return rows


def _layers(number: int, frame: int, swing: float) -> dict[str, float]:
    """Of a device that is kept 0.4 of a swing above the fleet's level for each device before it, and has a rhythm of its own."""
    own = 0.4 * number * swing * PULL
    return {
        "shared": 0.1 * swing * math.cos(frame / 40) - own,
        "deviation": own,
        "local": 0.03 * swing * math.sin(2 * math.pi * frame / 100),
        "pull": PULL,
    }


def _events(plan: Plan) -> list[AnomalyEvent]:
    first, last = fault_span(plan)

    def at(frame: int) -> int:
        return plan.end_ms - round((plan.frames - 1 - frame) * plan.interval_s * 1000)

    if plan.faulty not in agent_names(plan):
        return []
    blame = {"vibration": 0.72, "current": 0.22, "pressure": 0.06}
    past = AnomalyEvent(
        at_ms=at(last), agent=plan.faulty, event_id=f"{plan.faulty}-1", state="closed", start_ms=at(first),
        end_ms=at(last), frames=last - first + 1, peak_score=29.4, peak_ms=at(first + 2), blame=blame,
    )  # fmt: skip
    now = AnomalyEvent(
        at_ms=plan.end_ms, agent=plan.faulty, event_id=f"{plan.faulty}-2", state="opened", start_ms=at(plan.frames - 3),
        frames=3, peak_score=11.2, peak_ms=plan.end_ms, blame={"current": 1.0},
    )  # fmt: skip
    return [now, past]


def _rounds(plan: Plan, rng: random.Random) -> list[RoundNotice]:
    notices = []
    names = agent_names(plan)
    for number in range(1, plan.rounds + 1):
        joined = names if number > plan.rounds // 3 else names[:-1]
        missing = tuple(name for name in joined if rng.random() < 0.06)
        answered = tuple(name for name in joined if name not in missing)
        notices.append(
            RoundNotice(
                at_ms=plan.now_ms - 60_000 * (plan.rounds - number) - 8000, round=number, state="closed", basis=1,
                answered=answered, missing=missing, included=tuple(joined) if number > 4 else answered,
                bytes_received=14_200 * len(answered) + rng.randrange(900), bytes_sent=15_800 * len(joined),
                seconds=0.2 + rng.random() * 0.5 + (4.6 if missing else 0),
                note=CHANGES.get(number, ("", None))[0], gain=CHANGES.get(number, ("", None))[1],
            )
        )  # fmt: skip
    return notices


class MemoryStore:
    """A store in memory: where it is found and how it is read, in one. refuse: raise StorageError from now on."""

    location = "a store in memory"

    def __init__(self, batch: Batch | None) -> None:
        self.batch = batch
        self.refuse = ""
        self.windows_read: list[tuple[str, int, int]] = []

    def identity(self) -> int | None:
        return None if self.batch is None else 1

    def open(self) -> MemoryStore:
        return self

    def close(self) -> None:
        pass

    def _held(self) -> Batch:
        if self.refuse:
            raise StorageError(self.refuse)
        assert self.batch is not None
        return self.batch

    def _rows(self, kind: str, name: str) -> list[Row]:
        rows = [row for row in self._held().rows if row.kind == kind and row.series == name]
        return sorted(rows, key=lambda row: row.at_ms)

    def series(self, kind: str) -> list[SeriesInfo]:
        found = []
        for name in dict.fromkeys(row.series for row in self._held().rows if row.kind == kind):
            rows = self._rows(kind, name)
            columns = tuple(dict.fromkeys(column for row in rows for column in row.values))
            found.append(SeriesInfo(kind, name, columns, rows[0].at_ms, rows[-1].at_ms, len(rows)))
        return found

    def window(
        self, kind: str, name: str, columns: Sequence[str], start_ms: int, end_ms: int, max_points: int = 600
    ) -> Window:
        self.windows_read.append((name, start_ms, end_ms))
        rows = [row for row in self._rows(kind, name) if start_ms <= row.at_ms <= end_ms]
        at_ms = np.array([row.at_ms for row in rows], dtype=np.float64)
        values = {
            column: np.array([_number(row.values.get(column)) for row in rows], dtype=np.float64) for column in columns
        }
        if len(rows) <= max_points:
            return Window(at_ms, values, values, values)
        size = math.ceil(len(rows) / max_points)
        starts = np.arange(0, len(rows), size)
        mean, low, high = ({c: f(v, starts) for c, v in values.items()} for f in (_means, _lows, _highs))
        return Window(at_ms[starts], mean, low, high, step_ms=int(size * (at_ms[1] - at_ms[0])))

    def sequences(self, name: str) -> list[int]:
        return sorted(row.sequence for row in self._rows("reading", name) if row.sequence is not None)

    def statuses(self) -> list[Status]:
        return list(self._held().statuses)

    def healths(self) -> list[Health]:
        return list(self._held().healths)

    def events(self, agent: str | None = None, limit: int = 1000) -> list[AnomalyEvent]:
        events = [event for event in self._held().events if agent in (None, event.agent)]
        return sorted(events, key=lambda event: -event.start_ms)[:limit]

    def rounds(self, limit: int = 1000) -> list[RoundNotice]:
        return sorted(self._held().rounds, key=lambda notice: -notice.round)[:limit]

    def info(self) -> StoreInfo:
        times = [row.at_ms for row in self._held().rows]
        names = {(row.kind, row.series) for row in self._held().rows}
        first, last = (min(times), max(times)) if times else (None, None)
        return StoreInfo(self.location, 1.0, len(names), len(times), first, last)


def _number(value: float | None) -> float:
    return math.nan if value is None else value


def _means(values: np.ndarray, starts: np.ndarray) -> np.ndarray:
    return np.array([np.mean(part) for part in np.split(values, starts[1:])])


def _lows(values: np.ndarray, starts: np.ndarray) -> np.ndarray:
    return np.array([np.min(part) for part in np.split(values, starts[1:])])


def _highs(values: np.ndarray, starts: np.ndarray) -> np.ndarray:
    return np.array([np.max(part) for part in np.split(values, starts[1:])])


Watch = Callable[[MemoryStore], tuple[Source, FakeClock]]
