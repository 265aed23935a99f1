"""The body of an agent: MQTT messages and ticks become events, the brain's effects are carried out.

A reading is acknowledged to the broker once it is in the journal (``memory``), so a kill at any moment loses nothing; what
the broker then sends again is known, and not taken twice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

from edge_agent import agent
from edge_agent.choosing import from_fleet
from edge_agent.config import TOLD, agent_config, wiring
from edge_agent.frames import SILENT_AFTER, Sample
from edge_agent.memory import Memory
from edge_agent.reading import Reader
from edge_agent.state import Count, Effect, Event, ModelArrived, Publish, Readings, RoundOpened, Tick, TuningArrived
from fleetgp.defaults import CHOSEN, Choice
from fleetgp.errors import PeerError, StorageError
from fleetgp.runtime import allocator
from fleetgp.runtime.mqtt import Incoming, Outgoing
from fleetgp.runtime.program import Program
from fleetgp.wanted import Wanted
from fleetgp.wire import codec, topics
from fleetgp.wire.messages import AnomalyEvent, FleetModel, Gradient, RoundNotice

BACKLOG = 2000
BATCH = 100  # what comes of more at once would be the most memory that an agent takes
SAVE_AGAIN_S = 60.0  # where the disk refused
WAIT_S = 0.25
# After a restart the broker brings what the last process left unacknowledged; NATS does so only some seconds later, when
# newer readings have come already. So long readings wait and are then put in order.
OWED_S = 4.0
OWED_MOST = 1000
QUIET_S = 30.0
QUIET_FRAMES = 20
# so long the status says what was chosen
CHOSEN_FRAMES = 100
NOTE = 600

WORDS = {
    "starting": "waiting for the first reading",
    "learning": "readings come; learning alone until the fleet's knowledge arrives",
    "federated": "learning with the fleet",
}


class Successor(NamedTuple):
    """The fleet's choice, and the model that it stands in."""

    choice: Choice
    model: bytes


class Agent:
    """A brain of one schema and what it needs: ``begin``, ``run``, ``end``. ``life`` says which schema, and when."""

    def __init__(self, program: Program, said: Wanted, choice: Choice) -> None:
        """said: what the owner said; choice: the schema that came of it, and whose choice it was."""
        settings = program.settings
        config = agent_config(settings, choice.schema)
        self.program = program
        self.said = said
        self.choice = choice
        self.reader = Reader(program, wiring(config.schema, settings.text("agent.topic")))
        self.model_topic = topics.fleet_wide(program.fleet, "model")
        self.round_topic = topics.fleet_wide(program.fleet, "round")
        self.tuning_topic = topics.fleet_wide(program.fleet, "tuning")
        self.tuning_s, self.tuning_steps = 0.0, 0
        begin_s = program.clock.monotonic_s()
        self.memory = Memory(program.folder, agent.init(config, program.clock.now_ms()), program.log)
        self.memory.work_s = program.clock.monotonic_s() - begin_s  # a kill just now would have it replayed once more
        program.counts.update(self.memory.failures)
        self.backlog: deque[Outgoing] = deque(maxlen=BACKLOG)
        self.next_save_s = program.clock.monotonic_s() + settings.number("agent.snapshot_s")
        self.is_save_refused = False
        self.next_tick_ms = 0
        self.owed: list[Sample] = []
        self.owed_messages: list[Incoming] = []
        self.is_waiting = bool(self.memory.state.frame_count)
        self.owed_until_s = 0.0
        self.last_reading_s = program.clock.monotonic_s()
        self.last_reading_ms = 0
        self.told_note = ""
        self.successor: Successor | None = None

    def begin(self, model: bytes, first: Sequence[Sample]) -> bool:
        """What was heard before there was a schema, then what is left of an earlier process. False where the disk refuses
        until the program is to stop."""
        told = self.program.settings.told(TOLD)
        self.program.announce(schema=self.memory.state.config.schema, settings=told)
        for effect in self.memory.replayed:
            self._perform(effect, is_replay=True)
        now_ms = self.program.clock.now_ms()
        if model and not self._step(ModelArrived(now_ms, model)):
            return False
        return all(self._learn(list(first[k : k + BATCH])) for k in range(0, len(first), BATCH))

    def run(self) -> Successor | None:
        """Work until stopped, or until the fleet has another choice that this agent is to follow.

        Raises ServiceError when another agent of the same name is there.
        """
        program = self.program
        while not program.is_stopping and (self.successor is None or self.is_waiting):
            self._handle(program.session.receive(BATCH, WAIT_S))
            self._end_waiting()
            self._pass_time()
            self._flush()
            program.report_health(self._figures)
            self._announce()
        return None if program.is_stopping else self.successor

    def end(self) -> None:
        """Keep what was learnt."""
        if self.successor is None:
            self.program.log.info("stopped", frames=self.memory.state.frame_count)
        self._save()
        self.memory.close()

    def _handle(self, messages: list[Incoming]) -> None:
        samples: list[Sample] = []
        waiting: list[Incoming] = []
        for message in messages:
            if self.reader.is_for(message.topic):
                sample = self.reader.read(message)
                samples += [sample] if sample else []
                waiting.append(message)
                continue
            self._take(samples, waiting)
            samples, waiting = [], []
            self._hear(message)
        self._take(samples, waiting)

    def _take(self, samples: list[Sample], waiting: list[Incoming]) -> None:
        if self.is_waiting:
            self.owed += samples
            self.owed_messages += waiting
            return
        if self._learn(samples):
            for message in waiting:
                self.program.session.ack(message)

    def _learn(self, samples: list[Sample]) -> bool:
        """Give the brain what it does not know yet. False where the disk refuses until the program is to stop."""
        fresh = self.memory.unknown(samples)
        if len(fresh) < len(samples):
            readings = sum(len(one.positions) for one in samples) - sum(len(one.positions) for one in fresh)
            self.program.count("duplicate", readings)
        if fresh:
            now_ms = self.program.clock.now_ms()
            if not self._step(Readings(now_ms, tuple(fresh))):
                return False
            self.last_reading_s, self.last_reading_ms = self.program.clock.monotonic_s(), now_ms
        return True

    def _end_waiting(self) -> None:
        """Once the broker has brought what it owed from before the restart: all readings since, in order of their times."""
        now_s = self.program.clock.monotonic_s()
        if not self.is_waiting or not self.program.session.is_connected:
            return
        self.owed_until_s = self.owed_until_s or now_s + OWED_S
        if now_s >= self.owed_until_s or len(self.owed_messages) >= OWED_MOST:
            self.is_waiting = False
            samples, messages = sorted(self.owed, key=lambda one: one.at_ms), self.owed_messages
            self.owed, self.owed_messages = [], []
            self._take(samples, messages)

    def _hear(self, message: Incoming) -> None:
        """What the fleet says."""
        now_ms = self.program.clock.now_ms()
        if message.topic == self.model_topic:
            if self.said.open:
                self._follow(message.payload)
            self._step(ModelArrived(now_ms, message.payload))
        elif message.topic == self.round_topic:
            try:
                notice = codec.decode(message.payload, RoundNotice)
            except PeerError as err:
                self.program.count(f"round_{err.code}", detail=err.detail)
            else:
                if notice.state == "opened":
                    self._step(RoundOpened(now_ms, notice.round))
        elif message.topic == self.tuning_topic:
            self._step(TuningArrived(now_ms, message.payload))
        elif message.topic == self.program.topic("status"):
            self.program.check_rival(message)
        self.program.session.ack(message)

    def _follow(self, payload: bytes) -> None:
        """What the owner left open is for the fleet to say: agents that chose at the same time chose each for itself."""
        try:
            fleet = codec.decode(payload, FleetModel).schema
        except PeerError:
            return  # the brain counts it
        if fleet.signature() == self.memory.state.config.schema.signature():
            self.successor = None
            return
        found = from_fleet(self.said, fleet)
        self.successor = Successor(found, payload) if isinstance(found, Choice) else None

    def _step(self, event: Event) -> bool:
        """Journal first, then let the brain take it and carry out what it asks for. False where the disk refuses until the
        program is to stop: the event was not taken, and is not to be acknowledged."""
        if not self.program.insist(lambda: self.memory.keep(event), "journal_refused", self._figures):
            return False
        begin_s = self.program.clock.monotonic_s()
        self.memory.state, effects = agent.step(self.memory.state, event)
        took_s = self.program.clock.monotonic_s() - begin_s
        self.memory.work_s += took_s
        for effect in effects:
            self._perform(self._timed(effect, took_s))
        return True

    def _timed(self, effect: Effect, took_s: float) -> Effect:
        """A gradient says how long it took, which a brain without a clock cannot know."""
        if not isinstance(effect, Publish) or not isinstance(effect.message, Gradient):
            return effect
        self.tuning_s += took_s
        self.tuning_steps += 1
        return replace(effect, message=msgspec.structs.replace(effect.message, seconds=took_s))

    def _pass_time(self) -> None:
        now_ms = self.program.clock.now_ms()
        # frames that were open before a restart wait for the readings that the broker owes
        if now_ms >= self.next_tick_ms and not self.is_waiting:
            self.next_tick_ms = now_ms + round(WAIT_S * 1000)
            after, _ = agent.step(self.memory.state, Tick(now_ms))
            if after is not self.memory.state:  # time alone closed a frame
                self._step(Tick(now_ms))
        is_time = self.program.clock.monotonic_s() >= self.next_save_s
        if is_time or (self.memory.is_due and not self.is_save_refused):
            self._save()

    def _save(self) -> None:
        span_s = self.program.settings.number("agent.snapshot_s")
        try:
            self.memory.save()
            self.is_save_refused = False
            allocator.give_back()
        except StorageError as err:
            self.is_save_refused = True
            span_s = min(span_s, SAVE_AGAIN_S)
            self.program.count("snapshot_refused", detail=str(err))
        self.next_save_s = self.program.clock.monotonic_s() + span_s

    def _perform(self, effect: Effect, *, is_replay: bool = False) -> None:
        if isinstance(effect, Count):
            if not is_replay:
                self.program.count(effect.reason, effect.number, detail=effect.detail)
            return
        payload = codec.encode(effect.message)
        topic = self.program.topic(effect.kind)
        if isinstance(effect.message, AnomalyEvent) and not is_replay:
            self._tell_event(effect.message)
        if is_replay and effect.key:  # an old summary is of no use to a new round
            return
        if effect.is_durable:
            self.program.session.send(topic, payload, key=effect.key)
        else:
            self._queue(Outgoing(topic, payload, 1 if effect.key else 0))

    def _tell_event(self, event: AnomalyEvent) -> None:
        channels = ", ".join(event.blame)
        if event.state == "opened":
            self.program.log.warning(f"ALARM: {channels} not as expected", score=round(event.peak_score, 1))
        elif event.state == "closed":
            seconds = ((event.end_ms or event.at_ms) - event.start_ms) / 1000
            self.program.log.info(f"alarm over: {channels}", seconds=seconds, note=event.note or None)

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
        word = "federated" if state.basis else "learning" if state.frame_count else "starting"
        note = self._note()
        self._tell(word, note)
        if not note and self.choice.origin != "owner" and state.frame_count < CHOSEN_FRAMES:
            note = f"{CHOSEN}{'; '.join(self.choice.reasons)}"[:NOTE]
        self.program.announce(state=word, basis=state.basis, note=note)

    def _tell(self, word: str, note: str) -> None:
        """What changed, in the log: whoever started this in a terminal hears of it there."""
        log, status = self.program.log, self.program.status
        if word != status.state:
            of = self.memory.state.config.parts
            lone = "only a lengthscale is the fleet's" if of.kernel else "learning without the fleet"
            is_lone = word == "learning" and not of.shared
            said = f"readings come; {lone}, as agent.model says" if is_lone else WORDS[word]
            log.info(said, frames=self.memory.state.frame_count, basis=self.memory.state.basis or None)
        elapsed_s = (self.program.clock.now_ms() - self.program.started_ms) / 1000
        if note and note != self.told_note and elapsed_s > QUIET_S:
            log.warning(note)
            self.told_note = note
        elif not note and self.told_note:
            log.info("readings come again as they should")
            self.told_note = ""

    def _note(self) -> str:
        """What its owner should know just now; "" while all is as it should be."""
        state = self.memory.state
        topics_ = self.reader.topics
        if state.frames.anchor_ms is None:
            return self.reader.silence()
        quiet_s = self.program.clock.monotonic_s() - self.last_reading_s
        if quiet_s > max(QUIET_S, QUIET_FRAMES * state.config.schema.interval_s):
            if not self.last_reading_ms:
                return f"no reading on {topics_} since this agent was started again"
            since = datetime.fromtimestamp(self.last_reading_ms / 1000, tz=UTC)
            return f"no reading on {topics_} since {since:%Y-%m-%d %H:%M:%S} UTC"
        if not state.frame_count:
            return "the first frame is being filled"
        silent = [
            item.name
            for item, frames in zip(state.config.schema.inputs, state.frames.silent, strict=True)
            if frames >= SILENT_AFTER
        ]
        return f"nothing comes for {', '.join(silent)}; predicting without" if silent else ""

    def _figures(self) -> dict[str, float]:
        state = self.memory.state
        return {
            "frames": float(state.frame_count),
            "predictions": float(state.predicted),
            "round": float(state.round),
            "basis": float(state.basis),
            "events_open": float(state.event is not None),
            "alarm_threshold": state.alarm.threshold,
            "clock_skew_s": state.frames.skew_ms / 1000 if self.reader.policy == "live" else 0.0,
            "tuning_steps": float(self.tuning_steps),
            "tuning_s": self.tuning_s,
            "journal_bytes": float(self.memory.size_bytes),
            "written_bytes": float(self.memory.written),
            "backlog_depth": float(len(self.backlog)),
        }
