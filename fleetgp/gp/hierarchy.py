"""Hyperparameters of the three layers: what the fleet shares and what each client keeps, unconstrained, with weak priors.

Logarithms of what is positive, so that a gradient step never leaves the domain. Kernels that go by a word have variance 1; the
loadings carry the scale, a priori N(0, 1 / R) each, for only B B^T is identified (models.md section 1). Of a composed covariance
``log_lengthscale`` is the logarithms of all its parameters [P].
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fleetgp import inducing
from fleetgp.arrays import Array
from fleetgp.covariances import Covariance
from fleetgp.gp.mixing import Mixing
from fleetgp.schema import Kernel

AnyKernel = Kernel | Covariance

# start of the local loadings as a share of their prior scale: what is private is small until the data say otherwise
LOCAL_START = 0.4


class Ranks(NamedTuple):
    """Numbers of latent functions of the layers; 0 switches a layer off."""

    shared: int = 2
    deviation: int = 2
    local: int = 2


class Shared(NamedTuple):
    """What the fleet shares: loadings Bg [Q, Rg], inducing inputs Zg [M, D], log lengthscale [D], log phi []."""

    Bg: Array
    Zg: Array
    log_lengthscale: Array
    log_phi: Array


class Own(NamedTuple):
    """What a client keeps: loadings Bd [Q, Rd] and Bl [Q, Rl], inducing inputs Zi [Mi, D], log lengthscale [D], log noise_var [Q]."""

    Bd: Array
    Bl: Array
    Zi: Array
    log_lengthscale: Array
    log_noise_var: Array


class Start(NamedTuple):
    """Where hyperparameters start, which is also the middle of their priors: Zg [M, D], Zi [Mi, D], in the unit of the inputs.

    lengthscales [D] of both bases; noise_var [Q]. ..._sd: prior standard deviation of a logarithm; inducing inputs move by
    about drift [D]. Of all priors these are the weakest that keep a client of 15 frames sensible. kernel: of the shared functions
    and the deviation, and of the local ones too where local_kernel names no other; of a composed covariance the lengthscales
    are all of its parameters [P], its ``values`` being their logarithms.
    """

    Zg: Array
    Zi: Array
    lengthscale_g: Array
    lengthscale_i: Array
    noise_var: Array
    phi: float = 0.3
    lengthscale_sd: float = 0.5
    noise_sd: float = 1.0
    phi_sd: float = 1.0
    drift: float = 0.5
    kernel: AnyKernel = "se"
    local_kernel: AnyKernel | None = None

    @property
    def kernels(self) -> tuple[AnyKernel, AnyKernel]:
        """Of the shared and of the local basis."""
        return self.kernel, self.local_kernel or self.kernel


def shared(start: Start, ranks: Ranks, rng: np.random.Generator) -> Shared:
    """First values; loadings at random from their prior, for latents that start alike stay alike."""
    Bg = _loadings(rng, len(start.noise_var), ranks.shared)
    return Shared(Bg, start.Zg, np.log(start.lengthscale_g), np.asarray(np.log(start.phi)))


def own(start: Start, ranks: Ranks, rng: np.random.Generator) -> Own:
    """A client's first values."""
    Q = len(start.noise_var)
    Bd, Bl = _loadings(rng, Q, ranks.deviation), LOCAL_START * _loadings(rng, Q, ranks.local)
    return Own(Bd, Bl, start.Zi, np.log(start.lengthscale_i), np.log(start.noise_var))


def mixing(shared: Shared, own: Own, kernel: AnyKernel = "se", local: AnyKernel | None = None) -> Mixing:
    """The model that these values make. local: kernel of the local basis, where it is another."""
    columns = tuple(range(shared.Zg.shape[1]))
    return Mixing(
        inducing.make(kernel, columns, shared.Zg, np.exp(shared.log_lengthscale)),
        inducing.make(local or kernel, columns, own.Zi, np.exp(own.log_lengthscale)),
        shared.Bg,
        own.Bd,
        own.Bl,
        float(np.exp(shared.log_phi)),
        np.exp(own.log_noise_var),
    )


def shared_log_prior(shared: Shared, start: Start) -> tuple[float, Shared]:
    """Log prior density of shared values, up to a constant, and its gradient."""
    R = shared.Bg.shape[1]
    slope = Shared(
        -R * shared.Bg,
        -(shared.Zg - start.Zg) / start.drift**2,
        -(shared.log_lengthscale - np.log(start.lengthscale_g)) / start.lengthscale_sd**2,
        -(shared.log_phi - np.log(start.phi)) / start.phi_sd**2,
    )
    value = _half(R, shared.Bg) + _half(start.drift**-2, shared.Zg - start.Zg)
    value += _half(start.lengthscale_sd**-2, shared.log_lengthscale - np.log(start.lengthscale_g))
    return value + _half(start.phi_sd**-2, shared.log_phi - np.log(start.phi)), slope


def own_log_prior(own: Own, start: Start) -> tuple[float, Own]:
    """Log prior density of a client's values, up to a constant, and its gradient."""
    Rd, Rl = own.Bd.shape[1], own.Bl.shape[1]
    slope = Own(
        -Rd * own.Bd,
        -Rl * own.Bl,
        -(own.Zi - start.Zi) / start.drift**2,
        -(own.log_lengthscale - np.log(start.lengthscale_i)) / start.lengthscale_sd**2,
        -(own.log_noise_var - np.log(start.noise_var)) / start.noise_sd**2,
    )
    value = _half(Rd, own.Bd) + _half(Rl, own.Bl) + _half(start.drift**-2, own.Zi - start.Zi)
    value += _half(start.lengthscale_sd**-2, own.log_lengthscale - np.log(start.lengthscale_i))
    return value + _half(start.noise_sd**-2, own.log_noise_var - np.log(start.noise_var)), slope


def _half(precision: float, away: Array) -> float:
    return -0.5 * precision * float(np.sum(away**2))


def _loadings(rng: np.random.Generator, channels: int, rank: int) -> Array:
    return np.asarray(rng.standard_normal((channels, rank)) / np.sqrt(max(rank, 1)))
