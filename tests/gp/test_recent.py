"""Evidence of recent frames: messages, constants and gradients of a fleet against dense Gaussians and finite differences."""

from __future__ import annotations

import numpy as np
from scipy import stats

from fleetgp import features, inducing
from fleetgp.arrays import Array
from fleetgp.features import Basis, Shape
from fleetgp.gp import aggregate, hyper, recent
from fleetgp.gp.recent import Recent
from fleetgp.scaling import Scaling

Q, M, M_LOCAL = 2, 5, 3
SHAPE = Shape(Q, 1, 1)
COLUMNS = (0, 1, 2)
RNG = np.random.default_rng(5)
Z, LOG_LENGTHSCALE = RNG.standard_normal((M, 3)), np.log([1.2, 0.8, 1.5])
LOCAL = inducing.make("se", COLUMNS, RNG.standard_normal((M_LOCAL, 3)), np.ones(3))
BASIS = Basis(
    SHAPE, Scaling(np.zeros(3), np.ones(3)), inducing.make("matern52", COLUMNS, Z, np.exp(LOG_LENGTHSCALE)), LOCAL
)
BLOCKS = features.blocks(SHAPE, M)
SCALES = hyper.start(Q)
PRIOR, DEVIATION = hyper.by_feature(SCALES.shared, BLOCKS), hyper.by_feature(SCALES.deviation, BLOCKS)


def agent(frames: int) -> Recent:
    """Frames of which some readings are missing and some count half."""
    weights = RNG.choice([0.0, 1.0, 0.5], (frames, Q), p=[0.1, 0.7, 0.2])
    inputs, targets = RNG.standard_normal((frames, SHAPE.inputs)), RNG.standard_normal((frames, Q))
    own = (np.array([0.3, 0.5]), DEVIATION, np.full((Q, M_LOCAL), 0.1), np.array([4.0, 30.0]))
    return Recent(inputs, targets, weights, BASIS, *own)


AGENTS = [agent(30), agent(24)]


def covariance(basis: Basis, q: int, agents: list[Recent], count: list[int]) -> tuple[Array, Array]:
    """Covariance of all agents' first readings of a channel, in the space of readings, and the readings."""
    X = [features.features(basis, one.inputs[:n]) for one, n in zip(agents, count, strict=True)]
    shared = np.concatenate([x[:, : basis.size] for x in X])
    K, begin = shared @ np.diag(PRIOR[q]) @ shared.T, 0
    noise, y = np.zeros(len(K)), np.zeros(len(K))
    for x, one in zip(X, agents, strict=True):
        s = slice(begin, begin + len(x))
        own = np.concatenate((one.deviation_var[q], one.local_var[q]))
        K[s, s] += x @ np.diag(own) @ x.T
        with np.errstate(divide="ignore"):
            noise[s], y[s] = one.noise_var[q] / one.weights[: len(x), q], one.targets[: len(x), q]
        begin += len(x)
    seen = np.isfinite(noise)
    return K[np.ix_(seen, seen)] + np.diag(noise[seen]), y[seen]


def evidence(Z: Array, log_lengthscale: Array) -> float:
    """Log density of all that teaches."""
    basis = BASIS._replace(shared=inducing.make("matern52", COLUMNS, Z, np.exp(log_lengthscale)))
    total = 0.0
    for q in range(Q):
        S, y = covariance(basis, q, AGENTS, [one.taught for one in AGENTS])
        total += float(stats.multivariate_normal.logpdf(y, np.zeros(len(y)), S))
    return total


def differences(at: Array, other: Array, is_first: bool) -> Array:
    """Central differences of the evidence, entry by entry."""
    result, h = np.zeros_like(at), 1e-5
    for index in np.ndindex(at.shape):
        step = np.zeros_like(at)
        step[index] = h
        pairs = [(at + sign * step, other) if is_first else (other, at + sign * step) for sign in (1, -1)]
        result[index] = (evidence(*pairs[0]) - evidence(*pairs[1])) / (2 * h)
    return result


def test_messages_and_constants_add_up_to_the_evidence_of_all_frames() -> None:
    told = [recent.tell(one, BASIS.shared) for one in AGENTS]  # type: ignore[arg-type]
    belief = aggregate.posterior([term for term, _ in told], PRIOR)
    found = aggregate.log_evidence(belief, PRIOR) + sum(constant for _, constant in told)
    np.testing.assert_allclose(found, evidence(Z, LOG_LENGTHSCALE), rtol=1e-10)


def test_gradients_of_agents_add_up_to_finite_differences_of_the_evidence() -> None:
    assert BASIS.shared is not None
    told = [recent.tell(one, BASIS.shared)[0] for one in AGENTS]
    belief = aggregate.posterior(told, PRIOR)
    judged = [
        recent.judge(one, BASIS.shared, aggregate.cavity(belief, term)) for one, term in zip(AGENTS, told, strict=True)
    ]
    for_Z, for_length = sum(one.inducing for one in judged), sum(one.log_lengthscale for one in judged)
    np.testing.assert_allclose(for_Z, differences(Z, LOG_LENGTHSCALE, True), atol=1e-7)
    np.testing.assert_allclose(for_length, differences(LOG_LENGTHSCALE, Z, False), atol=1e-7)


def test_held_out_frames_are_foreseen_from_all_that_taught_and_from_each_other() -> None:
    """The dense posterior of each frame given the other agent's, this one's older, and those between."""
    assert BASIS.shared is not None
    other, one = AGENTS
    belief = aggregate.posterior([recent.tell(other, BASIS.shared)[0]], PRIOR)
    found = recent.judge(one, BASIS.shared, belief).held_out
    assert found.shape == (len(one.inputs) - one.taught, Q)
    np.testing.assert_array_equal(np.isnan(found), one.weights[one.taught :] == 0)
    for q in range(Q):
        for index in np.flatnonzero(one.weights[one.taught :, q] > 0):
            S, y = covariance(BASIS, q, [other, one], [other.taught, one.taught + int(index) + 1])
            known = np.linalg.solve(S[:-1, :-1], S[:-1, -1])
            variance = S[-1, -1] - S[:-1, -1] @ known
            degrees = one.degrees[q]
            law = stats.t(degrees, known @ y[:-1], np.sqrt(variance * (degrees - 2) / degrees))
            np.testing.assert_allclose(found[index, q], law.logpdf(y[-1]), rtol=1e-8)
