"""Structured inference with loadings against one dense Gaussian over all readings of the fleet."""

from __future__ import annotations

import numpy as np
import pytest
from dense_mixing import Readings, log_density, predict, random_fleet
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetgp import inducing
from fleetgp.arrays import Array
from fleetgp.covariances import Periodic, Stationary
from fleetgp.gp import aggregate, mixing
from fleetgp.gp.aggregate import Belief
from fleetgp.gp.mixing import Message, Mixing, Posterior

RARE = settings(max_examples=40, deadline=None, derandomize=True)
SEED = st.integers(0, 10**6)
RANKS = st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 3))
# systems on either side have condition numbers up to about 1e6
CLOSE = {"rtol": 1e-7, "atol": 1e-7}


def message(one: Readings) -> Message:
    return mixing.summarise(one.mix, mixing.summed(one.mix, one.X, one.Y))


def belief(fleet: list[Readings]) -> Belief:
    return mixing.posterior([message(one) for one in fleet], fleet[0].mix.sizes[0])


def personal(fleet: list[Readings], client: int) -> Posterior:
    """As a client does: its own message out of the fleet's belief, its own sums in."""
    me = fleet[client]
    cavity = aggregate.cavity(belief(fleet), message(me).term)
    return mixing.condition(me.mix, mixing.summed(me.mix, me.X, me.Y), cavity)


def evidence(fleet: list[Readings]) -> float:
    messages = [message(one) for one in fleet]
    return mixing.evidence(messages, mixing.posterior(messages, fleet[0].mix.sizes[0]))


def inputs(seed: int) -> Array:
    return np.random.default_rng(seed).standard_normal((3, 2))


@RARE
@given(SEED, st.integers(1, 3), st.integers(1, 3), RANKS)
def test_one_round_is_the_dense_gaussian_of_all_readings_1e_7(
    seed: int, clients: int, channels: int, ranks: tuple[int, int, int]
) -> None:
    """Mean and covariance over frames and channels; ranks 0 and above the number of channels, missing channels, no frames."""
    fleet = random_fleet(seed, clients, channels, ranks)
    Xs, client = inputs(seed), seed % clients
    mix, weights = fleet[client].mix, personal(fleet, client)
    H, _ = mixing.design(mix, Xs)
    H = H.reshape(H.shape[0] * H.shape[1], H.shape[2])
    mean, cov = predict(fleet, client, Xs, is_sparse=True)
    np.testing.assert_allclose(H @ weights.mean, mean, **CLOSE)
    np.testing.assert_allclose(H @ weights.cov @ H.T, cov, **CLOSE)


@RARE
@given(SEED, st.integers(1, 3), st.integers(1, 3), RANKS)
def test_the_evidence_is_the_sparse_density_less_what_features_leave_out_and_below_the_exact_one(
    seed: int, clients: int, channels: int, ranks: tuple[int, int, int]
) -> None:
    """Titsias' bound: log N(y | 0, Q + noise) - tr(K - Q) / (2 noise), the trace of dense matrices."""
    fleet = random_fleet(seed, clients, channels, ranks)
    penalty = 0.0
    for one in fleet:
        loadings = (
            (one.mix.shared, one.mix.Bg),
            (one.mix.shared, np.sqrt(one.mix.phi) * one.mix.Bd),
            (one.mix.local, one.mix.Bl),
        )
        for basis, B in loadings:
            left = inducing.residual(inducing.features(basis, one.X))
            penalty += float(np.sum(np.isfinite(one.Y) * np.outer(left, np.sum(B**2, axis=1)) / one.mix.noise_var))
    bound = evidence(fleet)
    assert bound == pytest.approx(log_density(fleet, is_sparse=True) - penalty / 2, rel=1e-7, abs=1e-7)
    assert bound <= log_density(fleet, is_sparse=False) + 1e-7


WAVE = Periodic(0, 2.5, 1.0, 0.6) * Stationary("se", (0,), np.array([5.0])) + Stationary(
    "matern32", (0,), np.array([2.0]), 0.5
)


def exact(seed: int, *, clients: int = 1, is_composed: bool = False) -> tuple[list[Readings], Array]:
    """A fleet whose inducing inputs are all its inputs and those of the prediction: sparse and exact are one."""
    rng = np.random.default_rng(seed)
    points = np.linspace(0, 6, 6 * clients + 4)[:, None] + rng.uniform(-0.1, 0.1, (6 * clients + 4, 1))
    shared, local = (inducing.make("matern52", (0,), points, np.array([length]), jitter=1e-10) for length in (2.0, 0.7))
    if is_composed:
        shared = inducing.make(WAVE, (0,), points, np.exp(WAVE.values), jitter=1e-10)
    Bg, fleet = rng.standard_normal((3, 2)), []
    for i in range(clients):
        mix = Mixing(shared, local, Bg, rng.standard_normal((3, 2)), rng.standard_normal((3, 1)), 0.4, np.full(3, 0.05))
        fleet.append(Readings(points[6 * i : 6 * i + 6], rng.standard_normal((6, 3)), mix))
    return fleet, points[-4:]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("clients", "is_composed"), [(1, False), (3, False), (3, True)])
def test_a_window_with_inducing_inputs_everywhere_is_the_exact_process_with_the_summed_kernel_1e_6(
    seed: int, clients: int, is_composed: bool
) -> None:
    """A fleet of one is then one private process: Bg Bg' kg + phi Bd Bd' kg + Bl Bl' ki. Frames of a window are correlated."""
    fleet, Xs = exact(seed, clients=clients, is_composed=is_composed)
    mean, cov = mixing.window(fleet[0].mix, personal(fleet, 0), Xs, is_noisy=False)
    expected_mean, expected_cov = predict(fleet, 0, Xs, is_sparse=False)
    np.testing.assert_allclose(mean, expected_mean, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(cov, expected_cov, rtol=1e-6, atol=1e-6)
    assert evidence(fleet) == pytest.approx(log_density(fleet, is_sparse=False), rel=1e-6)


@RARE
@given(SEED, st.integers(1, 3), RANKS)
def test_a_frame_is_a_window_of_one(seed: int, channels: int, ranks: tuple[int, int, int]) -> None:
    fleet = random_fleet(seed, 2, channels, ranks)
    weights, Xs = personal(fleet, 0), inputs(seed)
    law = mixing.predict(fleet[0].mix, weights, Xs)
    mean, cov = mixing.window(fleet[0].mix, weights, Xs)
    np.testing.assert_allclose(law.mean.ravel(), mean, rtol=1e-12, atol=1e-12)
    blocks = cov.reshape(len(Xs), channels, len(Xs), channels)
    for i in range(len(Xs)):
        # the jitter of the features: k(x, x) of a far input is 1, and its residual no less than 0
        np.testing.assert_allclose(law.cov[i], blocks[i, :, i], rtol=1e-9, atol=1e-9)


def test_identity_loadings_are_independent_channels() -> None:
    """With Bg = Bd = Bl = I every channel is what a fleet of that channel alone makes of it, missing readings included."""
    rng = np.random.default_rng(3)
    fleet = random_fleet(3, 3, 2, (2, 2, 2), missing=0.3)
    one = np.eye(2)
    whole = [Readings(r.X, r.Y, r.mix._replace(Bg=one, Bd=one, Bl=one)) for r in fleet]
    Xs = rng.standard_normal((5, 2))
    law = mixing.predict(whole[1].mix, personal(whole, 1), Xs)
    np.testing.assert_allclose(law.cov[:, 0, 1], 0.0, atol=1e-12)
    for q in range(2):
        alone = [
            Readings(
                r.X,
                r.Y[:, q : q + 1],
                r.mix._replace(Bg=one[:1, :1], Bd=one[:1, :1], Bl=one[:1, :1], noise_var=r.mix.noise_var[q : q + 1]),
            )
            for r in fleet
        ]
        expected = mixing.predict(alone[1].mix, personal(alone, 1), Xs)
        np.testing.assert_allclose(law.mean[:, q], expected.mean[:, 0], rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(law.cov[:, q, q], expected.cov[:, 0, 0], rtol=1e-9, atol=1e-9)


def test_turned_loadings_are_the_same_model() -> None:
    """Only B B^T is identified: the latents of a layer may be turned among themselves."""
    rng = np.random.default_rng(5)
    fleet = random_fleet(5, 3, 3, (2, 2, 2))
    turn, _ = np.linalg.qr(rng.standard_normal((2, 2)))
    turned = [Readings(r.X, r.Y, r.mix._replace(Bg=r.mix.Bg @ turn, Bl=r.mix.Bl @ turn.T)) for r in fleet]
    Xs = rng.standard_normal((4, 2))
    a, b = (mixing.predict(f[0].mix, personal(f, 0), Xs) for f in (fleet, turned))
    np.testing.assert_allclose(a.mean, b.mean, **CLOSE)
    np.testing.assert_allclose(a.cov, b.cov, **CLOSE)
    assert evidence(fleet) == pytest.approx(evidence(turned), rel=1e-9)


@RARE
@given(SEED, RANKS)
def test_the_parts_of_a_prediction_sum_to_it_and_each_is_a_layer(seed: int, ranks: tuple[int, int, int]) -> None:
    fleet = random_fleet(seed, 2, 3, ranks)
    weights, Xs = personal(fleet, 0), inputs(seed)
    means, sds = mixing.parts(fleet[0].mix, weights, Xs)
    np.testing.assert_allclose(means.sum(axis=0), mixing.predict(fleet[0].mix, weights, Xs).mean, rtol=1e-9, atol=1e-9)
    for layer, rank in enumerate(ranks):
        assert np.all(sds[layer] > 0) if rank else np.all(means[layer] == 0) and np.all(sds[layer] == 0)


def test_sums_of_two_halves_are_those_of_the_whole() -> None:
    fleet = random_fleet(11, 1, 3, (2, 1, 1))
    mix, rng = fleet[0].mix, np.random.default_rng(11)
    X, Y = rng.standard_normal((20, 2)), rng.standard_normal((20, 3))
    Y[rng.random(Y.shape) < 0.2] = np.nan
    halves = mixing.merge(mixing.summed(mix, X[:7], Y[:7]), mixing.summed(mix, X[7:], Y[7:]))
    whole = mixing.summed(mix, X, Y)
    for a, b in zip((*halves.statistics, halves.residual), (*whole.statistics, whole.residual), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("case", ["no frames", "one", "repeated", "constant", "a channel missing", "far"])
def test_odd_readings_leave_a_law_that_can_be_used(case: str) -> None:
    """Variances positive, no wider than the prior's; far away it is the prior."""
    mix = random_fleet(2, 1, 3, (2, 2, 2))[0].mix
    rng = np.random.default_rng(2)
    X, Y = rng.standard_normal((12, 2)), rng.standard_normal((12, 3))
    if case == "no frames":
        X, Y = X[:0], Y[:0]
    elif case == "one":
        X, Y = X[:1], Y[:1]
    elif case == "repeated":
        X = np.tile(X[:1], (12, 1))
    elif case == "constant":
        Y = np.full_like(Y, 4.0)
    elif case == "a channel missing":
        Y[:, 1] = np.nan
    elif case == "far":
        X = X + 1e6
    fleet = [Readings(X, Y, mix)]
    Xs = np.concatenate((inputs(2), np.full((1, 2), 1e8)))
    law = mixing.predict(mix, personal(fleet, 0), Xs)
    prior = mix.Bg @ mix.Bg.T + mix.phi * mix.Bd @ mix.Bd.T + mix.Bl @ mix.Bl.T + np.diag(mix.noise_var)
    assert np.all(np.linalg.eigvalsh(law.cov) > 0)
    assert np.all(np.linalg.eigvalsh(prior - law.cov) > -1e-9)
    np.testing.assert_allclose(law.cov[-1], prior, rtol=1e-12)
    np.testing.assert_array_equal(law.mean[-1], 0.0)
    if case in ("no frames", "far"):
        np.testing.assert_allclose(law.mean[:3], 0.0, atol=1e-9)
