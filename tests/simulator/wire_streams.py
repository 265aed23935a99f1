"""A fleet on a simulated wire: every message reaches every listener, and the recorder, after a delay of its own.

The brains are the real ones. What one program says arrives in its order, as a broker has it; what others say may overtake it.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import msgspec
import numpy as np

from coordinator import rounds
from coordinator import state as coordination
from edge_agent import agent, remodel
from edge_agent.reading import read_sample
from edge_agent.state import AgentConfig, Effect, ModelArrived, Publish, Readings, RoundOpened, State, Tick
from fleetgp.models import Model
from fleetgp.recording.message import Message, Recorded
from fleetgp.schema import Channel, Schema
from fleetgp.wire import codec, topics
from fleetgp.wire.messages import RoundNotice, Status

FLEET = "wire"
BEGIN_MS = 1_772_614_800_000
ROUND_S, ANSWER_S = 4.0, 1.0
TICK_MS = 250
COORDINATOR_MS = 100
SCHEMA = Schema(channels=(Channel(name="x"), Channel(name="y")), interval_s=0.5, lags=1, inducing=4)
ALARM = 4.0


@dataclass(order=True)
class Due:
    """What happens at a time. to: whom it reaches, "recorder", "coordinator" or an agent; "" = something of its own."""

    at_ms: float
    number: int
    to: str = field(compare=False)
    topic: str = field(compare=False)
    payload: bytes = field(compare=False)


class Wire:
    """late: when each agent is there, seconds; those with an odd number have a topic for each channel.

    stalls: an agent, from and to when it gets no time on a busy machine, seconds: what came meanwhile it takes afterwards.
    kills: an agent, when it is killed and when it is back, seconds: the broker tells its death a moment late, and keeps for it
    readings and the last model. models: of agents that do not work with the full one; changed: of those that come back from a
    kill with another one.
    """

    def __init__(
        self,
        seed: int,
        late: dict[str, float],
        jitter_ms: float,
        loss: float,
        stalls: Sequence[tuple[str, float, float]] = (),
        kills: Sequence[tuple[str, float, float]] = (),
        models: Mapping[str, Model] = MappingProxyType({}),
        changed: Mapping[str, Model] = MappingProxyType({}),
    ) -> None:
        self.rng = np.random.default_rng(seed)
        self.late = late
        self.jitter_ms = jitter_ms
        self.loss = loss
        self.stalls = [*stalls, *kills]
        self.kills = kills
        self.models = dict(models)
        self.changed = changed
        self.queue: list[Due] = []
        self.arrived: dict[tuple[str, str], float] = {}
        self.agents: dict[str, State] = {}
        config = coordination.CoordinatorConfig(round_s=ROUND_S, answer_s=ANSWER_S)
        self.coordinator = rounds.init(config, BEGIN_MS)
        self.model = b""
        self.recorded: list[Recorded] = []
        self.numbers = iter(range(10**9))

    def run(self, seconds: float) -> list[Recorded]:
        """Everything for so long; what the recorder heard, in its order."""
        told: dict[str, Any] = {"coordinator.round_s": ROUND_S, "coordinator.answer_s": ANSWER_S}
        self._say(
            0.0,
            topics.service(FLEET, "coordinator", "status"),
            codec.encode(_status("coordinator", "coordinator", told, None)),
        )
        for index, (name, late_s) in enumerate(self.late.items()):
            self._put(late_s * 1000, name, "", b"begin")
            self._sensor(name, index % 2 == 1, late_s, seconds)
        for name, from_s, to_s in self.kills:
            self._put(from_s * 1000 + float(self.rng.uniform(0.0, 400.0)), name, "", b"killed")
            self._put(to_s * 1000, name, "", b"back")
        for at_ms in np.arange(0.0, seconds * 1000, COORDINATOR_MS):
            self._put(at_ms, "coordinator", "", b"tick")
        while self.queue:
            due = heapq.heappop(self.queue)
            over_ms = self._stalled_until_ms(due)
            if due.payload in (b"killed", b"back"):
                self._tell_life(due)
            elif over_ms:
                if not ("/fleet/" in due.topic and self._is_dead(due)):
                    self._put(over_ms, due.to, due.topic, due.payload)
            elif due.to == "recorder":
                ns = round((BEGIN_MS + due.at_ms) * 1e6)
                self.recorded.append(Message(due.topic, due.payload, ns, 0, 1))
            elif due.to == "coordinator":
                self._coordinate(due)
            else:
                self._hear(due)
        return self.recorded

    def _put(self, at_ms: float, to: str, topic: str, payload: bytes) -> None:
        heapq.heappush(self.queue, Due(at_ms, next(self.numbers), to, topic, payload))

    def _stalled_until_ms(self, due: Due) -> float:
        """When it can take place, 0 = now."""
        stalls = (
            to_s * 1000
            for name, from_s, to_s in self.stalls
            if name == due.to and from_s * 1000 <= due.at_ms < to_s * 1000
        )
        return next(stalls, 0.0)

    def _is_dead(self, due: Due) -> bool:
        return any(name == due.to and from_s * 1000 <= due.at_ms < to_s * 1000 for name, from_s, to_s in self.kills)

    def _tell_life(self, due: Due) -> None:
        """That an agent is gone, or back, with the last model."""
        is_back = due.payload == b"back"
        if is_back and due.to in self.changed:
            self.models[due.to] = self.changed[due.to]
            state = self.agents[due.to]
            config = msgspec.structs.replace(state.config, model=self.changed[due.to])
            self.agents[due.to] = remodel.under(state, config).state
        status = self._status_of(due.to, instance="2" if is_back else "1", is_online=is_back)
        self._say(due.at_ms, topics.agent(FLEET, due.to, "status"), codec.encode(status))
        if is_back and self.model:
            later_ms = float(self.rng.choice([0.0, self.rng.uniform(0.0, 50.0)]))
            self._put(due.at_ms + later_ms, due.to, topics.fleet_wide(FLEET, "model"), self.model)

    def _status_of(self, name: str, *, instance: str = "1", is_online: bool = True) -> Status:
        told = {"agent.topic": f"s/{name}", "agent.alarm_score": ALARM, "agent.clock": "live"}
        told |= {"agent.model": self.models[name]} if name in self.models else {}
        return _status(name, "agent", told, self._schema(name), instance=instance, is_online=is_online)

    def _say(self, at_ms: float, topic: str, payload: bytes, *listeners: str) -> None:
        """Publish; what one program said before is heard before."""
        for to in ("recorder", *listeners):
            address = topics.parse(topic)
            line = (to, topic.split("/")[1] if address is None else address.area + address.id)
            at = max(at_ms + float(self.rng.uniform(0.1, self.jitter_ms)), self.arrived.get(line, 0.0) + 0.01)
            self.arrived[line] = at
            self._put(at, to, topic, payload)

    def _sensor(self, name: str, is_split: bool, begin_s: float, seconds: float) -> None:
        x, y = 20.0, 50.0
        for number in range(int((seconds - begin_s - 1) / 0.5)):
            at_ms = (begin_s + 1) * 1000 + number * 500
            x += 0.3 * (20 - x) + float(self.rng.normal(0, 0.2))
            y += 0.3 * (50 - y) + float(self.rng.normal(0, 0.5))
            shift = 6.0 if number % 37 in (30, 31, 32) else 0.0
            stamp = BEGIN_MS + round(at_ms)
            whole = {"x": round(x + shift, 3), "y": round(y, 3)}
            parts = (
                [(f"s/{name}/{key}", {"value": value}) for key, value in whole.items()]
                if is_split
                else [(f"s/{name}", whole)]
            )
            for topic, values in parts:
                if self.rng.random() >= self.loss:
                    self._say(at_ms, topic, json.dumps({**values, "time": stamp}).encode(), name)

    def _schema(self, name: str) -> Schema:
        if list(self.late).index(name) % 2 == 0:
            return SCHEMA
        split = tuple(Channel(name=c.name, topic=f"s/{name}/{c.name}", field="value") for c in SCHEMA.channels)
        return Schema(channels=split, interval_s=0.5, lags=1, inducing=4)

    def _hear(self, due: Due) -> None:
        now_ms = BEGIN_MS + round(due.at_ms)
        name = due.to
        if due.payload == b"begin":
            model = self.models.get(name, "full")
            chosen = AgentConfig(agent_id=name, schema=self._schema(name), alarm_score=ALARM, model=model)
            self.agents[name] = agent.init(chosen, now_ms)
            self._say(due.at_ms, topics.agent(FLEET, name, "status"), codec.encode(self._status_of(name)))
            if self.model:
                self._put(due.at_ms + 0.1, name, topics.fleet_wide(FLEET, "model"), self.model)
            self._put(due.at_ms + TICK_MS, name, "", b"tick")
        elif due.payload == b"tick":
            self._step(name, due.at_ms, Tick(now_ms))
            if self.queue and max(one.at_ms for one in self.queue) > due.at_ms + TICK_MS:
                self._put(due.at_ms + TICK_MS, name, "", b"tick")
        elif name not in self.agents:
            return
        elif due.topic.endswith("/fleet/model"):
            self._step(name, due.at_ms, ModelArrived(now_ms, due.payload))
        elif due.topic.endswith("/fleet/round"):
            notice = codec.decode(due.payload, RoundNotice)
            if notice.state == "opened":
                self._step(name, due.at_ms, RoundOpened(now_ms, notice.round))
        else:
            channels = self._schema(name).channels
            fields = {c.name: k for k, c in enumerate(channels)} if not channels[0].topic else {
                "value": next(k for k, c in enumerate(channels) if c.topic == due.topic)}  # fmt: skip
            sample = read_sample(due.payload, fields, now_ms, "live").sample
            if sample is not None:
                self._step(name, due.at_ms, Readings(now_ms, (sample,)))

    def _step(self, name: str, at_ms: float, event: Any) -> None:
        self.agents[name], effects = agent.step(self.agents[name], event)
        self._publish(name, at_ms, effects)

    def _publish(self, name: str, at_ms: float, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Publish):
                listeners = ("coordinator",) if effect.kind in ("summary", "bootstrap") else ()
                self._say(at_ms, topics.agent(FLEET, name, effect.kind), codec.encode(effect.message), *listeners)

    def _coordinate(self, due: Due) -> None:
        now_ms = BEGIN_MS + round(due.at_ms)
        event: coordination.Event = coordination.Tick(now_ms)
        address = topics.parse(due.topic)
        if address is not None:
            kind = coordination.BootstrapArrived if address.kind == "bootstrap" else coordination.SummaryArrived
            event = kind(now_ms, address.id, due.payload)
        self.coordinator, effects = rounds.step(self.coordinator, event)
        for effect in effects:
            if isinstance(effect, coordination.PublishModel):
                self.model = effect.payload
                self._say(due.at_ms, topics.fleet_wide(FLEET, "model"), effect.payload, *self.agents)
            elif isinstance(effect, coordination.PublishRound):
                self._say(due.at_ms, topics.fleet_wide(FLEET, "round"), codec.encode(effect.notice), *self.agents)


def _status(
    name: str, role: Any, told: dict[str, Any], schema: Schema | None, *, instance: str = "1", is_online: bool = True
) -> Status:
    return Status(
        at_ms=BEGIN_MS,
        name=name,
        role=role,
        is_online=is_online,
        instance=instance,
        started_ms=BEGIN_MS,
        settings=told,
        schema=schema,
    )
