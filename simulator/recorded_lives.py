"""Who is in a recording of a running fleet: what each agent and the coordinator told of itself. One pass over it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from fleetgp.errors import PeerError
from fleetgp.recording.message import Message, Recorded
from fleetgp.schema import Schema
from fleetgp.wire import codec, topics
from fleetgp.wire.messages import Bootstrap, FleetModel, Status, Summary

MOST_NAMES = 10_000
MOST_LIVES = 1_000

Name = tuple[str, str]


@dataclass(frozen=True)
class Life:
    """A schema that an agent watched from some time on, and the settings that it told. instance: of the program."""

    at_ns: int
    instance: str
    started_ms: int
    schema: Schema
    settings: dict[str, str | float]


@dataclass
class Lives:
    """One agent. born_ns: when it was first heard. incarnations: of its memory, in order.

    away: from when to when there was no program of this name, between one and the next.
    """

    born_ns: int
    lives: list[Life] = field(default_factory=list)
    incarnations: list[int] = field(default_factory=list)
    away: list[tuple[int, int]] = field(default_factory=list)
    instance: str = ""
    gone_ns: int | None = None


@dataclass
class Chair:
    """A coordinator. origins: of its memory, in order."""

    settings: dict[str, str | float] = field(default_factory=dict)
    started_ms: int = 0
    origins: list[int] = field(default_factory=list)


@dataclass
class Cast:
    """agents: by fleet and name; coordinators: by fleet; sensor_topics: by their last level, of those not the fleet's own."""

    agents: dict[Name, Lives] = field(default_factory=dict)
    coordinators: dict[str, Chair] = field(default_factory=dict)
    sensor_topics: dict[str, str] = field(default_factory=dict)


def cast_of(messages: Iterator[Recorded]) -> Cast:
    """Everybody who speaks in a recording. What cannot be read is nobody's."""
    cast = Cast()
    for one in messages:
        if not isinstance(one, Message):
            continue
        address = topics.parse(one.topic)
        if address is None:
            if not one.topic.startswith(f"{topics.ROOT}/") and len(cast.sensor_topics) < MOST_NAMES:
                cast.sensor_topics.setdefault(one.topic.rsplit("/", 1)[-1], one.topic)
            continue
        try:
            _note(cast, address, one)
        except PeerError:
            continue
    return cast


def _note(cast: Cast, address: topics.Address, one: Message) -> None:
    match address.area, address.kind:
        case "agents", "status":
            _note_agent(cast, (address.fleet, address.id), codec.decode(one.payload, Status), one.received_ns)
        case "agents", "bootstrap":
            _note_incarnation(cast, (address.fleet, address.id), codec.decode(one.payload, Bootstrap).incarnation)
        case "agents", "summary":
            _note_incarnation(cast, (address.fleet, address.id), codec.decode(one.payload, Summary).incarnation)
        case "services", "status":
            status = codec.decode(one.payload, Status)
            if status.role == "coordinator":
                chair = cast.coordinators.setdefault(address.fleet, Chair())
                chair.started_ms = chair.started_ms or status.started_ms
                chair.settings = chair.settings or status.settings
        case "fleet", "model":
            chair = cast.coordinators.setdefault(address.fleet, Chair())
            origin = codec.decode(one.payload, FleetModel).origin
            if not chair.origins or chair.origins[-1] != origin:
                chair.origins.append(origin)


def _note_agent(cast: Cast, name: Name, status: Status, at_ns: int) -> None:
    known = cast.agents.get(name)
    if not status.is_online:
        if known is not None:
            known.gone_ns = at_ns
        return
    if known is None:
        if len(cast.agents) >= MOST_NAMES:
            return
        known = cast.agents[name] = Lives(at_ns)
    if known.instance not in ("", status.instance) and known.gone_ns is not None and len(known.away) < MOST_LIVES:
        known.away.append((known.gone_ns, at_ns))
    known.instance, known.gone_ns = status.instance, None
    if status.schema is None:
        return
    last = known.lives[-1] if known.lives else None
    is_new = last is None or (last.instance, last.schema) != (status.instance, status.schema)
    if is_new and len(known.lives) < MOST_LIVES:
        known.lives.append(Life(at_ns, status.instance, status.started_ms, status.schema, status.settings))


def _note_incarnation(cast: Cast, name: Name, incarnation: int) -> None:
    known = cast.agents.get(name)
    if known is not None and incarnation not in known.incarnations:
        known.incarnations.append(incarnation)
