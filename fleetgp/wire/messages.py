"""Every message, as a frozen, tagged, versioned struct.

New fields get defaults; a field never changes its meaning under an old name. Times are UTC milliseconds since 1970
(``at_ms``), spans are seconds (``..._s``). What people and other programs read travels as JSON, summaries and the fleet's
model as MessagePack with matrices as raw little-endian bytes.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import msgspec

from fleetgp.schema import Schema

VERSION = 1


class Tensor(msgspec.Struct, frozen=True, kw_only=True):
    """Doubles of the given shape, C order, little-endian. ``convert`` is the only place that looks inside."""

    shape: tuple[int, ...]
    data: bytes
    dtype: Literal["<f8"] = "<f8"


class Message(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    """What all messages share: the version of its form, and when it was made (UTC epoch ms)."""

    FORM: ClassVar[Literal["json", "msgpack"]] = "json"

    version: int = VERSION
    at_ms: int


class Status(Message, frozen=True, kw_only=True, tag="status"):
    """Presence of a program, retained. The will of its connection says ``is_online = false``.

    instance: new at every start, tells two programs under one name apart. started_ms: when that instance started.
    state: starting, choosing (its settings, from the first readings), learning (own basis), federated (on the fleet's basis), stopped.
    settings: those that what it publishes follows from, by name, so that a recording of it can be run again.
    """

    name: str
    role: Literal["agent", "coordinator", "bridge"]
    is_online: bool
    instance: str = ""
    started_ms: int = 0
    state: str = ""
    software: str = ""
    host: str = ""
    basis: int = 0
    round: int = 0
    schema: Schema | None = None
    note: str = ""
    settings: dict[str, str | float] = {}


class ChannelPrediction(msgspec.Struct, frozen=True, kw_only=True):
    """One channel of one frame, in the reading's own unit.

    mean: predicted value (the median where a transform is used); low, high: the 90 % interval; observed: null where
    nothing came; z: innovation over its predictive standard deviation, in the transformed unit. The whole law, in the
    transformed unit, is a Student-t about the transformed mean; scale: its scale, which is not its standard deviation, 0 =
    not told; degrees: its degrees of freedom, a whole number, 0 = not told. layers: four numbers whose sum is the transformed
    mean: base (the last reading, or with ``ilmm`` the fleet's centre), what the fleet knows, what this device does
    otherwise, its own pattern; empty = not told. pull: by how much of a distance what the fleet knows would take the channel
    back in one frame, all else as it is: where the last two layers push by p a frame, they keep it p / pull from where the
    fleet alone would have it; 0 = not told.
    """

    mean: float
    low: float
    high: float
    observed: float | None = None
    z: float | None = None
    scale: float = 0.0
    degrees: float = 0.0
    layers: tuple[float, ...] = ()
    pull: float = 0.0


class Prediction(Message, frozen=True, kw_only=True, tag="prediction"):
    """What an agent expected of one frame before it saw it, and how odd the frame was. at_ms: the frame's time.

    score: -log10 of the probability of a frame at least this odd, 0 during the warm-up. sequence: frame count of this agent, gapless.
    log_density: of the readings that came, under the joint law of all channels, transformed units.
    """

    agent: str
    sequence: int
    channels: dict[str, ChannelPrediction]
    score: float
    threshold: float
    is_alarmed: bool = False
    basis: int = 0
    round: int = 0
    log_density: float | None = None


class AnomalyEvent(Message, frozen=True, kw_only=True, tag="event"):
    """An anomaly from start to end; sent when opened, updated and closed. at_ms: frame time of this report.

    blame: share of each channel in the score, summing to 1 over the channels named.
    """

    agent: str
    event_id: str
    state: Literal["opened", "updated", "closed"]
    start_ms: int
    end_ms: int | None = None
    frames: int = 1
    peak_score: float
    peak_ms: int
    blame: dict[str, float] = {}
    note: str = ""


class Health(Message, frozen=True, kw_only=True, tag="health"):
    """How a program is doing, every few seconds. figures: rates, depths, megabytes by name; dropped: counts by reason."""

    name: str
    role: Literal["agent", "coordinator", "bridge"]
    instance: str = ""
    figures: dict[str, float] = {}
    dropped: dict[str, int] = {}
    note: str = ""


class RoundNotice(Message, frozen=True, kw_only=True, tag="round"):
    """A round was opened (answer until deadline_ms) or closed (who answered, what it cost).

    gain: nats per reading by which the basis that this round brought foresees the agents' recent frames better; null where it
    brought none of which that is known.
    """

    round: int
    state: Literal["opened", "closed"]
    basis: int
    deadline_ms: int = 0
    answered: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    included: tuple[str, ...] = ()
    bytes_received: int = 0
    bytes_sent: int = 0
    seconds: float = 0.0
    note: str = ""
    gain: float | None = None


class Bootstrap(Message, frozen=True, kw_only=True, tag="bootstrap"):
    """Moments of an agent's inputs for the federated scaling: count, mean and centred sum of squares per input.

    Arrays [Q + C] in the order of schema.inputs, transformed units. Equivalent to sums of n, x and x^2 but safe where the
    mean is large against the spread; two of them are merged exactly (Chan, Golub and LeVeque 1979). Counts that are all 0:
    the agent leaves the fleet, and is forgotten. has_summary: false where the agent sends no summaries and is not waited for; it
    shares the lengthscale of its private layer only (pFedGP).
    """

    FORM: ClassVar[Literal["json", "msgpack"]] = "msgpack"

    agent: str
    incarnation: int
    sequence: int
    schema: Schema
    count: Tensor
    mean: Tensor
    centred_square_sum: Tensor
    has_summary: bool = True


class Summary(Message, frozen=True, kw_only=True, tag="summary"):
    """An agent's likelihood term for the shared weights, its own layers marginalised out (docs/model.md).

    precision: [Q, F(F+1)/2] upper triangles of P; shift: [Q, F] h; count: [Q] frames behind it (decayed);
    noise_variance: [Q], scaled units. (incarnation, sequence) grows with every summary of one agent; incarnation changes
    when the agent lost its memory. Of mixed channels precision and shift have one row for all. origin: the coordinator's incarnation whose basis this is. deviation_square: [Q, B] mean
    square of the agent's deviation by block of features; null = it tells none. cluster_count: [M] recent frames nearest to
    each of the model's centres, 0 where fewer than five, whose sum would tell single readings; null = it tells none;
    cluster_sum: [M, D] their sum, scaled inputs; 0 where the count is. has_deviation: false where the agent takes the shared
    weights for its own (agent.model), so that its precision may be any.
    """

    FORM: ClassVar[Literal["json", "msgpack"]] = "msgpack"

    agent: str
    incarnation: int
    sequence: int
    round: int
    origin: int
    basis: int
    signature: str
    precision: Tensor
    shift: Tensor
    count: Tensor
    noise_variance: Tensor
    deviation_square: Tensor | None = None
    cluster_count: Tensor | None = None
    cluster_sum: Tensor | None = None
    has_deviation: bool = True


class Included(msgspec.Struct, frozen=True, kw_only=True):
    """Whose summary is inside the published posterior, and by what ageing factor: what a client subtracts of its own."""

    incarnation: int
    sequence: int
    factor: float


class FleetModel(Message, frozen=True, kw_only=True, tag="model"):
    """What the fleet knows, retained: the basis and the posterior of the shared weights on it.

    centre, scale: [Q + C] of schema.inputs, transformed units; precision: [Q, F(F+1)/2], the prior's included;
    shift: [Q, F]; deviation_scale: [F] prior variance of an agent's deviation by feature, mean over channels;
    deviation_variance: [Q, F] the same by channel; prior_variance: [Q, F] of the shared weights, as it is inside precision;
    noise_variance: [Q]. inducing: [M, D] inducing inputs, transformed units; null while the fleet has none;
    lengthscale: [D] of the kernel, the same units; columns: [D] which of a frame's inputs they look at (from the number of inputs on: differences of two);
    centres: [M, D] where the next inducing inputs may lie, scaled inputs; agents tell how many frames are near each.
    origin: incarnation of the coordinator; (origin, basis) names a basis for good. noise_frames: how many frames the noise
    variance was learnt from; 0 = nothing is known of it yet. Of mixed channels (schema.mixing) all weights are one vector:
    precision [1, F(F+1)/2] and shift [1, F]; loadings: [Q, R] of the shared latent functions; log_lengthscale: [D] to the last
    bit; log_phi: [] logarithm of the scale of an agent's deviation.
    """

    FORM: ClassVar[Literal["json", "msgpack"]] = "msgpack"

    round: int
    origin: int
    basis: int
    schema: Schema
    centre: Tensor
    scale: Tensor
    precision: Tensor
    shift: Tensor
    deviation_scale: Tensor
    noise_variance: Tensor
    noise_frames: float = 0.0
    included: dict[str, Included] = {}
    prior_variance: Tensor | None = None
    deviation_variance: Tensor | None = None
    inducing: Tensor | None = None
    lengthscale: Tensor | None = None
    columns: tuple[int, ...] = ()
    centres: Tensor | None = None
    loadings: Tensor | None = None
    log_lengthscale: Tensor | None = None
    log_phi: Tensor | None = None


class Tuning(Message, frozen=True, kw_only=True, tag="tuning"):
    """Where the fleet's basis may go, retained: every agent that is asked answers with a Gradient at these values.

    origin, basis: the live basis that it began from. step: number of the proposal; (origin, step) names it. began: step that
    this tuning began with; an agent judges all steps of one tuning by the same of its recent frames. asked: which agents are
    to answer; empty = all. is_back: the proposal before was worse, and counts as not having been. values: the shared
    hyperparameters by name, empty = no tuning is under way: ``inducing`` [M, D] inducing inputs, transformed units, and
    ``log_lengthscale`` [D], log of the same units; with ``ilmm`` also ``loadings`` [Q, R] and ``log_phi`` []; or
    ``own_log_lengthscale`` [D] alone, the average of private layers, for agents of pFedGP. columns: [D]
    which of a frame's inputs the inducing inputs look at. precision:
    [Q, F(F+1)/2] of the fleet's belief on recent frames at the step before, the prior's included; shift: [Q, F];
    null = nothing is known yet, and only precision, shift and constant are asked for. included: whose answer is inside.
    """

    FORM: ClassVar[Literal["json", "msgpack"]] = "msgpack"

    origin: int
    basis: int
    step: int
    began: int
    asked: tuple[str, ...] = ()
    is_back: bool = False
    values: dict[str, Tensor] = {}
    columns: tuple[int, ...] = ()
    precision: Tensor | None = None
    shift: Tensor | None = None
    included: dict[str, Included] = {}


class Gradient(Message, frozen=True, kw_only=True, tag="gradient"):
    """What an agent's recent frames say of a proposal: log p(y | v) = constant - v^T P v / 2 + h^T v, and where to go from it.

    origin, step: of the proposal. precision: [Q, F(F+1)/2] upper triangles of P; shift: [Q, F] h; constant: in nats;
    log_prior: of what the agent keeps to itself, in nats. slopes: gradient of the evidence for the shared hyperparameters, by
    the names and in the units of the proposal's values; empty = it tells none; of ``own_log_lengthscale`` how far the agent's own
    steps went from it. count: [Q] readings behind it. held_out: log density of newer frames, foreseen from these and from the
    proposal's belief, in nats; held_out_count: readings of them, 0 = it tells none. loss: variance that the agent's past would
    lose on these values, in shares of the noise. seconds: of the agent's work. has_deviation: as in a Summary.
    """

    FORM: ClassVar[Literal["json", "msgpack"]] = "msgpack"

    agent: str
    incarnation: int
    sequence: int
    origin: int
    step: int
    precision: Tensor
    shift: Tensor
    constant: float
    count: Tensor
    log_prior: float = 0.0
    slopes: dict[str, Tensor] = {}
    held_out: float = 0.0
    held_out_count: float = 0.0
    loss: float = 0.0
    seconds: float = 0.0
    has_deviation: bool = True


ALL: tuple[type[Message], ...] = (
    Status, Prediction, AnomalyEvent, Health, RoundNotice, Bootstrap, Summary, Gradient, FleetModel, Tuning,
)  # fmt: skip

# kind of topic -> the one struct that travels there
BY_KIND: dict[str, type[Message]] = {
    "status": Status,
    "predictions": Prediction,
    "events": AnomalyEvent,
    "health": Health,
    "round": RoundNotice,
    "bootstrap": Bootstrap,
    "summary": Summary,
    "gradient": Gradient,
    "model": FleetModel,
    "tuning": Tuning,
}
