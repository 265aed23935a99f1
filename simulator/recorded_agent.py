"""One agent of a recording, its brain run again from what it heard.

The recorder heard the same messages as the agent, perhaps in a slightly other order. What the agent said tells in which order
it took them: a prediction names the model that it was made with, a summary or bootstrap can be made at one moment only, and a
frame that the wall clock closed was closed just before its prediction. So the agent's own words are followed one by one, and
before each the brain is given what it must have heard by then. What it then says is its own, and is compared.
"""

from __future__ import annotations

import copy
import zlib
from collections import deque
from typing import Any

from edge_agent import agent, remodel
from edge_agent.config import agent_config, wiring
from edge_agent.frames import Sample
from edge_agent.memory import REPLAYED_EFFECTS, Recent, mark
from edge_agent.reading import read_sample
from edge_agent.state import AgentConfig, Count, ModelArrived, Publish, Readings, RoundOpened, State, Tick
from fleetgp.errors import PeerError
from fleetgp.payloads.content import ClockPolicy
from fleetgp.recording.message import Message
from fleetgp.runtime.settings import Settings
from fleetgp.wire.messages import AnomalyEvent, Bootstrap, FleetModel, Prediction, RoundNotice, Summary
from simulator.recorded_likeness import is_close
from simulator.recorded_lives import Life, Lives
from simulator.recorded_news import News, NewsQueue, is_newer_model, some_of
from simulator.recorded_words import Answer, Compared, Reading, Said, Word, answer_name, event_key, is_made_with

MOST_WAITING = 100_000
MOST_MADE = 10_000
MOST_OVERTAKEN = 8
MOST_DOUBTFUL = 3
LATE_NS = 1_000_000_000
OVERTAKEN_NS = 2_000_000_000
REPEATED = 2 * REPLAYED_EFFECTS

# of a RecordedAgent, what following a word changes and a plain copy keeps
_CHANGING = ("state", "_words", "_readings", "_answered", "_made", "_past", "_events", "_events_told", "_lives", "_life", "_incarnations",
             "_fields", "_policy")  # fmt: skip


class RecordedAgent:
    """``hear`` what was recorded in order, ``follow`` up to a time, at last ``finish``."""

    def __init__(self, name: str, lives: Lives, base: Settings) -> None:
        """base: settings for what the agent's status did not tell. Raises ConfigError where they make no agent."""
        self.name = name
        self.compared = Compared()
        self._lives = list(lives.lives)
        self._life = 0
        self._incarnations = deque(lives.incarnations)
        self._base = base
        self._born_ns = lives.born_ns
        self._policy: ClockPolicy = "live"
        self._fields: dict[str, dict[str, int]] = {}
        self._readings: deque[Reading] = deque()
        self._news = NewsQueue([(0, self._lives[0].at_ns), *lives.away])
        self._words: deque[Word] = deque()
        self._answered: dict[tuple[type, int], Answer] = {}
        self._recent = Recent()
        self._made: dict[int, Prediction] = {}
        self._past: dict[int, int] = {}
        self._events: dict[tuple[str, str, int], AnomalyEvent] = {}
        self._events_told: dict[tuple[str, str, int], AnomalyEvent] = {}
        self.state = self._begin(self._lives[0])

    # -- what was recorded --------------------------------------------------------------------------------------------

    def hear_sensor(self, one: Message) -> None:
        """A message on some topic; those that this agent does not read are left."""
        fields = self._fields.get(one.topic)
        if fields is None or one.is_retained or one.received_ns < self._born_ns:
            return
        try:
            sample = read_sample(one.payload, fields, one.received_ns // 1_000_000, self._policy).sample
        except PeerError:
            return
        if sample is not None and len(self._readings) < MOST_WAITING:
            # what comes before its settings are chosen is kept until then
            self._readings.append(Reading(max(one.received_ns, self._lives[0].at_ns), sample))

    def hear_fleet(self, news: News) -> None:
        """A model, or that a round was opened."""
        self._news.hear(news)

    def hear_own(self, word: Word) -> None:
        self._words.append(word)

    # -- run again ----------------------------------------------------------------------------------------------------

    def follow(self, until_ns: int) -> None:
        """Everything the agent said up to this time."""
        while self._words and self._words[0].at_ns <= until_ns and not self.compared.trouble:
            word = self._words.popleft()
            self._take_settings(word.at_ns)
            doubt = self._news.doubt
            if doubt is None:
                self._follow_word(word)
            else:
                self._follow_in_doubt(word, *doubt)

    def _follow_in_doubt(self, word: Word, doubtful: list[News], following: News) -> None:
        """With none, some or all of the doubtful models, whichever gives what was recorded."""
        differences, likeliest = self.compared.differences, None
        for never in some_of(doubtful[-MOST_DOUBTFUL:]):
            before = self._copied()
            self._news = self._news.without(never)
            self._follow_word(word)
            if self._news.holds(following):  # not decided yet
                self._restore(before)
                self._follow_word(word)
                return
            if self.compared.differences == differences:
                return
            likeliest = likeliest or self._copied()
            self._restore(before)
        self._restore(likeliest or self._copied())

    def _copied(self) -> dict[str, Any]:
        """All that following a word changes."""
        kept = {name: copy.copy(getattr(self, name)) for name in _CHANGING}
        return {
            **kept,
            "_recent": self._recent.copy(),
            "_news": self._news.copy(),
            "compared": copy.deepcopy(self.compared),
        }

    def _restore(self, kept: dict[str, Any]) -> None:
        for name, value in kept.items():
            setattr(self, name, value)

    def _follow_word(self, word: Word) -> None:
        if isinstance(word.message, Prediction):
            self._follow_prediction(word, word.message)
        elif isinstance(word.message, AnomalyEvent):
            if len(self._events_told) < MOST_WAITING:
                self._events_told[event_key(word.message)] = word.message
        else:
            self._follow_answer(word, word.message)

    def finish(self) -> Compared:
        """The rest, and what is left over."""
        self.follow(2**63)
        events = self.compared.events
        for key, told in sorted(self._events_told.items()):
            made = self._events.pop(key, None)
            what = f"{self.name}, event {told.event_id} {told.state}"
            if made is None:
                events.miss(what)
            else:
                events.compare(what, told, made)
        events.extra += len(self._events)
        self.compared.answers.extra += len(self._answered)
        self.compared.predictions.extra += len(self._made)
        return self.compared

    def _take_settings(self, at_ns: int) -> None:
        """Those of the newest start: its owner may have changed them. What was told before was for the old ones."""
        while self._life + 1 < len(self._lives) and self._lives[self._life + 1].at_ns <= at_ns:
            self._life += 1
            life = self._lives[self._life]
            old, new = self.state.config, self._config(life)
            if life.schema != old.schema or new == old:
                continue
            while old.parts.shared and (index := self._news.model_before(life.at_ns)) is not None:
                self._adopt(index)
            self._news.forget_older(life.at_ns)
            self.state = remodel.under(self.state, new).state

    def _begin(self, life: Life) -> State:
        """A fresh brain. Raises ConfigError."""
        config = self._config(life)
        return agent.init(config, self._incarnations.popleft() if self._incarnations else life.started_ms)

    def _config(self, life: Life) -> AgentConfig:
        """Raises ConfigError."""
        # an agent that says nothing of layers is of a time when predictions had none
        settings = self._base.with_values({"agent.layers": False}, "default")
        settings = settings.with_told(life.settings, f"the status of {self.name}")
        settings = settings.with_values({"agent.id": self.name}, "recording")
        self._policy = settings.text("agent.clock")  # type: ignore[assignment]
        self._fields = wiring(life.schema, settings.text("agent.topic")).fields
        config: AgentConfig = agent_config(settings, life.schema)
        if config.parts.kernel:
            self.compared.trouble = "it took the fleet's lengthscales (agent.model pfedgp), and when is not told"
        return config

    def _follow_prediction(self, word: Word, told: Prediction) -> None:
        check = zlib.crc32(word.payload)
        if (
            self._past.get(told.sequence) == check
        ):  # an agent that starts again says once more what it may not have said
            self.compared.predictions.repeated += 1
            return
        if told.sequence == 0 and self.state.predicted and not self._made:
            self._begin_again(word.at_ns)
        if not self.state.predicted and not self._made and told.sequence > len(self._readings):
            self.compared.trouble = f"it had made {told.sequence} predictions before the recording begins; record from the fleet's first start on"
            return
        self._answer_where_due(word.at_ns, told)
        self._read_until(told)
        self._past[told.sequence] = check
        self._past.pop(told.sequence - REPEATED, None)
        made = self._made.pop(told.sequence, None)
        what = f"{self.name}, prediction {told.sequence}"
        if made is not None:
            self.compared.predictions.compare(what, told, made)
            for sequence in [number for number in self._made if number < told.sequence]:
                del self._made[sequence]  # the recorder did not hear them
                self.compared.predictions.extra += 1
        elif told.sequence >= self.state.predicted:
            self.compared.predictions.miss(what)

    def _begin_again(self, at_ns: int) -> None:
        """It lost its memory, or follows another schema."""
        known = [life for life in self._lives if life.at_ns <= at_ns]
        self.state = self._begin((known or self._lives)[-1])
        self._recent = Recent()
        self._past = {}

    def _answer_where_due(self, at_ns: int, told: Prediction) -> None:
        """An answer that was heard after this prediction but made before it: it comes out as recorded just now."""
        word = next((word for word in self._words if not isinstance(word.message, (Prediction, AnomalyEvent))), None)
        if word is None or word.at_ns > at_ns + LATE_NS:
            return
        assert isinstance(word.message, (Summary, Bootstrap))
        if answer_name(word.message) not in self._answered:
            self._answer_as_recorded(word, told.round)

    def _follow_answer(self, word: Word, message: Answer) -> None:
        """An answer in its own place, where it has not been made already."""
        name = answer_name(message)
        what = f"{self.name}, {name[0].__name__.lower()} {message.sequence}"
        if name not in self._answered and not self._answer_as_recorded(word):
            self._answer_after_overtaken(word)
        if name not in self._answered and (asked := self._asked(word)):
            self._take_answer(*self._answered_by(word, asked[0]), asked[0])
        made = self._answered.pop(name, None)
        if made is None:
            self.compared.answers.miss(what)
        else:
            self.compared.answers.compare(what, message, made)

    def _answer_after_overtaken(self, word: Word) -> bool:
        """An answer that was heard before predictions that were made before it. False leaves all as it was."""
        before = self._copied()
        for _ in range(MOST_OVERTAKEN):
            if not self._words or self._words[0].at_ns > word.at_ns + OVERTAKEN_NS:
                break
            self._follow_word(self._words.popleft())
            if self._answer_as_recorded(word):
                return True
        self._restore(before)
        return False

    def _answer_as_recorded(self, word: Word, newest: int | None = None) -> bool:
        """Answer now, or after as many readings as no prediction came of, where that gives what was recorded.

        newest: round of the newest model that it may have had.
        """
        message = word.message
        assert isinstance(message, (Summary, Bootstrap))
        before: dict[str, Any] = {}
        while asked := self._asked(word, newest):
            for index in asked:
                state, answers = self._answered_by(word, index)
                if self._is_as_recorded(message, answers):
                    self._take_answer(state, answers, index)
                    return True
            before = before or self._copied()
            following = self._readings[0] if self._readings else None
            if following is None or following.at_ns > word.at_ns:
                break
            earlier = next(
                (k for k, news in enumerate(self._news.upto(asked[0])) if _is_model_by(news, following)), None
            )
            if earlier is not None:
                self._adopt(earlier)
            elif self._is_quiet(following.sample):
                self._readings.popleft()
            else:
                break
        self._restore(before)
        return False

    def _asked(self, word: Word, newest: int | None = None) -> list[int]:
        """Indices of the openings that this may answer. A bootstrap names no round, but a summary that was made with it does."""
        summary = word.message if isinstance(word.message, Summary) else self._beside(word.message)
        asked = self._news.asked(None if summary is None else summary.round, word.at_ns)
        if newest is None:
            return asked
        return [index for index in asked if not any(is_newer_model(news, newest) for news in self._news.upto(index))]

    def _beside(self, message: Said) -> Summary | None:
        """The summary that was told in one breath with a bootstrap, where it has not been followed yet."""
        said = (one.message for one in self._words if isinstance(one.message, Summary))
        return next((one for one in said if is_made_with(one, message)), None)

    def _is_as_recorded(self, message: Answer, made: dict[tuple[type, int], Answer]) -> bool:
        """Whether this is among the answers made, and beside a bootstrap a summary only where one was told."""
        mine = made.get(answer_name(message))
        if isinstance(message, Bootstrap) and len(made) > 1 and self._beside(message) is None:
            return False
        is_same = mine == message or (mine is not None and not self.state.config.is_live and is_close(message, mine))
        return mine is not None and is_same

    def _answered_by(self, word: Word, asked: int) -> tuple[State, dict[tuple[type, int], Answer]]:
        """State and answers if the round were answered now, after the models before it."""
        state, waiting = self.state, self._news.upto(asked)
        for news in waiting:
            if isinstance(news.message, FleetModel):
                state, _ = agent.step(state, ModelArrived(news.message.at_ms, news.payload))
        notice = waiting[-1].message
        assert isinstance(notice, RoundNotice)
        state, effects = agent.step(state, RoundOpened(word.message.at_ms, notice.round))
        made = [effect.message for effect in effects if isinstance(effect, Publish)]
        return state, {answer_name(one): one for one in made if isinstance(one, (Summary, Bootstrap))}

    def _take_answer(self, state: State, answers: dict[tuple[type, int], Answer], asked: int) -> None:
        self.state = state
        self._answered |= answers
        self._news.take(asked)

    def _read_until(self, told: Prediction) -> None:
        """Give the brain readings, models and the time, in the order in which they were heard, until it makes this prediction.

        Models come before the reading of a prediction that was made with them, whenever they were heard.
        """
        while told.sequence not in self._made and self.state.predicted <= told.sequence:
            is_current = (self.state.basis, self.state.round) == (told.basis, told.round)
            model = None if is_current else self._news.model_for(told)
            following = self._readings[0] if self._readings else None
            if model is None:
                if self._is_closed_by_time(told):
                    continue
                if following is None:
                    return
                self._read(self._readings.popleft().sample)
            elif following is None or following.at_ns >= self._news.upto(model)[-1].at_ns:
                self._adopt(model)
            elif self._is_quiet(following.sample):
                self._readings.popleft()
            else:
                self._adopt(model)

    def _adopt(self, index: int) -> None:
        """Take a model; rounds that were opened before it and not answered are over."""
        news = self._news.take(index)
        self.state, _ = agent.step(self.state, ModelArrived(news.message.at_ms, news.payload))

    def _is_quiet(self, sample: Sample) -> bool:
        """Whether no prediction comes of a reading; it is taken then, and else left as if it had not been looked at."""
        state, _ = agent.step(self.state, Readings(sample.received_ms, (sample,)))
        if mark(sample) not in self._recent and state.predicted > self.state.predicted:
            return False
        self._read(sample)
        return True

    def _read(self, sample: Sample) -> None:
        key = mark(sample)
        if key in self._recent:
            self._count("duplicate", len(sample.positions))
            return
        self._recent.add(key)
        self._step(Readings(sample.received_ms, (sample,)))

    def _is_closed_by_time(self, told: Prediction) -> bool:
        """Whether a frame waits that was predicted just as it is: nothing more came for it, and it is closed by the time."""
        frames = self.state.frames
        slot = next((slot for slot in frames.pending.values() if slot.at_ms == told.at_ms), None)
        if slot is None:
            return False
        read = [None if value != value else value for value in slot.values[: len(self.state.age)].tolist()]
        if read != [told.channels[name].observed for name in self.state.config.schema.channel_names]:
            return False
        before = self.state
        self._step(Tick(slot.received_ms + frames.interval_ms + frames.lateness_ms))
        return self.state is not before

    def _step(self, event: Readings | Tick) -> None:
        self.state, effects = agent.step(self.state, event)
        for effect in effects:
            if isinstance(effect, Count):
                self._count(effect.reason, effect.number)
            elif isinstance(effect.message, Prediction) and len(self._made) < MOST_MADE:
                self._made[effect.message.sequence] = effect.message
            elif isinstance(effect.message, AnomalyEvent) and len(self._events) < MOST_WAITING:
                self._events[event_key(effect.message)] = effect.message

    def _count(self, reason: str, number: int) -> None:
        self.compared.left_out[reason] = self.compared.left_out.get(reason, 0) + number


def _is_model_by(news: News, reading: Reading) -> bool:
    """Whether it is a model that was heard no later than a reading."""
    return isinstance(news.message, FleetModel) and news.at_ns <= reading.at_ns
