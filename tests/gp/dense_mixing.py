"""A fleet with loadings computed the long way: the covariance of every reading of every client with every other.

Functions, not weights: nothing here is shared with the code it judges but the covariance functions. With ``is_sparse`` the
covariance of each latent is k(x, Z) (k(Z, Z) + jitter)^-1 k(Z, x') as inducing features have it, else k(x, x').
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg
import scipy.stats

from fleetgp import inducing
from fleetgp.arrays import Array
from fleetgp.covariances import covariance
from fleetgp.gp.mixing import Mixing
from fleetgp.inducing import Inducing


@dataclass(frozen=True)
class Readings:
    """One client's frames: X [n, D]; Y [n, Q], NaN where missing; its model."""

    X: Array
    Y: Array
    mix: Mixing

    @property
    def seen(self) -> Array:
        return np.isfinite(self.Y).ravel()


def random_fleet(
    seed: int, clients: int, channels: int, ranks: tuple[int, int, int], *, jitter: float = 1e-4, missing: float = 0.2
) -> list[Readings]:
    """Clients of 0 to 6 frames with two inputs, some inducing inputs each, random loadings and noise."""
    rng = np.random.default_rng(seed)
    Bg, phi = rng.standard_normal((channels, ranks[0])), float(10 ** rng.uniform(-1, 0.5))
    shared = inducing.make("se", (0, 1), rng.standard_normal((4, 2)), 10 ** rng.uniform(-0.3, 0.3, 2), jitter)
    fleet = []
    for _ in range(clients):
        local = inducing.make("matern32", (0, 1), rng.standard_normal((3, 2)), 10 ** rng.uniform(-0.5, 0.2, 2), jitter)
        Bd, Bl = (rng.standard_normal((channels, rank)) for rank in ranks[1:])
        mix = Mixing(shared, local, Bg, Bd, Bl, phi, 10 ** rng.uniform(-2, 0, channels))
        n = int(rng.integers(0, 7))
        Y = 2 * rng.standard_normal((n, channels))
        Y[rng.random(Y.shape) < missing] = np.nan
        fleet.append(Readings(rng.standard_normal((n, 2)), Y, mix))
    return fleet


def latent(basis: Inducing, X: Array, Z: Array, is_sparse: bool, jitter: float = 1e-4) -> Array:
    """Covariance [n, m] of one latent function at inputs X and Z."""
    if not is_sparse:
        return covariance(basis.kernel, X, Z, basis.lengthscale)
    Kzz = covariance(basis.kernel, basis.Z, basis.Z, basis.lengthscale) + jitter * np.eye(len(basis.Z))
    left, right = (covariance(basis.kernel, P, basis.Z, basis.lengthscale) for P in (X, Z))
    return np.asarray(left @ scipy.linalg.solve(Kzz, right.T, assume_a="pos"))


def between(a: Mixing, X: Array, b: Mixing, Z: Array, *, is_same: bool, is_sparse: bool) -> Array:
    """Noiseless covariance [n Q, m Q] of frames of two clients, or of one and the same."""
    K = np.kron(latent(a.shared, X, Z, is_sparse), a.Bg @ b.Bg.T)
    if is_same:
        K = K + a.phi * np.kron(latent(a.shared, X, Z, is_sparse), a.Bd @ b.Bd.T)
        K = K + np.kron(latent(a.local, X, Z, is_sparse), a.Bl @ b.Bl.T)
    return K


def readings_covariance(fleet: list[Readings], is_sparse: bool) -> tuple[Array, Array]:
    """Covariance and values of all readings that were seen, noise included."""
    rows = [
        np.concatenate(
            [between(a.mix, a.X, b.mix, b.X, is_same=a is b, is_sparse=is_sparse)[a.seen][:, b.seen] for b in fleet],
            axis=1,
        )
        for a in fleet
    ]
    noise = np.concatenate([np.tile(a.mix.noise_var, len(a.X))[a.seen] for a in fleet])
    return np.concatenate(rows) + np.diag(noise), np.concatenate([a.Y.ravel()[a.seen] for a in fleet])


def log_density(fleet: list[Readings], is_sparse: bool) -> float:
    """Log density of all readings that were seen."""
    K, y = readings_covariance(fleet, is_sparse)
    return float(scipy.stats.multivariate_normal.logpdf(y, cov=K)) if len(y) else 0.0


def predict(fleet: list[Readings], client: int, Xs: Array, is_sparse: bool) -> tuple[Array, Array]:
    """Mean [n Q] and noiseless covariance [n Q, n Q] of a client's frames at Xs."""
    K, y = readings_covariance(fleet, is_sparse)
    me = fleet[client]
    prior = between(me.mix, Xs, me.mix, Xs, is_same=True, is_sparse=is_sparse)
    cross = np.concatenate(
        [between(me.mix, Xs, b.mix, b.X, is_same=b is me, is_sparse=is_sparse)[:, b.seen] for b in fleet], axis=1
    )
    gain = scipy.linalg.solve(K, cross.T, assume_a="pos").T if len(y) else cross
    return gain @ y, prior - gain @ cross.T
