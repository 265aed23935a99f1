"""Exact solutions of mixed channels: from the sums of what left the ring and the ring's own frames to all weights."""

from __future__ import annotations

import msgspec
import numpy as np

from fleetgp import inducing
from fleetgp.arrays import Array
from fleetgp.gp import chain, hierarchy, mixing
from fleetgp.gp.aggregate import Belief
from fleetgp.gp.chain import Chain, Past
from fleetgp.gp.hierarchy import Own, Shared
from fleetgp.gp.learner import LEAST_NOISE, OWN_NOISE, OWN_NOISE_FRAMES
from fleetgp.gp.mixed_state import Mixed, Row
from fleetgp.gp.mixing import Mixing, Posterior, Sums
from fleetgp.gp.ring import SIZE
from fleetgp.inducing import Inducing, transfer
from fleetgp.linalg import inverse
from fleetgp.scaling import Scaling
from fleetgp.schema import Kernel


def folded(learner: Mixed) -> Mixed:
    """The fresh frames moved into ring and sums; the weights stay as they are."""
    if not learner.fresh:
        return learner
    first = learner.frames - len(learner.fresh)
    stays = np.arange(first, learner.frames) % learner.plan.stride == 0
    new = _chain(learner.fresh)
    ring = chain.joined(learner.ring, _picked(new, stays))
    over = max(len(ring.x) - SIZE, 0)
    gone = learner.gone
    for leaving in (chain.part(ring, 0, over), _picked(new, ~stays)):
        if len(leaving.x):
            gone = chain.merge(gone, chain.summed(learner.mix, learner.rho, leaving))
    return msgspec.structs.replace(learner, ring=chain.part(ring, over, len(ring.x)), gone=gone, fresh=())


def _chain(rows: tuple[Row, ...]) -> Chain:
    x, earlier, y, before, ticks, weights = (np.array(column) for column in zip(*rows, strict=True))
    return Chain(x, earlier, y, before, ticks, weights, np.ones(len(rows)))


def _picked(frames: Chain, which: Array) -> Chain:
    return Chain(*(column[which] for column in frames))


def total(learner: Mixed) -> Past:
    """Sums of all that was learnt."""
    learner = folded(learner)
    return chain.merge(learner.gone, chain.summed(learner.mix, learner.rho, learner.ring))


def solve(learner: Mixed) -> Mixed:
    """The exact weights from knowledge and frames, then one EM step for the noise and for how errors go on."""
    learner = folded(learner)
    sums = total(learner).sums
    weights = condition(learner.mix, sums, learner.known.belief, learner.known.own_weight)
    known = learner.known
    noise_var = _noise(learner.mix, sums, weights, known.noise_guess * (1.0 - learner.rho**2), known.noise_frames)
    effects = chain.effects(learner.mix, weights.mean)
    rho = chain.persistence(learner.mix, effects, learner.ring)
    spare = learner.spare
    if len(learner.ring.x):
        _, r = mixing.features(learner.mix, learner.ring.x)
        spare = r.mean(axis=0)
    return msgspec.structs.replace(
        learner,
        weights=weights,
        rho=rho,
        spare=spare,
        mix=learner.mix._replace(noise_var=noise_var),
        own=learner.own._replace(log_noise_var=np.log(noise_var)),
    )


def condition(mix: Mixing, sums: Sums, before: Belief, own_weight: float) -> Posterior:
    """``mixing.condition``; own_weight: 1/2 in a covariance intersection, where own layers and data count half alike."""
    A, a = mixing.information(mix, sums)
    F = mix.sizes[0]
    A, a = own_weight * A, own_weight * a
    A[:F, :F] += before.precision[0]
    own = np.arange(F, len(A))
    A[own, own] += own_weight
    a[:F] += before.shift[0]
    cov = inverse(A)
    return Posterior(cov @ a, cov)


def own_noise(learner: Mixed) -> Array:
    """Variance [Q] of what a channel errs by at one frame, by this agent's own frames alone."""
    guess = np.full(learner.plan.channels, OWN_NOISE)
    innovation = _noise(learner.mix, total(learner).sums, learner.weights, guess, OWN_NOISE_FRAMES)
    return np.asarray(innovation / (1.0 - learner.rho**2))


def _noise(mix: Mixing, sums: Sums, weights: Posterior, guess: Array, frames: float) -> Array:
    """Variance [Q] of the innovations: E|y - F w|^2 a frame, with a guess worth so many frames."""
    told = sums.statistics
    effects = chain.effects(mix, weights.mean)
    fit = told.square - 2 * np.sum(told.cross * effects, axis=1)
    fit += np.einsum("qk,qkj,qj->q", effects, told.gram, effects)
    for q, A in enumerate(_maps(mix)):
        fit[q] += float(np.sum(told.gram[q] * (A @ weights.cov @ A.T)))
    return np.asarray(np.maximum((np.maximum(fit, 0.0) + frames * guess) / (told.n + frames), LEAST_NOISE))


def _maps(mix: Mixing) -> list[Array]:
    """Of each channel the matrix [M + Mi, W] from all weights to its weights of the features of both bases."""
    one = np.eye(len(mix.shared.Z) + len(mix.local.Z))
    shared = np.concatenate((mix.Bg, np.sqrt(mix.phi) * mix.Bd), axis=1)
    M = len(mix.shared.Z)
    return [np.concatenate((np.kron(b, one[:, :M]), np.kron(c, one[:, M:])), axis=1)
            for b, c in zip(shared, mix.Bl, strict=True)]  # fmt: skip


def moved(learner: Mixed, shared: Shared, own: Own, scaling: Scaling | None = None) -> Mixed:
    """The learner with other shared or own values, or in another unit, to be solved next.

    The ring is exact under any values. The sums of what left it are projected where features change, and exact where only
    loadings, noise or the unit do.
    """
    learner = folded(learner)
    mix = hierarchy.mixing(shared, own, learner.plan.kernel)
    Q = learner.plan.channels
    new = learner.scaling if scaling is None else scaling
    ratio = learner.unit / new.scale[:Q]
    shift = (learner.centre - new.centre[:Q]) / new.scale[:Q]
    own = own._replace(log_noise_var=own.log_noise_var + 2 * np.log(ratio))
    T = _transfer(learner.mix, mix)
    gone, ring = learner.gone, learner.ring
    if np.any(ratio != 1.0) or np.any(shift != 0.0) or not np.array_equal(T, np.eye(len(T))):
        gone, ring = chain.carried(gone, T, ratio, shift), chain.rescaled(ring, ratio, shift)
    return msgspec.structs.replace(
        learner,
        scaling=new,
        known=learner.known._replace(shared=shared),
        own=own,
        mix=mix._replace(noise_var=np.exp(own.log_noise_var)),
        gone=gone,
        ring=ring,
    )


def _transfer(old: Mixing, new: Mixing) -> Array:
    """T [K_new, K_old] of the features of both bases."""
    M, Mi = len(new.shared.Z), len(new.local.Z)
    T = np.zeros((M + Mi, len(old.shared.Z) + len(old.local.Z)))
    T[:M, : len(old.shared.Z)] = _one(old.shared, new.shared)
    T[M:, len(old.shared.Z) :] = _one(old.local, new.local)
    return T


def _one(old: Inducing, new: Inducing) -> Array:
    is_same = np.array_equal(old.Z, new.Z) and np.array_equal(old.lengthscale, new.lengthscale)
    return np.eye(len(new.Z)) if is_same else transfer(old, new)


def change(old: Shared, new: Shared, kernel: Kernel) -> Array:
    """T [F_new, F_old] with v_old = T^T v_new: the shared functions of the channels as nearly the same as loadings allow."""
    columns = tuple(range(old.Zg.shape[1]))
    bases = [inducing.make(kernel, columns, one.Zg, np.exp(one.log_lengthscale)) for one in (old, new)]
    return np.asarray(np.kron((np.linalg.pinv(old.Bg) @ new.Bg).T, _one(*bases)), dtype=float)
