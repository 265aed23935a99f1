"""The coordinator's sum: order, grouping, taking out, and the covariance intersection that may never claim too much."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from dense_fleet import Priors, Stream, condition, plain, random_fleet
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetgp.gp import aggregate, message, posterior
from fleetgp.gp.aggregate import Belief
from fleetgp.gp.message import Term

RARE = settings(max_examples=40, deadline=None, derandomize=True)
SEED = st.integers(0, 10**6)


def terms_of(seed: int, agents: int, channels: int, size: int) -> list[Term]:
    streams, priors = random_fleet(seed, agents, channels, size)
    return [message.summarise(s.statistics(), s.noise_var, priors.deviation, priors.local) for s in streams]


def assert_same(a: Belief, b: Belief, rtol: float) -> None:
    for x, y in zip(a, b, strict=True):
        np.testing.assert_allclose(x, y, rtol=0, atol=rtol * (1 + np.abs(y).max()))


def test_a_fleet_of_nobody_knows_the_prior() -> None:
    prior_var = np.array([[1.0, 4.0, 0.5], [2.0, 1.0, 0.1]])
    belief = aggregate.posterior([], prior_var)
    np.testing.assert_array_equal(belief.precision, [np.diag(1 / row) for row in prior_var])
    np.testing.assert_array_equal(belief.shift, np.zeros((2, 3)))


def test_the_order_of_agents_does_not_matter() -> None:
    terms = terms_of(1, 4, 2, 3)
    whole = aggregate.posterior(terms, np.ones((2, 3)))
    for order in permutations(terms):
        # sums of four numbers in another order: last bits
        assert_same(aggregate.posterior(order, np.ones((2, 3))), whole, rtol=1e-13)


@RARE
@given(SEED, st.integers(1, 4), st.integers(1, 2), st.integers(1, 4), st.floats(0.001, 1.0))
def test_taking_a_term_out_is_a_server_that_never_heard_the_agent(
    seed: int, agents: int, channels: int, size: int, factor: float
) -> None:
    """At the ageing factor at which it is held; the fleet of one goes back to the prior."""
    terms = terms_of(seed, agents, channels, size)
    own, prior_var = message.scaled(terms[0], factor), np.random.default_rng(seed).uniform(0.1, 10, (channels, size))
    without = aggregate.cavity(aggregate.posterior([own, *terms[1:]], prior_var), own)
    # terms up to 1e5 are added and subtracted
    assert_same(without, aggregate.posterior(terms[1:], prior_var), rtol=1e-10)


def test_a_mean_in_the_published_posterior_is_weighted_by_precision() -> None:
    """Two agents, one weight: the closed form of three Gaussians multiplied, prior included."""
    terms = [Term(np.full((1, 1, 1), p), np.full((1, 1), p * m)) for p, m in ((3.0, 2.0), (6.0, -1.0))]
    belief = aggregate.posterior(terms, np.full((1, 1), 0.25))
    weights = posterior.unlearnt(posterior.prior(belief, np.zeros((1, 1)), np.zeros((1, 0))))
    assert weights.cov.item() == pytest.approx(1 / (4 + 3 + 6))
    assert weights.mean.item() == pytest.approx((0 * 4 + 2 * 3 - 1 * 6) / 13)


def strong_fleet(seed: int, agents: int, size: int, local: int) -> tuple[list[Stream], Priors]:
    """Streams that tell much, in directions and amounts far apart, and own layers from stiff to loose."""
    rng = np.random.default_rng(seed)
    streams = []
    for _ in range(agents):
        n = int(rng.integers(1, 5))
        X = rng.standard_normal((n, size + local)) * 10 ** rng.uniform(-1, 1.5, size + local)
        streams.append(Stream(X, rng.standard_normal((n, 1)), np.ones((n, 1)), np.ones(1)))
    shared, deviation = 10 ** rng.uniform(-1, 1, (1, size)), 10 ** rng.uniform(-3, 1, (1, size))
    return streams, Priors(shared, deviation, 10 ** rng.uniform(-2, 0, (1, local)))


def careful(streams: list[Stream], priors: Priors, held: float) -> posterior.Weights:
    """Agent 0 by covariance intersection, where the server's copy of its term knows ``held`` of its data."""
    own, others = streams[0], streams[1:]
    known = type(own.statistics())(*(held * x for x in own.statistics()))
    terms = [message.summarise(known, own.noise_var, priors.deviation, priors.local)]
    terms += [message.summarise(s.statistics(), s.noise_var, priors.deviation, priors.local) for s in others]
    belief = aggregate.halved(aggregate.posterior(terms, priors.shared), priors.shared)
    before = posterior.prior(belief, priors.deviation, priors.local, own_weight=0.5)
    return posterior.posterior(before, own.statistics(), own.noise_var, own_weight=0.5)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(SEED, st.integers(1, 4), st.integers(1, 4), st.integers(0, 2), st.floats(0.0, 1.0))
def test_a_covariance_intersection_is_never_more_certain_than_the_exact_posterior(
    seed: int, agents: int, size: int, local: int, held: float
) -> None:
    """In no direction of the agent's weights, however strong the others, however anisotropic the deviation.

    ``held``: how much of the agent's own data the server's copy of its term knows: all of it, or an older part.
    """
    streams, priors = strong_fleet(seed, agents, size, local)
    exact = condition(streams, priors, 0).weights(0)[1]
    L = np.linalg.cholesky(exact)
    cov = careful(streams, priors, held).cov[0]
    ratios = np.linalg.eigvalsh(np.linalg.solve(L, np.linalg.solve(L, cov).T))
    # variances up to 1e6 apart between directions cost the dense computation as many digits
    assert ratios[0] >= 1 - 1e-7


@RARE
@given(SEED, st.integers(1, 4), st.integers(0, 2))
def test_a_covariance_intersection_with_nobody_but_itself_foresees_what_the_exact_posterior_does(
    seed: int, size: int, local: int
) -> None:
    """Half of its own from the server and half at home make one whole: the same mean, in every direction."""
    streams, priors = strong_fleet(seed, 1, size, local)
    mean, exact = careful(streams, priors, 1.0).mean[0], condition(streams, priors, 0).weights(0)[0]
    np.testing.assert_allclose(mean[:size], exact[:size], rtol=1e-7, atol=1e-7)


def test_a_covariance_intersection_of_silent_agents_is_the_prior() -> None:
    prior_var = np.array([[1.0, 2.0, 0.1], [0.5, 1.0, 1.0]])
    belief = aggregate.prior(prior_var)
    assert_same(aggregate.halved(belief, prior_var), belief, rtol=0)
    assert plain(2, 3).size == 3


def test_pooled_noise_is_the_geometric_mean_weighted_by_counts() -> None:
    noise = aggregate.pooled_noise(np.array([[1.0, 4.0], [100.0, 4.0]]), np.array([[1.0, 7.0], [3.0, 2.0]]))
    np.testing.assert_allclose(noise, [1.0 ** (1 / 4) * 100 ** (3 / 4), 4.0], rtol=1e-12)


def test_pooled_noise_of_agents_that_saw_nothing_is_what_they_guess() -> None:
    np.testing.assert_allclose(aggregate.pooled_noise(np.array([[1.0], [4.0]]), np.zeros((2, 1))), [2.0], rtol=1e-12)
    ignored = aggregate.pooled_noise(np.array([[1.0], [4.0]]), np.array([[0.0], [5.0]]))
    np.testing.assert_allclose(ignored, [4.0], rtol=1e-9)


@RARE
@given(SEED, st.floats(1e-6, 1e6))
def test_pooled_noise_changes_units_with_its_channel(seed: int, ratio: float) -> None:
    rng = np.random.default_rng(seed)
    noise_vars, counts = 10 ** rng.uniform(-3, 3, (4, 2)), rng.integers(0, 50, (4, 2)).astype(float)
    scaled = aggregate.pooled_noise(noise_vars * ratio, counts)
    np.testing.assert_allclose(scaled, ratio * aggregate.pooled_noise(noise_vars, counts), rtol=1e-12)
