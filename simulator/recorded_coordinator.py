"""The coordinator of a recording, its brain run again from the answers that were recorded.

Each round opens and closes at the time that its notice names. Which answers it had by then its notice names too: the recorder
may have heard one a moment earlier or later than the coordinator did.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from coordinator import rounds
from coordinator import state as coordination
from coordinator.config import coordinator_config
from fleetgp.runtime.settings import Settings
from fleetgp.wire import codec
from fleetgp.wire.messages import Bootstrap, FleetModel, Gradient, RoundNotice, Summary
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
    message: Summary | Bootstrap | Gradient
    payload: bytes


# what was answered -> the event that it is to the brain
EVENTS: dict[type, type[coordination.BootstrapArrived | coordination.SummaryArrived | coordination.GradientArrived]] = {
    Bootstrap: coordination.BootstrapArrived,
    Summary: coordination.SummaryArrived,
    Gradient: coordination.GradientArrived,
}


@dataclass
class ComparedRounds:
    """What came of it. trouble: why it cannot be run again, "" where it can."""

    models: Tally = field(default_factory=Tally)
    notices: Tally = field(default_factory=Tally)
    trouble: str = ""


class _Opening(NamedTuple):
    """Where a round began: the state before the answers that came before it, those, and when; at_ms None where the round before
    closed at the same moment, and nothing came between."""

    state: coordination.State
    before: list[Heard]
    at_ms: int | None = None
    at_ns: int = -NEAR_NS


Place = Literal["before", "during", "after"]
Outcome = tuple[coordination.State, list[coordination.Effect]]


class RecordedCoordinator:
    """``hear`` what was recorded in order, ``follow`` up to a time, at last ``finish``."""

    def __init__(self, chair: Chair, base: Settings) -> None:
        told = {"coordinator.tuning": "off", **chair.settings}  # one that told nothing of it knew nothing of it
        config = coordinator_config(base.with_told(told, "the status of the coordinator"))
        origin = chair.origins[0] if chair.origins else chair.started_ms
        self.compared = ComparedRounds()
        self.state = rounds.init(config, origin)
        self._words: deque[Told] = deque()
        self._answers: deque[Heard] = deque()
        self._models: dict[int, bytes] = {}
        self._notices: dict[tuple[int, str], RoundNotice] = {}
        self._seen: deque[tuple[int, str]] = deque(maxlen=MOST_WAITING)
        self._opening: _Opening | None = None

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
                self._open(told, notice)
        made = self._notices.pop(key, None)
        what = f"round {notice.round} {notice.state}"
        if made is None:
            self.compared.notices.miss(what)
        else:
            self.compared.notices.compare(what, notice, made)

    def _open(self, told: Told, notice: RoundNotice) -> None:
        """Open a round, after the answers to earlier ones."""
        before = [heard for heard in self._answers if heard.at_ns < told.at_ns and _is_earlier(heard.message, notice)]
        self._opening = _Opening(self.state, before, notice.at_ms, told.at_ns)
        self._answers = deque(heard for heard in self._answers if heard not in before)
        self._commit(_stepped(self.state, before, notice.at_ms), notice.at_ms)

    def _close(self, told: Told, at_ms: int, number: int) -> None:
        """Close a round with the answers that it had: those heard until then, but for one or two heard a moment early or late."""
        closing = {type(one.message): one for one in (told, *self._words) if _is_closing(one.message, number)}
        opening, self._opening = self._opening or _Opening(self.state, []), None
        heard = [*opening.before, *self._answers]
        notice = next((one.message for one in closing.values() if isinstance(one.message, RoundNotice)), None)
        likely = _likely_places(heard, opening, told.at_ns, number, notice)
        trials = _subsets(_other_places(heard, likely, opening.at_ns, told.at_ns, number, notice))
        for moved in itertools.islice(trials, MOST_TRIALS):
            places = likely | dict(moved)
            outcome = _round(opening, heard, places, at_ms)
            if all(_payload(effect) == one.payload for effect in outcome[1] if (one := closing.get(_kind(effect)))):
                break
        else:
            places, outcome = likely, _round(opening, heard, likely, at_ms)
        self._answers = deque(one for index, one in enumerate(heard) if places[index] == "after")
        self._commit(outcome, at_ms)

    def _commit(self, outcome: Outcome, at_ms: int) -> None:
        self.state, effects = outcome
        for effect in effects:
            if isinstance(effect, coordination.PublishModel):
                self._models[at_ms] = effect.payload
            elif isinstance(effect, coordination.PublishRound):
                self._notices[(effect.notice.round, effect.notice.state)] = effect.notice


def _is_earlier(answer: Summary | Bootstrap | Gradient, opened: RoundNotice) -> bool:
    """Whether it answers an earlier round than this, which opens: it says so, or was made before."""
    return answer.round < opened.round if isinstance(answer, Summary) else answer.at_ms < opened.at_ms


def _can_be_before(heard: Heard, number: int) -> bool:
    """Whether it may have come before a round opened: it is no answer to it."""
    return not isinstance(heard.message, Summary) or heard.message.round < number


def _likely_places(
    heard: list[Heard], opening: _Opening, closed_ns: int, number: int, notice: RoundNotice | None
) -> dict[int, Place]:
    """Where answers belong by the times at which they were heard, and by whom the closing of the round names as missing."""
    places: dict[int, Place] = {}
    for index, one in enumerate(heard):
        places[index] = "before" if index < len(opening.before) else "during" if one.at_ns < closed_ns else "after"
        if places[index] == "during" and notice is not None and not _is_counted(one, notice):
            is_nearer = one.at_ns - opening.at_ns < closed_ns - one.at_ns and opening.at_ms is not None
            is_before = is_nearer and one.agent_id in notice.missing and _can_be_before(one, number)
            places[index] = "before" if is_before else "after"
    return places


def _other_places(
    heard: list[Heard],
    likely: dict[int, Place],
    opened_ns: int,
    closed_ns: int,
    number: int,
    notice: RoundNotice | None,
) -> list[tuple[int, Place]]:
    """Where else answers may belong that were heard near the opening or the closing of a round, the nearest first."""
    found: list[tuple[int, int, Place]] = []
    for index, one in enumerate(heard):
        if likely[index] != "before":
            found.append((abs(one.at_ns - closed_ns), index, "during" if likely[index] == "after" else "after"))
        if likely[index] != "after" and _can_be_before(one, number):
            found.append((abs(one.at_ns - opened_ns), index, "during" if likely[index] == "before" else "before"))
    near = sorted(
        (away_ns, index, place)
        for away_ns, index, place in found
        if away_ns < NEAR_NS and (place != "during" or notice is None or _is_counted(heard[index], notice))
    )
    return [(index, place) for _, index, place in near[:MOST_NEAR]]


def _is_counted(heard: Heard, notice: RoundNotice) -> bool:
    """Whether it can have come while the round was open: a gradient answers no round, and nobody is named for it."""
    return isinstance(heard.message, Gradient) or heard.agent_id in notice.answered


def _round(opening: _Opening, heard: list[Heard], places: dict[int, Place], at_ms: int) -> Outcome:
    """State and effects of the closing, if the answers came so."""
    before, during = (
        [one for index, one in enumerate(heard) if places[index] == place] for place in ("before", "during")
    )
    if opening.at_ms is None:
        return _stepped(opening.state, [*before, *during], at_ms)
    state, _ = _stepped(opening.state, before, opening.at_ms)
    return _stepped(state, during, at_ms)


def _stepped(state: coordination.State, answers: list[Heard], at_ms: int) -> Outcome:
    """State and effects if the clock came to this time with these answers given before."""
    for heard in answers:
        kind = EVENTS[type(heard.message)]
        state, _ = rounds.step(state, kind(heard.at_ns // 1_000_000, heard.agent_id, heard.payload))
    return rounds.step(state, coordination.Tick(at_ms))


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


def _subsets(moves: list[tuple[int, Place]]) -> Iterator[tuple[tuple[int, Place], ...]]:
    """None of them, each alone, each two, ..."""
    for size in range(len(moves) + 1):
        yield from itertools.combinations(moves, size)
