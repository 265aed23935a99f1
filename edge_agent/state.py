"""What an agent is: its settings, its state, the events it takes and the effects it asks for. No behaviour."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import numpy as np
from msgspec import field

from edge_agent.frames import Frames, Sample
from fleetgp.alarm import Alarm
from fleetgp.arrays import Array
from fleetgp.calibrate import Calibration
from fleetgp.gp import parts as modelling
from fleetgp.gp.engine import Engine
from fleetgp.gp.learner import Forgetting
from fleetgp.gp.message import Term
from fleetgp.gp.mixed_recent import MixedRecent
from fleetgp.gp.parts import Sizes
from fleetgp.gp.recent import Recent
from fleetgp.models import Model, Parts, parts
from fleetgp.scaling import Moments
from fleetgp.schema import Schema
from fleetgp.wire.messages import Message

# after so many ticks of silence a channel's lags from before it are forgotten
LONG_SILENCE = 24.0


class AgentConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What the owner chose. is_live: frames are also closed by the wall clock, not by the stream's own time alone.

    local_inducing: inducing inputs of the agent's private layer, 0 = none. layers: whether predictions tell what they are
    made of. model: which parts of the model it works with.
    """

    agent_id: str
    schema: Schema
    lateness_ms: int = 0
    warmup_frames: int = 20
    alarm_score: float = 8.0
    is_live: bool = True
    forgetting: Forgetting = Forgetting()
    local_inducing: int = 12
    layers: bool = False
    model: Model = "full"

    @property
    def parts(self) -> Parts:
        return parts(self.model)

    @property
    def own_sizes(self) -> Sizes:
        """Inducing inputs that the agent places itself."""
        return modelling.sizes(self.parts, self.schema.inducing, self.local_inducing)


class OpenEvent(msgspec.Struct, frozen=True):
    """An anomaly under way. squares [Q]: sum of squared standardised errors, from which the blame is drawn.

    is_learnt: it lasts, and is learnt from now on.
    """

    event_id: str
    start_ms: int
    frames: int
    peak_score: float
    peak_ms: int
    squares: Array
    is_learnt: bool = False


class Shadow(msgspec.Struct, frozen=True):
    """What learner and moments would be had they learnt from the event under way; lead: log of how much better it foresaw."""

    learner: Engine
    moments: Moments
    lead: float = 0.0


class Sent(msgspec.Struct, frozen=True):
    """A summary that was sent, on the basis of today: what the cavity takes out again."""

    sequence: int
    term: Term


class Judged(msgspec.Struct, frozen=True):
    """A tuning of the fleet's basis under way: the frames that all its steps are judged by, since it began, the newest step
    that was answered, and the terms that were sent, numbered by step."""

    origin: int
    began: int
    step: int
    recent: Recent | MixedRecent
    sent: tuple[Sent, ...] = ()


class State(msgspec.Struct, frozen=True):
    """All that an agent is made of. Everything predicted and learnt follows from this and the events after it.

    incarnation: UTC ms of the first start with this memory. lags [L, Q]: last readings, held over where missing;
    age [Q]: ticks since each channel was last observed; resolution [Q]: smallest step seen between readings, inf at first;
    covariates [C] and their age [C] likewise; all in transformed units. centres [M, D]: where the
    fleet's next inducing inputs may lie, scaled; empty where none are wanted.
    origin, basis, round: whose and which knowledge is in use; basis 0 = the agent's own. named: which summary of the agent
    that knowledge holds, 0 = none; sent: that one and the newest, oldest first. tuning: of the fleet's basis, where one is
    under way; nothing that is predicted or told otherwise depends on it. averaged: origin and step of the average that was
    answered last (pFedGP).
    """

    config: AgentConfig
    incarnation: int
    frames: Frames
    moments: Moments
    lags: Array
    age: Array
    resolution: Array
    covariates: Array
    covariate_age: Array
    calibration: Calibration
    alarm: Alarm
    learner: Engine | None = None
    shadow: Shadow | None = None
    event: OpenEvent | None = None
    frame_count: int = 0
    predicted: int = 0
    origin: int = 0
    basis: int = 0
    round: int = 0
    sequence: int = 0
    bootstrapped: float = 0.0
    sent: tuple[Sent, ...] = ()
    named: int = 0
    centres: Array = field(default_factory=lambda: np.zeros((0, 0)))
    tuning: Judged | None = None
    averaged: tuple[int, int] = (0, 0)


class Readings(msgspec.Struct, frozen=True, tag="readings", array_like=True):
    """Samples in the order in which they came."""

    at_ms: int
    samples: tuple[Sample, ...]


class ModelArrived(msgspec.Struct, frozen=True, tag="model", array_like=True):
    """The fleet's knowledge, as it came: an encoded FleetModel."""

    at_ms: int
    payload: bytes


class RoundOpened(msgspec.Struct, frozen=True, tag="round", array_like=True):
    """The coordinator asks for summaries."""

    at_ms: int
    round: int


class TuningArrived(msgspec.Struct, frozen=True, tag="tuning", array_like=True):
    """Where the fleet's basis may go, as it came: an encoded Tuning."""

    at_ms: int
    payload: bytes


class Tick(msgspec.Struct, frozen=True, tag="tick", array_like=True):
    """Time passed."""

    at_ms: int


Event = Readings | ModelArrived | RoundOpened | TuningArrived | Tick


@dataclass(frozen=True)
class Publish:
    """Effect: send a message of this kind. Durable ones wait on the disk, and of one key only the newest.

    key: what such a message tells is told anew by the next one, so that none is sent that a replay makes again.
    """

    kind: str
    message: Message
    is_durable: bool = False
    key: str | None = None


@dataclass(frozen=True)
class Count:
    """Effect: something was left out, for this reason."""

    reason: str
    number: int = 1
    detail: str = ""


Effect = Publish | Count
