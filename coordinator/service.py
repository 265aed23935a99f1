"""The body of the coordinator: messages and ticks become events, journalled before they count."""

from __future__ import annotations

from contextlib import ExitStack

import msgspec

from coordinator import rounds
from coordinator.config import TOLD, coordinator_config
from coordinator.journal import Journal
from coordinator.state import (
    BootstrapArrived,
    Count,
    Effect,
    Event,
    GradientArrived,
    PublishModel,
    PublishRound,
    PublishTuning,
    State,
    SummaryArrived,
    Tick,
)
from fleetgp.runtime.mqtt import Incoming
from fleetgp.runtime.program import Plan, Program
from fleetgp.runtime.settings import Settings
from fleetgp.wire import codec, topics

NAME = "coordinator"
BATCH = 500
WAIT_S = 0.1
RIVAL_S = 1.0  # for a coordinator that is there already to say so before a second one opens a round
# said of every agent now and then by delivery at least once; no fault of anybody
HARMLESS = {"repeated"}


class Coordinator:
    """One coordinator from start to end; ``run`` returns when it was asked to stop."""

    def __init__(self, settings: Settings) -> None:
        fleet = settings.text("fleet")
        subscriptions = tuple((topics.all_agents(fleet, kind), 1) for kind in ("bootstrap", "summary", "gradient"))
        self.program = Program(
            settings, Plan("coordinator", NAME, subscriptions, settings.number("coordinator.health_s"))
        )
        config = coordinator_config(settings)
        self.journal = Journal(self.program.folder / "journal.sqlite")
        if self.journal.aside is not None:
            self.program.log.warning(
                "an older version's journal is put aside, a new one is begun; agents tell what they know again",
                file=self.journal.aside.name,
            )
        fresh = rounds.init(config, self.program.started_ms)
        self.owed: list[Effect] = []
        state = self.journal.load(fresh, self._again)
        self.state = msgspec.structs.replace(state, config=config)
        if self.state.round:
            self.program.log.info("took up where it was left", round=self.state.round, agents=len(self.state.answers))
        self.note = "no agent has answered yet"
        self.begin_s = 0.0
        self.model_topic = topics.fleet_wide(fleet, "model")
        self.round_topic = topics.fleet_wide(fleet, "round")
        self.tuning_topic = topics.fleet_wide(fleet, "tuning")

    def run(self) -> None:
        """Work until stopped. Raises ServiceError when another coordinator of the fleet is there."""
        program = self.program
        self._announce()
        with ExitStack() as ending:
            ending.callback(program.close)
            ending.callback(self.journal.close)
            program.start()
            for effect in self.owed:
                self._perform(effect)
            while not program.is_stopping:
                self._handle(program.session.receive(BATCH, WAIT_S))
                self._tick()
                program.report_health(self._figures)
                self._announce()

    def _again(self, state: State, event: Event) -> tuple[State, list[Effect]]:
        """Replay an event. What followed from the last one may not have been said before the end: it is said again."""
        state, effects = rounds.step(state, event)
        self.owed = [effect for effect in effects if not isinstance(effect, Count)]
        return state, effects

    def _announce(self) -> None:
        state = self.state
        self.program.announce(
            state="federated" if state.feature_map is not None else "starting",
            basis=state.basis,
            round=state.round,
            schema=state.schema,
            settings=self.program.settings.told(TOLD),
            note="" if state.feature_map is not None else self.note,
        )

    def _handle(self, messages: list[Incoming]) -> None:
        events: list[Event] = []
        for message in messages:
            address = topics.parse(message.topic)
            if address is None or not message.payload:
                self.program.count("unknown_topic", detail=message.topic)
            elif address.kind == "bootstrap":
                events.append(BootstrapArrived(message.received_ms, address.id, message.payload))
            elif address.kind == "summary":
                events.append(SummaryArrived(message.received_ms, address.id, message.payload))
            elif address.kind == "gradient":
                events.append(GradientArrived(message.received_ms, address.id, message.payload))
            elif address.kind == "status":
                self.program.check_rival(message)
        if events and not self._take(events):
            return  # the disk refuses: not acknowledged, so they come again
        for message in messages:
            self.program.session.ack(message)

    def _tick(self) -> None:
        """Rounds open and close by the clock, while there is somebody to hear of it."""
        now_s = self.program.clock.monotonic_s()
        if self.program.session.is_connected:
            self.begin_s = self.begin_s or now_s + RIVAL_S
            if now_s >= self.begin_s:
                self._take([Tick(self.program.clock.now_ms())])

    def _take(self, events: list[Event]) -> bool:
        """Journal what changes the state, then act. False when the program is to stop before the disk takes it."""
        state = self.state
        effects: list[Effect] = []
        changing: list[Event] = []
        for event in events:
            after, more = rounds.step(state, event)
            changing += [event] if after is not state else []
            effects += more
            state = after
        if changing and not self.program.insist(
            lambda: self.journal.append(changing, self.state), "journal_refused", self._figures
        ):
            return False
        self.state = state
        for effect in effects:
            self._perform(effect)
        return True

    def _perform(self, effect: Effect) -> None:
        match effect:
            case PublishModel(payload):
                self.program.session.send(self.model_topic, payload, is_retained=True, key="model")
            case PublishTuning(payload):
                self.program.session.send(self.tuning_topic, payload, is_retained=True, key="tuning")
            case PublishRound(notice):
                self.program.session.send(self.round_topic, codec.encode(notice))
                if notice.state == "closed":
                    self.note = notice.note
                    self.program.log.info(
                        "round_closed",
                        round=notice.round,
                        answered=len(notice.answered),
                        missing=notice.missing or None,
                        basis=notice.basis,
                        bytes=notice.bytes_received + notice.bytes_sent,
                        note=notice.note or None,
                    )
            case Count(reason, agent_id, detail):
                if reason in HARMLESS:
                    self.program.counts[reason] += 1
                else:
                    self.program.count(reason, detail=detail or agent_id)

    def _figures(self) -> dict[str, float]:
        state = self.state
        return {
            "round": float(state.round),
            "basis": float(state.basis),
            "agents_known": float(len({*state.told, *state.answers})),
            "agents_included": float(len(state.answers)),
            "tuning_steps": float(state.steps),
            "tuning_taken_back": float(state.tuning.taken_back if state.tuning is not None else 0),
        }
