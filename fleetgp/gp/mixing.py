"""Structured inference with loadings: shared, deviation and local latent functions mixed into the channels (ILMM).

A frame of one client: y = Bg fg(x) + Bd fd(x) + Bl fl(x) + e, e ~ N(0, diag(noise_var)). Every latent of fg and fd / sqrt(phi)
is a function on the shared inducing features, every one of fl on the client's own: f(x) = F(x) v with v ~ N(0, I). Given the
hyperparameters all weights of a client are jointly Gaussian, and everything follows from sums over its frames, exactly and in
one round (models.md section 4). Weights are in the order v (Rg M), d (Rd M), w (Rl Mi), latent by latent.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from fleetgp import covariances, inducing
from fleetgp.arrays import Array
from fleetgp.gp import aggregate, statistics
from fleetgp.gp.aggregate import Belief
from fleetgp.gp.message import Term
from fleetgp.gp.statistics import Statistics
from fleetgp.inducing import Inducing
from fleetgp.linalg import cholesky, inverse, root, symmetric

LAYERS = ("shared", "deviation", "local")


class Mixing(NamedTuple):
    """One client's model: inducing features of both bases, loadings [Q, R] of three layers, phi, noise_var [Q]. R may be 0."""

    shared: Inducing
    local: Inducing
    Bg: Array
    Bd: Array
    Bl: Array
    phi: float
    noise_var: Array

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Numbers of weights of the three layers."""
        M, Mi = len(self.shared.Z), len(self.local.Z)
        return self.Bg.shape[1] * M, self.Bd.shape[1] * M, self.Bl.shape[1] * Mi


class Sums(NamedTuple):
    """A client's frames: statistics of Q channels and M + Mi features; residual [Q, 2]: sums of r(x) of both bases."""

    statistics: Statistics
    residual: Array


class Message(NamedTuple):
    """What a client tells the fleet: log p(y | v) = constant - v^T P v / 2 + h^T v; term: P [1, F, F], h [1, F], F = Rg M."""

    term: Term
    constant: float


class Posterior(NamedTuple):
    """All weights of one client after its data: mean [W], cov [W, W], cross terms of the layers included."""

    mean: Array
    cov: Array


class Law(NamedTuple):
    """A prediction: mean [n, Q]; cov [n, Q, Q], noise included."""

    mean: Array
    cov: Array


def summed(mix: Mixing, X: Array, Y: Array) -> Sums:
    """Sums over frames with inputs X [n, D] and readings Y [n, Q], NaN where a channel is missing."""
    F, r = features(mix, X)
    seen = np.isfinite(Y).astype(float)
    return Sums(statistics.summed(F, Y, seen), seen.T @ r)


def merge(a: Sums, b: Sums) -> Sums:
    """Sums over both sets of frames."""
    return Sums(statistics.merge(a.statistics, b.statistics), a.residual + b.residual)


def features(mix: Mixing, X: Array) -> tuple[Array, Array]:
    """Features [n, M + Mi] of both bases, and what each cannot express [n, 2], at inputs X [n, D]."""
    Fg, Fl = inducing.features(mix.shared, X), inducing.features(mix.local, X)
    r = inducing.residual(Fg, mix.shared.variance), inducing.residual(Fl, mix.local.variance)
    return np.concatenate((Fg, Fl), axis=1), np.stack(r, axis=1)


def information(mix: Mixing, sums: Sums) -> tuple[Array, Array]:
    """Precision [W, W] and shift [W] of the likelihood of all weights: H^T D H and H^T D y."""
    M = len(mix.shared.Z)
    on_shared, on_local = _loadings(mix)
    G, c = sums.statistics.gram, sums.statistics.cross
    D = 1.0 / mix.noise_var
    A_ss = _mixed(on_shared, on_shared, D, G[:, :M, :M])
    A_sl = _mixed(on_shared, on_local, D, G[:, :M, M:])
    A_ll = _mixed(on_local, on_local, D, G[:, M:, M:])
    A = np.block([[A_ss, A_sl], [A_sl.T, A_ll]])
    a = np.concatenate(((on_shared.T * D @ c[:, :M]).ravel(), (on_local.T * D @ c[:, M:]).ravel()))
    return symmetric(A), a


def summarise(mix: Mixing, sums: Sums) -> Message:
    """The client's likelihood of the shared weights, its deviation and local layer integrated out (Woodbury)."""
    F = mix.sizes[0]
    R, u = _rows(mix, sums)
    Rg, Rc = R[:, :F], R[:, F:]
    L, _ = cholesky(np.eye(len(R)) + symmetric(Rc @ Rc.T))
    solved = np.linalg.solve(L, np.concatenate((Rg, u[:, None]), axis=1))
    V, z = solved[:, :F], solved[:, F]
    # y^T S^-1 y = y^T D y - |u|^2 + u^T (I + Rc Rc^T)^-1 u, where R^T u = a: nothing large is subtracted from its like but here
    square = np.sum(sums.statistics.square / mix.noise_var) - u @ u + z @ z
    log_det = np.sum(sums.statistics.n * np.log(2 * np.pi * mix.noise_var)) + 2 * np.sum(np.log(np.diagonal(L)))
    constant = -0.5 * float(square + log_det + _unexpressed(mix, sums))
    return Message(Term(symmetric(V.T @ V)[None], (V.T @ z)[None]), constant)


def posterior(messages: Iterable[Message], size: int) -> Belief:
    """The fleet's q(v) of so many shared weights: precision I + sum P, shift sum h."""
    return aggregate.posterior((message.term for message in messages), np.ones((1, size)))


def evidence(messages: Iterable[Message], belief: Belief) -> float:
    """The collapsed bound on log p(all readings), in nats: belief is the posterior of these messages."""
    L, _ = cholesky(belief.precision[0])
    z = np.linalg.solve(L, belief.shift[0])
    constant = sum(message.constant for message in messages)
    return constant + 0.5 * float(z @ z) - float(np.sum(np.log(np.diagonal(L))))


def condition(mix: Mixing, sums: Sums, before: Belief) -> Posterior:
    """All weights of a client given its own sums; before: the fleet's belief without this client (the cavity)."""
    A, a = information(mix, sums)
    F = mix.sizes[0]
    A[:F, :F] += before.precision[0]
    own = np.arange(F, len(A))
    A[own, own] += 1.0
    a[:F] += before.shift[0]
    cov = inverse(A)
    return Posterior(cov @ a, cov)


def predict(mix: Mixing, weights: Posterior, X: Array, *, is_noisy: bool = True) -> Law:
    """The law of each frame at X [n, D]: all channels jointly (models.md section 4, "Predictive law")."""
    H, r = design(mix, X)
    cov = H @ weights.cov @ H.mT + np.tensordot(r, layer_covariances(mix), axes=1)
    return Law(H @ weights.mean, cov + is_noisy * np.diag(mix.noise_var))


def averaged(laws: Sequence[Law]) -> Law:
    """Mean and covariance of a mixture of laws of the same frames, all of one weight; at least one."""
    means = np.array([law.mean for law in laws])
    mean = means.mean(axis=0)
    away = means - mean
    between = np.einsum("knq,kns->nqs", away, away) / len(laws)
    return Law(mean, np.mean([law.cov for law in laws], axis=0) + between)


def window(mix: Mixing, weights: Posterior, X: Array, *, is_noisy: bool = True) -> tuple[Array, Array]:
    """Mean [n Q] and covariance [n Q, n Q] of all frames of a window together, frame by frame."""
    H, _ = design(mix, X)
    H = H.reshape(H.shape[0] * H.shape[1], H.shape[2])
    cov = H @ weights.cov @ H.T
    for basis, B in zip((mix.shared, mix.local), layer_covariances(mix), strict=True):
        F = inducing.features(basis, X)
        picked = X[:, list(basis.columns)]
        cov += np.kron(covariances.covariance(basis.kernel, picked, picked, basis.lengthscale) - F @ F.T, B)
    if is_noisy:
        cov += np.kron(np.eye(len(X)), np.diag(mix.noise_var))
    return H @ weights.mean, symmetric(cov)


def parts(mix: Mixing, weights: Posterior, X: Array) -> tuple[Array, Array]:
    """Mean and standard deviation [3, n, Q] of what each of LAYERS adds to a prediction; the means sum to its mean."""
    H, r = design(mix, X)
    begin = np.cumsum((0, *mix.sizes))
    own = (mix.Bg, np.sqrt(mix.phi) * mix.Bd, mix.Bl)
    means, sds = [], []
    for layer, B in enumerate(own):
        span = slice(begin[layer], begin[layer + 1])
        means.append(H[..., span] @ weights.mean[span])
        known = np.sum((H[..., span] @ weights.cov[span, span]) * H[..., span], axis=-1)
        sds.append(np.sqrt(np.maximum(known, 0.0) + r[:, int(layer == 2), None] * np.sum(B**2, axis=1)))
    return np.array(means), np.array(sds)


def design(mix: Mixing, X: Array) -> tuple[Array, Array]:
    """Rows H [n, Q, W] of frames at X [n, D], and what both bases cannot express [n, 2]."""
    F, r = features(mix, X)
    M = len(mix.shared.Z)
    on_shared, on_local = _loadings(mix)
    H = [
        (B[None, :, :, None] * part[:, None, None, :]).reshape(len(X), len(B), B.shape[1] * part.shape[1])
        for B, part in ((on_shared, F[:, :M]), (on_local, F[:, M:]))
    ]
    return np.concatenate(H, axis=2), r


def _loadings(mix: Mixing) -> tuple[Array, Array]:
    """Loadings [Q, Rg + Rd] on the shared basis, the deviation's with the root of its scale, and [Q, Rl] on the local one."""
    return np.concatenate((mix.Bg, np.sqrt(mix.phi) * mix.Bd), axis=1), mix.Bl


def layer_covariances(mix: Mixing) -> Array:
    """B B^T [2, Q, Q] of both bases."""
    return np.array([B @ B.T for B in _loadings(mix)])


def _rows(mix: Mixing, sums: Sums) -> tuple[Array, Array]:
    """R [Q (M + Mi), W] and u with R^T R = H^T D H and R^T u = H^T D y: frames that would have left the same sums."""
    M = len(mix.shared.Z)
    root_, inverse_ = root(sums.statistics.gram)
    sd = np.sqrt(mix.noise_var)
    on_shared, on_local = (B / sd[:, None] for B in _loadings(mix))
    u = (inverse_ @ sums.statistics.cross[..., None])[..., 0] / sd[:, None]
    R = [
        (B[:, None, :, None] * part[:, :, None, :]).reshape(u.size, -1)
        for B, part in ((on_shared, root_[..., :M]), (on_local, root_[..., M:]))
    ]
    return np.concatenate(R, axis=1), u.ravel()


def _mixed(Ba: Array, Bb: Array, D: Array, G: Array) -> Array:
    """sum_q D_q b_aq b_bq^T (x) G_q [Ra Ma, Rb Mb] for loadings [Q, R], D [Q], G [Q, Ma, Mb]."""
    (Q, Ra), Rb, (Ma, Mb) = Ba.shape, Bb.shape[1], G.shape[1:]
    C = (D[:, None, None] * Ba[:, :, None] * Bb[:, None, :]).reshape(Q, Ra * Rb)
    return np.asarray((C.T @ G.reshape(Q, -1)).reshape(Ra, Rb, Ma, Mb).transpose(0, 2, 1, 3).reshape(Ra * Ma, Rb * Mb))


def _unexpressed(mix: Mixing, sums: Sums) -> float:
    """The penalty of the bound for what inducing features leave out: sum_q (|B_q|^2 rho)_q / s2_q over both bases."""
    squares = np.stack([np.sum(B**2, axis=1) for B in _loadings(mix)], axis=1)
    return float(np.sum(squares * sums.residual / mix.noise_var[:, None]))
