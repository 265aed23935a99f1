"""Evidence of one client's readings and its gradients by torch: what hyperparameters are learnt from.

What a client climbs is log p(y_i | all other clients' messages): its own likelihood of the shared weights integrated over the
fleet's belief without it. As a function of what the client keeps that is the whole fleet's collapsed bound up to a constant,
and its gradient for what is shared sums over clients to the gradient of that bound (models.md section 4, "Objective").
Doubles throughout; imported only where something is tuned.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fleetgp.arrays import Array
from fleetgp.gp.aggregate import Belief
from fleetgp.gp.hierarchy import Own, Shared, Start, own_log_prior
from fleetgp.inducing import JITTER
from fleetgp.schema import Kernel


class Frames(NamedTuple):
    """A client's readings: X [n, D]; Y [n, Q], 0 where missing; seen [n, Q]; is_whole: none is missing."""

    X: Tensor
    Y: Tensor
    seen: Tensor
    is_whole: bool


class Values(NamedTuple):
    """Shared and own hyperparameters as tensors, in the order of ``Shared`` and ``Own``."""

    Bg: Tensor
    Zg: Tensor
    log_lengthscale_g: Tensor
    log_phi: Tensor
    Bd: Tensor
    Bl: Tensor
    Zi: Tensor
    log_lengthscale_i: Tensor
    log_noise_var: Tensor


class Basis(NamedTuple):
    """Features of the frames on one basis: F [n, M]; gram [Qg, M, M], Qg = 1 where no channel misses a frame; residual [Q]."""

    F: Tensor
    gram: Tensor
    residual: Tensor


class Cavity(NamedTuple):
    """The fleet's belief without the client: precision [F, F], shift [F], and the constant that makes it a density."""

    precision: Tensor
    shift: Tensor
    constant: float


def frames(X: Array, Y: Array) -> Frames:
    """Frames of inputs X [n, D] and readings Y [n, Q], NaN where missing."""
    seen = np.isfinite(Y)
    return Frames(
        torch.as_tensor(np.ascontiguousarray(X, dtype=float)),
        torch.as_tensor(np.where(seen, Y, 0.0)),
        torch.as_tensor(seen.astype(float)),
        bool(np.all(seen)),
    )


def cavity(before: Belief) -> Cavity:
    """A belief as tensors. before: precision [1, F, F], shift [1, F]."""
    L = np.linalg.cholesky(before.precision[0])
    z = np.linalg.solve(L, before.shift[0])
    constant = float(np.sum(np.log(np.diagonal(L))) - 0.5 * z @ z)
    return Cavity(torch.as_tensor(before.precision[0]), torch.as_tensor(before.shift[0]), constant)


def values(shared: Shared, own: Own, *, is_shared_learnt: bool, is_own_learnt: bool) -> Values:
    """Tensors of these numbers; those that are learnt collect gradients."""
    return Values(
        *(_leaf(v, is_shared_learnt) for v in shared),
        *(_leaf(v, is_own_learnt) for v in own),
    )


def basis(Z: Tensor, log_lengthscale: Tensor, frames: Frames, kernel: Kernel) -> Basis:
    """Whitened inducing features of the frames, their Gram matrices and residuals, differentiable in Z and the lengthscale."""
    scale = torch.exp(log_lengthscale)
    L = torch.linalg.cholesky(_covariance(Z / scale, Z / scale, kernel) + JITTER * torch.eye(len(Z), dtype=Z.dtype))
    F = torch.linalg.solve_triangular(L, _covariance(Z / scale, frames.X / scale, kernel), upper=False).mT
    r = 1.0 - torch.sum(F * F, dim=1)
    gram = (F.mT @ F)[None] if frames.is_whole else torch.einsum("nq,nm,nk->qmk", frames.seen, F, F)
    return Basis(F, gram, frames.seen.mT @ r)


def log_evidence(v: Values, shared: Basis, local: Basis, frames: Frames, before: Cavity) -> Tensor:
    """log of the integral of the client's likelihood over its cavity, residual penalties included; a scalar in nats."""
    D = torch.exp(-v.log_noise_var)
    on_shared = torch.cat((v.Bg, torch.exp(0.5 * v.log_phi) * v.Bd), dim=1)
    pairs = (
        (_products(on_shared, on_shared, D, shared.gram), shared.gram),
        (_products(on_shared, v.Bl, D, shared.gram), _cross(shared, local, frames)),
        (_products(v.Bl, v.Bl, D, shared.gram), local.gram),
    )
    weighted = frames.Y * D
    a = torch.cat(((on_shared.mT @ (weighted.mT @ shared.F)).ravel(), (v.Bl.mT @ (weighted.mT @ local.F)).ravel()))
    unexpressed = torch.sum(on_shared**2, dim=1) * shared.residual + torch.sum(v.Bl**2, dim=1) * local.residual
    square = torch.sum(weighted * frames.Y) + torch.sum(D * unexpressed)
    log_noise = torch.sum(torch.sum(frames.seen, dim=0) * (math.log(2 * math.pi) + v.log_noise_var))
    return _integral(pairs, a, before) - 0.5 * (square + log_noise) + before.constant


def gradient(shared: Shared, own: Own, frames: Frames, before: Cavity, kernel: Kernel = "se") -> tuple[float, Shared]:
    """A client's evidence and its gradient for what is shared."""
    v = values(shared, own, is_shared_learnt=True, is_own_learnt=False)
    value = log_evidence(
        v,
        basis(v.Zg, v.log_lengthscale_g, frames, kernel),
        basis(v.Zi, v.log_lengthscale_i, frames, kernel),
        frames,
        before,
    )
    told = torch.autograd.grad(value, v[:4], allow_unused=True, materialize_grads=True)
    return float(value.detach()), Shared(*(slope.numpy() for slope in told))


class OwnEvidence:
    """A client's evidence and log prior as a function of what it keeps, flat [P], while what is shared stays."""

    def __init__(self, shared: Shared, like: Own, frames: Frames, before: Cavity, start: Start) -> None:
        self._shared, self._like, self._frames, self._before, self._start = shared, like, frames, before, start
        fixed = values(shared, like, is_shared_learnt=False, is_own_learnt=False)
        self._basis = basis(fixed.Zg, fixed.log_lengthscale_g, frames, start.kernel)

    def __call__(self, flat: Array) -> tuple[float, Array]:
        """Value and gradient [P]; both infinite or NaN where a matrix is none that can be factored."""
        own = unpacked(flat, self._like)
        v = values(self._shared, own, is_shared_learnt=False, is_own_learnt=True)
        try:
            local = basis(v.Zi, v.log_lengthscale_i, self._frames, self._start.kernel)
            value = log_evidence(v, self._basis, local, self._frames, self._before)
        except RuntimeError:  # torch's error of a factorisation; it exports no name for it
            return -math.inf, np.full(flat.shape, np.nan)
        told = torch.autograd.grad(value, v[4:], allow_unused=True, materialize_grads=True)
        prior, prior_slope = own_log_prior(own, self._start)
        slope = np.concatenate([(t.numpy() + p).ravel() for t, p in zip(told, prior_slope, strict=True)])
        return float(value.detach()) + prior, slope


def packed(own: Own) -> Array:
    """All of a client's values in one vector [P]."""
    return np.concatenate([np.ravel(value) for value in own])


def unpacked(flat: Array, like: Own) -> Own:
    """The values of a vector, shaped as in ``like``."""
    ends = np.cumsum([value.size for value in like])
    pieces = np.split(flat, ends[:-1])
    return Own(*(piece.reshape(value.shape) for piece, value in zip(pieces, like, strict=True)))


def _leaf(value: Array, is_learnt: bool) -> Tensor:
    return torch.tensor(np.asarray(value, dtype=float), requires_grad=is_learnt)


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


def _cross(shared: Basis, local: Basis, frames: Frames) -> Tensor:
    """Products of the two bases' features [Qg, M, Mi] summed over frames."""
    if frames.is_whole:
        return (shared.F.mT @ local.F)[None]
    return torch.einsum("nq,nm,nk->qmk", frames.seen, shared.F, local.F)


def _products(Ba: Tensor, Bb: Tensor, D: Tensor, gram: Tensor) -> Tensor:
    """D_q b_aq b_bq^T [Q, Ra, Rb], summed over channels [1, Ra, Rb] where these have one Gram matrix."""
    if len(gram) == 1:
        return ((Ba * D[:, None]).mT @ Bb)[None]
    return D[:, None, None] * Ba[:, :, None] * Bb[:, None, :]


Pair = tuple[Tensor, Tensor]


def _integral(pairs: tuple[Pair, Pair, Pair], a: Tensor, before: Cavity) -> Tensor:
    """log of the Gaussian integral over all weights: -log|K| / 2 + s^T K^-1 s / 2, K = prior + A, s = prior's shift + a.

    pairs: C [Qg, Ra, Rb] and G [Qg, Ma, Mb] of the blocks of A, sum_q C_q (x) G_q, on the shared basis, between the two, and
    on the local one. The gradient, -(K^-1 + m m^T) / 2 for A and m for a with m = K^-1 s, is written out: several times as
    fast as going back through the factorisation.
    """
    F = len(before.shift)
    with torch.no_grad():
        A_ss, A_sl, A_ll = (_block(*pair) for pair in pairs)
        K = torch.cat((torch.cat((A_ss, A_sl), dim=1), torch.cat((A_sl.mT, A_ll), dim=1)))
        s = a.detach().clone()
        K[:F, :F] += before.precision
        K.diagonal()[F:] += 1.0
        s[:F] += before.shift
        L = torch.linalg.cholesky(K)
        inverse = torch.cholesky_inverse(L)
        m = inverse @ s
        value = 0.5 * (s @ m) - torch.sum(torch.log(torch.diagonal(L)))
        W = -0.5 * torch.addr(inverse, m, m)
        S = len(A_ss)
        slopes = W[:S, :S], 2 * W[:S, S:], W[S:, S:]
    change = m @ a
    for pair, slope in zip(pairs, slopes, strict=True):
        change = change + _along(*pair, slope)
    return value + change - change.detach()


def _block(C: Tensor, G: Tensor) -> Tensor:
    """sum_q C_q (x) G_q [Ra Ma, Rb Mb]."""
    (Q, Ra, Rb), (Ma, Mb) = C.shape, G.shape[1:]
    flat = C.reshape(Q, -1).mT @ G.reshape(Q, -1)
    return flat.reshape(Ra, Rb, Ma, Mb).transpose(1, 2).reshape(Ra * Ma, Rb * Mb)


def _along(C: Tensor, G: Tensor, slope: Tensor) -> Tensor:
    """What has the slope [Ra Ma, Rb Mb] for sum_q C_q (x) G_q: bilinear, so each factor's is a sum over the other."""
    (Q, Ra, Rb), (Ma, Mb) = C.shape, G.shape[1:]
    with torch.no_grad():
        flat = slope.reshape(Ra, Ma, Rb, Mb).transpose(1, 2).reshape(Ra * Rb, Ma * Mb)
        for_C = G.reshape(Q, -1) @ flat.mT
        for_G = C.reshape(Q, -1) @ flat
    change = torch.sum(for_C * C.reshape(Q, -1))
    return change + torch.sum(for_G * G.reshape(Q, -1)) if G.requires_grad else change
