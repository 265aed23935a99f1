"""Streams, agents and a small fleet of real brains for the tests of the agent; no clock, no broker."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from functools import cache

import msgspec
import numpy as np

from coordinator import rounds
from coordinator import state as coordination
from edge_agent import agent
from edge_agent.frames import Sample
from edge_agent.state import AgentConfig, Count, Effect, Event, ModelArrived, Publish, Readings, RoundOpened, State
from fleetgp.arrays import Array
from fleetgp.gp import learner as learning
from fleetgp.schema import Channel, Covariate, Schema
from fleetgp.wire import codec
from fleetgp.wire.messages import AnomalyEvent, ChannelPrediction, FleetModel, Prediction

START = 1_772_615_730_000
TICK = 1000

TWO = Schema(channels=(Channel(name="a"), Channel(name="b")))
MIXED = Schema(
    channels=(Channel(name="a"), Channel(name="dust", transform="log1p")),
    covariates=(Covariate(name="weather"), Covariate(name="setpoint", known_ahead=True)),
)


def config(schema: Schema = TWO, agent_id: str = "pump", **changes: object) -> AgentConfig:
    return msgspec.structs.replace(AgentConfig(agent_id=agent_id, schema=schema, is_live=False), **changes)


def fresh(schema: Schema = TWO, agent_id: str = "pump", **changes: object) -> State:
    return agent.init(config(schema, agent_id, **changes), START)


def sample(tick: int, values: Sequence[float] | Array) -> Sample:
    """All inputs of one tick at once."""
    return Sample(START + tick * TICK, START + tick * TICK, tuple(range(len(values))), tuple(map(float, values)))


def readings(tick: int, values: Sequence[float] | Array) -> Readings:
    return Readings(START + tick * TICK, (sample(tick, values),))


def ar_rows(seed: int, count: int, *, level: Sequence[float] = (20.0, 5.0), sd: float = 1.0) -> Iterator[Array]:
    """A device whose channels pull back to its levels by a half each tick."""
    rng = np.random.default_rng(seed)
    deviation = np.zeros(len(level))
    for _ in range(count):
        deviation = 0.5 * deviation + sd * rng.standard_normal(len(level))
        yield np.asarray(level) + deviation


def mixed_rows(seed: int, count: int) -> Iterator[Array]:
    """Rows of MIXED: a follows the set point of its own frame, dust is positive, some cells are missing."""
    rng = np.random.default_rng(seed)
    for row in ar_rows(seed + 1, count):
        setpoint, weather = rng.standard_normal(2)
        values = np.array([row[0] + 2.0 * setpoint, np.exp(0.3 * row[1]), weather, setpoint])
        values[rng.random(4) < 0.1] = np.nan
        yield values


def run(state: State, events: Iterable[Event]) -> tuple[State, list[Effect]]:
    effects: list[Effect] = []
    for event in events:
        state, more = agent.step(state, event)
        effects += more
    return state, effects


def feed(state: State, rows: Iterable[Sequence[float] | Array], first_tick: int = 0) -> tuple[State, list[Effect]]:
    return run(state, (readings(first_tick + k, row) for k, row in enumerate(rows)))


def predictions(effects: Iterable[Effect]) -> list[Prediction]:
    return [e.message for e in effects if isinstance(e, Publish) and isinstance(e.message, Prediction)]


def events(effects: Iterable[Effect]) -> list[AnomalyEvent]:
    return [e.message for e in effects if isinstance(e, Publish) and isinstance(e.message, AnomalyEvent)]


def counts(effects: Iterable[Effect]) -> dict[str, int]:
    result: dict[str, int] = {}
    for effect in effects:
        if isinstance(effect, Count):
            result[effect.reason] = result.get(effect.reason, 0) + effect.number
    return result


def learnt(state: State) -> Array:
    """Frames [Q] behind what the long memory learnt of each channel, faded."""
    assert state.learner is not None
    return learning.total(state.learner).n[learning.LONG]


def law(prediction: ChannelPrediction) -> tuple[float, float, float]:
    """What was said before the frame was seen."""
    return prediction.mean, prediction.low, prediction.high


class Hub:
    """Real agents around a real coordinator; every round is answered at once by those who are there."""

    def __init__(self, schema: Schema, names: Sequence[str], **settings: float) -> None:
        self.agents = {name: fresh(schema, name) for name in names}
        self.away: set[str] = set()
        self.tick = 0
        self.settings = settings
        self.coordinator = self.new_coordinator()
        self.model = b""
        self.heard: list[tuple[str, str, bytes]] = []

    def twin(self) -> Hub:
        """The same fleet once more; states are values, so that only what holds them is copied."""
        other = copy(self)
        other.agents, other.away, other.heard = dict(self.agents), set(self.away), list(self.heard)
        return other

    def new_coordinator(self) -> coordination.State:
        chosen = coordination.CoordinatorConfig(round_s=10.0, answer_s=0.0, **self.settings)
        return rounds.init(chosen, START + self.tick * TICK + 1)

    def read(self, rows: dict[str, Iterator[Array]], count: int) -> None:
        for _ in range(count):
            for name, stream in rows.items():
                self.give(name, readings(self.tick, next(stream)))
            self.tick += 1

    def give(self, name: str, event: Event) -> list[Effect]:
        self.agents[name], effects = agent.step(self.agents[name], event)
        return effects

    def round(self) -> FleetModel | None:
        """One round: opened, answered, closed; the model it ends with, given to every agent that is there."""
        self.tick += 20
        at_ms = START + self.tick * TICK
        self.coordinator, _ = rounds.step(self.coordinator, coordination.Tick(at_ms))
        self.heard = []
        for name in sorted(set(self.agents) - self.away):
            for effect in self.give(name, RoundOpened(at_ms, self.coordinator.round)):
                if isinstance(effect, Publish):
                    self.heard.append((effect.kind, name, codec.encode(effect.message)))
        self.coordinator, effects = tell(self.coordinator, self.heard, at_ms)
        for effect in effects:
            if isinstance(effect, coordination.PublishModel):
                self.model = effect.payload
                for name in sorted(set(self.agents) - self.away):
                    assert counts(self.give(name, ModelArrived(at_ms, self.model))) == {}
        return codec.decode(self.model, FleetModel) if self.model else None


def tell(
    coordinator: coordination.State, heard: Iterable[tuple[str, str, bytes]], at_ms: int
) -> tuple[coordination.State, list[coordination.Effect]]:
    """Give a coordinator what agents said in a round, then close it."""
    for kind, name, payload in heard:
        event = coordination.BootstrapArrived if kind == "bootstrap" else coordination.SummaryArrived
        coordinator, _ = rounds.step(coordinator, event(at_ms, name, payload))
    return rounds.step(coordinator, coordination.Tick(at_ms))


NAMES = ("left", "middle", "right")


def streams(count: int = 3000, sd: float = 1.0, seed: int = 0) -> dict[str, Iterator[Array]]:
    return {name: ar_rows(seed + k, count, level=(20.0 + k, 5.0 - k), sd=sd) for k, name in enumerate(NAMES)}


def hub_of(count: int, frames: int = 60, **settings: float) -> Hub:
    """A fleet after so many rounds, each after so many frames; one that a test may change."""
    return grown_hub(count, frames, tuple(settings.items())).twin()


@cache
def grown_hub(count: int, frames: int, chosen: tuple[tuple[str, float], ...]) -> Hub:
    settings = dict(chosen)
    hub = Hub(TWO, NAMES, **settings)
    rows = streams()
    for _ in range(count):
        hub.read(rows, frames)
        hub.round()
    return hub
