"""What a coordinator is: its settings, its state, the events it takes and the effects it asks for. No behaviour."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import numpy as np

from fleetgp.arrays import Array
from fleetgp.features import Basis
from fleetgp.gp.aggregate import Belief
from fleetgp.gp.ascent import Momentum
from fleetgp.gp.hierarchy import Shared
from fleetgp.gp.hyper import Scales
from fleetgp.gp.message import Term
from fleetgp.inducing import Inducing
from fleetgp.placement import Centres, Sums
from fleetgp.scaling import Moments
from fleetgp.schema import Schema
from fleetgp.wire.messages import RoundNotice


class CoordinatorConfig(msgspec.Struct, frozen=True, kw_only=True):
    """round_s: seconds from one round's opening to the next. answer_s: how long a round waits for answers.

    half_life_rounds: rounds after which a term that is not renewed counts half. most_agents: how many are known at once.
    tuning: whether bases are learnt by gradients; tuning_rounds: rounds to a step of that.
    """

    round_s: float = 60.0
    answer_s: float = 5.0
    half_life_rounds: float = 10_000.0
    most_agents: int = 10_000
    tuning: bool = True
    tuning_rounds: int = 1


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


class Evidence(msgspec.Struct, frozen=True):
    """What an agent answered to the proposal of a step: log p(y | v) = constant - v^T P v / 2 + h^T v of its recent frames, the log prior of
    what it keeps, readings behind it, slopes by name in scaled inputs (empty = none told), nats of the frames held out and
    their readings (0 = none told), and what its past would lose."""

    step: int
    incarnation: int
    term: Term
    constant: float
    log_prior: float
    readings: float
    slopes: dict[str, Array]
    held_out: float
    held_out_readings: float
    loss: float


class Place(msgspec.Struct, frozen=True):
    """Where a step was: its number, values, what was answered there, the fleet's belief from that, the slope of evidence and prior
    (empty where none is known yet), Adam's moments before the step from there, and the prior variance [Q, F] that it is under."""

    step: int
    values: dict[str, Array]
    answers: dict[str, Evidence]
    belief: Belief
    slope: dict[str, Array]
    moments: Momentum
    prior_var: Array


class HeldOut(msgspec.Struct, frozen=True):
    """How an agent foresaw frames held out under the live basis: nats of so many readings."""

    incarnation: int
    nats: float
    readings: float


class Chosen(msgspec.Struct, frozen=True):
    """The step that foresees held-out frames best: its values and prior variance [Q, F]; gain: nats per reading that it is better
    by than the live basis; loss: of an agent in the middle."""

    values: dict[str, Array]
    prior_var: Array
    gain: float
    loss: float


class Ascent(msgspec.Struct, frozen=True):
    """A tuning of the basis under way.

    basis: live when it began; deviation_var [Q, F]: of then; prior_var [Q, F]: that of inducing features follows their
    lengthscales by EM, the others' stays; middle: where values began, which is the middle of their priors. began: number of its
    first step; step: of the one that is being answered; asked: agents that are to answer; since_round: when that was asked;
    answers: so far. values, rate: the proposal, in scaled inputs, and by how much it may have moved; moments: Adam's at it;
    is_back: the step before was worse. best: the step with the most evidence, from which it climbs on; first: what was
    answered of the live basis, None until it was; still: steps in a row that did not foresee clearly better than one before;
    risen: nats of evidence per reading that the steps have gained; taken_back: steps that had less evidence than the best.
    """

    basis: int
    prior_var: Array
    deviation_var: Array
    middle: dict[str, Array]
    began: int
    step: int
    asked: tuple[str, ...]
    since_round: int
    values: dict[str, Array]
    rate: float
    moments: Momentum
    is_back: bool = False
    answers: dict[str, Evidence] = {}
    best: Place | None = None
    first: dict[str, HeldOut] | None = None
    chosen: Chosen | None = None
    still: int = 0
    risen: float = 0.0
    taken_back: int = 0


class Candidate(msgspec.Struct, frozen=True):
    """What the nonlinear part of a basis may look at, in words, and the inducing inputs."""

    name: str
    shared: Inducing


class Likelihood(msgspec.Struct, frozen=True):
    """constant - v^T P v / 2 + h^T v, the log density of readings given the shared weights."""

    term: Term
    constant: float


class Choice(msgspec.Struct, frozen=True):
    """A choice of what the basis looks at, over several sweeps through the candidates, each with other recent frames.

    candidates: between which, inducing inputs of some time first; sums: log p(y | v) of all that was answered to each so far,
    on the linear part of today; first, first_readings: the same of the first sweep alone; readings behind it, sweeps made, loss: what the past would lose at each, as last told; due:
    frames of an agent from which the next sweep begins, due_ms: when it does where they grow no more. Of a sweep under way: asked, empty while there is none; began, step,
    since_round, answers, deviation_var as of an Ascent; heard: what was answered to the first candidates.
    """

    candidates: tuple[Candidate, ...]
    prior_var: Array
    sums: tuple[Likelihood, ...] = ()
    first: tuple[Likelihood, ...] = ()
    readings: float = 0.0
    first_readings: float = 0.0
    sweeps: int = 0
    loss: tuple[float, ...] = ()
    due: float = 0.0
    due_ms: int = 0
    basis: int = 0
    deviation_var: Array = msgspec.field(default_factory=lambda: np.zeros((0, 0)))
    asked: tuple[str, ...] = ()
    began: int = 0
    step: int = 0
    since_round: int = 0
    heard: tuple[dict[str, Evidence], ...] = ()
    answers: dict[str, Evidence] = {}
    values: dict[str, Array] = {}


class Way(msgspec.Struct, frozen=True):
    """How far [D] an agent's own steps went from the average, on so many readings."""

    readings: float
    way: Array


class Averaging(msgspec.Struct, frozen=True):
    """pFedGP's average: members: agents that share it and nothing else, by what they told last; values [D]: log lengthscale of
    their private layers, None before the first; step: its number; since_round: when it was told; answers: to it so far; averages: how many
    were answered."""

    members: dict[str, Told] = {}
    values: Array | None = None
    step: int = 0
    since_round: int = 0
    answers: dict[str, Way] = {}
    averages: int = 0


class State(msgspec.Struct, frozen=True):
    """All that a coordinator is made of.

    origin: UTC ms of the first start with this memory; (origin, basis) names a basis for good. feature_map: the basis, None
    while there is none; based_on: readings behind its scaling, per input [K]; placed_on: readings when its inducing inputs
    were placed. mixture: shared values where channels are mixed. scales: prior variances by block. centres: where inducing inputs may go, None where none are wanted; sums:
    what agents told of their frames near them since the last close; moves, told_frames: rounds in which the centres moved
    and frames behind that. next_ms: when the next round opens. tuning: of the basis, choice: of what it looks at, None while none is under way; is_chosen:
    whether it is over; steps: of
    all tunings so far; tuned_on: frames of the fleet when the last one began; is_tuned: whether the inducing inputs came of one;
    rests_until: round from which another begins in any case, for the last one was given up for want of answers; 0 = it was not.
    averaging: of private layers, whatever else there is.
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
    tuning: Ascent | None = None
    choice: Choice | None = None
    is_chosen: bool = False
    steps: int = 0
    tuned_on: float = 0.0
    is_tuned: bool = False
    rests_until: int = 0
    averaging: Averaging = Averaging()


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


class GradientArrived(msgspec.Struct, frozen=True, tag="gradient", array_like=True):
    """An agent's answer to a proposal, as it came; agent_id: from the topic."""

    at_ms: int
    agent_id: str
    payload: bytes


class Tick(msgspec.Struct, frozen=True, tag="tick", array_like=True):
    """Time passed."""

    at_ms: int


Event = BootstrapArrived | SummaryArrived | GradientArrived | Tick


@dataclass(frozen=True)
class PublishModel:
    """Effect: give the fleet's knowledge back; payload: an encoded FleetModel."""

    payload: bytes


@dataclass(frozen=True)
class PublishTuning:
    """Effect: propose where the basis may go, or say that nothing is proposed any more; payload: an encoded Tuning."""

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


Effect = PublishModel | PublishTuning | PublishRound | Count
