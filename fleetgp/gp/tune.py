"""Evidence of one client's readings and its gradients: what hyperparameters are learnt from.

What a client climbs is log p(y_i | all other clients' messages): its own likelihood of the shared weights integrated over the
fleet's belief without it. As a function of what the client keeps that is the whole fleet's collapsed bound up to a constant,
and its gradient for what is shared sums over clients to the gradient of that bound (models.md section 4, "Objective").
Gradients are written out: a step costs little more than one factorisation, and no agent needs a library for them.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fleetgp.arrays import Array
from fleetgp.errors import NumericalError
from fleetgp.gp import slopes
from fleetgp.gp.aggregate import Belief
from fleetgp.gp.hierarchy import AnyKernel, Own, Shared, Start, own_log_prior
from fleetgp.gp.slopes import Basis, Frames
from fleetgp.linalg import cholesky, lower_inverse


class Cavity(NamedTuple):
    """The fleet's belief without the client: precision [F, F], shift [F], and the constant that makes it a density."""

    precision: Array
    shift: Array
    constant: float


class Slopes(NamedTuple):
    """Slopes of the evidence: for loadings on the shared basis [Q, Rg + Rd] and on the local one [Q, Rl], for log noise_var [Q]
    for the features of both bases [n, M], [n, Mi], and for the variance k(x, x) of both."""

    on_shared: Array
    on_local: Array
    log_noise_var: Array
    F_shared: Array
    F_local: Array
    total_shared: float
    total_local: float


def cavity(before: Belief) -> Cavity:
    """A belief with its constant. before: precision [1, F, F], shift [1, F]."""
    L, _ = cholesky(before.precision[0])
    z = np.linalg.solve(L, before.shift[0])
    constant = float(np.sum(np.log(np.diagonal(L))) - 0.5 * z @ z)
    return Cavity(before.precision[0], before.shift[0], constant)


def gradient(
    shared: Shared, own: Own, frames: Frames, before: Cavity, kernel: AnyKernel = "se", local: AnyKernel | None = None
) -> tuple[float, Shared]:
    """A client's evidence in nats and its gradient for what is shared. local: kernel of the local basis, where it is another."""
    on_shared = slopes.basis(kernel, shared.Zg, shared.log_lengthscale, frames)
    on_local = slopes.basis(local or kernel, own.Zi, own.log_lengthscale, frames)
    value, slope = evidence(_joined(shared, own), own.Bl, own.log_noise_var, (on_shared, on_local), frames, before)
    for_Z, for_length = slopes.back(on_shared, slope.F_shared, slope.total_shared)
    Rg, root_phi = shared.Bg.shape[1], math.exp(0.5 * float(shared.log_phi))
    for_phi = 0.5 * root_phi * np.sum(own.Bd * slope.on_shared[:, Rg:])
    return value, Shared(slope.on_shared[:, :Rg], for_Z, for_length, np.asarray(for_phi))


class OwnEvidence:
    """A client's evidence and log prior as a function of what it keeps, flat [P], while what is shared stays."""

    def __init__(self, shared: Shared, like: Own, frames: Frames, before: Cavity, start: Start) -> None:
        self._shared, self._like, self._frames, self._before, self._start = shared, like, frames, before, start
        self._basis = slopes.basis(start.kernel, shared.Zg, shared.log_lengthscale, frames)

    def __call__(self, flat: Array) -> tuple[float, Array]:
        """Value and gradient [P]; -infinity and NaN where a matrix is none that can be factored."""
        own = unpacked(flat, self._like)
        joined = _joined(self._shared, own)
        try:
            with np.errstate(over="ignore", invalid="ignore"):
                local = slopes.basis(self._start.kernels[1], own.Zi, own.log_lengthscale, self._frames)
                both = self._basis, local
                value, slope = evidence(joined, own.Bl, own.log_noise_var, both, self._frames, self._before)
        except NumericalError:
            return -math.inf, np.full(flat.shape, np.nan)
        root_phi = math.exp(0.5 * float(self._shared.log_phi))
        for_Bd = root_phi * slope.on_shared[:, self._shared.Bg.shape[1] :]
        for_Z, for_length = slopes.back(local, slope.F_local, slope.total_local)
        told = Own(for_Bd, slope.on_local, for_Z, for_length, slope.log_noise_var)
        prior, prior_slope = own_log_prior(own, self._start)
        return value + prior, packed(told) + packed(prior_slope)


def packed(own: Own) -> Array:
    """All of a client's values in one vector [P]."""
    return np.concatenate([np.ravel(value) for value in own])


def unpacked(flat: Array, like: Own) -> Own:
    """The values of a vector, shaped as in ``like``."""
    ends = np.cumsum([value.size for value in like])
    pieces = np.split(flat, ends[:-1])
    return Own(*(piece.reshape(value.shape) for piece, value in zip(pieces, like, strict=True)))


def evidence(
    S: Array, B: Array, log_noise_var: Array, bases: tuple[Basis, Basis], frames: Frames, before: Cavity
) -> tuple[float, Slopes]:
    """log of the integral of a client's likelihood over its cavity, residual penalties included, and its slopes.

    S [Q, Rg + Rd], B [Q, Rl]: loadings on the shared and the local basis.
    """
    shared, local = bases
    D, YD = np.exp(-log_noise_var), frames.Y * np.exp(-log_noise_var)
    cross = slopes.products(shared.F, local.F, frames)
    c_s, c_l = frames.Y.T @ shared.F, frames.Y.T @ local.F  # [Q, M], [Q, Mi]
    A_sl = _block(S, B, D, cross)
    A = np.block([[_block(S, S, D, shared.gram), A_sl], [A_sl.T, _block(B, B, D, local.gram)]])
    a = np.concatenate(((S.T * D @ c_s).ravel(), (B.T * D @ c_l).ravel()))
    value, W, m = _integral(A, a, before)
    unexpressed = np.sum(S**2, axis=1) * shared.residual + np.sum(B**2, axis=1) * local.residual
    counts = frames.seen.sum(axis=0)
    square = np.sum(frames.Y**2, axis=0) + unexpressed
    value -= 0.5 * float(D @ square + counts @ (math.log(2 * math.pi) + log_noise_var))

    size = S.shape[1] * shared.F.shape[1]
    W_ss, W_sl, W_ll = W[:size, :size], W[:size, size:], W[size:, size:]
    g_ss, g_sl, g_ll = _inner(W_ss, S, S, shared.gram), _inner(W_sl, S, B, cross), _inner(W_ll, B, B, local.gram)
    m_s, m_l = m[:size].reshape(S.shape[1], c_s.shape[1]), m[size:].reshape(B.shape[1], c_l.shape[1])
    # per unit of D, then times it: of A, of a, of what features leave out
    for_S = 2 * (_apply(g_ss, S) + _apply(g_sl, B)) + c_s @ m_s.T - shared.residual[:, None] * S
    for_B = 2 * (_apply(g_ll, B) + _apply(g_sl.mT, S)) + c_l @ m_l.T - local.residual[:, None] * B
    # D comes with two loadings in A and the penalty, with one in a
    for_D = 0.5 * (np.sum(S * (for_S + c_s @ m_s.T), axis=1) + np.sum(B * (for_B + c_l @ m_l.T), axis=1))
    for_D -= 0.5 * np.sum(frames.Y**2, axis=0)
    V_ss, V_sl, V_ll = (
        _outer(W_ss, S, S, D, shared.gram),
        _outer(W_sl, S, B, D, cross),
        _outer(W_ll, B, B, D, local.gram),
    )
    F_s, F_l = shared.F, local.F
    for_F_s = 2 * (_masked(F_s, V_ss, frames) + _masked(F_l, V_sl.mT, frames)) + YD @ (S @ m_s)
    for_F_l = 2 * (_masked(F_l, V_ll, frames) + _masked(F_s, V_sl, frames)) + YD @ (B @ m_l)
    for_F_s += (frames.seen @ (D * np.sum(S**2, axis=1)))[:, None] * F_s
    for_F_l += (frames.seen @ (D * np.sum(B**2, axis=1)))[:, None] * F_l
    told = Slopes(
        D[:, None] * for_S, D[:, None] * for_B, -D * for_D - 0.5 * counts, for_F_s, for_F_l,
        -0.5 * float(counts @ (D * np.sum(S**2, axis=1))), -0.5 * float(counts @ (D * np.sum(B**2, axis=1))),
    )  # fmt: skip
    return value + before.constant, told


def _joined(shared: Shared, own: Own) -> Array:
    """Loadings [Q, Rg + Rd] on the shared basis, the deviation's with the root of its scale."""
    return np.concatenate((shared.Bg, math.exp(0.5 * float(shared.log_phi)) * own.Bd), axis=1)


def _integral(A: Array, a: Array, before: Cavity) -> tuple[float, Array, Array]:
    """-log|K| / 2 + s^T K^-1 s / 2 with K = prior + A, s = prior's shift + a; its slopes -(K^-1 + m m^T) / 2 for A, m for a."""
    F = len(before.shift)
    A[:F, :F] += before.precision
    own = np.arange(F, len(A))
    A[own, own] += 1.0
    a[:F] += before.shift
    L, _ = cholesky(A)
    root_inverse = lower_inverse(L)
    z = root_inverse @ a
    m = z @ root_inverse
    value = 0.5 * float(z @ z) - float(np.sum(np.log(np.diagonal(L))))
    return value, -0.5 * (root_inverse.T @ root_inverse + np.outer(m, m)), m


def _block(Ba: Array, Bb: Array, D: Array, G: Array) -> Array:
    """sum_q D_q b_aq b_bq^T (x) G_q [Ra Ma, Rb Mb]; G [Qg, Ma, Mb]."""
    C, (Ra, Rb), (Ma, Mb) = _weights(Ba, Bb, D, G), (Ba.shape[1], Bb.shape[1]), G.shape[1:]
    flat = C.T @ G.reshape(len(G), -1)
    return np.asarray(flat.reshape(Ra, Rb, Ma, Mb).swapaxes(1, 2).reshape(Ra * Ma, Rb * Mb))


def _inner(W: Array, Ba: Array, Bb: Array, G: Array) -> Array:
    """Slope [Qg, Ra, Rb] for the products of loadings: sum over weights of W and G_q."""
    return np.asarray((G.reshape(len(G), -1) @ _parted(W, Ba, Bb, G).T).reshape(len(G), Ba.shape[1], Bb.shape[1]))


def _outer(W: Array, Ba: Array, Bb: Array, D: Array, G: Array) -> Array:
    """Slope [Qg, Ma, Mb] for the products of features: sum over latents of W and D_q b_aq b_bq^T."""
    return np.asarray((_weights(Ba, Bb, D, G) @ _parted(W, Ba, Bb, G)).reshape(G.shape))


def _weights(Ba: Array, Bb: Array, D: Array, G: Array) -> Array:
    """D_q b_aq b_bq^T [Qg, Ra Rb], summed over channels that have one Gram matrix."""
    if len(G) == 1:
        return np.asarray(Ba.T * D @ Bb).reshape(1, -1)
    return np.asarray(D[:, None, None] * Ba[:, :, None] * Bb[:, None, :]).reshape(len(D), -1)


def _parted(W: Array, Ba: Array, Bb: Array, G: Array) -> Array:
    """A block [Ra Ma, Rb Mb] as [Ra Rb, Ma Mb]."""
    (Ra, Rb), (Ma, Mb) = (Ba.shape[1], Bb.shape[1]), G.shape[1:]
    return W.reshape(Ra, Ma, Rb, Mb).swapaxes(1, 2).reshape(Ra * Rb, Ma * Mb)


def _apply(g: Array, B: Array) -> Array:
    """g_q b_q [Q, Ra] for g [Qg, Ra, Rb], loadings B [Q, Rb]."""
    return np.asarray(B @ g[0].T if len(g) == 1 else (g @ B[:, :, None])[..., 0])


def _masked(F: Array, V: Array, frames: Frames) -> Array:
    """sum_q seen_q F V_q [n, Mb]."""
    if len(V) == 1:
        return np.asarray(F @ V[0])
    return np.asarray(np.einsum("nq,qnk->nk", frames.seen, F @ V))
