"""The pFedHGP paper's Algorithm 1 to the letter: mean-field Gaussians, local Adam, one server Adam step a round.

One Gaussian q for each latent draw of each layer, in the whitened weights of the shared basis (prior N(0, I); the deviation's
N(0, phi I)) and of the local one. It exists to reproduce the paper's section 4 and to be measured against (models.md section 4,
"Reference"); what the fleet uses is ``mixing`` and ``tune``. All latents of a layer are computed at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import softplus

from fleetgp.arrays import Array
from fleetgp.gp import mixing
from fleetgp.gp.hierarchy import Own, Shared
from fleetgp.gp.hierarchy import mixing as mixed
from fleetgp.gp.mixing import Law
from fleetgp.inducing import JITTER
from fleetgp.schema import Kernel

ROUNDS, STEPS, RATE = 20, 80, 0.1


class Frames(NamedTuple):
    """A client's readings: X [n, D]; Y [n, Q], 0 where missing; seen [n, Q], 0 or 1."""

    X: Tensor
    Y: Tensor
    seen: Tensor


class Basis(NamedTuple):
    """Features of the frames on one basis: F [n, M]; residual [Q]: sums of 1 - |F|^2 over each channel's frames."""

    F: Tensor
    residual: Tensor


class Gaussians(NamedTuple):
    """One Gaussian a latent: mean [R, M]; raw [R, M, M], of which the lower part is the factor, its diagonal by softplus."""

    mean: Tensor
    raw: Tensor

    def factor(self) -> Tensor:
        return torch.tril(self.raw, -1) + torch.diag_embed(softplus(torch.diagonal(self.raw, dim1=1, dim2=2)))


class World(NamedTuple):
    """What the server holds: loadings Bg [Q, Rg], Zg [M, D]; by softplus the lengthscale [D] and phi []; q of the shared weights."""

    Bg: Tensor
    Zg: Tensor
    raw_lengthscale: Tensor
    raw_phi: Tensor
    mean: Tensor
    raw: Tensor

    @property
    def shared(self) -> Gaussians:
        return Gaussians(self.mean, self.raw)


class Private(NamedTuple):
    """What a client holds: loadings, Zi [Mi, D]; by softplus the lengthscale [D] and noise_var [Q]; q of both own layers."""

    Bd: Tensor
    Bl: Tensor
    Zi: Tensor
    raw_lengthscale: Tensor
    raw_noise_var: Tensor
    mean_d: Tensor
    raw_d: Tensor
    mean_l: Tensor
    raw_l: Tensor

    @property
    def deviation(self) -> Gaussians:
        return Gaussians(self.mean_d, self.raw_d)

    @property
    def local(self) -> Gaussians:
        return Gaussians(self.mean_l, self.raw_l)


class Fixed(NamedTuple):
    """What of a client's bound does not move while the server's values stay: features; shared mean [n, Q], variance sums [Q]."""

    basis: Basis
    phi: Tensor
    mean: Tensor
    spread: Tensor


def world(shared: Shared) -> World:
    """The server's first values; q starts at the prior."""
    Rg, M = shared.Bg.shape[1], len(shared.Zg)
    raw = _inverse_softplus(np.exp(shared.log_lengthscale)), _inverse_softplus(np.exp(shared.log_phi))
    return World(*_leaves(shared.Bg, shared.Zg, *raw, np.zeros((Rg, M)), _unit(Rg, M)))


def private(own: Own, shared: Shared) -> Private:
    """A client's first values; q starts at the prior."""
    Rd, M, Rl, Mi = own.Bd.shape[1], len(shared.Zg), own.Bl.shape[1], len(own.Zi)
    raw = _inverse_softplus(np.exp(own.log_lengthscale)), _inverse_softplus(np.exp(own.log_noise_var))
    phi = float(np.exp(shared.log_phi))
    gaussians = np.zeros((Rd, M)), _unit(Rd, M, np.sqrt(phi)), np.zeros((Rl, Mi)), _unit(Rl, Mi)
    return Private(*_leaves(own.Bd, own.Bl, own.Zi, *raw, *gaussians))


def frames(X: Array, Y: Array) -> Frames:
    """Frames of inputs X [n, D] and readings Y [n, Q], NaN where missing."""
    seen = np.isfinite(Y)
    arrays = np.asarray(X, dtype=float), np.where(seen, Y, 0.0), seen.astype(float)
    return Frames(*(torch.tensor(a) for a in arrays))


def basis(Z: Tensor, log_lengthscale: Tensor, frames: Frames, kernel: Kernel) -> Basis:
    """Whitened inducing features of the frames, differentiable in Z and the lengthscale."""
    scale = torch.exp(log_lengthscale)
    L = torch.linalg.cholesky(_covariance(Z / scale, Z / scale, kernel) + JITTER * torch.eye(len(Z), dtype=Z.dtype))
    F = torch.linalg.solve_triangular(L, _covariance(Z / scale, frames.X / scale, kernel), upper=False).mT
    return Basis(F, frames.seen.mT @ (1.0 - torch.sum(F * F, dim=1)))


def fixed(w: World, frames: Frames, kernel: Kernel = "se") -> Fixed:
    """The server's part of a client's bound, differentiable in the server's values."""
    phi, on_shared = softplus(w.raw_phi), basis(w.Zg, torch.log(softplus(w.raw_lengthscale)), frames, kernel)
    mean = on_shared.F @ w.mean.mT @ w.Bg.mT
    spread = torch.sum(w.Bg**2 * (frames.seen.mT @ _variances(on_shared.F, w.shared)), dim=1)
    return Fixed(on_shared, phi, mean, spread + torch.sum(w.Bg**2, dim=1) * on_shared.residual)


def elbo(f: Fixed, own: Private, frames: Frames, kernel: Kernel = "se") -> Tensor:
    """A client's bound in nats, its KL terms taken off; the server takes off that of the shared weights once."""
    local = basis(own.Zi, torch.log(softplus(own.raw_lengthscale)), frames, kernel)
    noise_var = softplus(own.raw_noise_var)
    mean = f.mean + f.basis.F @ own.mean_d.mT @ own.Bd.mT + local.F @ own.mean_l.mT @ own.Bl.mT
    error = torch.sum(frames.seen * (frames.Y - mean) ** 2, dim=0)
    known = frames.seen.mT @ _variances(f.basis.F, own.deviation), frames.seen.mT @ _variances(local.F, own.local)
    spread = torch.sum(own.Bd**2 * (known[0] + f.phi * f.basis.residual[:, None]), dim=1)
    spread = spread + torch.sum(own.Bl**2 * (known[1] + local.residual[:, None]), dim=1)
    counts = torch.sum(frames.seen, dim=0)
    fit = counts * torch.log(2 * math.pi * noise_var) + (error + f.spread + spread) / noise_var
    return -0.5 * torch.sum(fit) - divergence(own.deviation, f.phi) - divergence(own.local, torch.ones(()))


def divergence(q: Gaussians, variance: Tensor) -> Tensor:
    """KL(q | N(0, variance I)) summed over latents."""
    L = q.factor()
    size = q.mean.numel()
    log_det = 2 * torch.sum(torch.log(torch.diagonal(L, dim1=1, dim2=2)))
    return 0.5 * ((torch.sum(L**2) + torch.sum(q.mean**2)) / variance - size + size * torch.log(variance) - log_det)


class Client:
    """A client of Algorithm 1: inputs X [n, D], readings Y [n, Q], NaN where missing."""

    def __init__(self, X: Array, Y: Array, own: Own, shared: Shared, kernel: Kernel = "se") -> None:
        self.frames, self.kernel = frames(X, Y), kernel
        self.private = private(own, shared)
        self._adam = torch.optim.Adam(self.private, lr=RATE)

    def answer(self, w: World, steps: int = STEPS) -> tuple[list[Tensor], float]:
        """Local Adam steps with the server's values fixed, then the gradient of its bound for those, and the bound."""
        with torch.no_grad():
            f = fixed(w, self.frames, self.kernel)
        for _ in range(steps):
            self._adam.zero_grad()
            torch.neg(elbo(f, self.private, self.frames, self.kernel)).backward()  # type: ignore[no-untyped-call]
            self._adam.step()
        value = elbo(fixed(w, self.frames, self.kernel), self.private, self.frames, self.kernel)
        return list(torch.autograd.grad(value, list(w), materialize_grads=True)), float(value.detach())


class Server:
    """The server of Algorithm 1."""

    def __init__(self, shared: Shared) -> None:
        self.world = world(shared)
        self._adam = torch.optim.Adam(self.world, lr=RATE)

    def step(self, gradients: Iterable[list[Tensor]]) -> None:
        """One Adam step on the sum of the clients' gradients, the divergence of the shared weights taken off once."""
        self._adam.zero_grad()
        divergence(self.world.shared, torch.ones(())).backward()  # type: ignore[no-untyped-call]
        for told in gradients:
            for value, slope in zip(self.world, told, strict=True):
                value.grad = -slope if value.grad is None else value.grad - slope
        self._adam.step()


def bound(w: World, clients: Iterable[Client]) -> float:
    """The whole fleet's bound on the log density of all readings."""
    with torch.no_grad():
        parts = [elbo(fixed(w, c.frames, c.kernel), c.private, c.frames, c.kernel) for c in clients]
        return float(sum(parts) - divergence(w.shared, torch.ones(())))


def hyperparameters(w: World, own: Private) -> tuple[Shared, Own]:
    """The same values as logarithms, for ``hierarchy.mixing``."""
    with torch.no_grad():
        shared = (w.Bg, w.Zg, torch.log(softplus(w.raw_lengthscale)), torch.log(softplus(w.raw_phi)))
        kept = (
            own.Bd,
            own.Bl,
            own.Zi,
            torch.log(softplus(own.raw_lengthscale)),
            torch.log(softplus(own.raw_noise_var)),
        )
        return Shared(*(t.numpy().copy() for t in shared)), Own(*(t.numpy().copy() for t in kept))


def predict(w: World, own: Private, X: Array, kernel: Kernel = "se") -> Law:
    """The law of each frame at X [n, D]: layers and latents are independent a posteriori, so their covariances add."""
    mix = mixed(*hyperparameters(w, own), kernel)
    F, r = mixing.features(mix, X)
    M = len(mix.shared.Z)
    layers = (
        (F[:, :M], mix.Bg, w.shared, r[:, 0]),
        (F[:, :M], mix.Bd, own.deviation, mix.phi * r[:, 0]),
        (F[:, M:], mix.Bl, own.local, r[:, 1]),
    )
    mean, cov = np.zeros((len(X), len(mix.Bg))), np.tile(np.diag(mix.noise_var), (len(X), 1, 1))
    with torch.no_grad():
        for part, B, q, residual in layers:
            mean += part @ q.mean.numpy().T @ B.T
            variances = _variances(torch.as_tensor(part), q).numpy() + residual[:, None]
            cov += np.einsum("nr,qr,sr->nqs", variances, B, B)
    return Law(mean, cov)


def _covariance(X: Tensor, Z: Tensor, kernel: Kernel) -> Tensor:
    """k(X, Z) [n, m] of inputs in lengthscales."""
    r2 = torch.sum((X[:, None] - Z[None]) ** 2, dim=2)
    if kernel == "se":
        return torch.exp(-0.5 * r2)
    # the root has no slope at 0, where the covariance is flat
    r = torch.sqrt(torch.clamp(r2, min=1e-24))
    if kernel == "matern32":
        return (1 + math.sqrt(3) * r) * torch.exp(-math.sqrt(3) * r)
    return (1 + math.sqrt(5) * r + 5 / 3 * r2) * torch.exp(-math.sqrt(5) * r)


def _variances(F: Tensor, q: Gaussians) -> Tensor:
    """F S F^T's diagonal [n, R] for each latent."""
    return torch.sum((F @ q.factor()) ** 2, dim=2).mT


def _leaves(*arrays: Array) -> list[Tensor]:
    return [torch.tensor(np.asarray(a, dtype=float), requires_grad=True) for a in arrays]


def _inverse_softplus(value: Array) -> Array:
    return np.asarray(value + np.log(-np.expm1(-value)))


def _unit(R: int, M: int, sd: float = 1.0) -> Array:
    """Raw factors [R, M, M] of N(0, sd^2 I)."""
    return np.tile(float(_inverse_softplus(np.array(sd))) * np.eye(M), (R, 1, 1))
