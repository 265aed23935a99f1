"""One agent's streaming model: what it foresees of the next frame, and what it learns of it.

Readings are in transformed units; the learner scales them. Two memories, a long and a short one, learn the same frames and
are mixed by how well they foresaw. Between exact solutions every frame is a rank-one update without forgetting; a solution
folds the frames since into the decayed statistics (models.md sections 3 and 4).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fleetgp import features
from fleetgp.arrays import Array
from fleetgp.features import Basis
from fleetgp.gp import hyper, joint, message, posterior, statistics, tail
from fleetgp.gp import ring as rings
from fleetgp.gp.aggregate import Belief, prior
from fleetgp.gp.joint import Correlation
from fleetgp.gp.message import Term
from fleetgp.gp.posterior import Before, Weights
from fleetgp.gp.ring import Ring, Row
from fleetgp.gp.statistics import Statistics
from fleetgp.gp.tail import Tail
from fleetgp.scaling import Moments, scaling

LONG, TRACKS = 0, 2
MAX_AGE = 24.0
OWN_NOISE = 1.0
OWN_NOISE_FRAMES = 1.0
# a lone learner takes the mean square step for its noise until it has seen this many frames more, for few frames with
# heavy tails fit too well; and the spread of a channel for its step until it has seen a fraction of one
FIRST_NOISE_FRAMES = 15.0
FIRST_STEP_FRAMES = 1.0 / FIRST_NOISE_FRAMES
FLEET_NOISE_FRAMES = 20.0
# a noise below 1e-4 of a channel's scale: sums over frames divided by less would drown the weights' prior in rounding
LEAST_NOISE = 1e-8


class Forgetting(NamedTuple):
    """Frames after which the past counts half, of the long and the short memory; refresh: frames between exact solutions."""

    half_life: float = 20_000.0
    short_half_life: float = 1_000.0
    refresh: int = 256


class Knowledge(NamedTuple):
    """What comes from outside an agent's own data: the fleet's belief without the agent, and its noise.

    prior_var, deviation_var [Q, F] of the shared features; noise_guess [Q] worth noise_frames; own_weight: 1/2 in a
    covariance intersection, which counts the agent's own layers, their prior and data, half.
    """

    belief: Belief
    prior_var: Array
    deviation_var: Array
    noise_guess: Array
    noise_frames: float
    own_weight: float


class Learner(NamedTuple):
    """past: statistics [T, ...] up to the last solution; fresh: the frames since; ring: bounded recent frames, never sent.

    weights [T, ...], noise_var [T, Q] by memory; solved: the long memory's weights at the last solution; correlation:
    of the channels' errors; local_var [Q] of the local layer's weights; spare [2]: mean of what shared
    and local inducing features cannot express, infinite before any frame; frames: learnt in all.
    """

    basis: Basis
    knowledge: Knowledge
    before: Before
    past: Statistics
    weights: Weights
    solved: Weights
    noise_var: Array
    local_var: Array
    spare: Array
    tail: Tail
    correlation: Correlation
    ring: Ring
    fresh: tuple[Row, ...]
    frames: int


class Inputs(NamedTuple):
    """What is known before a frame: inputs [D] as ``features`` lays them out, age [Q] ticks that channels were held over.

    last [Q]: the reading that the step is from, lag 1 unless lags were held within reach of what was learnt. floor [Q]:
    the least standard deviation of a reading, of the sensor's resolution.
    """

    inputs: Array
    age: Array
    last: Array
    floor: Array


class Around(NamedTuple):
    """What widens a frame's law beside the weights: growth [..., Q] of the noise by age; extra [..., Q]: variance of what
    inducing features cannot express there; floor_var [..., Q]; all scaled."""

    growth: Array
    extra: Array
    floor_var: Array


class Forecast(NamedTuple):
    """A law of the next frame, Student-t by channel. All arrays may have a leading axis of frames.

    features [F + F_local]; means, variances [T, Q]: of the scaled step, mean and squared scale of each memory's law; squared
    [Q]: squared scale of their mixture, before the tail's factor; mean, scale [Q] of the reading in its transformed unit;
    degrees [Q]; correlation [Q, Q] of the channels' errors.
    """

    inputs: Inputs
    features: Array
    around: Around
    means: Array
    variances: Array
    squared: Array
    mean: Array
    scale: Array
    degrees: Array
    correlation: Array

    @property
    def covariance(self) -> Array:
        """Squared-scale matrix [Q, Q] of the joint law of all channels, in transformed units."""
        return joint.covariance(self.correlation, self.scale)

    @property
    def sd(self) -> Array:
        """Standard deviation [Q] in transformed units."""
        return np.asarray(self.scale * np.sqrt(self.degrees / (self.degrees - 2.0)))


def alone(basis: Basis) -> Learner:
    """A learner that knows of no fleet."""
    Q, blocks = basis.shape.channels, features.blocks(basis.shape, basis.size - basis.shape.linear)
    scales = hyper.start(Q)
    prior_var = hyper.by_feature(scales.shared, blocks)
    deviation_var = hyper.by_feature(scales.deviation, blocks)
    known = Knowledge(prior(prior_var), prior_var, deviation_var, np.full(Q, OWN_NOISE), FIRST_NOISE_FRAMES, 1.0)
    return knowing(basis, known)


def knowing(basis: Basis, known: Knowledge) -> Learner:
    """A learner with knowledge of a fleet and no data of its own."""
    Q, size = basis.shape.channels, basis.size + basis.local_size
    local_var = np.full(Q, hyper.LOCAL)
    before = _before(known, local_var, basis.local_size)
    first = posterior.unlearnt(before)
    weights = Weights(np.tile(first.mean, (TRACKS, 1, 1)), np.tile(first.cov, (TRACKS, 1, 1, 1)))
    learner = Learner(
        basis,
        known,
        before,
        statistics.empty(TRACKS, Q, size),
        weights,
        first,
        np.tile(known.noise_guess, (TRACKS, 1)),
        local_var,
        np.full(2, np.inf),
        tail.init(Q, TRACKS),
        joint.init(Q),
        rings.empty(basis.shape.inputs, Q, TRACKS),
        (),
        0,
    )
    return solve(learner)


def on_moments(moments: Moments, shape: features.Shape) -> Learner:
    """A lone learner on its own basis, scaled by its own first readings."""
    return alone(Basis(shape, scaling(moments)))


def foresee(learner: Learner, inputs: Inputs) -> Forecast:
    """The law of the next frame, from what was known before it."""
    x = features.features(learner.basis, inputs.inputs[None])[0]
    around = surroundings(learner, inputs, x)
    means, known, _ = posterior.spread(learner.weights, x)
    variances = track_variances(learner, known, around)
    mean, squared = tail.mixed(learner.tail.tracks, means, variances)
    unit = learner.basis.scaling.scale[: learner.basis.shape.channels]
    scale = np.sqrt(np.maximum(squared * tail.scale(learner.tail), around.floor_var))
    where = inputs.last + unit * mean
    degrees, matrix = tail.degrees(learner.tail), learner.correlation.matrix
    return Forecast(inputs, x, around, means, variances, squared, where, unit * scale, degrees, matrix)


def surroundings(learner: Learner, inputs: Inputs, x: Array) -> Around:
    """What widens the law of frames with features x [..., F + F_local]."""
    unit = learner.basis.scaling.scale[: learner.basis.shape.channels]
    growth = 1.0 + np.minimum(inputs.age, MAX_AGE)
    return Around(growth, _extra(learner, x), (inputs.floor / unit) ** 2)


def track_variances(learner: Learner, known: Array, around: Around) -> Array:
    """Squared scale [..., T, Q] of each memory's law, before the tail's factor; known [..., T, Q]."""
    noise = learner.noise_var * around.growth[..., None, :]
    return np.asarray(np.maximum(known + noise + around.extra[..., None, :], around.floor_var[..., None, :]))


def learn(learner: Learner, forecast: Forecast, observed: Array, rule: Forgetting) -> Learner:
    """After one frame: observed [Q] in transformed units, NaN = missing or not to be learnt; nothing of it leaves all as it was.

    A frame teaches less the further out in the tail the last solution finds it, and the older the lag that it was foreseen
    from.
    """
    if np.all(np.isnan(observed)):
        return learner
    unit = learner.basis.scaling.scale[: learner.basis.shape.channels]
    target = (observed - forecast.inputs.last) / unit
    share = shares(learner, forecast.features, forecast.around, target)
    square = tail.squared((observed - forecast.mean) / unit, forecast.squared)
    followed = tail.step(learner.tail, target - forecast.means, forecast.variances, square)
    errors = (observed - forecast.mean) / forecast.scale
    return _taught(learner._replace(tail=followed), forecast, target, share, errors, rule)


def settle(learner: Learner, forecast: Forecast, level: Array, rule: Forgetting) -> Learner:
    """After a place of rest that is no reading: level [Q] in transformed units, NaN = none; one sure frame, however far out.

    It says nothing of the law's tail and of how channels err together.
    """
    target = (level - forecast.inputs.last) / learner.basis.scaling.scale[: learner.basis.shape.channels]
    share = np.where(np.isnan(target), 0.0, 1.0)
    return _taught(learner, forecast, target, share, np.full_like(target, np.nan), rule)


def _taught(
    learner: Learner, forecast: Forecast, target: Array, share: Array, errors: Array, rule: Forgetting
) -> Learner:
    """The weights after targets [Q] of these shares [Q]; errors [Q] as the ring's rows keep them."""
    unit = learner.basis.scaling.scale[: learner.basis.shape.channels]
    noise = taught_noise(learner, share)
    row = Row(forecast.inputs.inputs, forecast.features, target * unit, share, errors)
    learner = learner._replace(
        weights=posterior.learn(learner.weights, forecast.features, target - forecast.means, noise),
        fresh=(*learner.fresh, row),
        frames=learner.frames + 1,
    )
    return refresh(learner, rule) if len(learner.fresh) >= due(learner.frames, rule) else learner


def shares(learner: Learner, x: Array, around: Around, target: Array) -> Array:
    """How much frames teach each channel [..., Q], 0 where one has no target [..., Q]: one sure reading is about 1."""
    mean, known = posterior.foreseen(learner.solved, x)
    other = learner.noise_var[LONG] * around.growth + around.extra
    variance = np.maximum(known + other, around.floor_var)
    weight = tail.weight(tail.squared(target - mean, variance), tail.degrees(learner.tail))
    return np.where(np.isnan(target), 0.0, weight / around.growth)


def taught_noise(learner: Learner, share: Array) -> Array:
    """Noise variance [..., T, Q] that frames teach with; infinite where one does not."""
    factor = np.divide(1.0, share, out=np.full_like(share, np.inf), where=share > 0)
    return np.asarray(learner.noise_var * factor[..., None, :] / learner.knowledge.own_weight)


def log_density(forecast: Forecast, observed: Array) -> Array:
    """Log density [n] of frames' readings [n, Q] under the joint law of their channels, in transformed units; NaN left out.

    forecast: of n frames.
    """
    return joint.log_density(forecast.correlation, observed - forecast.mean, forecast.scale, forecast.degrees)


def log_density_of_one(forecast: Forecast, observed: Array) -> float:
    """The same of one frame's readings [Q]."""
    one = forecast._replace(
        mean=forecast.mean[None], scale=forecast.scale[None], degrees=forecast.degrees[None],
        correlation=forecast.correlation[None],
    )  # fmt: skip
    return float(log_density(one, observed[None])[0])


def due(frames: int, rule: Forgetting) -> int:
    """Frames since the last exact solution after which the next is due: every frame at first."""
    return min(rule.refresh, max(1, frames // 4))


def refresh(learner: Learner, rule: Forgetting) -> Learner:
    """Fold the fresh frames in, forget, and solve."""
    count = len(learner.fresh)
    errors = np.array([row.errors for row in learner.fresh])
    learner = folded(learner)
    factor = 0.5 ** (count / np.array([rule.half_life, rule.short_half_life]))
    past, ring = statistics.decay(learner.past, factor), rings.decay(learner.ring, factor)
    correlation = joint.learn(learner.correlation, errors, float(factor[LONG]))
    return solve(learner._replace(past=past, ring=ring, correlation=correlation, tail=tail.choose(learner.tail)))


def solve(learner: Learner) -> Learner:
    """The exact posterior from knowledge and statistics, then one EM step for the noise."""
    known, sums = learner.knowledge, total(learner)
    weights = posterior.posterior(learner.before, sums, learner.noise_var, known.own_weight)
    noise_var = _noise(sums, weights, known.noise_guess, known.noise_frames)
    return learner._replace(weights=weights, solved=Weights(weights.mean[LONG], weights.cov[LONG]), noise_var=noise_var)


def total(learner: Learner) -> Statistics:
    """Statistics [T, ...] of all that was learnt, the fresh frames included."""
    if not learner.fresh:
        return learner.past
    unit = learner.basis.scaling.scale[: learner.basis.shape.channels]
    _, x, targets, weights = rings.stacked(learner.fresh)
    return statistics.merge(learner.past, statistics.summed(x, targets / unit, weights))


def own_noise(learner: Learner) -> Array:
    """Noise variance [Q] by this agent's own frames alone: what it tells the fleet, so that no guess is counted twice."""
    Q = learner.basis.shape.channels
    return np.asarray(_noise(total(learner), learner.weights, np.full(Q, OWN_NOISE), OWN_NOISE_FRAMES)[LONG])


def summary(learner: Learner) -> tuple[Term, Array]:
    """What this agent tells the fleet: its term, and the mean square of its deviation by block [Q, len(BLOCKS)]."""
    known, F = learner.knowledge, learner.basis.size
    sums = Statistics(*(part[LONG] for part in total(learner)))
    local_var = np.tile(learner.local_var[:, None], (1, learner.basis.local_size))
    term = message.summarise(sums, learner.noise_var[LONG], known.deviation_var, local_var)
    after = Weights(learner.weights.mean[LONG], learner.weights.cov[LONG])
    square = hyper.deviation_square(known.deviation_var, learner.before, after)
    return term, hyper.by_block(square, features.blocks(learner.basis.shape, F - learner.basis.shape.linear))


def inform(learner: Learner, knowledge: Knowledge) -> Learner:
    """Take the fleet's knowledge, which is on the learner's basis (``moves`` takes it there first)."""
    before = _before(knowledge, learner.local_var, learner.basis.local_size)
    # the fleet's noise first, then the weights under it
    learner = solve(solve(learner._replace(knowledge=knowledge, before=before)))
    return learner._replace(local_var=_local_var(learner))


def folded(learner: Learner) -> Learner:
    """The fresh frames moved into statistics and ring; the posterior stays as it is."""
    if not learner.fresh:
        return learner
    inputs, x, targets, weights = rings.stacked(learner.fresh)
    ring = rings.joined(learner.ring, inputs, targets, weights)
    recent = features.residual(learner.basis, x).mean(axis=0)
    spare = np.where(np.isfinite(learner.spare), learner.spare, recent)
    spare = spare + np.minimum(len(x) / rings.SIZE, 1.0) * (recent - spare)
    unit = learner.basis.scaling.scale[: learner.basis.shape.channels]
    past = statistics.merge(learner.past, statistics.summed(x, targets / unit, weights))
    return learner._replace(past=past, ring=ring, spare=spare, fresh=())


def recent(learner: Learner) -> Ring:
    """The last frames, the fresh ones included."""
    return rings.append(learner.ring, learner.fresh) if learner.fresh else learner.ring


def _before(known: Knowledge, local_var: Array, local_size: int) -> Before:
    local = np.tile(local_var[:, None], (1, local_size))
    return posterior.prior(known.belief, known.deviation_var, local, known.own_weight)


def _local_var(learner: Learner) -> Array:
    """One EM step for the variance [Q] of the local layer's weights, with as many weights' worth of the first guess."""
    size, F = learner.basis.local_size, learner.basis.size
    if not size:
        return learner.local_var
    after_cov = np.diagonal(learner.weights.cov[LONG], axis1=1, axis2=2)[:, F:]
    square = learner.weights.mean[LONG, :, F:] ** 2 + after_cov
    return np.asarray((size * hyper.LOCAL + square.sum(axis=1)) / (2 * size))


def _extra(learner: Learner, x: Array) -> Array:
    """Variance [..., Q] of what inducing features cannot express at features [..., F], beyond what the noise holds of it."""
    basis, known = learner.basis, learner.knowledge
    shared = known.prior_var[:, -1] + known.deviation_var[:, -1] if basis.shared else np.zeros(basis.shape.channels)
    over = np.maximum(features.residual(basis, np.atleast_2d(x)) - learner.spare, 0.0)  # [n, 2]
    extra = over[:, :1] * shared + over[:, 1:] * learner.local_var
    return np.asarray(extra if x.ndim > 1 else extra[0])


def _noise(sums: Statistics, weights: Weights, guess: Array, guess_frames: float) -> Array:
    """Noise variance [..., Q], with a guess that is cut to what persistence leaves: the mean square step, 1 at first."""
    persistence = (sums.square + FIRST_STEP_FRAMES * OWN_NOISE) / (sums.n + FIRST_STEP_FRAMES)
    estimate = posterior.estimate_noise(sums, weights, np.minimum(guess, persistence), guess_frames)
    return np.maximum(estimate, LEAST_NOISE)
