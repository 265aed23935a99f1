"""The body of an agent: MQTT messages and ticks become events, the brain's effects are carried out.

What the agent knows is a snapshot and a journal of the events since. A reading is acknowledged to the broker once it is in
the journal, so a kill at any moment loses nothing, and starting again is the same as never having stopped.
"""

from __future__ import annotations

from collections import deque

import msgspec

from edge_agent import agent
from edge_agent.config import Wiring, agent_config, wiring
from edge_agent.frames import SILENT_AFTER, Sample
from edge_agent.state import Count, Effect, Event, ModelArrived, Readings, RoundOpened, State, Tick
from fleetgp.errors import PeerError, ServiceError, StorageError
from fleetgp.payloads import read
from fleetgp.payloads.content import ClockPolicy, settle
from fleetgp.runtime import snapshot
from fleetgp.runtime.journal import Journal
from fleetgp.runtime.mqtt import Incoming, Outgoing
from fleetgp.runtime.program import Plan, Program
from fleetgp.runtime.settings import Settings
from fleetgp.wire import codec, topics
from fleetgp.wire.freeze import freeze, thaw
from fleetgp.wire.messages import RoundNotice

SNAPSHOT_VERSION = 1
JOURNAL_MOST_BYTES = 8_000_000
BACKLOG = 2000
BATCH = 200
WAIT_S = 0.25
RETRY_S = 1.0


class Saved(msgspec.Struct, frozen=True):
    """A snapshot: the state after so many journalled events."""

    events: int
    state: State


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """One journalled event and its number, counted from the first start."""

    number: int
    event: Event


class Memory:
    """State on disk: a snapshot and the events since. One that cannot be read is set aside, never deleted."""

    def __init__(self, program: Program, fresh: State) -> None:
        self._path = program.folder / "snapshot.bin"
        self._journal = Journal(program.folder / "journal.bin")
        self.events = 0
        self.state = fresh
        self.replayed: list[Effect] = []
        self._load(program, fresh)

    def _load(self, program: Program, fresh: State) -> None:
        try:
            payload = snapshot.load(self._path, version=SNAPSHOT_VERSION)
            if payload is not None:
                saved = thaw(payload, Saved)
                self.events, self.state = saved.events, saved.state
        except (StorageError, PeerError) as err:
            program.log.error("what was learnt cannot be read; starting afresh", why=str(err))
            program.counts["memory_lost"] += 1
            self._forget(program, fresh)
            return
        if self.state.config.schema.signature() != fresh.config.schema.signature():
            program.log.warning("the channels were changed in the settings; starting afresh on them")
            self._forget(program, fresh)
            return
        self.state = msgspec.structs.replace(self.state, config=fresh.config)
        self._replay(program)

    def _forget(self, program: Program, fresh: State) -> None:
        if self._path.exists():
            snapshot.set_aside(self._path)
        self._journal.reset()
        self.events, self.state = 0, fresh

    def _replay(self, program: Program) -> None:
        effects: deque[Effect] = deque(maxlen=BACKLOG)
        count = 0
        for record in self._journal.read():
            entry = thaw(record, Entry)
            if entry.number <= self.events:
                continue
            self.state, more = agent.step(self.state, entry.event)
            self.events = entry.number
            effects.extend(more)
            count += 1
        self.replayed = list(effects)
        if count:
            program.log.info("took up where it was left", events=count, frames=self.state.frame_count)

    def keep(self, event: Event) -> None:
        """Put an event in the journal; raises StorageError when the disk refuses."""
        self._journal.append(freeze(Entry(self.events + 1, event)))
        self.events += 1

    def save(self) -> None:
        """Write a snapshot; the events it holds may then go. Raises StorageError when the disk refuses."""
        snapshot.save(self._path, freeze(Saved(self.events, self.state)), version=SNAPSHOT_VERSION)
        self._journal.reset()

    @property
    def size_bytes(self) -> int:
        return self._journal.size_bytes

    def close(self) -> None:
        self._journal.close()


class Agent:
    """One agent from start to end; ``run`` returns when it was asked to stop."""

    def __init__(self, settings: Settings) -> None:
        config = agent_config(settings)
        self.wiring: Wiring = wiring(config.schema, settings.text("agent.topic"))
        self.policy: ClockPolicy = settings.text("agent.clock")  # type: ignore[assignment]
        fleet = settings.text("fleet")
        self.model_topic = topics.fleet_wide(fleet, "model")
        self.round_topic = topics.fleet_wide(fleet, "round")
        subscriptions = [(topic, 1) for topic in self.wiring.topics]
        # the model is retained and only the round of now matters: neither is worth queueing while this agent is away
        subscriptions += [(self.model_topic, 0), (self.round_topic, 0)]
        self.program = Program(
            settings, Plan("agent", config.agent_id, tuple(subscriptions), settings.number("agent.health_s"))
        )
        self.memory = Memory(self.program, agent.init(config, self.program.started_ms))
        self.backlog: deque[Outgoing] = deque(maxlen=BACKLOG)
        self.next_save_s = self.program.clock.monotonic_s() + settings.number("agent.snapshot_s")
        self.next_tick_ms = 0

    def run(self) -> None:
        """Work until stopped. Raises ServiceError when another agent of the same name is there."""
        program = self.program
        program.announce(schema=self.memory.state.config.schema)
        is_gone = True
        try:
            program.start()
            for effect in self.memory.replayed:
                self._perform(effect, is_replay=True)
            while not program.is_stopping:
                self._handle(program.session.receive(BATCH, WAIT_S))
                self._pass_time()
                self._flush()
                program.report_health(self._figures)
                self._announce()
        except ServiceError:
            is_gone = False
            raise
        finally:
            self._save()
            self.memory.close()
            program.close(is_gone=is_gone)

    def _handle(self, messages: list[Incoming]) -> None:
        samples: list[Sample] = []
        waiting: list[Incoming] = []
        for message in messages:
            if message.topic in self.wiring.fields:
                sample = self._read(message)
                samples += [sample] if sample else []
                waiting.append(message)
                continue
            self._take(samples, waiting)
            samples, waiting = [], []
            self._hear(message)
        self._take(samples, waiting)

    def _take(self, samples: list[Sample], waiting: list[Incoming]) -> None:
        if samples:
            self._step(Readings(self.program.clock.now_ms(), tuple(samples)))
        for message in waiting:
            self.program.session.ack(message)

    def _read(self, message: Incoming) -> Sample | None:
        """Readings of this agent in a sensor's message; None when there are none, which is counted."""
        if message.is_retained:
            self.program.counts["retained"] += 1  # a broker's memory of a value, not a new reading
            return None
        try:
            content = read(message.payload)
            at_ms = settle(content.at_ms, message.received_ms, self.policy)
        except PeerError as err:
            self.program.count(err.code, detail=f"{message.topic}: {err.detail}")
            return None
        for reason, number in content.rejected.items():
            self.program.counts[f"field_{reason}"] += number
        fields = self.wiring.fields[message.topic]
        found = {fields[name]: value for name, value in content.values.items() if name in fields}
        if not found:
            self.program.count("no_known_field", detail=f"{message.topic} holds {', '.join(list(content.values)[:8])}")
            return None
        values = tuple(float("nan") if value is None else value for value in found.values())
        return Sample(at_ms, message.received_ms, tuple(found), values)

    def _hear(self, message: Incoming) -> None:
        """What the fleet says."""
        now_ms = self.program.clock.now_ms()
        if message.topic == self.model_topic:
            self._step(ModelArrived(now_ms, message.payload))
        elif message.topic == self.round_topic:
            try:
                notice = codec.decode(message.payload, RoundNotice)
            except PeerError as err:
                self.program.count(f"round_{err.code}", detail=err.detail)
            else:
                if notice.state == "opened":
                    self._step(RoundOpened(now_ms, notice.round))
        elif message.topic == self.program.topic("status"):
            self.program.check_rival(message)
        self.program.session.ack(message)

    def _step(self, event: Event) -> None:
        """Journal first, then let the brain take it and carry out what it asks for."""
        while True:
            try:
                self.memory.keep(event)
                self.program.health_note = ""
                break
            except StorageError as err:
                # not acknowledged and not learnt: the broker keeps what comes until there is room again
                self.program.health_note = str(err)
                self.program.counts["journal_refused"] += 1
                self.program.log.once("journal", "error", "the disk refuses; waiting", why=str(err))
                self.program.report_health(self._figures)
                if self.program.is_stopping:
                    raise
                self.program.wait(RETRY_S)
        self.memory.state, effects = agent.step(self.memory.state, event)
        for effect in effects:
            self._perform(effect)

    def _pass_time(self) -> None:
        now_ms = self.program.clock.now_ms()
        if now_ms >= self.next_tick_ms:
            self.next_tick_ms = now_ms + round(WAIT_S * 1000)
            after, _ = agent.step(self.memory.state, Tick(now_ms))
            if after is not self.memory.state:  # time alone closed a frame
                self._step(Tick(now_ms))
        is_due = self.program.clock.monotonic_s() >= self.next_save_s
        if is_due or self.memory.size_bytes > JOURNAL_MOST_BYTES:
            self._save()

    def _save(self) -> None:
        self.next_save_s = self.program.clock.monotonic_s() + self.program.settings.number("agent.snapshot_s")
        try:
            self.memory.save()
        except StorageError as err:
            self.program.count("snapshot_refused", detail=str(err))

    def _perform(self, effect: Effect, *, is_replay: bool = False) -> None:
        if isinstance(effect, Count):
            if not is_replay:
                self.program.count(effect.reason, effect.number, detail=effect.detail)
            return
        payload = codec.encode(effect.message)
        topic = self.program.topic(effect.kind)
        if effect.is_durable:
            if not (is_replay and effect.key):  # an old summary is of no use to a new round
                self.program.session.send(topic, payload, key=effect.key)
            return
        self._queue(Outgoing(topic, payload))

    def _queue(self, message: Outgoing) -> None:
        if self.backlog or not self.program.session.publish(message):
            self.program.counts["predictions_dropped"] += len(self.backlog) == BACKLOG
            self.backlog.append(message)

    def _flush(self) -> None:
        """Predictions made while there was no broker, oldest first."""
        while self.backlog and self.program.session.is_connected:
            if not self.program.session.publish(self.backlog[0]):
                return
            self.backlog.popleft()

    def _announce(self) -> None:
        state = self.memory.state
        word = "federated" if state.basis else "learning"
        silent = [
            item.name
            for item, quiet in zip(state.config.schema.inputs, state.frames.silent, strict=True)
            if quiet >= SILENT_AFTER
        ]
        note = f"nothing has come for {', '.join(silent)}" if silent else ""
        if not state.frame_count:
            word, note = "starting", f"no reading yet on {', '.join(self.wiring.topics)[:200]}"
        self.program.announce(state=word, basis=state.basis, note=note)

    def _figures(self) -> dict[str, float]:
        state = self.memory.state
        return {
            "frames": float(state.frame_count),
            "predictions": float(state.predicted),
            "round": float(state.round),
            "basis": float(state.basis),
            "events_open": float(state.event is not None),
            "alarm_threshold": state.alarm.threshold,
            "clock_skew_s": state.frames.skew_ms / 1000 if self.policy == "live" else 0.0,
            "journal_bytes": float(self.memory.size_bytes),
            "backlog_depth": float(len(self.backlog)),
        }
