"""Agents as a coordinator sees them: messages made up from numbers, and plain agents that learn from made-up streams."""

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
from fleetgp import features, placement
from fleetgp.gp import aggregate, hyper, message, moves, posterior, statistics
from fleetgp.gp.message import Term
from fleetgp.schema import Channel, Covariate, Schema
from fleetgp.wire import codec, knowledge
from fleetgp.wire.convert import from_triangles, to_array, to_tensor, to_triangles
from fleetgp.wire.knowledge import Published
from fleetgp.wire.messages import Bootstrap, FleetModel, Summary

Array = NDArray[np.float64]

SCHEMA = Schema(
    channels=(Channel(name="t", unit="C"), Channel(name="p")), covariates=(Covariate(name="u"),), lags=2, interval_s=1.0
)
CURVED = msgspec.structs.replace(SCHEMA, inducing=6)
Q, K, F = 2, 3, 9
PHI = np.array([1.0] + [0.01] * (F - 1))  # deviations before anything is known of them: bias, everything else
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
        S = dense_truth.own_covariance(X, 0.5, PHI)
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


def near_centres(seed: int, each: float = 10.0, at: float = 0.0) -> dict[str, Any]:
    """What a summary tells of frames around a place."""
    rng = np.random.default_rng(seed)
    frames = np.full(CURVED.inducing, each)
    total = frames[:, None] * (at + rng.standard_normal((CURVED.inducing, 3)))
    return {"cluster_count": to_tensor(frames), "cluster_sum": to_tensor(total), "signature": CURVED.signature()}


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


def federated(config: CoordinatorConfig = CONFIG, schema: Schema = SCHEMA) -> State:
    """A coordinator on basis 1, between two rounds, that knows the moments of one agent, ``first``."""
    state = open_round(rounds.init(config, START_MS))
    state, _ = rounds.step(state, told(bootstrap("first", schema=schema)))
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


def basis(model: FleetModel) -> dense_truth.Basis:
    shape = (len(model.schema.inputs),)
    centre, scale = to_array(model.centre, shape, "centre"), to_array(model.scale, shape, "scale")
    if model.inducing is None or model.lengthscale is None:
        return dense_truth.Basis(centre, scale)
    size = (model.schema.inducing, len(model.columns))
    Z, lengthscale = to_array(model.inducing, size, "Z"), to_array(model.lengthscale, size[1:], "lengthscale")
    return dense_truth.Basis(centre, scale, Z, lengthscale, model.columns)


def variances(model: FleetModel) -> tuple[Array, Array]:
    """Prior variances [Q, F] of shared weights and deviations."""
    assert model.prior_variance is not None
    assert model.deviation_variance is not None
    shape = model.shift.shape
    return to_array(model.prior_variance, shape, "prior"), to_array(model.deviation_variance, shape, "deviation")


# ---- plain agents


@dataclass
class Agent:
    """An agent without a brain's caution: all readings count alike, nothing is forgotten, its noise is known to it.

    noise [Q]: variance in raw units. known, on: the fleet's model and its basis; sent: its terms by sequence, on that
    basis. told: readings when it last sent a summary; phi [Q, F]: the deviation that summary was made under.
    """

    name: str
    noise: Array
    readings: list[Array] = field(default_factory=list)
    known: Published | None = None
    model: FleetModel | None = None
    sent: dict[int, Term] = field(default_factory=dict)
    sequence: int = 0
    told: int = 0
    phi: Array = field(default_factory=lambda: np.zeros((0, 0)))

    def bootstrap(self, schema: Schema) -> Bootstrap:
        values = np.array(self.readings)
        self.sequence += 1
        square = np.sum((values - values.mean(axis=0)) ** 2, axis=0)
        moments = [to_tensor(x) for x in (np.full(K, float(len(values))), values.mean(axis=0), square)]
        return Bootstrap(
            at_ms=START_MS,
            agent=self.name,
            incarnation=1,
            sequence=self.sequence,
            schema=schema,
            count=moments[0],
            mean=moments[1],
            centred_square_sum=moments[2],
        )

    def inputs(self) -> tuple[Array, Array]:
        """Raw inputs [n - 1, D] and steps [n - 1, Q]."""
        values = np.array(self.readings)
        before = values[:-1]
        older = np.concatenate((before[:1], before[:-1]))
        held = np.zeros((len(before), K))
        return np.hstack((before[:, :Q], older[:, :Q], before[:, Q:], held)), np.diff(values, axis=0)[:, :Q]

    def summary(self, round_number: int) -> Summary:
        assert self.known is not None
        assert self.model is not None
        known, on = self.known, self.known.basis
        X, Y = self.inputs()
        scale = on.scaling.scale[:Q]
        noise = self.noise / scale**2
        sums = statistics.summed(features.features(on, X), Y / scale, np.ones_like(Y))
        term = message.summarise(sums, noise, known.deviation_var, np.zeros((Q, 0)))
        self.sequence += 1
        before = posterior.prior(self.cavity(), known.deviation_var, np.zeros((Q, 0)))
        square = hyper.deviation_square(known.deviation_var, before, posterior.posterior(before, sums, noise))
        blocks = features.blocks(on.shape, on.size - on.shape.linear)
        self.sent[self.sequence], self.told, self.phi = term, len(self.readings), known.deviation_var
        clusters = self.clusters(X)
        return Summary(
            at_ms=START_MS,
            agent=self.name,
            incarnation=1,
            sequence=self.sequence,
            round=round_number,
            origin=self.model.origin,
            basis=self.model.basis,
            signature=self.model.schema.signature(),
            precision=to_tensor(to_triangles(term.precision)),
            shift=to_tensor(term.shift),
            count=to_tensor(sums.n),
            noise_variance=to_tensor(noise),
            deviation_square=to_tensor(hyper.by_block(square, blocks)),
            cluster_count=to_tensor(clusters.frames) if clusters else None,
            cluster_sum=to_tensor(clusters.total) if clusters else None,
        )

    def clusters(self, X: Array) -> placement.Sums | None:
        assert self.known is not None
        if self.known.centres is None:
            return None
        unit = placement.unit(self.known.basis.shape, self.known.basis.scaling)
        columns = list(placement.columns(self.known.basis.shape))
        return placement.assign(self.known.centres, (X[:, columns] - unit.centre) / unit.scale)

    def adopt(self, model: FleetModel) -> None:
        new = knowledge.read(model, model.schema)
        if self.known is not None and self.model is not None and model.basis != self.model.basis:
            T, ratio = moves.change(self.known.basis, new.basis)
            self.sent = {sequence: message.rebase(one, T, ratio) for sequence, one in self.sent.items()}
        self.known, self.model = new, model

    def cavity(self) -> aggregate.Belief:
        """The fleet's belief without what this agent told."""
        assert self.known is not None
        assert self.model is not None
        included = self.model.included.get(self.name)
        if included is None:
            return self.known.belief
        return aggregate.cavity(self.known.belief, message.scaled(self.sent[included.sequence], included.factor))


@dataclass
class Brains:
    """Plain agents and a real coordinator, without a broker; every message goes through its bytes."""

    names: tuple[str, ...]
    schema: Schema = SCHEMA
    config: CoordinatorConfig = CONFIG
    noise_sd: float = 1.0
    at_ms: int = START_MS
    agents: dict[str, Agent] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    counts: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.coordinator = rounds.init(self.config, START_MS)
        for number, name in enumerate(self.names):
            noise = self.noise_sd**2 * (1.0 + 0.2 * number + np.arange(Q))
            self.agents[name] = Agent(name, noise)

    def read(self, rows: dict[str, Array]) -> None:
        """Give each agent its rows [n, K]."""
        for name, values in rows.items():
            self.agents[name].readings += list(values)

    def round(self, deaf: frozenset[str] = frozenset()) -> FleetModel | None:
        """One round from opening to close; deaf agents neither hear of it nor of its model. The model, where there is one."""
        self.at_ms = max(self.at_ms, self.coordinator.next_ms)
        self._coordinator(Tick(self.at_ms))
        hearing = [one for name, one in self.agents.items() if name not in deaf and one.readings]
        for one in hearing:
            self._coordinator(BootstrapArrived(self.at_ms, one.name, codec.encode(one.bootstrap(self.schema))))
            if one.known is not None:
                summary = one.summary(self.coordinator.round)
                self._coordinator(SummaryArrived(self.at_ms, one.name, codec.encode(summary)))
        self.at_ms += ANSWER_MS
        effects = self._coordinator(Tick(self.at_ms))
        self.notes += [e.notice.note for e in effects if isinstance(e, PublishRound) and e.notice.state == "closed"]
        payloads = [e.payload for e in effects if isinstance(e, PublishModel)]
        if not payloads:
            return None
        model = codec.decode(payloads[0], FleetModel)
        for one in hearing:
            one.adopt(model)
        return model

    def regression(self, name: str, channel: int, on: dense_truth.Basis) -> dense_truth.Regression:
        """All that an agent had read when it last sent a summary, on the basis that it was sent on."""
        X, y = self._frames(name, channel, on)
        one = self.agents[name]
        noise_var = float(one.noise[channel] / on.scale[channel] ** 2)
        return dense_truth.Regression(X, y, dense_truth.own_covariance(X, noise_var, one.phi[channel]))

    def carried(
        self, name: str, channel: int, old: dense_truth.Basis, new: dense_truth.Basis
    ) -> dense_truth.Regression:
        """The same, sent on the old basis and carried over to the new one: the agent's own covariance is as it was."""
        _, _, S = self.regression(name, channel, old)
        X, y = self._frames(name, channel, new)
        return dense_truth.Regression(X, y, S * (old.scale[channel] / new.scale[channel]) ** 2)

    def _frames(self, name: str, channel: int, on: dense_truth.Basis) -> tuple[Array, Array]:
        one = self.agents[name]
        readings = np.array(one.readings[: one.told])
        return dense_truth.frames(readings, channel, len(self.schema.channels), self.schema.lags, on)

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
    """What a coordinator hears from two agents over eight rounds, in which the scale changes and inducing inputs are placed."""
    brains = Brains(("a", "b"), schema=CURVED)
    brains.read({"a": walk(1, 30), "b": walk(2, 25)})
    brains.round()
    brains.read({"a": walk(3, 20), "b": walk(4, 35)})
    brains.round()
    brains.read({"a": walk(5, 400, sd=6.0), "b": walk(6, 300, sd=4.0)})
    brains.round(deaf=frozenset("b"))
    for _ in range(5):
        model = brains.round()
    assert model is not None
    assert model.basis == 3
    assert model.inducing is not None
    assert set(model.included) == {"a", "b"}
    return brains.events
