"""The coordinator of a recording, its brain run again from the answers that were recorded.

Each round opens and closes at the time that its notice names. Which answers it had by then its notice names too: the recorder
may have heard one a moment earlier or later than the coordinator did.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from coordinator import rounds
from coordinator import state as coordination
from coordinator.config import coordinator_config
from fleetgp.runtime.settings import Settings
from fleetgp.wire import codec
from fleetgp.wire.messages import FleetModel, RoundNotice
from simulator.recorded_likeness import Tally
from simulator.recorded_lives import Chair

MOST_WAITING = 10_000


class Told(NamedTuple):
    """What the coordinator said, and its payload."""

    at_ns: int
    message: FleetModel | RoundNotice
    payload: bytes


class Heard(NamedTuple):
    """What an agent answered: kind is bootstrap or summary."""

    at_ns: int
    agent_id: str
    kind: str
    payload: bytes


@dataclass
class ComparedRounds:
    """What came of it. trouble: why it cannot be run again, "" where it can."""

    models: Tally = field(default_factory=Tally)
    notices: Tally = field(default_factory=Tally)
    trouble: str = ""


class RecordedCoordinator:
    """``hear`` what was recorded in order, ``follow`` up to a time, at last ``finish``."""

    def __init__(self, chair: Chair, base: Settings) -> None:
        config = coordinator_config(base.with_told(chair.settings, "the status of the coordinator"))
        origin = chair.origins[0] if chair.origins else chair.started_ms
        self.compared = ComparedRounds()
        self.state = rounds.init(config, origin)
        self._words: deque[Told] = deque()
        self._answers: deque[Heard] = deque()
        self._models: dict[int, bytes] = {}
        self._notices: dict[tuple[int, str], RoundNotice] = {}
        self._seen: deque[tuple[int, str]] = deque(maxlen=MOST_WAITING)

    def hear_answer(self, heard: Heard) -> None:
        if len(self._answers) < MOST_WAITING:
            self._answers.append(heard)

    def hear_own(self, told: Told) -> None:
        self._words.append(told)

    def follow(self, until_ns: int) -> None:
        """Everything the coordinator said up to this time."""
        while self._words and self._words[0].at_ns <= until_ns and not self.compared.trouble:
            told = self._words.popleft()
            if isinstance(told.message, FleetModel):
                self._follow_model(told, told.message)
            else:
                self._follow_notice(told, told.message)

    def finish(self) -> ComparedRounds:
        self.follow(2**63)
        self.compared.models.extra += len(self._models)
        self.compared.notices.extra += len(self._notices)
        return self.compared

    def _follow_model(self, told: Told, model: FleetModel) -> None:
        key = (model.round, "model")
        if key in self._seen:
            return
        self._seen.append(key)
        if model.at_ms not in self._models:
            self._close(told, model.at_ms, model.round)
        made = self._models.pop(model.at_ms, None)
        if made is None:
            self.compared.models.miss(f"the model of round {model.round}")
        else:
            self.compared.models.compare(f"the model of round {model.round}", model, codec.decode(made, FleetModel))

    def _follow_notice(self, told: Told, notice: RoundNotice) -> None:
        key = (notice.round, notice.state)
        if key in self._seen:
            return
        if not self._seen and (notice.round, notice.state) != (1, "opened"):
            self.compared.trouble = (
                f"the recording begins with round {notice.round}; record from the fleet's first start on"
            )
            return
        self._seen.append(key)
        if key not in self._notices:
            if notice.state == "closed":
                self._close(told, notice.at_ms, notice.round)
            else:
                self._give([heard for heard in self._answers if heard.at_ns < told.at_ns])
                self._tick(notice.at_ms)
        made = self._notices.pop(key, None)
        what = f"round {notice.round} {notice.state}"
        if made is None:
            self.compared.notices.miss(what)
        else:
            self.compared.notices.compare(what, notice, made)

    def _close(self, told: Told, at_ms: int, number: int) -> None:
        """Close a round with the answers that its notice says it had."""
        notice = told.message if isinstance(told.message, RoundNotice) else self._closing(number)
        early = [heard for heard in self._answers if heard.at_ns < told.at_ns]
        if notice is not None:
            names = {heard.agent_id for heard in early}
            late = [heard for heard in self._answers if heard.at_ns >= told.at_ns]
            missing = set(notice.answered) - names
            early = [heard for heard in early if heard.agent_id in notice.answered]
            for heard in late:
                if heard.agent_id in missing:
                    missing.discard(heard.agent_id)
                    early.append(heard)
        self._give(early)
        self._tick(at_ms)

    def _closing(self, number: int) -> RoundNotice | None:
        """The notice of this round's closing, a little further on."""
        for told in self._words:
            if isinstance(told.message, RoundNotice) and (told.message.round, told.message.state) == (number, "closed"):
                return told.message
        return None

    def _give(self, answers: list[Heard]) -> None:
        for heard in answers:
            self._answers.remove(heard)
            kind = coordination.BootstrapArrived if heard.kind == "bootstrap" else coordination.SummaryArrived
            self.state, _ = rounds.step(self.state, kind(heard.at_ns // 1_000_000, heard.agent_id, heard.payload))

    def _tick(self, at_ms: int) -> None:
        self.state, effects = rounds.step(self.state, coordination.Tick(at_ms))
        for effect in effects:
            if isinstance(effect, coordination.PublishModel):
                self._models[at_ms] = effect.payload
            elif isinstance(effect, coordination.PublishRound):
                self._notices[(effect.notice.round, effect.notice.state)] = effect.notice
