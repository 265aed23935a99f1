"""A whole fleet on one simulated clock: the live system's brains, fed with recordings, as fast as they go."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import msgspec

from coordinator import rounds
from coordinator import state as coordination
from edge_agent import agent
from edge_agent.frames import Sample
from edge_agent.state import (
    AgentConfig,
    Count,
    Effect,
    ModelArrived,
    Publish,
    Readings,
    RoundOpened,
    State,
    TuningArrived,
)
from fleetgp.recording.csv import Record
from fleetgp.wire import codec
from fleetgp.wire.messages import AnomalyEvent, Prediction, RoundNotice, Tuning

# Rounds that a hole in the recordings is given; what happens in further ones happened in these.
MOST_ROUNDS_AT_ONCE = 100
# Rows that wait for each other at most, so that agents learn many at once.
MOST_ROWS = 4096

ANSWERS: dict[str, type[coordination.BootstrapArrived | coordination.SummaryArrived | coordination.GradientArrived]] = {
    "bootstrap": coordination.BootstrapArrived,
    "summary": coordination.SummaryArrived,
    "gradient": coordination.GradientArrived,
}

Recordings = Mapping[str, Iterator[Record]]


@dataclass(frozen=True)
class Plan:
    """What to run. round_ms: 0 = no rounds, every agent for itself. joins: when an agent first exists, UTC epoch ms.

    agent: settings of every agent, its id replaced by the recording's.
    """

    agent: AgentConfig
    round_ms: int = 0
    start_ms: int | None = None
    end_ms: int | None = None
    joins: Mapping[str, int] = field(default_factory=dict)
    half_life_rounds: float = 10_000.0
    tuning: bool = False
    tuning_rounds: int = 1


@dataclass
class Outcome:
    """What came of a run. counts: left out, by reason. rounds, bytes: closed rounds and what they moved.

    joined_with: the encoded FleetModel that an agent began with. frames: messages that speak of a few inputs each make one
    together. tuning_steps, tuning_bytes: proposals for the basis, and bytes of these and of the answers, of which the rounds' count
    holds only what came while one was open; tuning_s: seconds of the agents' work on them. learnt: rounds that brought a learnt
    basis.
    """

    events: list[AnomalyEvent] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    joined_with: dict[str, bytes] = field(default_factory=dict)
    rounds: int = 0
    bytes: int = 0
    frames: int = 0
    tuning_s: float = 0.0
    tuning_bytes: int = 0
    tuning_steps: int = 0
    learnt: list[RoundNotice] = field(default_factory=list)


@dataclass
class Fleet:
    """Agents and coordinator between two instants. waiting: rows up to the next round that agents are yet to be given. heard:
    the inputs that messages have spoken of in the present frame."""

    plan: Plan
    on_prediction: Callable[[Prediction], None]
    outcome: Outcome = field(default_factory=Outcome)
    agents: dict[str, State] = field(default_factory=dict)
    coordinator: coordination.State | None = None
    model: bytes = b""
    next_round_ms: int = 0
    waiting: dict[str, list[Sample]] = field(default_factory=dict)
    rows: int = 0
    heard: dict[str, set[int]] = field(default_factory=dict)

    def read(self, name: str, record: Record) -> None:
        """Take one row of one agent's recording, after whatever rounds were due before it; it waits for others."""
        self._rounds_until(record.at_ms)
        if name not in self.agents:
            config = msgspec.structs.replace(self.plan.agent, agent_id=name, is_live=False)
            self.agents[name] = agent.init(config, record.at_ms)
            if self.model:
                self.outcome.joined_with[name] = self.model
                self._step(name, ModelArrived(record.at_ms, self.model))
        self.waiting.setdefault(name, []).append(_sample(record))
        self.rows += 1
        self.outcome.frames += self._begins_frame(name, record)
        if self.rows % MOST_ROWS == 0:
            self.pass_on()

    def _begins_frame(self, name: str, record: Record) -> bool:
        """Whether a frame begins with it: it tells all, or again what was told."""
        told = self.heard.setdefault(name, set())
        if record.heard is not None and told and told.isdisjoint(record.heard):
            told.update(record.heard)
            return False
        self.heard[name] = set(record.heard or ())
        return True

    def pass_on(self) -> None:
        """Give every agent the rows that wait for it; what comes of them is told in the order of its time, then of names."""
        made = []
        for name, samples in sorted(self.waiting.items()):
            self.agents[name], effects = agent.step(self.agents[name], Readings(samples[-1].at_ms, tuple(samples)))
            made.append([(_time(effect), name, effect) for effect in effects])
        self.waiting = {}
        for _, _, effect in heapq.merge(*made, key=lambda one: one[:2]):
            self._tell(effect)

    def _step(self, name: str, event: ModelArrived | RoundOpened | TuningArrived) -> list[Effect]:
        self.agents[name], effects = agent.step(self.agents[name], event)
        for effect in effects:
            self._tell(effect)
        return effects

    def _tell(self, effect: Effect) -> None:
        if isinstance(effect, Count):
            self.outcome.counts[effect.reason] = self.outcome.counts.get(effect.reason, 0) + effect.number
        elif isinstance(effect.message, Prediction):
            self.on_prediction(effect.message)
        elif isinstance(effect.message, AnomalyEvent):
            self.outcome.events.append(effect.message)

    def _rounds_until(self, at_ms: int) -> None:
        if not self.plan.round_ms:
            return
        if self.coordinator is None:
            config = coordination.CoordinatorConfig(
                round_s=self.plan.round_ms / 1000,
                answer_s=0.0,
                half_life_rounds=self.plan.half_life_rounds,
                tuning=self.plan.tuning,
                tuning_rounds=self.plan.tuning_rounds,
            )
            self.coordinator = rounds.init(config, at_ms)
            self.next_round_ms = at_ms + self.plan.round_ms
        too_many = (at_ms - self.next_round_ms) // self.plan.round_ms - MOST_ROUNDS_AT_ONCE
        self.next_round_ms += max(0, too_many) * self.plan.round_ms
        while self.next_round_ms <= at_ms:
            self._round(self.next_round_ms)
            self.next_round_ms += self.plan.round_ms

    def _round(self, at_ms: int) -> None:
        """One round: opened, answered by every agent at once, closed, its model given to every agent."""
        self.pass_on()
        self._coordinate(coordination.Tick(at_ms))
        for name in sorted(self.agents):
            for effect in self._step(
                name, RoundOpened(at_ms, 0 if self.coordinator is None else self.coordinator.round)
            ):
                self._pass_to_coordinator(at_ms, name, effect)
        self._coordinate(coordination.Tick(at_ms))

    def _pass_to_coordinator(self, at_ms: int, name: str, effect: Effect) -> None:
        if isinstance(effect, Publish) and (kind := ANSWERS.get(effect.kind)) is not None:
            payload = codec.encode(effect.message)
            self.outcome.tuning_bytes += len(payload) if effect.kind == "gradient" else 0
            self._coordinate(kind(at_ms, name, payload))

    def _propose(self, at_ms: int, payload: bytes) -> None:
        """Where the basis may go, to every agent."""
        for name in sorted(self.agents):
            begin_s = time.perf_counter()
            effects = self._step(name, TuningArrived(at_ms, payload))
            self.outcome.tuning_s += time.perf_counter() - begin_s
            for effect in effects:
                self._pass_to_coordinator(at_ms, name, effect)

    def _coordinate(self, event: coordination.Event) -> None:
        assert self.coordinator is not None
        self.coordinator, effects = rounds.step(self.coordinator, event)
        for effect in effects:
            if isinstance(effect, coordination.PublishModel):
                self.model = effect.payload
                for name in sorted(self.agents):
                    self._step(name, ModelArrived(event.at_ms, effect.payload))
            elif isinstance(effect, coordination.PublishTuning):
                self.outcome.tuning_bytes += len(effect.payload)
                self.outcome.tuning_steps += bool(codec.decode(effect.payload, Tuning).values)
                self._propose(event.at_ms, effect.payload)
            elif isinstance(effect, coordination.PublishRound):
                if effect.notice.state == "closed":
                    self.outcome.rounds += 1
                    self.outcome.bytes += effect.notice.bytes_received + effect.notice.bytes_sent
                    self.outcome.learnt += [effect.notice] if effect.notice.gain is not None else []
            else:
                self.outcome.counts[effect.reason] = self.outcome.counts.get(effect.reason, 0) + 1


def run(recordings: Recordings, plan: Plan, on_prediction: Callable[[Prediction], None]) -> Outcome:
    """Run recordings through a fleet in the order of their times; on_prediction sees every prediction made."""
    fleet = Fleet(plan, on_prediction)

    def rows(name: str) -> Iterator[tuple[int, str, Record]]:
        begin = max(plan.start_ms or 0, plan.joins.get(name, 0))
        for record in recordings[name]:
            if record.at_ms >= begin and (plan.end_ms is None or record.at_ms < plan.end_ms):
                yield record.at_ms, name, record

    for _, name, record in heapq.merge(*(rows(name) for name in sorted(recordings)), key=lambda row: row[:2]):
        fleet.read(name, record)
    fleet.pass_on()
    return fleet.outcome


def _sample(record: Record) -> Sample:
    """As an agent would have taken it: a message that speaks of a few inputs says nothing of the others."""
    if record.heard is None:
        return Sample(record.at_ms, record.at_ms, tuple(range(len(record.values))), record.values)
    return Sample(record.at_ms, record.at_ms, record.heard, tuple(record.values[k] for k in record.heard))


def _time(effect: Effect) -> int:
    """When what it tells was, UTC epoch ms; 0 for what has no time."""
    return effect.message.at_ms if isinstance(effect, Publish) else 0
