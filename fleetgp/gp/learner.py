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
from fleetgp.features import Basis, Line
from fleetgp.gp import hyper, joint, message, posterior, statistics, tail
from fleetgp.gp import ring as rings
from fleetgp.gp.aggregate import Belief, prior
from fleetgp.gp.joint import Correlation
from fleetgp.gp.message import Term
from fleetgp.gp.posterior import Before, Running, Weights
from fleetgp.gp.ring import Ring, Row
from fleetgp.gp.statistics import Statistics
from fleetgp.gp.tail import Tail
from fleetgp.scaling import Moments, scaling

LONG, TRACKS = 0, 2
MAX_AGE = 10_000.0  # ticks that a channel's silence is counted up to
STRANGE = 2.0  # variance, in squared scales, of a step from a reading so old that it tells nothing
OWN_NOISE = 1.0
OWN_NOISE_FRAMES = 1.0
# a lone learner takes the mean square step for its noise until it has seen this many frames more, for few frames fit too
# well; and the spread of a channel for its step until it has seen a fraction of one
FIRST_NOISE_FRAMES = 15.0
FIRST_STEP_FRAMES = 1.0 / FIRST_NOISE_FRAMES
FLEET_NOISE_FRAMES = 20.0
# a noise below 1e-4 of a channel's scale: sums over frames divided by less would drown the weights' prior in rounding
LEAST_NOISE = 1e-8
LEAST_SHARE = 1e-70  # of a frame that teaches nothing: so small that it is nothing, large enough to divide by


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

    @property
    def inducing_var(self) -> Array:
        """Variance [Q] of an agent's weights of shared inducing features, where there are any."""
        return np.asarray(self.prior_var[:, -1] + self.deviation_var[:, -1])


class Learner(NamedTuple):
    """past: statistics [T, ...] up to the last solution; fresh: the frames since; ring: bounded recent frames, never sent.

    base: weights [T, ...], noise_var [T, Q] by memory; line: of the basis; solved: the long memory's weights at the last
    solution; correlation: of the channels' errors; local_var [Q] of the local layer's weights; spare [2]: mean of what shared
    and local inducing features cannot express, infinite before any frame; frames: learnt in all.
    """

    basis: Basis
    line: Line
    knowledge: Knowledge
    before: Before
    past: Statistics
    base: Running
    solved: Weights
    noise_var: Array
    local_var: Array
    spare: Array
    tail: Tail
    correlation: Correlation
    ring: Ring
    fresh: tuple[Row, ...]
    frames: int

    @property
    def weights(self) -> Weights:
        """Weights [T, ...] after all that was learnt."""
        return posterior.whole(self.base)

    @property
    def unit(self) -> Array:
        """Scale [Q] of the channels, in which steps are learnt."""
        return self.basis.scaling.scale[: self.basis.shape.channels]


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


class Spread(NamedTuple):
    """What a frame's update needs: known variance [T, Q] and covariance times features [T, Q, F + F_local]."""

    known: Array
    reach: Array


class Forecast(NamedTuple):
    """A law of the next frame, Student-t by channel. All arrays may have a leading axis of frames.

    features [F + F_local]; means, variances [T, Q]: of the scaled step, mean and squared scale of each memory's law; squared
    [Q]: that of their mixture, before the tail's factor; mean, scale [Q] of the reading in its transformed unit; degrees [Q];
    correlation [Q, Q] of errors; spread: of one frame to be learnt next; layers [Q, 5]: see ``layers``, where asked for.
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
    spread: Spread | None = None
    layers: Array | None = None

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
        features.line(basis),
        known,
        before,
        statistics.empty(TRACKS, Q, size),
        posterior.running(weights),
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
    x = features.features(learner.basis, inputs.inputs, learner.line)
    around = surroundings(learner, inputs, x)
    means, known, reach = posterior.spread(learner.base, x)
    variances = track_variances(learner, known, around)
    mean, squared = tail.mixed(learner.tail.tracks, means, variances)
    unit = learner.unit
    scale = unit * np.sqrt(np.maximum(squared * tail.scale(learner.tail), around.floor_var))
    degrees, matrix = learner.tail.degrees, learner.correlation.matrix
    where, spread = inputs.last + unit * mean, Spread(known, reach)
    return Forecast(inputs, x, around, means, variances, squared, where, scale, degrees, matrix, spread)


def surroundings(learner: Learner, inputs: Inputs, x: Array) -> Around:
    """What widens the law of frames with features x [..., F + F_local]."""
    unit = learner.unit
    # an old reading errs by as many steps of noise as it is old, up to what the channel varies by at all
    growth = 1.0 + np.minimum(inputs.age, STRANGE / learner.noise_var[LONG])
    return Around(growth, _extra(learner, x), (inputs.floor / unit) ** 2)


def track_variances(learner: Learner, known: Array, around: Around) -> Array:
    """Squared scale [..., T, Q] of each memory's law, before the tail's factor; known [..., T, Q]."""
    noise = learner.noise_var * around.growth[..., None, :]
    return np.asarray(np.maximum(known + noise + around.extra[..., None, :], around.floor_var[..., None, :]))


def learn(learner: Learner, forecast: Forecast, observed: Array, rule: Forgetting) -> Learner:
    """After one frame: observed [Q] in transformed units, NaN = missing or not to be learnt; nothing of it leaves all as it was.

    A frame teaches whole up to six standard deviations of the last solution's law, less by the square beyond them, and
    less the older the lag that it was foreseen from.
    """
    if np.isnan(observed).all():
        return learner
    unit = learner.unit
    target = (observed - forecast.inputs.last) / unit
    share = shares(learner, forecast.features, forecast.around, target)
    error = observed - forecast.mean
    square = tail.squared(error / unit, forecast.squared)
    followed = tail.step(learner.tail, target - forecast.means, forecast.variances, square)
    errors = error / forecast.scale
    row = Row(forecast.inputs.inputs, forecast.features, target * unit, share, errors, square, learner.tail.scales)
    return _taught(learner._replace(tail=followed), forecast, target, row, rule)


def settle(learner: Learner, forecast: Forecast, level: Array, rule: Forgetting) -> Learner:
    """After a place of rest that is no reading: level [Q] in transformed units, NaN = none; one sure frame, however far out.

    It says nothing of the law's tail and of how channels err together.
    """
    unit = learner.unit
    target = (level - forecast.inputs.last) / unit
    share, nothing = np.where(np.isnan(target), 0.0, 1.0), np.full_like(target, np.nan)
    row = Row(forecast.inputs.inputs, forecast.features, target * unit, share, nothing, nothing, learner.tail.scales)
    return _taught(learner, forecast, target, row, rule)


def _taught(learner: Learner, forecast: Forecast, target: Array, row: Row, rule: Forgetting) -> Learner:
    """The weights after a frame's scaled targets [Q], of the shares that its row says."""
    x, share, noise = forecast.features, row.weights, taught_noise(learner, row.weights)
    known, reach = forecast.spread or posterior.spread(learner.base, x)[1:]
    error = np.where(share > 0, target - forecast.means, 0.0)
    learner = learner._replace(
        base=posterior.learn(learner.base, known, reach, error, noise, posterior.rounding(learner.base, x)),
        fresh=(*learner.fresh, row),
        frames=learner.frames + 1,
    )
    return refresh(learner, rule) if len(learner.fresh) >= due(learner.frames, rule) else learner


def shares(learner: Learner, x: Array, around: Around, target: Array) -> Array:
    """How much frames teach each channel [..., Q], 0 where one has no target [..., Q]: one sure reading is about 1."""
    mean, known = posterior.foreseen(learner.solved, x)
    other = learner.noise_var[LONG] * around.growth + around.extra
    variance = np.maximum(known + other, around.floor_var)
    weight = tail.weight(tail.squared(target - mean, variance))
    return np.where(np.isnan(target), 0.0, weight / around.growth)


def taught_noise(learner: Learner, share: Array) -> Array:
    """Noise variance [..., T, Q] that frames teach with; beyond all measure where one does not."""
    worth = np.maximum(share, LEAST_SHARE)[..., None, :]
    return np.asarray(learner.noise_var / (worth * learner.knowledge.own_weight))


def due(frames: int, rule: Forgetting) -> int:
    """Frames since the last exact solution after which the next is due: every frame at first."""
    return min(rule.refresh, max(1, frames // 4))


def refresh(learner: Learner, rule: Forgetting) -> Learner:
    """Fold the fresh frames in, forget, and solve."""
    count = len(learner.fresh)
    errors = np.array([row.errors for row in learner.fresh])
    squares = np.array([row.squares for row in learner.fresh])
    chosen = tail.choose(learner.tail, np.array([row.scales for row in learner.fresh]), squares)
    learner = folded(learner)
    factor = 0.5 ** (count / np.array([rule.half_life, rule.short_half_life]))
    past, ring = statistics.decay(learner.past, factor), rings.decay(learner.ring, factor)
    correlation = joint.learn(learner.correlation, errors, float(factor[LONG]))
    return solve(learner._replace(past=past, ring=ring, correlation=correlation, tail=chosen))


def solve(learner: Learner) -> Learner:
    """The exact posterior from knowledge and statistics, then one EM step for the noise."""
    return _solved(learner, total(learner))


def _solved(learner: Learner, sums: Statistics) -> Learner:
    known = learner.knowledge
    weights = posterior.posterior(learner.before, sums, learner.noise_var, known.own_weight)
    noise_var = _noise(sums, weights, known.noise_guess, known.noise_frames)
    solved = Weights(weights.mean[LONG], weights.cov[LONG])
    return learner._replace(base=posterior.running(weights), solved=solved, noise_var=noise_var)


def total(learner: Learner) -> Statistics:
    """Statistics [T, ...] of all that was learnt, the fresh frames included."""
    return folded(learner).past


def own_noise(learner: Learner) -> Array:
    """Noise variance [Q] by this agent's own frames alone: what it tells the fleet, so that no guess is counted twice."""
    guess = np.full_like(learner.unit, OWN_NOISE)
    return np.asarray(_noise(total(learner), learner.weights, guess, OWN_NOISE_FRAMES)[LONG])


def summary(learner: Learner) -> tuple[Term, Array]:
    """What this agent tells the fleet: its term, and the mean square of its deviation by block [Q, len(BLOCKS)]."""
    known, F = learner.knowledge, learner.basis.size
    sums = Statistics(*(part[LONG] for part in total(learner)))
    local_var = np.tile(learner.local_var[:, None], (1, learner.basis.local_size))
    term = message.summarise(sums, learner.noise_var[LONG], known.deviation_var, local_var)
    after = Weights(*(part[LONG] for part in learner.weights))
    square = hyper.deviation_square(known.deviation_var, learner.before, after)
    return term, hyper.by_block(square, features.blocks(learner.basis.shape, F - learner.basis.shape.linear))


def inform(learner: Learner, knowledge: Knowledge) -> Learner:
    """Take the fleet's knowledge, which is on the learner's basis (``moves`` takes it there first)."""
    before, sums = _before(knowledge, learner.local_var, learner.basis.local_size), total(learner)
    # the fleet's noise first, then the weights under it
    learner = _solved(_solved(learner._replace(knowledge=knowledge, before=before), sums), sums)
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
    past = statistics.merge(learner.past, statistics.summed(x, targets / learner.unit, weights))
    return learner._replace(past=past, ring=ring, spare=spare, fresh=())


def _before(known: Knowledge, local_var: Array, local_size: int) -> Before:
    local = np.tile(local_var[:, None], (1, local_size))
    return posterior.prior(known.belief, known.deviation_var, local, known.own_weight)


def _local_var(learner: Learner) -> Array:
    """One EM step for the variance [Q] of the local layer's weights, with as many weights' worth of the first guess."""
    size, F = learner.basis.local_size, learner.basis.size
    if not size:
        return learner.local_var
    mean, cov = learner.weights
    square = mean[LONG, :, F:] ** 2 + np.diagonal(cov[LONG], axis1=1, axis2=2)[:, F:]
    return np.asarray(np.minimum((size * hyper.LOCAL + square.sum(axis=1)) / (2 * size), hyper.CEILING))


def _extra(learner: Learner, x: Array) -> Array:
    """Variance [..., Q] of what inducing features cannot express at features [..., F], beyond what the noise holds of it."""
    basis, known = learner.basis, learner.knowledge
    over = features.residual(basis, x) - learner.spare  # [..., 2]
    if over.max() <= 0.0:
        return np.zeros((*x.shape[:-1], basis.shape.channels))
    shared = known.inducing_var if basis.shared else np.zeros(basis.shape.channels)
    over = np.maximum(over, 0.0)
    return np.asarray(over[..., :1] * shared + over[..., 1:] * learner.local_var)


def _noise(sums: Statistics, weights: Weights, guess: Array, guess_frames: float) -> Array:
    """Noise variance [..., Q], with a guess that is cut to what persistence leaves: the mean square step, 1 at first."""
    persistence = (sums.square + FIRST_STEP_FRAMES * OWN_NOISE) / (sums.n + FIRST_STEP_FRAMES)
    estimate = posterior.estimate_noise(sums, weights, np.minimum(guess, persistence), guess_frames)
    return np.maximum(estimate, LEAST_NOISE)
