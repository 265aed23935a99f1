"""A fleet computed the long way: one joint Gaussian over v, every d_i, every local layer and every reading.

Each channel of agent i: y = F (v + d_i) + F_i c_i + e, v ~ N(0, diag(shared)), d_i ~ N(0, diag(deviation)),
c_i ~ N(0, diag(local)), e_t ~ N(0, s2_q k_t). Conditioning is done in the space of readings with scipy's solver, so that
nothing here is shared with the code that it judges: no statistics, no Woodbury.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg

from fleetgp.arrays import Array
from fleetgp.gp import statistics
from fleetgp.gp.statistics import Statistics


@dataclass(frozen=True)
class Stream:
    """One agent's frames: features X [n, F + F_local], targets Y [n, Q] (NaN = missing), k [n, Q] noise factors, noise_var [Q]."""

    X: Array
    Y: Array
    k: Array
    noise_var: Array

    def statistics(self) -> Statistics:
        """What the engine makes of these frames."""
        return statistics.summed(self.X, self.Y, np.isfinite(self.Y) / self.k)


@dataclass(frozen=True)
class Priors:
    """Prior variances of the weights: shared, deviation [Q, F], local [Q, F_local]."""

    shared: Array
    deviation: Array
    local: Array

    @property
    def size(self) -> int:
        return self.shared.shape[1]


def plain(channels: int, size: int, deviation: float = 1.0) -> Priors:
    """v ~ N(0, I), no local layer."""
    return Priors(np.ones((channels, size)), np.full((channels, size), deviation), np.zeros((channels, 0)))


def random_stream(rng: np.random.Generator, frames: int, channels: int, size: int, missing: float = 0.2) -> Stream:
    """Frames with missing channels, aged noise and inputs of different sizes."""
    X = rng.standard_normal((frames, size)) * 10 ** rng.uniform(-1, 0.5, size)
    Y = rng.standard_normal((frames, channels)) * 2
    Y[rng.random((frames, channels)) < missing] = np.nan
    return Stream(X, Y, rng.integers(1, 6, (frames, channels)).astype(float), 10 ** rng.uniform(-2, 0, channels))


def random_fleet(
    seed: int, agents: int, channels: int, size: int, local: int = 0, most_frames: int = 12
) -> tuple[list[Stream], Priors]:
    """Streams of 0 to most_frames frames, with ``local`` features of their own, and prior variances."""
    rng = np.random.default_rng(seed)
    streams = [random_stream(rng, int(rng.integers(0, most_frames + 1)), channels, size + local) for _ in range(agents)]
    shared, deviation = 10 ** rng.uniform(-1, 1, (channels, size)), 10 ** rng.uniform(-2, 0.5, (channels, size))
    return streams, Priors(shared, deviation, 10 ** rng.uniform(-2, 0.5, (channels, local)))


@dataclass(frozen=True)
class Joint:
    """Posterior of (v, (d_1, c_1), ..., (d_n, c_n)) of one channel: mean, cov; and the log evidence of the readings."""

    mean: Array
    cov: Array
    evidence: float
    size: int
    local: int

    def shared(self) -> tuple[Array, Array]:
        """Mean and covariance of v."""
        return self.mean[: self.size], self.cov[: self.size, : self.size]

    def weights(self, agent: int) -> tuple[Array, Array]:
        """Mean and covariance of (v + d_agent, c_agent), cross terms included."""
        A = np.array([self.row(x, agent) for x in np.eye(self.size + self.local)])
        return A @ self.mean, A @ self.cov @ A.T

    def deviation(self, agent: int) -> tuple[Array, Array]:
        """Mean and covariance of d_agent."""
        begin = self.size + agent * (self.size + self.local)
        part = slice(begin, begin + self.size)
        return self.mean[part], self.cov[part, part]

    def row(self, x: Array, agent: int) -> Array:
        return row(x, agent, self.size, len(self.mean))


def row(x: Array, agent: int, size: int, total: int) -> Array:
    """The row of one reading with features x [F + F_local] of an agent in the joint design."""
    result = np.zeros(total)
    result[:size] = x[:size]
    begin = size + agent * len(x)
    result[begin : begin + len(x)] = x
    return result


def condition(streams: list[Stream], priors: Priors, channel: int) -> Joint:
    """The joint posterior of one channel given all that all agents saw of it."""
    F, local = priors.size, priors.local.shape[1]
    own = np.concatenate((priors.deviation[channel], priors.local[channel]))
    prior = np.diag(np.concatenate((priors.shared[channel], np.tile(own, len(streams)))))
    rows, targets, noise = [], [], []
    for i, stream in enumerate(streams):
        for x, y, k in zip(stream.X, stream.Y[:, channel], stream.k[:, channel], strict=True):
            if np.isfinite(y):
                rows.append(row(x, i, F, len(prior)))
                targets.append(y)
                noise.append(stream.noise_var[channel] * k)
    if not rows:
        return Joint(np.zeros(len(prior)), prior, 0.0, F, local)
    H, y = np.array(rows), np.array(targets)
    S = H @ prior @ H.T + np.diag(noise)
    gain = scipy.linalg.solve(S, H @ prior, assume_a="pos").T
    _, logdet = np.linalg.slogdet(2 * np.pi * S)
    evidence = -0.5 * (y @ scipy.linalg.solve(S, y, assume_a="pos") + logdet)
    return Joint(gain @ y, prior - gain @ H @ prior, float(evidence), F, local)
