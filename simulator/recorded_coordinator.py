"""The coordinator of a recording, its brain run again from the answers that were recorded.

Each round opens and closes at the time that its notice names. Which answers it had by then its notice names too: the recorder
may have heard one a moment earlier or later than the coordinator did.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from coordinator import rounds
from coordinator import state as coordination
from coordinator.config import coordinator_config
from fleetgp.runtime.settings import Settings
from fleetgp.wire import codec
from fleetgp.wire.messages import Bootstrap, FleetModel, RoundNotice, Summary
from simulator.recorded_likeness import Tally
from simulator.recorded_lives import Chair

MOST_WAITING = 10_000
NEAR_NS = 2_000_000_000
MOST_NEAR = 10
MOST_TRIALS = 200


class Told(NamedTuple):
    """What the coordinator said, and its payload."""

    at_ns: int
    message: FleetModel | RoundNotice
    payload: bytes


class Heard(NamedTuple):
    """What an agent answered."""

    at_ns: int
    agent_id: str
    message: Summary | Bootstrap
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
        self._opened_ns = -NEAR_NS

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
                self._commit([heard for heard in self._answers if self._is_before(heard, told, notice)], notice.at_ms)
                self._opened_ns = told.at_ns
        made = self._notices.pop(key, None)
        what = f"round {notice.round} {notice.state}"
        if made is None:
            self.compared.notices.miss(what)
        else:
            self.compared.notices.compare(what, notice, made)

    def _is_before(self, heard: Heard, told: Told, opened: RoundNotice) -> bool:
        """Whether an answer is one to an earlier round than this, which opens: it says so, or that one's opening is nearer."""
        if isinstance(heard.message, Summary):
            return heard.message.round < opened.round and heard.at_ns < told.at_ns
        return abs(heard.at_ns - self._opened_ns) < abs(heard.at_ns - told.at_ns)

    def _close(self, told: Told, at_ms: int, number: int) -> None:
        """Close a round with the answers that it had: those heard until then, but for one or two heard a moment early or late."""
        closing = {type(one.message): one for one in (told, *self._words) if _is_closing(one.message, number)}
        likely = [heard for heard in self._answers if heard.at_ns < told.at_ns]
        near = sorted(
            (heard for heard in self._answers if abs(heard.at_ns - told.at_ns) < NEAR_NS),
            key=lambda heard: abs(heard.at_ns - told.at_ns),
        )
        for swapped in itertools.islice(_subsets(near[:MOST_NEAR]), MOST_TRIALS):
            answers = [heard for heard in self._answers if (heard in likely) != (heard in swapped)]
            _, effects = self._closed(answers, at_ms)
            if all(_payload(effect) == one.payload for effect in effects if (one := closing.get(_kind(effect)))):
                self._commit(answers, at_ms)
                return
        self._commit(likely, at_ms)

    def _closed(self, answers: list[Heard], at_ms: int) -> tuple[coordination.State, list[coordination.Effect]]:
        """State and effects if the clock came to this time with these answers given before."""
        state = self.state
        for heard in answers:
            is_summary = isinstance(heard.message, Summary)
            kind = coordination.SummaryArrived if is_summary else coordination.BootstrapArrived
            state, _ = rounds.step(state, kind(heard.at_ns // 1_000_000, heard.agent_id, heard.payload))
        return rounds.step(state, coordination.Tick(at_ms))

    def _commit(self, answers: list[Heard], at_ms: int) -> None:
        self.state, effects = self._closed(answers, at_ms)
        for heard in answers:
            self._answers.remove(heard)
        for effect in effects:
            if isinstance(effect, coordination.PublishModel):
                self._models[at_ms] = effect.payload
            elif isinstance(effect, coordination.PublishRound):
                self._notices[(effect.notice.round, effect.notice.state)] = effect.notice


def _is_closing(message: FleetModel | RoundNotice, number: int) -> bool:
    return message.round == number and (isinstance(message, FleetModel) or message.state == "closed")


def _kind(effect: coordination.Effect) -> type:
    if isinstance(effect, coordination.PublishRound) and effect.notice.state == "closed":
        return RoundNotice
    return FleetModel if isinstance(effect, coordination.PublishModel) else type(effect)


def _payload(effect: coordination.Effect) -> bytes:
    if isinstance(effect, coordination.PublishRound):
        return codec.encode(effect.notice)
    return effect.payload if isinstance(effect, coordination.PublishModel) else b""


def _subsets(near: list[Heard]) -> Iterator[tuple[Heard, ...]]:
    """None of them, each alone, each two, ..."""
    for size in range(len(near) + 1):
        yield from itertools.combinations(near, size)
