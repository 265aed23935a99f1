"""Settings to an agent's configuration, and which topic feeds which of its inputs."""

from __future__ import annotations

from dataclasses import dataclass

from edge_agent.state import AgentConfig
from fleetgp.errors import ConfigError
from fleetgp.gp.learner import Forgetting
from fleetgp.models import MODELS, Model
from fleetgp.payloads import plain
from fleetgp.runtime.settings import Settings
from fleetgp.schema import Schema
from fleetgp.wanted import Wanted

# what an agent publishes follows from these, its schema and what it hears; its status tells them
TOLD = (
    "agent.topic",
    "agent.clock",
    "agent.lateness_s",
    "agent.warmup_frames",
    "agent.alarm_score",
    "agent.half_life_frames",
    "agent.short_half_life_frames",
    "agent.refresh_frames",
    "agent.local_inducing",
    "agent.layers",
    "agent.model",
)
# programs that report under these names beside the agents
RESERVED = ("coordinator", "bridge")


@dataclass(frozen=True)
class Wiring:
    """By topic: field of the payload -> position among schema.inputs. ``value`` is the field of a plain number."""

    fields: dict[str, dict[str, int]]

    @property
    def topics(self) -> tuple[str, ...]:
        return tuple(sorted(self.fields))


def agent_name(settings: Settings) -> str:
    """Raises ConfigError where the settings give the agent no name, or that of another program."""
    agent_id = settings.text("agent.id")
    if not agent_id:
        raise ConfigError("agent.id", 'is not set; every agent needs a name of its own, e.g. [agent] id = "pump-1"')
    if agent_id in RESERVED:
        raise ConfigError(
            "agent.id", f"{agent_id!r} is the name of another program; choose another", settings.source("agent.id")
        )
    return agent_id


def agent_config(settings: Settings, schema: Schema | None = None) -> AgentConfig:
    """schema: chosen where the settings leave something open. Raises ConfigError where the settings do not make an agent."""
    return AgentConfig(
        agent_id=agent_name(settings),
        schema=settings.schema() if schema is None else schema,
        lateness_ms=round(settings.number("agent.lateness_s") * 1000),
        warmup_frames=settings.whole("agent.warmup_frames"),
        alarm_score=settings.number("agent.alarm_score"),
        is_live=settings.text("agent.clock") != "recording",
        forgetting=Forgetting(
            float(settings.whole("agent.half_life_frames")),
            float(settings.whole("agent.short_half_life_frames")),
            settings.whole("agent.refresh_frames"),
        ),
        local_inducing=settings.whole("agent.local_inducing"),
        layers=settings.flag("agent.layers"),
        model=model(settings),
    )


def model(settings: Settings) -> Model:
    """Which parts of the model the agent works with."""
    return next(word for word in MODELS if word == settings.text("agent.model"))


def wiring(schema: Schema | Wanted, default_topic: str) -> Wiring:
    """Raises ConfigError where an input has no topic, a topic is a pattern, or two inputs read the same field."""
    fields: dict[str, dict[str, int]] = {}
    for position, item in enumerate(schema.inputs):
        topic = item.topic or default_topic
        if not topic:
            raise ConfigError(
                f"channels.{item.name}", "has no topic; set its own topic, or agent.topic for all that name none"
            )
        if "+" in topic or "#" in topic:
            raise ConfigError(f"channels.{item.name}.topic", f"{topic!r} is a pattern; a channel reads one topic")
        # the only input of a topic may be a plain number; a JSON field is then looked for under the input's name
        field = item.field or item.name
        known = fields.setdefault(topic, {})
        if field in known:
            raise ConfigError(f"channels.{item.name}", f"the field {field!r} of {topic!r} is read twice")
        known[field] = position
    for known in fields.values():
        if len(known) == 1 and plain.FIELD not in known:
            known[plain.FIELD] = next(iter(known.values()))
    return Wiring(fields)
