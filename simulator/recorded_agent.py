"""One agent of a recording, its brain run again from what it heard.

The recorder heard the same messages as the agent, perhaps in a slightly other order. What the agent said tells in which order
it took them: a prediction names the model that it was made with, a summary or bootstrap can be made at one moment only, and a
frame that the wall clock closed was closed just before its prediction. So the agent's own words are followed one by one, and
before each the brain is given what it must have heard by then. What it then says is its own, and is compared.
"""

from __future__ import annotations

import zlib
from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from edge_agent import agent
from edge_agent.config import agent_config, wiring
from edge_agent.frames import Sample
from edge_agent.memory import REPLAYED_EFFECTS, Recent, mark
from edge_agent.reading import read_sample
from edge_agent.state import AgentConfig, Count, ModelArrived, Publish, Readings, RoundOpened, State, Tick
from fleetgp.errors import PeerError
from fleetgp.payloads.content import ClockPolicy
from fleetgp.recording.message import Message
from fleetgp.runtime.settings import Settings
from fleetgp.wire import codec
from fleetgp.wire.messages import AnomalyEvent, Bootstrap, FleetModel, Prediction, RoundNotice, Summary
from simulator.recorded_likeness import Tally
from simulator.recorded_lives import Life, Lives

MOST_WAITING = 100_000
MOST_MADE = 10_000
REPEATED = 2 * REPLAYED_EFFECTS

Answer = Summary | Bootstrap
Said = Prediction | AnomalyEvent | Answer


class Reading(NamedTuple):
    """A sample, and when the recorder heard it."""

    at_ns: int
    sample: Sample


class News(NamedTuple):
    """What the fleet said: a model (and its payload), or that a round was opened."""

    at_ns: int
    message: FleetModel | RoundNotice
    payload: bytes


class Word(NamedTuple):
    """What the agent said, and its payload."""

    at_ns: int
    message: Said
    payload: bytes


@dataclass
class Compared:
    """What came of one agent. trouble: why it cannot be run again, "" where it can."""

    predictions: Tally = field(default_factory=Tally)
    events: Tally = field(default_factory=Tally)
    answers: Tally = field(default_factory=Tally)
    left_out: dict[str, int] = field(default_factory=dict)
    trouble: str = ""


class RecordedAgent:
    """``hear`` what was recorded in order, ``follow`` up to a time, at last ``finish``."""

    def __init__(self, name: str, lives: Lives, base: Settings) -> None:
        """base: settings for what the agent's status did not tell. Raises ConfigError where they make no agent."""
        self.name = name
        self.compared = Compared()
        self._lives = list(lives.lives)
        self._incarnations = deque(lives.incarnations)
        self._base = base
        self._born_ns = lives.born_ns
        self._away = lives.away
        self._unheard: News | None = None
        self._policy: ClockPolicy = "live"
        self._fields: dict[str, dict[str, int]] = {}
        self._readings: deque[Reading] = deque()
        self._news: deque[News] = deque()
        self._words: deque[Word] = deque()
        self._answered: set[bytes] = set()
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
        """A model, or that a round was opened. Of what was said before this agent had its settings only the last model counts."""
        if news.at_ns < self._lives[0].at_ns:
            if not isinstance(news.message, FleetModel):
                return
            self._news.clear()
        if any(gone_ns <= news.at_ns < back_ns for gone_ns, back_ns in self._away):
            # nothing of it was heard but the last model, which the broker gave it when it came back
            if not isinstance(news.message, FleetModel):
                return
            if self._news and self._news[-1] is self._unheard:
                self._news.pop()
            self._unheard = news
        if len(self._news) < MOST_WAITING:
            self._news.append(news)

    def hear_own(self, word: Word) -> None:
        self._words.append(word)

    # -- run again ----------------------------------------------------------------------------------------------------

    def follow(self, until_ns: int) -> None:
        """Everything the agent said up to this time."""
        while self._words and self._words[0].at_ns <= until_ns and not self.compared.trouble:
            word = self._words.popleft()
            if isinstance(word.message, Prediction):
                self._follow_prediction(word, word.message)
            elif isinstance(word.message, AnomalyEvent):
                if len(self._events_told) < MOST_WAITING:
                    self._events_told[_key(word.message)] = word.message
            elif word.payload in self._answered:
                self._answered.discard(word.payload)
                self.compared.answers.counts["same"] += 1
            else:
                self._answer(word)

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

    def _begin(self, life: Life) -> State:
        """A fresh brain. Raises ConfigError."""
        settings = self._base.with_told(life.settings, f"the status of {self.name}")
        settings = settings.with_values({"agent.id": self.name}, "recording")
        self._policy = settings.text("agent.clock")  # type: ignore[assignment]
        self._fields = wiring(life.schema, settings.text("agent.topic")).fields
        config: AgentConfig = agent_config(settings, life.schema)
        return agent.init(config, self._incarnations.popleft() if self._incarnations else life.started_ms)

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
        self._answer_where_due(told)
        self._read_until(word.at_ns, told)
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

    def _answer_where_due(self, told: Prediction) -> None:
        """An answer that was heard after this prediction but made before it: it comes out as recorded just now."""
        word = next((word for word in self._words if not isinstance(word.message, (Prediction, AnomalyEvent))), None)
        if word is None or word.payload in self._answered:
            return
        asked = self._asked(word)
        before = [] if asked is None else [news.message for news in self._news][:asked]
        if asked is None or any(isinstance(one, FleetModel) and one.round > told.round for one in before):
            return
        self._answer_as_recorded(word, asked)

    def _answer(self, word: Word) -> None:
        """An answer in its own place."""
        message = word.message
        assert isinstance(message, (Summary, Bootstrap))
        what = f"{self.name}, {'summary' if isinstance(message, Summary) else 'bootstrap'} {message.sequence}"
        asked = self._asked(word)
        if asked is not None and self._answer_as_recorded(word, asked):
            self._answered.discard(word.payload)
            self.compared.answers.counts["same"] += 1
            return
        state, answers = (self.state, {}) if asked is None else self._answered_by(word, asked)
        made = answers.get(type(message))
        if asked is None or made is None:
            self.compared.answers.miss(what)
            return
        self._take_answer(state, answers, asked)
        self._answered.discard(made)
        self.compared.answers.compare(what, message, codec.decode(made, type(message)))

    def _answer_as_recorded(self, word: Word, asked: int) -> bool:
        """Answer now, or after as many readings as no prediction came of, where that gives what was recorded."""
        before, given = (self.state, self._recent.copy(), dict(self.compared.left_out)), 0
        while True:
            state, answers = self._answered_by(word, asked)
            if answers.get(type(word.message)) == word.payload:
                for _ in range(given):
                    self._readings.popleft()
                self._take_answer(state, answers, asked)
                return True
            following = self._readings[given] if given < len(self._readings) else None
            if following is None or following.at_ns > word.at_ns or not self._is_quiet(following.sample):
                break
            given += 1
        self.state, self._recent, self.compared.left_out = before
        return False

    def _asked(self, word: Word) -> int | None:
        """Index among the news of what this answers: the opening of its round, or where it names none the last before it."""
        found: int | None = None
        for index, news in enumerate(self._news):
            if not isinstance(news.message, RoundNotice):
                continue
            if isinstance(word.message, Summary):
                if news.message.round == word.message.round:
                    return index
            elif news.at_ns <= word.at_ns:
                found = index
        return found

    def _answered_by(self, word: Word, asked: int) -> tuple[State, dict[type, bytes]]:
        """State and answers if the round were answered now, after the models before it."""
        state = self.state
        for index in range(asked):
            news = self._news[index]
            if isinstance(news.message, FleetModel):
                state, _ = agent.step(state, ModelArrived(news.message.at_ms, news.payload))
        notice = self._news[asked].message
        assert isinstance(notice, RoundNotice)
        state, effects = agent.step(state, RoundOpened(word.message.at_ms, notice.round))
        made = [effect.message for effect in effects if isinstance(effect, Publish)]
        return state, {type(message): codec.encode(message) for message in made}

    def _take_answer(self, state: State, answers: dict[type, bytes], asked: int) -> None:
        self.state = state
        self._answered |= set(answers.values())
        for _ in range(asked + 1):
            self._news.popleft()

    def _read_until(self, at_ns: int, told: Prediction) -> None:
        """Give the brain readings, models and the time, in the order in which they were heard, until it makes this prediction.

        Models come before the reading of a prediction that was made with them, whenever they were heard.
        """
        while told.sequence not in self._made and self.state.predicted <= told.sequence:
            model = self._model_for(told)
            following = self._readings[0] if self._readings else None
            if model is None and self._is_closed_by_time(at_ns, told):
                continue
            if model is not None and (following is None or following.at_ns >= self._news[model].at_ns):
                self._adopt(model)
            elif following is None:
                return
            elif model is None or self._is_quiet(following.sample):
                self._readings.popleft()
                if model is None:
                    self._read(following.sample)
            else:
                self._adopt(model)

    def _model_for(self, told: Prediction) -> int | None:
        """Index of the next model to take, where the prediction was made with another one than is in use."""
        if (self.state.basis, self.state.round) == (told.basis, told.round):
            return None
        models = [
            (index, (news.message.basis, news.message.round))
            for index, news in enumerate(self._news)
            if isinstance(news.message, FleetModel)
        ]
        return models[0][0] if any(name == (told.basis, told.round) for _, name in models) else None

    def _adopt(self, index: int) -> None:
        """Take a model; rounds that were opened before it and not answered are over."""
        for _ in range(index):
            self._news.popleft()
        news = self._news.popleft()
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

    def _is_closed_by_time(self, at_ns: int, told: Prediction) -> bool:
        """Whether the frame waits just as it was predicted and time has passed it by; then it is closed."""
        frames = self.state.frames
        slot = next((slot for slot in frames.pending.values() if slot.at_ms == told.at_ms), None)
        if slot is None:
            return False
        Q = len(self.state.age)
        read = [None if value != value else value for value in slot.values[:Q].tolist()]
        if read != [told.channels[name].observed for name in self.state.config.schema.channel_names]:
            return False
        now_ms = at_ns // 1_000_000
        if not self._readings or self._readings[0].at_ns > at_ns:  # nothing but time can have closed it
            now_ms = max(now_ms, slot.received_ms + frames.interval_ms + frames.lateness_ms)
        before = self.state
        self._step(Tick(now_ms))
        return self.state is not before

    def _step(self, event: Readings | Tick) -> None:
        self.state, effects = agent.step(self.state, event)
        for effect in effects:
            if isinstance(effect, Count):
                self._count(effect.reason, effect.number)
            elif isinstance(effect.message, Prediction) and len(self._made) < MOST_MADE:
                self._made[effect.message.sequence] = effect.message
            elif isinstance(effect.message, AnomalyEvent) and len(self._events) < MOST_WAITING:
                self._events[_key(effect.message)] = effect.message

    def _count(self, reason: str, number: int) -> None:
        self.compared.left_out[reason] = self.compared.left_out.get(reason, 0) + number


def _key(event: AnomalyEvent) -> tuple[str, str, int]:
    return event.event_id, event.state, event.frames
