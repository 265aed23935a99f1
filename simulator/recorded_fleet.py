"""A recording of a running fleet, run again: the same brains from what they heard then, and what they say compared.

Messages pass by once, in the order in which they were recorded, and everybody is followed a little behind: what was heard a
moment late is there by then. Memory is bounded by that moment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from fleetgp.errors import ConfigError, PeerError, RecordingError
from fleetgp.recording.message import Gap, Message, Recorded
from fleetgp.runtime.settings import Settings
from fleetgp.wire import codec, topics
from fleetgp.wire.messages import AnomalyEvent, Bootstrap, FleetModel, Gradient, Prediction, RoundNotice, Summary
from simulator.recorded_agent import RecordedAgent
from simulator.recorded_coordinator import ComparedRounds, Heard, RecordedCoordinator, Told
from simulator.recorded_lives import Cast, Lives, Name, cast_of
from simulator.recorded_news import News
from simulator.recorded_words import Compared, Said, Word

BEHIND_NS = 5_000_000_000

_SAID: dict[str, type[Said]] = {
    "predictions": Prediction,
    "events": AnomalyEvent,
    "summary": Summary,
    "bootstrap": Bootstrap,
}


@dataclass
class Outcome:
    """agents: by fleet and name; coordinators: by fleet; unreadable: messages of the fleet's own that cannot be read."""

    agents: dict[Name, Compared] = field(default_factory=dict)
    coordinators: dict[str, ComparedRounds] = field(default_factory=dict)
    messages: int = 0
    gaps: list[Gap] = field(default_factory=list)
    unreadable: int = 0
    notes: list[str] = field(default_factory=list)


def run_again(read: Callable[[], Iterator[Recorded]], base: Settings) -> Outcome:
    """Run a recording again; read: gives its messages from the first one on, twice. base: settings that nobody told.

    Raises RecordingError where no fleet speaks in it.
    """
    cast = cast_of(read())
    if not cast.agents:
        raise RecordingError(
            f"no agent speaks in this recording; record the fleet's own topics too: --topics 'sensors/#' '{topics.ROOT}/#'"
        )
    run = _Run(cast, base)
    for one in read():
        run.take(one)
    return run.end()


class _Run:
    def __init__(self, cast: Cast, base: Settings) -> None:
        self._outcome = Outcome()
        self._agents: dict[Name, RecordedAgent] = {}
        for name, lives in sorted(cast.agents.items()):
            self._begin_agent(name, lives, base, cast)
        self._coordinators: dict[str, RecordedCoordinator] = {}
        for fleet, chair in sorted(cast.coordinators.items()):
            if chair.settings:
                self._coordinators[fleet] = RecordedCoordinator(chair, base)
            else:
                why = "it told no settings (an older version, or the recording holds no status of it)"
                self._outcome.coordinators[fleet] = ComparedRounds(trouble=why)

    def _begin_agent(self, name: Name, lives: Lives, base: Settings, cast: Cast) -> None:
        if not lives.lives:
            self._outcome.agents[name] = Compared(trouble="it had not chosen its settings when the recording ended")
            return
        if not lives.lives[0].settings:
            topic = cast.sensor_topics.get(name[1], "")
            base = base.with_values({"agent.topic": topic}, "recording") if topic else base
            self._outcome.notes.append(
                f"{name[1]} told no settings (an older version): taken as if it had the default ones"
                + (f", and listened to {topic}" if topic else "")
            )
        try:
            self._agents[name] = RecordedAgent(name[1], lives, base)
        except ConfigError as err:
            self._outcome.agents[name] = Compared(trouble=str(err))

    def take(self, one: Recorded) -> None:
        """The next message or gap."""
        if isinstance(one, Gap):
            self._outcome.gaps.append(one)
            return
        self._outcome.messages += 1
        address = topics.parse(one.topic)
        if address is None:
            for agent in self._agents.values():
                agent.hear_sensor(one)
        elif not (one.is_retained and address.area == "agents"):
            try:
                self._take_own(address, one)
            except PeerError:
                self._outcome.unreadable += 1
        behind_ns = one.received_ns - BEHIND_NS
        for agent in self._agents.values():
            agent.follow(behind_ns)
        for coordinator in self._coordinators.values():
            coordinator.follow(behind_ns)

    def _take_own(self, address: topics.Address, one: Message) -> None:
        """What agents and coordinator said of themselves. Raises PeerError."""
        at_ns = one.received_ns
        if address.kind == "gradient":
            if address.fleet in self._coordinators:
                said_of = codec.decode(one.payload, Gradient)
                self._coordinators[address.fleet].hear_answer(Heard(at_ns, address.id, said_of, one.payload))
        elif address.area == "agents" and address.kind in _SAID:
            said = codec.decode(one.payload, _SAID[address.kind])
            if (agent := self._agents.get((address.fleet, address.id))) is not None:
                agent.hear_own(Word(at_ns, said, one.payload))
            if isinstance(said, (Summary, Bootstrap)) and address.fleet in self._coordinators:
                self._coordinators[address.fleet].hear_answer(Heard(at_ns, address.id, said, one.payload))
        elif address.area == "fleet" and address.kind != "tuning":
            is_model = address.kind == "model"
            message = codec.decode(one.payload, FleetModel) if is_model else codec.decode(one.payload, RoundNotice)
            if address.fleet in self._coordinators and not one.is_retained:
                self._coordinators[address.fleet].hear_own(Told(at_ns, message, one.payload))
            if isinstance(message, RoundNotice) and message.state != "opened":
                return
            for (fleet, _), agent in self._agents.items():
                if fleet == address.fleet:
                    agent.hear_fleet(News(at_ns, message, one.payload))

    def end(self) -> Outcome:
        for name, agent in self._agents.items():
            self._outcome.agents[name] = agent.finish()
        for fleet, coordinator in self._coordinators.items():
            self._outcome.coordinators[fleet] = coordinator.finish()
        return self._outcome
