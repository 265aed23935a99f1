"""What a coordinator is: its settings, its state, the events it takes and the effects it asks for. No behaviour."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from fleetgp.arrays import Array
from fleetgp.features import Basis
from fleetgp.gp.hierarchy import Shared
from fleetgp.gp.hyper import Scales
from fleetgp.gp.message import Term
from fleetgp.placement import Centres, Sums
from fleetgp.scaling import Moments
from fleetgp.schema import Schema
from fleetgp.wire.messages import RoundNotice


class CoordinatorConfig(msgspec.Struct, frozen=True, kw_only=True):
    """round_s: seconds from one round's opening to the next. answer_s: how long a round waits for answers.

    half_life_rounds: rounds after which a term that is not renewed counts half. most_agents: how many are known at once.
    """

    round_s: float = 60.0
    answer_s: float = 5.0
    half_life_rounds: float = 10_000.0
    most_agents: int = 10_000


class Answer(msgspec.Struct, frozen=True):
    """The newest term of one agent, on the basis of today; round: when it came; noise_var, count [Q].

    deviation_square [Q, B]: of its deviation by block, None where it told none. kept: what lossy changes of basis since it
    came have left of its weight.
    """

    incarnation: int
    sequence: int
    round: int
    term: Term
    noise_var: Array
    count: Array
    deviation_square: Array | None = None
    kept: float = 1.0


class Told(msgspec.Struct, frozen=True):
    """The newest moments of one agent's inputs; round: when they came."""

    incarnation: int
    sequence: int
    round: int
    moments: Moments


class Round(msgspec.Struct, frozen=True):
    """A round under way: who answered so far and at what cost in bytes."""

    opened_ms: int
    deadline_ms: int
    answered: tuple[str, ...] = ()
    bytes_received: int = 0


class State(msgspec.Struct, frozen=True):
    """All that a coordinator is made of.

    origin: UTC ms of the first start with this memory; (origin, basis) names a basis for good. feature_map: the basis, None
    while there is none; based_on: readings behind its scaling, per input [K]; placed_on: readings when its inducing inputs
    were placed. mixture: shared values where channels are mixed. scales: prior variances by block. centres: where inducing inputs may go, None where none are wanted; sums:
    what agents told of their frames near them since the last close; moves, told_frames: rounds in which the centres moved
    and frames behind that. next_ms: when the next round opens.
    """

    config: CoordinatorConfig
    origin: int
    schema: Schema | None = None
    basis: int = 0
    feature_map: Basis | None = None
    mixture: Shared | None = None
    based_on: tuple[float, ...] = ()
    placed_on: float = 0.0
    scales: Scales | None = None
    centres: Centres | None = None
    sums: dict[str, Sums] = {}
    moves: int = 0
    told_frames: float = 0.0
    round: int = 0
    open_round: Round | None = None
    next_ms: int = 0
    answers: dict[str, Answer] = {}
    told: dict[str, Told] = {}


class BootstrapArrived(msgspec.Struct, frozen=True, tag="bootstrap", array_like=True):
    """Moments of an agent, as they came; agent_id: from the topic."""

    at_ms: int
    agent_id: str
    payload: bytes


class SummaryArrived(msgspec.Struct, frozen=True, tag="summary", array_like=True):
    """A summary of an agent, as it came; agent_id: from the topic."""

    at_ms: int
    agent_id: str
    payload: bytes


class Tick(msgspec.Struct, frozen=True, tag="tick", array_like=True):
    """Time passed."""

    at_ms: int


Event = BootstrapArrived | SummaryArrived | Tick


@dataclass(frozen=True)
class PublishModel:
    """Effect: give the fleet's knowledge back; payload: an encoded FleetModel."""

    payload: bytes


@dataclass(frozen=True)
class PublishRound:
    """Effect: say that a round opened or closed."""

    notice: RoundNotice


@dataclass(frozen=True)
class Count:
    """Effect: a message was refused or was not needed, for this reason."""

    reason: str
    agent_id: str
    detail: str = ""


Effect = PublishModel | PublishRound | Count
