"""The layers of a forecast against one dense joint Gaussian over the fleet: what everybody's data say of each part."""

from __future__ import annotations

import numpy as np
import pytest
from dense_fleet import Joint, Priors, Stream, condition
from drive_learner import drive_in_batches, inputs_of, one, settled
from random_learner import lone_learner, random_basis, random_inputs, random_learner

from fleetgp import features
from fleetgp.arrays import Array
from fleetgp.features import Basis, Shape
from fleetgp.gp import aggregate, layers, message, posterior, tail
from fleetgp.gp import learner as learning
from fleetgp.gp.learner import Forgetting, Knowledge, Learner
from fleetgp.gp.posterior import Weights

SHAPE = Shape(2, 1, 1, 2)
Q = SHAPE.channels
TRACKS = np.array([[0.7, -40.0], [0.2, 3.0]])  # both memories, and of the second channel one alone


def streams_of(rng: np.random.Generator, basis: Basis, sizes: tuple[int, ...]) -> list[Stream]:
    """Frames of agents, each a number of them."""
    made = []
    for n in sizes:
        X = features.features(basis, random_inputs(rng, SHAPE, n).inputs)
        Y = np.where(rng.random((n, Q)) < 0.2, np.nan, rng.standard_normal((n, Q)))
        made.append(Stream(X, Y, np.ones((n, Q)), 10 ** rng.uniform(-1, 0, Q)))
    return made


def priors_of(rng: np.random.Generator, basis: Basis) -> Priors:
    shared, deviation = 10 ** rng.uniform(-1, 1, (Q, basis.size)), 10 ** rng.uniform(-2, 0.5, (Q, basis.size))
    return Priors(shared, deviation, 10 ** rng.uniform(-2, 0.5, (Q, basis.local_size)))


def first_agents(basis: Basis, streams: list[Stream], priors: Priors, memories: list[Stream]) -> Learner:
    """The first agent's learner, whose long and short memory hold these frames of its own."""
    terms = [message.summarise(s.statistics(), s.noise_var, priors.deviation, priors.local) for s in streams]
    cavity = aggregate.cavity(aggregate.posterior(terms, priors.shared), terms[0])
    before = posterior.prior(cavity, priors.deviation, priors.local)
    parts = [posterior.posterior(before, own.statistics(), own.noise_var) for own in memories]
    weights = Weights(*(np.stack(part) for part in zip(*parts, strict=True)))
    known = Knowledge(cavity, priors.shared, priors.deviation, streams[0].noise_var, 20.0, 1.0)
    learner = learning.knowing(basis, known)
    return learner._replace(before=before, base=posterior.running(weights), tail=learner.tail._replace(tracks=TRACKS))


def dense_parts(joint: Joint, x: Array, size: int) -> Array:
    """Shared, deviation and local part of the first agent at features x."""
    return np.array(
        [joint.shared()[0] @ x[:size], joint.deviation(0)[0] @ x[:size], joint.weights(0)[0][size:] @ x[size:]]
    )


@pytest.mark.parametrize("seed", range(6))
def test_layers_are_what_the_joint_gaussian_of_the_whole_fleet_says_of_each_part_1e_8(seed: int) -> None:
    rng = np.random.default_rng(seed)
    basis = random_basis(rng, SHAPE, shared=2, local=seed % 3)
    streams, priors = streams_of(rng, basis, (14, 9, 11)), priors_of(rng, basis)
    own = streams[0]
    recent = Stream(own.X[8:], own.Y[8:], own.k[8:], own.noise_var)
    learner = first_agents(basis, streams, priors, [own, recent])
    share = tail.share_of_long(TRACKS)
    inputs = random_inputs(rng, SHAPE, 4)
    for t in range(4):
        forecast = learning.foresee(learner, one(inputs, t))
        told = layers.split(learner, forecast).layers
        assert told is not None
        np.testing.assert_allclose(told[:, :4].sum(axis=-1), forecast.mean, rtol=1e-12)
        np.testing.assert_array_equal(told[:, 0], inputs.last[t])
        for q in range(Q):
            long, short = (
                dense_parts(condition([memory, *streams[1:]], priors, q), forecast.features, basis.size)
                for memory in (own, recent)
            )
            expected = learner.unit[q] * (share[q] * long + (1 - share[q]) * short)
            np.testing.assert_allclose(told[q, 1:4], expected, rtol=1e-8, atol=1e-8 * learner.unit[q])


def test_of_one_who_is_alone_nothing_is_the_fleets_and_the_sum_stays() -> None:
    rng = np.random.default_rng(3)
    learner, inputs = lone_learner(rng, SHAPE), one(random_inputs(rng, SHAPE, 1), 0)
    learner = learning.learn(learner, learning.foresee(learner, inputs), np.array([9.0, 12.0]), Forgetting())
    told = layers.split(learner, learning.foresee(learner, inputs)).layers
    assert told is not None
    assert np.all(np.abs(told[:, 1]) > 0), "the prior has a shared part all the same"
    own = layers.of_one_who_is_alone(told)
    np.testing.assert_array_equal(own[:, 1], 0.0)
    np.testing.assert_allclose(own[:, :4].sum(axis=-1), told[:, :4].sum(axis=-1), rtol=1e-15)
    np.testing.assert_array_equal(own[:, [0, 3]], told[:, [0, 3]])
    np.testing.assert_array_equal(own[:, 4], 0.0)


@pytest.mark.parametrize("lags", [1, 3])
def test_the_pull_is_what_the_shared_layer_loses_of_a_step_in_the_channels_own_lags(lags: int) -> None:
    """By a difference: shared inducing features aside, the layer is linear."""
    rng = np.random.default_rng(lags)
    shape = Shape(3, lags, 1, 2)
    learner, inputs = random_learner(rng, shape, local=2, own_weight=0.5), one(random_inputs(rng, shape, 1), 0)
    for _ in range(5):
        learner = learning.learn(learner, learning.foresee(learner, inputs), rng.normal(10.0, 3.0, 3), Forgetting())
    told = layers.split(learner, learning.foresee(learner, inputs)).layers
    assert told is not None
    for q in range(3):
        higher = inputs.inputs.copy()
        higher[q : 3 * lags : 3] += 0.5
        moved = layers.split(learner, learning.foresee(learner, inputs._replace(inputs=higher))).layers
        assert moved is not None
        np.testing.assert_allclose(told[q, 4], (told[q, 1] - moved[q, 1]) / 0.5, rtol=1e-7)


def test_own_push_over_the_pull_is_how_far_a_device_is_from_its_fleet() -> None:
    """Six devices whose readings go back by a half to levels far apart; what a page says of them is the levels' difference."""
    rng = np.random.default_rng(11)
    levels = 3.0 * rng.standard_normal(6)
    series = [np.zeros((800, 1)) for _ in levels]
    for x, level in zip(series, levels, strict=True):
        x[0] = level
        for t in range(1, len(x)):
            x[t] = level + 0.5 * (x[t - 1] - level) + 0.3 * rng.standard_normal(1)
    basis = settled(np.concatenate(series), 2).basis
    fleet = [drive_in_batches(learning.alone(basis), x)[0] for x in series]
    known = fleet[0].knowledge
    for _ in range(2):
        terms = [learning.summary(learner)[0] for learner in fleet]
        belief = aggregate.posterior(terms, known.prior_var)
        fleet = [
            learning.inform(learner, known._replace(belief=aggregate.cavity(belief, term)))
            for learner, term in zip(fleet, terms, strict=True)
        ]
    gaps = []
    for learner, x in zip(fleet, series, strict=True):
        told = layers.split(learner, learning.foresee(learner, one(inputs_of(x[-20:]), 18))).layers
        assert told is not None
        assert told[0, 4] == pytest.approx(0.5, abs=0.1)
        gaps.append(float((told[0, 2] + told[0, 3]) / told[0, 4]))
    np.testing.assert_allclose(gaps, levels - levels.mean(), atol=0.15 * levels.std())
