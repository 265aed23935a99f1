"""Agents as a coordinator sees them: messages of agents made up from numbers, and real brains fed with made-up streams."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import dense_truth
import msgspec
import numpy as np
from numpy.typing import NDArray

from coordinator import rounds
from coordinator.state import (
    BootstrapArrived,
    CoordinatorConfig,
    Count,
    Effect,
    Event,
    PublishModel,
    PublishRound,
    State,
    SummaryArrived,
    Tick,
)
from edge_agent import agent
from edge_agent.frames import Sample
from edge_agent.state import AgentConfig, ModelArrived, Publish, Readings, RoundOpened
from edge_agent.state import State as AgentState
from fleetgp.gp.learner import Forgetting
from fleetgp.schema import Channel, Covariate, Schema
from fleetgp.wire import codec
from fleetgp.wire.convert import from_triangles, to_array, to_tensor, to_triangles
from fleetgp.wire.messages import Bootstrap, FleetModel, Summary

Array = NDArray[np.float64]

SCHEMA = Schema(
    channels=(Channel(name="t", unit="C"), Channel(name="p")), covariates=(Covariate(name="u"),), lags=2, interval_s=1.0
)
Q, K, F = 2, 3, 6
ROUND_MS = 60_000
ANSWER_MS = 5_000
START_MS = 1_770_000_000_000
CONFIG = CoordinatorConfig(round_s=ROUND_MS / 1000, answer_s=ANSWER_MS / 1000)


# ---- messages made up from numbers


def bootstrap(
    name: str,
    *,
    schema: Schema = SCHEMA,
    count: float | Sequence[float] = 100.0,
    mean: float | Sequence[float] = 3.0,
    sd: float | Sequence[float] = 2.0,
    **changes: Any,
) -> Bootstrap:
    """Moments of an agent's inputs; one number says the same of every input."""
    n, centre, spread = (np.broadcast_to(np.asarray(x, float), len(schema.inputs)) for x in (count, mean, sd))
    message = Bootstrap(
        at_ms=START_MS,
        agent=name,
        incarnation=1,
        sequence=1,
        schema=schema,
        count=to_tensor(n),
        mean=to_tensor(np.where(n > 0, centre, 0.0)),
        centred_square_sum=to_tensor(n * spread**2),
    )
    return msgspec.structs.replace(message, **changes)


def summary(name: str, state: State, *, seed: int = 0, frames: int = 40, **changes: Any) -> Summary:
    """The summary of an agent that saw random frames, on the basis of this state."""
    rng = np.random.default_rng(seed)
    terms = []
    for _ in range(Q):
        X = rng.standard_normal((frames, F))
        S = dense_truth.own_covariance(X, 0.5)
        terms.append(dense_truth.term(dense_truth.Regression(X, rng.standard_normal(frames), S)))
    message = Summary(
        at_ms=START_MS,
        agent=name,
        incarnation=1,
        sequence=1,
        round=state.round,
        origin=state.origin,
        basis=state.basis,
        signature=SCHEMA.signature(),
        precision=to_tensor(to_triangles(np.array([P for P, _ in terms]))),
        shift=to_tensor(np.array([h for _, h in terms])),
        count=to_tensor(np.full(Q, float(frames))),
        noise_variance=to_tensor(rng.uniform(0.1, 1.0, Q)),
    )
    return msgspec.structs.replace(message, **changes)


def told(message: Bootstrap, agent_id: str = "") -> BootstrapArrived:
    return BootstrapArrived(START_MS, agent_id or message.agent, codec.encode(message))


def answered(message: Summary, agent_id: str = "") -> SummaryArrived:
    return SummaryArrived(START_MS, agent_id or message.agent, codec.encode(message))


# ---- a coordinator driven by hand


def run(state: State, events: Iterable[Event]) -> tuple[State, list[Effect]]:
    effects: list[Effect] = []
    for event in events:
        state, more = rounds.step(state, event)
        effects += more
    return state, effects


def open_round(state: State) -> State:
    """The state in the next round, which opens on its grid."""
    state, effects = rounds.step(state, Tick(max(state.next_ms, START_MS)))
    assert [e.notice.state for e in effects if isinstance(e, PublishRound)] == ["opened"]
    return state


def close_round(state: State) -> tuple[State, list[Effect]]:
    assert state.open_round is not None
    return rounds.step(state, Tick(state.open_round.deadline_ms))


def federated(config: CoordinatorConfig = CONFIG) -> State:
    """A coordinator on basis 1, between two rounds, that knows the moments of one agent, ``first``."""
    state = open_round(rounds.init(config, START_MS))
    state, _ = rounds.step(state, told(bootstrap("first")))
    state, _ = close_round(state)
    assert state.basis == 1
    return state


def counted(effects: list[Effect]) -> list[str]:
    return [e.reason for e in effects if isinstance(e, Count)]


def published(effects: list[Effect]) -> FleetModel:
    """The one model among the effects."""
    (payload,) = [e.payload for e in effects if isinstance(e, PublishModel)]
    return codec.decode(payload, FleetModel)


def belief(model: FleetModel) -> tuple[Array, Array]:
    """Precision [Q, F, F] and shift [Q, F] of a published model."""
    channels, size = model.shift.shape
    triangles = to_array(model.precision, (channels, size * (size + 1) // 2), "precision")
    return from_triangles(triangles, size), to_array(model.shift, (channels, size), "shift")


def basis(model: FleetModel) -> tuple[Array, Array]:
    """Centre and scale [K]."""
    shape = (len(model.schema.inputs),)
    return to_array(model.centre, shape, "centre"), to_array(model.scale, shape, "scale")


# ---- real brains


@dataclass
class Brains:
    """Real agents and a real coordinator, without a broker; every message goes through its bytes.

    Nothing is forgotten, nothing alarms, no reading is missing or beyond all belief, so that all count alike; at_ms: the
    coordinator's clock. readings: per agent, in order; noise,
    summed: what it believed of its noise, and how much it had read, when it last sent a summary.
    """

    names: tuple[str, ...]
    schema: Schema = SCHEMA
    at_ms: int = START_MS
    coordinator: State = field(default_factory=lambda: rounds.init(CONFIG, START_MS))
    agents: dict[str, AgentState] = field(default_factory=dict)
    readings: dict[str, list[Array]] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    counts: list[str] = field(default_factory=list)
    noise: dict[str, Array] = field(default_factory=dict)
    summed: dict[str, int] = field(default_factory=dict)
    models: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        for name in self.names:
            config = AgentConfig(
                agent_id=name,
                schema=self.schema,
                is_live=False,
                alarm_score=1e12,
                forgetting=Forgetting(half_life=1e300, refresh=64),
            )
            self.agents[name] = agent.init(config, START_MS)
            self.readings[name] = []

    def read(self, rows: dict[str, Array]) -> None:
        """Give each agent its rows [n, K], one a second of its own clock."""
        for name, values in rows.items():
            for row in values:
                self.readings[name].append(row)
                at_ms = START_MS + 1000 * len(self.readings[name])
                self._agent(name, Readings(at_ms, (Sample(at_ms, at_ms, tuple(range(K)), tuple(map(float, row))),)))

    def round(self, deaf: frozenset[str] = frozenset()) -> FleetModel | None:
        """One round from opening to close; deaf agents neither hear of it nor of its model. The model, where there is one."""
        self.at_ms = max(self.at_ms, self.coordinator.next_ms)
        self._coordinator(Tick(self.at_ms))
        for name in self.names:
            if name not in deaf:
                for effect in self._agent(name, RoundOpened(self.at_ms, self.coordinator.round)):
                    self._pass_on(name, effect)
        self.at_ms += ANSWER_MS
        effects = self._coordinator(Tick(self.at_ms))
        payloads = [e.payload for e in effects if isinstance(e, PublishModel)]
        for payload in payloads:
            self.models.append(payload)
            for name in self.names:
                if name not in deaf:
                    self._agent(name, ModelArrived(self.at_ms, payload))
        return codec.decode(payloads[0], FleetModel) if payloads else None

    def _pass_on(self, name: str, effect: Publish) -> None:
        learner = self.agents[name].learner
        if effect.kind == "summary" and learner is not None:
            self.noise[name], self.summed[name] = learner.noise_var, len(self.readings[name])
        arrived = BootstrapArrived if effect.kind == "bootstrap" else SummaryArrived
        self._coordinator(arrived(self.at_ms, name, codec.encode(effect.message)))

    def regression(self, name: str, channel: int, basis: dense_truth.Basis) -> dense_truth.Regression:
        """All that an agent had read when it last sent a summary, on the basis that it was sent on."""
        X, y = self._frames(name, channel, basis)
        return dense_truth.Regression(X, y, dense_truth.own_covariance(X, float(self.noise[name][channel])))

    def _frames(self, name: str, channel: int, basis: dense_truth.Basis) -> tuple[Array, Array]:
        readings = np.array(self.readings[name][: self.summed[name]])
        return dense_truth.frames(readings, channel, len(self.schema.channels), self.schema.lags, basis)

    def carried(
        self, name: str, channel: int, old: dense_truth.Basis, new: dense_truth.Basis
    ) -> dense_truth.Regression:
        """The same, sent on the old basis and carried over to the new one: the agent's own covariance is as it was."""
        _, _, S = self.regression(name, channel, old)
        X, y = self._frames(name, channel, new)
        return dense_truth.Regression(X, y, S * (old[1][channel] / new[1][channel]) ** 2)

    def _agent(self, name: str, event: Readings | ModelArrived | RoundOpened) -> list[Publish]:
        self.agents[name], effects = agent.step(self.agents[name], event)
        self.counts += [e.reason for e in effects if not isinstance(e, Publish)]
        return [e for e in effects if isinstance(e, Publish) and e.kind in ("bootstrap", "summary")]

    def _coordinator(self, event: Event) -> list[Effect]:
        self.events.append(event)
        self.coordinator, effects = rounds.step(self.coordinator, event)
        self.counts += counted(effects)
        return effects


def walk(seed: int, rows: int, *, sd: float = 1.0, centre: float = 5.0) -> Array:
    """Readings [rows, K] of channels that wander, drawn by one of the inputs; distinct for each seed."""
    rng = np.random.default_rng(seed)
    values = np.zeros((rows, K))
    for t in range(1, rows):
        values[t] = 0.9 * values[t - 1] + rng.standard_normal(K)
        values[t, 0] += 0.3 * values[t - 1, 2] + 0.1
    return centre + sd * (values + rng.standard_normal(K))


def story() -> list[Event]:
    """What a coordinator hears from two real agents over five rounds in which the basis changes once; and some garbage."""
    brains = Brains(("a", "b"))
    brains.read({"a": walk(1, 30), "b": walk(2, 25)})
    brains.round()
    brains.read({"a": walk(3, 20), "b": walk(4, 35)})
    brains.round()
    brains.read({"a": walk(5, 400, sd=6.0), "b": walk(6, 300, sd=4.0)})
    brains.round(deaf=frozenset("b"))
    brains.round()
    model = brains.round()
    assert model is not None
    assert model.basis == 2
    assert set(model.included) == {"a", "b"}
    return brains.events
