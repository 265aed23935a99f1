"""The whole engine, statistics to prediction, against one dense joint Gaussian over the fleet and all its readings."""

from __future__ import annotations

import numpy as np
from dense_fleet import Stream, condition, random_fleet
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetgp.gp import aggregate, message, posterior
from fleetgp.gp.aggregate import Belief
from fleetgp.gp.posterior import Weights

FLEETS = (st.integers(0, 10**6), st.integers(1, 4), st.integers(1, 2), st.integers(1, 5))
RARE = settings(max_examples=50, deadline=None, derandomize=True)
# the law's tolerance; systems solved on either side have condition numbers up to about 1e6
TOLERANCE = {"rtol": 1e-8, "atol": 1e-8}


def published(streams: list[Stream], phi: np.ndarray) -> Belief:
    terms = [message.summarise(s.statistics(), s.noise_var, phi) for s in streams]
    return aggregate.posterior(terms, streams[0].Y.shape[1], len(phi))


def personal(streams: list[Stream], phi: np.ndarray, agent: int) -> Weights:
    """As an agent does: its own term taken out of what is published, then its own data put in."""
    own = streams[agent]
    term = message.summarise(own.statistics(), own.noise_var, phi)
    before = posterior.prior(aggregate.cavity(published(streams, phi), term), phi)
    return posterior.posterior(before, own.statistics(), own.noise_var)


@RARE
@given(*FLEETS)
def test_federated_shared_weights_are_those_of_all_data_pooled(
    seed: int, agents: int, channels: int, size: int
) -> None:
    """The server's sum of terms is the posterior of v with every deviation integrated out, to 1e-8."""
    streams, phi = random_fleet(seed, agents, channels, size)
    weights = posterior.prior(published(streams, phi), np.zeros(size))
    for q in range(channels):
        mean, cov = condition(streams, phi, q).shared()
        np.testing.assert_allclose(weights.mean[q], mean, **TOLERANCE)
        np.testing.assert_allclose(weights.cov[q], cov, **TOLERANCE)


@RARE
@given(*FLEETS)
def test_cavity_and_own_data_give_each_agent_its_exact_posterior(
    seed: int, agents: int, channels: int, size: int
) -> None:
    """w_i = v + d_i given everybody's data, cross terms included and nothing counted twice, to 1e-8."""
    streams, phi = random_fleet(seed, agents, channels, size)
    for agent in range(agents):
        weights = personal(streams, phi, agent)
        for q in range(channels):
            mean, cov = condition(streams, phi, q).weights(agent)
            np.testing.assert_allclose(weights.mean[q], mean, **TOLERANCE)
            np.testing.assert_allclose(weights.cov[q], cov, **TOLERANCE)


@RARE
@given(*FLEETS)
def test_predictions_are_the_dense_conditional_of_the_next_reading(
    seed: int, agents: int, channels: int, size: int
) -> None:
    """The next frame entered as one more unknown reading of the joint Gaussian, to 1e-8."""
    streams, phi = random_fleet(seed, agents, channels, size)
    x = np.random.default_rng(seed).standard_normal(size)
    law = posterior.predict(personal(streams, phi, 0), x, streams[0].noise_var)
    for q in range(channels):
        joint = condition(streams, phi, q)
        h = np.zeros(len(joint.mean))
        h[:size] = h[size : 2 * size] = x
        np.testing.assert_allclose(law.mean[q], h @ joint.mean, **TOLERANCE)
        np.testing.assert_allclose(law.variance[q], h @ joint.cov @ h + streams[0].noise_var[q], **TOLERANCE)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(st.integers(0, 10**6), st.integers(1, 4))
def test_a_new_agent_knows_what_the_fleet_knows_and_its_own_deviation(seed: int, size: int) -> None:
    """Before its first reading: the fleet's mean, and phi more variance."""
    streams, phi = random_fleet(seed, 3, 1, size)
    newcomer = Stream(np.zeros((0, size)), np.zeros((0, 1)), np.ones((0, 1)), np.ones(1))
    weights = personal([newcomer, *streams], phi, 0)
    mean, cov = condition(streams, phi, 0).shared()
    np.testing.assert_allclose(weights.mean[0], mean, **TOLERANCE)
    np.testing.assert_allclose(weights.cov[0], cov + np.diag(phi), **TOLERANCE)


def test_channels_do_not_see_each_other() -> None:
    """A channel's posterior is the same whatever another channel reads."""
    streams, phi = random_fleet(11, 2, 2, 3)
    changed = [Stream(s.X, s.Y * [1.0, -7.0], s.k, s.noise_var) for s in streams]
    before, after = personal(streams, phi, 0), personal(changed, phi, 0)
    np.testing.assert_array_equal(before.mean[0], after.mean[0])
    assert np.abs(before.mean[1] - after.mean[1]).max() > 0.1
