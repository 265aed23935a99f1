"""The paper's Algorithm 1: its bound against Monte Carlo, its gradients, and where it stands to structured inference."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch", reason="no torch here: pip install -c constraints.txt -e '.[learn]'")

import torch

from fleetgp import inducing
from fleetgp.arrays import Array
from fleetgp.gp import aggregate, hierarchy, meanfield, mixing
from fleetgp.gp.hierarchy import Ranks, Start
from fleetgp.gp.meanfield import Client, Gaussians, World

Q, M, Mi = 3, 4, 5
START = Start(
    np.linspace(0, 10, M)[:, None], np.linspace(0, 10, Mi)[:, None], np.array([2.5]), np.array([1.5]), np.full(Q, 0.1)
)


def fleet(clients: int = 2, missing: float = 0.0, seed: int = 0) -> tuple[World, list[Client]]:
    """Clients of nine frames; every Gaussian moved away from the prior."""
    rng = np.random.default_rng(seed)
    shared = hierarchy.shared(START, Ranks(2, 1, 2), rng)
    world, made = meanfield.world(shared), []
    _stir(world.shared, rng)
    for _ in range(clients):
        Y = rng.standard_normal((9, Q))
        Y[rng.random(Y.shape) < missing] = np.nan
        one = Client(rng.uniform(0, 10, (9, 1)), Y, hierarchy.own(START, Ranks(2, 1, 2), rng), shared)
        _stir(one.private.deviation, rng)
        _stir(one.private.local, rng)
        made.append(one)
    return world, made


def _stir(q: Gaussians, rng: np.random.Generator) -> None:
    with torch.no_grad():
        q.mean.add_(torch.as_tensor(0.5 * rng.standard_normal(q.mean.shape)))
        q.raw.add_(torch.as_tensor(0.3 * rng.standard_normal(q.raw.shape)))


def arrays(q: Gaussians) -> tuple[Array, Array]:
    """Mean [R, M] and covariance [R, M, M]."""
    L = q.factor().detach().numpy()
    return q.mean.detach().numpy(), L @ np.swapaxes(L, 1, 2)


@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_the_bound_is_a_monte_carlo_estimate(missing: float) -> None:
    """E log p(y, weights) - log q(weights) over 20,000 draws by numpy, less the residual penalty; within 4 standard errors."""
    world, (one, *_) = fleet(1, missing)
    mix = hierarchy.mixing(*meanfield.hyperparameters(world, one.private))
    X, Y = one.frames.X.numpy(), np.where(one.frames.seen.numpy() > 0, one.frames.Y.numpy(), np.nan)
    Fg, Fl = inducing.features(mix.shared, X), inducing.features(mix.local, X)
    layers = (
        (Fg, mix.Bg, world.shared, 1.0),
        (Fg, mix.Bd, one.private.deviation, mix.phi),
        (Fl, mix.Bl, one.private.local, 1.0),
    )
    rng, draws = np.random.default_rng(1), 20_000
    signal, log_ratio = np.zeros((draws, *Y.shape)), np.zeros(draws)
    for F, B, q, variance in layers:
        m, S = arrays(q)
        L = np.linalg.cholesky(S)
        z = rng.standard_normal((draws, *m.shape))
        v = m + np.einsum("rmk,drk->drm", L, z)
        signal += np.einsum("nm,drm,qr->dnq", F, v, B)
        log_q = -0.5 * np.sum(z**2, axis=(1, 2)) - np.sum(np.log(np.diagonal(L, axis1=1, axis2=2)))
        log_ratio += -0.5 * np.sum(v**2, axis=(1, 2)) / variance - 0.5 * m.size * np.log(variance) - log_q
    square = (Y - signal) ** 2 / mix.noise_var + np.log(2 * np.pi * mix.noise_var)
    draws_of_bound = log_ratio - 0.5 * np.nansum(square, axis=(1, 2))
    penalty = sum(
        np.sum(np.isfinite(Y) * np.outer(1 - np.sum(F**2, axis=1), np.sum(B**2, axis=1)) * scale / mix.noise_var)
        for F, B, scale in ((Fg, mix.Bg, 1.0), (Fg, mix.Bd, mix.phi), (Fl, mix.Bl, 1.0))
    )
    error = float(np.std(draws_of_bound) / np.sqrt(draws))
    assert abs(meanfield.bound(world, [one]) - (np.mean(draws_of_bound) - penalty / 2)) < 4 * error
    assert error < 0.01 * abs(np.mean(draws_of_bound))


@pytest.mark.parametrize("name", ["raw_phi", "Zg", "Bg", "raw_lengthscale", "mean", "raw"])
def test_summed_gradients_are_finite_differences_of_the_bound_1e_6(name: str) -> None:
    world, clients = fleet(2)
    told = [one.answer(world, steps=0)[0] for one in clients]
    place = world._fields.index(name)
    kl = torch.autograd.grad(meanfield.divergence(world.shared, torch.ones(())), list(world), materialize_grads=True)
    summed = (sum(one[place] for one in told) - kl[place]).numpy()
    value, expected = getattr(world, name), np.zeros(summed.shape)
    for index in np.ndindex(summed.shape):
        sides = []
        for step in (1e-5, -1e-5):
            with torch.no_grad():
                value[index] += step
                sides.append(meanfield.bound(world, clients))
                value[index] -= step
        expected[index] = (sides[0] - sides[1]) / 2e-5
    np.testing.assert_allclose(summed, expected, rtol=1e-6, atol=1e-6)


def structured(world: World, clients: list[Client]) -> tuple[list[mixing.Mixing], list[mixing.Posterior], Array, float]:
    """Models, posteriors and the shared precision by structured inference at the same hyperparameters; and the evidence."""
    mixes = [hierarchy.mixing(*meanfield.hyperparameters(world, one.private)) for one in clients]
    sums = [
        mixing.summed(mix, one.frames.X.numpy(), np.where(one.frames.seen.numpy() > 0, one.frames.Y.numpy(), np.nan))
        for mix, one in zip(mixes, clients, strict=True)
    ]
    messages = [mixing.summarise(*pair) for pair in zip(mixes, sums, strict=True)]
    belief = mixing.posterior(messages, mixes[0].sizes[0])
    posteriors = [
        mixing.condition(mix, s, aggregate.cavity(belief, message.term))
        for mix, s, message in zip(mixes, sums, messages, strict=True)
    ]
    precision = np.eye(mixes[0].sizes[0]) + sum(
        mixing.information(mix, s)[0][: mixes[0].sizes[0], : mixes[0].sizes[0]]
        for mix, s in zip(mixes, sums, strict=True)
    )
    return mixes, posteriors, precision, mixing.evidence(messages, belief)


def put(q: Gaussians, mean: Array, precision: Array) -> None:
    """q at this mean [R M] with the inverse of each latent's block of the precision [R M, R M]: mean-field's optimum."""
    R, size = q.mean.shape
    with torch.no_grad():
        q.mean.copy_(torch.as_tensor(mean.reshape(R, size)))
        for r in range(R):
            block = slice(r * size, (r + 1) * size)
            L = np.linalg.cholesky(np.linalg.inv(precision[block, block]))
            q.raw[r] = torch.as_tensor(np.tril(L, -1) + np.diag(np.log(np.expm1(np.diag(L)))))


@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_mean_field_ends_at_the_structured_means_with_a_lower_bound(missing: float) -> None:
    """At the structured means, and covariances the inverse of the precision's blocks, the bound has no slope; it is a concave
    function of both, so that is its top."""
    world, clients = fleet(3, missing)
    mixes, posteriors, precision, evidence = structured(world, clients)
    assert meanfield.bound(world, clients) < evidence
    put(world.shared, posteriors[0].mean[: mixes[0].sizes[0]], precision)
    for one, mix, known in zip(clients, mixes, posteriors, strict=True):
        F, d, _ = mix.sizes
        A = mixing.information(
            mix,
            mixing.summed(
                mix, one.frames.X.numpy(), np.where(one.frames.seen.numpy() > 0, one.frames.Y.numpy(), np.nan)
            ),
        )[0]
        # there the deviation's weights have the prior variance phi, here 1
        put(
            one.private.deviation,
            np.sqrt(mix.phi) * known.mean[F : F + d],
            (A + np.eye(len(A)))[F : F + d, F : F + d] / mix.phi,
        )
        put(one.private.local, known.mean[F + d :], (A + np.eye(len(A)))[F + d :, F + d :])
    values = [world.mean, world.raw, *(t for one in clients for t in (*one.private.deviation, *one.private.local))]
    total = -meanfield.divergence(world.shared, torch.ones(()))
    for one in clients:
        total = total + meanfield.elbo(meanfield.fixed(world, one.frames), one.private, one.frames)
    for slope in torch.autograd.grad(total, values):
        np.testing.assert_allclose(np.tril(slope.numpy()) if slope.ndim == 3 else slope.numpy(), 0.0, atol=1e-6)
    assert float(total.detach()) < evidence


def test_its_law_is_that_of_weights_drawn_from_its_gaussians() -> None:
    """Mean and covariance across channels over 40,000 draws; features leave out what the residual adds."""
    world, (one, *_) = fleet(1)
    x = np.array([[3.3]])
    law = meanfield.predict(world, one.private, x)
    mix = hierarchy.mixing(*meanfield.hyperparameters(world, one.private))
    rng, total = np.random.default_rng(2), np.zeros((40_000, Q))
    left = np.diag(mix.noise_var).copy()
    for basis, B, q, scale in (
        (mix.shared, mix.Bg, world.shared, 1.0),
        (mix.shared, mix.Bd, one.private.deviation, mix.phi),
        (mix.local, mix.Bl, one.private.local, 1.0),
    ):
        F = inducing.features(basis, x)[0]
        m, S = arrays(q)
        for r in range(len(m)):
            total += np.outer(rng.multivariate_normal(m[r], S[r], len(total)) @ F, B[:, r])
        left += scale * (1 - F @ F) * B @ B.T
    np.testing.assert_allclose(law.mean[0], total.mean(axis=0), atol=4 * total.std() / 200)
    np.testing.assert_allclose(law.cov[0], np.cov(total.T) + left, rtol=0.05, atol=0.03)


def test_rounds_raise_the_bound() -> None:
    _, clients = fleet(2)
    server = meanfield.Server(hierarchy.shared(START, Ranks(2, 1, 2), np.random.default_rng(0)))
    before = meanfield.bound(server.world, clients)
    for _ in range(4):
        server.step([one.answer(server.world, steps=20)[0] for one in clients])
    assert meanfield.bound(server.world, clients) > before + 10
