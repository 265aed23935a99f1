"""The whole engine, statistics to prediction, against one dense joint Gaussian over the fleet and all its readings."""

from __future__ import annotations

import numpy as np
from dense_fleet import Priors, Stream, condition, random_fleet
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetgp.gp import aggregate, hyper, message, posterior
from fleetgp.gp.aggregate import Belief
from fleetgp.gp.message import Term
from fleetgp.gp.posterior import Before, Weights

FLEETS = (st.integers(0, 10**6), st.integers(1, 4), st.integers(1, 2), st.integers(1, 5), st.integers(0, 3))
RARE = settings(max_examples=50, deadline=None, derandomize=True)
# the law's tolerance; systems solved on either side have condition numbers up to about 1e6
TOLERANCE = {"rtol": 1e-8, "atol": 1e-8}


def term(stream: Stream, priors: Priors) -> Term:
    return message.summarise(stream.statistics(), stream.noise_var, priors.deviation, priors.local)


def published(streams: list[Stream], priors: Priors) -> Belief:
    return aggregate.posterior([term(s, priors) for s in streams], priors.shared)


def before(streams: list[Stream], priors: Priors, agent: int) -> Before:
    """As an agent does: its own term taken out of what is published."""
    cavity = aggregate.cavity(published(streams, priors), term(streams[agent], priors))
    return posterior.prior(cavity, priors.deviation, priors.local)


def personal(streams: list[Stream], priors: Priors, agent: int) -> Weights:
    """Then its own data put in."""
    own = streams[agent]
    return posterior.posterior(before(streams, priors, agent), own.statistics(), own.noise_var)


@RARE
@given(*FLEETS)
def test_federated_shared_weights_are_those_of_all_data_pooled_1e_8(
    seed: int, agents: int, channels: int, size: int, local: int
) -> None:
    """The server's sum of terms is the posterior of v with every deviation and local layer integrated out."""
    streams, priors = random_fleet(seed, agents, channels, size, local)
    belief = published(streams, priors)
    weights = posterior.unlearnt(posterior.prior(belief, np.zeros((channels, size)), np.zeros((channels, 0))))
    square = hyper.shared_square(belief)
    for q in range(channels):
        mean, cov = condition(streams, priors, q).shared()
        np.testing.assert_allclose(weights.mean[q], mean, **TOLERANCE)
        np.testing.assert_allclose(weights.cov[q], cov, **TOLERANCE)
        np.testing.assert_allclose(square[q], mean**2 + np.diag(cov), **TOLERANCE)


@RARE
@given(*FLEETS)
def test_cavity_and_own_data_give_each_agent_its_exact_posterior_1e_8(
    seed: int, agents: int, channels: int, size: int, local: int
) -> None:
    """(v + d_i, c_i) given everybody's data, cross terms included and nothing counted twice."""
    streams, priors = random_fleet(seed, agents, channels, size, local)
    for agent in range(agents):
        weights = personal(streams, priors, agent)
        for q in range(channels):
            mean, cov = condition(streams, priors, q).weights(agent)
            np.testing.assert_allclose(weights.mean[q], mean, **TOLERANCE)
            np.testing.assert_allclose(weights.cov[q], cov, **TOLERANCE)


@RARE
@given(*FLEETS)
def test_what_an_agent_says_of_its_deviation_is_the_dense_second_moment_1e_7(
    seed: int, agents: int, channels: int, size: int, local: int
) -> None:
    """E d^2 given everybody's data: what the scale of the deviations is learnt from."""
    streams, priors = random_fleet(seed, agents, channels, size, local)
    square = hyper.deviation_square(priors.deviation, before(streams, priors, 0), personal(streams, priors, 0))
    for q in range(channels):
        mean, cov = condition(streams, priors, q).deviation(0)
        np.testing.assert_allclose(square[q], mean**2 + np.diag(cov), rtol=1e-7, atol=1e-8)


@RARE
@given(*FLEETS)
def test_predictions_are_the_dense_conditional_of_the_next_reading_1e_8(
    seed: int, agents: int, channels: int, size: int, local: int
) -> None:
    """The next frame entered as one more unknown reading of the joint Gaussian; one frame and several at once."""
    streams, priors = random_fleet(seed, agents, channels, size, local)
    X = np.random.default_rng(seed).standard_normal((3, size + local))
    weights = personal(streams, priors, agents - 1)
    means, known = posterior.foreseen(weights, X)
    for i, x in enumerate(X):
        mean, variance = posterior.foreseen(weights, x)
        np.testing.assert_allclose(mean, means[i], **TOLERANCE)
        np.testing.assert_allclose(variance, known[i], **TOLERANCE)
        for q in range(channels):
            joint = condition(streams, priors, q)
            h = joint.row(x, agents - 1)
            np.testing.assert_allclose(mean[q], h @ joint.mean, **TOLERANCE)
            np.testing.assert_allclose(variance[q], h @ joint.cov @ h, **TOLERANCE)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(st.integers(0, 10**6), st.integers(1, 4), st.integers(0, 3))
def test_a_new_agent_knows_what_the_fleet_knows_and_its_own_layers_prior(seed: int, size: int, local: int) -> None:
    """Before its first reading: the fleet's mean, and the deviation's more variance."""
    streams, priors = random_fleet(seed, 3, 1, size, local)
    newcomer = Stream(np.zeros((0, size + local)), np.zeros((0, 1)), np.ones((0, 1)), np.ones(1))
    weights = personal([newcomer, *streams], priors, 0)
    mean, cov = condition(streams, priors, 0).shared()
    np.testing.assert_allclose(weights.mean[0], np.concatenate((mean, np.zeros(local))), **TOLERANCE)
    np.testing.assert_allclose(weights.cov[0, :size, :size], cov + np.diag(priors.deviation[0]), **TOLERANCE)
    np.testing.assert_allclose(weights.cov[0, size:, size:], np.diag(priors.local[0]), **TOLERANCE)
    assert not weights.cov[0, :size, size:].any()


def test_channels_do_not_see_each_other() -> None:
    """A channel's posterior is the same whatever another channel reads."""
    streams, priors = random_fleet(11, 2, 2, 3, 1)
    changed = [Stream(s.X, s.Y * [1.0, -7.0], s.k, s.noise_var) for s in streams]
    one, other = personal(streams, priors, 0), personal(changed, priors, 0)
    np.testing.assert_array_equal(one.mean[0], other.mean[0])
    assert np.abs(one.mean[1] - other.mean[1]).max() > 0.1
