"""One agent's streaming model: what it foresees of the next frame, and what it learns of it.

All values are in transformed units; the learner scales them. A lag that had to be held over because nothing came is as
uncertain as it is old: the noise of a channel grows with the age of its last reading, and such a frame teaches less.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fleetgp import features
from fleetgp.arrays import Array
from fleetgp.gp import posterior, statistics
from fleetgp.gp.aggregate import Belief, prior
from fleetgp.gp.posterior import Law, Weights
from fleetgp.gp.statistics import Statistics
from fleetgp.scaling import Moments, Scaling, apply, scaling

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
MOST_SD = 30.0
RESCALE_RATIO = 1.25
# an own basis is looked at after every frame up to the first count, whenever frames have doubled up to the second
RESCALE_OFTEN = 64
RESCALE_UNTIL = 4096


class Forgetting(NamedTuple):
    """half_life: frames after which the past counts half. refresh: frames between exact solutions."""

    half_life: float = 20_000.0
    refresh: int = 64


class Knowledge(NamedTuple):
    """What comes from outside an agent's own data: the fleet's belief without the agent, and its noise.

    phi [F] deviation scale; noise_guess [Q] worth noise_frames; own_weight: 1/2 in a covariance intersection, which
    counts the agent's own layer, prior of the deviation and data, half.
    """

    belief: Belief
    phi: Array
    noise_guess: Array
    noise_frames: float
    own_weight: float


class Learner(NamedTuple):
    """frames: learnt in all; fresh: those learnt since the past was last faded."""

    channels: int
    lags: int
    scaling: Scaling
    statistics: Statistics
    knowledge: Knowledge
    weights: Weights
    noise_var: Array
    frames: int
    fresh: int


class Inputs(NamedTuple):
    """What is known before a frame: lags [L, Q] held over where missing, covariates [C], age [Q] ticks held over.

    last [Q]: the reading that the step is from, lag 1 unless lags were held within reach of what was learnt.
    """

    lags: Array
    covariates: Array
    age: Array
    last: Array | None = None


class Forecast(NamedTuple):
    """A law of the next frame. features [F]; law of the scaled step from lag 1; mean, sd [Q] in transformed units."""

    features: Array
    law: Law
    noise_var: Array
    mean: Array
    sd: Array


def default_phi(channels: int, lags: int, covariates: int) -> Array:
    """Prior variance of an agent's deviation by feature [F]: devices differ more in level than in dynamics."""
    phi = np.full(features.size(channels, lags, covariates), 0.01)
    phi[0] = 1.0
    return phi


def alone(moments: Moments, channels: int, lags: int) -> Learner:
    """A learner on its own basis, scaled by its own first readings."""
    size = features.size(channels, lags, len(moments.n) - channels)
    phi = default_phi(channels, lags, len(moments.n) - channels)
    knowledge = Knowledge(prior(channels, size), phi, np.full(channels, OWN_NOISE), FIRST_NOISE_FRAMES, 1.0)
    learner = Learner(
        channels,
        lags,
        scaling(moments),
        statistics.empty(channels, size),
        knowledge,
        posterior.prior(knowledge.belief, phi),
        knowledge.noise_guess,
        0,
        0,
    )
    return solve(learner)


def foresee(learner: Learner, inputs: Inputs) -> Forecast:
    """The law of the next frame, from what was known before it."""
    Q = learner.channels
    channel, covariate = _split(learner.scaling, Q)
    x = features.linear(apply(channel, inputs.lags), apply(covariate, inputs.covariates))
    noise_var = learner.noise_var * (1.0 + np.minimum(inputs.age, MAX_AGE))
    law = posterior.predict(learner.weights, x, noise_var)
    last = inputs.lags[0] if inputs.last is None else inputs.last
    return Forecast(x, law, noise_var, last + channel.scale * law.mean, channel.scale * np.sqrt(law.variance))


def learn(learner: Learner, forecast: Forecast, lag: Array, observed: Array, rule: Forgetting) -> Learner:
    """After one frame: lag [Q] the lag 1 it was foreseen from, observed [Q] (NaN = missing or not to be learnt).

    A reading further than MOST_SD from what was foreseen counts as noisy as brings it there, so that one glitch, learnt
    because nothing was known that would tell it from a reading, does not outweigh all that follow.
    """
    present = np.isfinite(observed).astype(float)
    target = np.where(present > 0, observed - lag, 0.0) / learner.scaling.scale[: learner.channels]
    distance = np.abs(np.where(present > 0, observed - forecast.mean, 0.0)) / forecast.sd
    noise_var = forecast.noise_var * np.maximum(distance / MOST_SD, 1.0) ** 2
    own_noise_var = noise_var / learner.knowledge.own_weight
    weights = posterior.learn(learner.weights, forecast.features, target, own_noise_var, present)
    # an aged lag is noisier by its age: the same factor that its noise carries
    share = present * learner.noise_var / noise_var
    sums = statistics.observe(learner.statistics, forecast.features, target, share)
    learner = learner._replace(statistics=sums, weights=weights, frames=learner.frames + 1, fresh=learner.fresh + 1)
    due = min(rule.refresh, max(1, learner.frames // 4))
    if learner.fresh < due:
        return learner
    factor = 0.5 ** (learner.fresh / rule.half_life)
    return solve(learner._replace(statistics=statistics.decay(sums, factor), fresh=0))


def solve(learner: Learner) -> Learner:
    """The exact posterior from knowledge and statistics, with one EM step for the noise on the way."""
    known = learner.knowledge
    before = posterior.prior(known.belief, known.phi, known.own_weight)
    weights = posterior.posterior(before, learner.statistics, learner.noise_var, known.own_weight)
    noise_var = _noise(learner.statistics, weights, known.noise_guess, known.noise_frames)
    weights = posterior.posterior(before, learner.statistics, noise_var, known.own_weight)
    return learner._replace(weights=weights, noise_var=noise_var)


def own_noise(learner: Learner) -> Array:
    """Noise variance [Q] by this agent's own frames alone: what it tells the fleet, so that no guess is counted twice."""
    return _noise(learner.statistics, learner.weights, np.full(learner.channels, OWN_NOISE), OWN_NOISE_FRAMES)


def inform(learner: Learner, new: Scaling, knowledge: Knowledge) -> Learner:
    """Take the fleet's knowledge, on its basis; the agent's own past is carried over exactly."""
    return solve(_rescaled(learner, new)._replace(knowledge=knowledge))


def rescale(learner: Learner, moments: Moments) -> Learner:
    """On an own basis: a new scale where it would differ by a quarter; looked at often while readings are few."""
    is_doubled = learner.frames & (learner.frames - 1) == 0
    if learner.frames > RESCALE_UNTIL or not (learner.frames <= RESCALE_OFTEN or is_doubled):
        return learner
    new = scaling(moments)
    ratio = new.scale / learner.scaling.scale
    moved = np.abs(new.centre - learner.scaling.centre) / new.scale
    if not (np.any(np.maximum(ratio, 1 / ratio) > RESCALE_RATIO) or np.any(moved > RESCALE_RATIO)):
        return learner
    return solve(_rescaled(learner, new))


def _noise(sums: Statistics, weights: Weights, guess: Array, guess_frames: float) -> Array:
    """Noise variance [Q], with a guess that is cut to what persistence leaves: the mean square step, 1 at first."""
    persistence = (sums.square + FIRST_STEP_FRAMES * OWN_NOISE) / (sums.n + FIRST_STEP_FRAMES)
    estimate = posterior.estimate_noise(sums, weights, np.minimum(guess, persistence), guess_frames)
    return np.maximum(estimate, LEAST_NOISE)


def _rescaled(learner: Learner, new: Scaling) -> Learner:
    T, ratio = basis_change(learner.scaling, new, learner.channels, learner.lags)
    return learner._replace(
        scaling=new,
        statistics=statistics.rebase(learner.statistics, T, ratio),
        noise_var=ratio**2 * learner.noise_var,
    )


def basis_change(old: Scaling, new: Scaling, channels: int, lags: int) -> tuple[Array, Array]:
    """T [F, F] of features and ratio [Q] of targets between two scalings."""
    return features.change(old, new, channels, lags), (old.scale / new.scale)[:channels]


def _split(scaling: Scaling, channels: int) -> tuple[Scaling, Scaling]:
    return (
        Scaling(scaling.centre[:channels], scaling.scale[:channels]),
        Scaling(scaling.centre[channels:], scaling.scale[channels:]),
    )
