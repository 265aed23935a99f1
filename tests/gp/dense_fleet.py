"""A fleet computed the long way: one joint Gaussian over v_g, every d_i and every reading, no statistics, no Woodbury.

Each channel of agent i: y = F (v + d_i) + e, v ~ N(0, I), d_i ~ N(0, diag(phi)), e_t ~ N(0, s2_q k_t). Conditioning is
done in the space of readings with scipy's solver, so nothing here is shared with the code that it judges.
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
    """One agent's frames: inputs X [n, F], targets Y [n, Q] (NaN = missing), k [n, Q] noise factors, noise_var [Q]."""

    X: Array
    Y: Array
    k: Array
    noise_var: Array

    def statistics(self) -> Statistics:
        """What the engine makes of these frames, one by one."""
        sums = statistics.empty(self.Y.shape[1], self.X.shape[1])
        for x, y, k in zip(self.X, self.Y, self.k, strict=True):
            sums = statistics.observe(sums, x, y, np.isfinite(y) / k)
        return sums


def random_stream(rng: np.random.Generator, frames: int, channels: int, size: int, missing: float = 0.2) -> Stream:
    """Frames with missing channels, aged noise and inputs of different sizes."""
    X = rng.standard_normal((frames, size)) * 10 ** rng.uniform(-1, 0.5, size)
    Y = rng.standard_normal((frames, channels)) * 2
    Y[rng.random((frames, channels)) < missing] = np.nan
    return Stream(X, Y, rng.integers(1, 6, (frames, channels)).astype(float), 10 ** rng.uniform(-2, 0, channels))


def random_fleet(seed: int, agents: int, channels: int, size: int, most_frames: int = 12) -> tuple[list[Stream], Array]:
    """Streams of 0 to most_frames frames, and a deviation scale phi [F]."""
    rng = np.random.default_rng(seed)
    streams = [random_stream(rng, int(rng.integers(0, most_frames + 1)), channels, size) for _ in range(agents)]
    return streams, 10 ** rng.uniform(-2, 0.5, size)


@dataclass(frozen=True)
class Joint:
    """Posterior of (v, d_1, ..., d_n) of one channel: mean [(n + 1) F], cov; and the log evidence of the readings."""

    mean: Array
    cov: Array
    evidence: float
    size: int

    def shared(self) -> tuple[Array, Array]:
        """Mean and covariance of v."""
        return self.mean[: self.size], self.cov[: self.size, : self.size]

    def weights(self, agent: int) -> tuple[Array, Array]:
        """Mean and covariance of w = v + d_agent, cross terms included."""
        F = self.size
        A = np.zeros((F, len(self.mean)))
        A[:, :F] = np.eye(F)
        A[:, (agent + 1) * F : (agent + 2) * F] = np.eye(F)
        return A @ self.mean, A @ self.cov @ A.T


def condition(streams: list[Stream], phi: Array, channel: int) -> Joint:
    """The joint posterior of one channel given all that all agents saw of it."""
    F = len(phi)
    prior = np.diag(np.concatenate([np.ones(F), *([phi] * len(streams))]))
    rows, targets, noise = [], [], []
    for i, stream in enumerate(streams):
        for x, y, k in zip(stream.X, stream.Y[:, channel], stream.k[:, channel], strict=True):
            if np.isfinite(y):
                row = np.zeros(len(prior))
                row[:F] = row[(i + 1) * F : (i + 2) * F] = x
                rows.append(row)
                targets.append(y)
                noise.append(stream.noise_var[channel] * k)
    if not rows:
        return Joint(np.zeros(len(prior)), prior, 0.0, F)
    H, y = np.array(rows), np.array(targets)
    S = H @ prior @ H.T + np.diag(noise)
    gain = scipy.linalg.solve(S, H @ prior, assume_a="pos").T
    _, logdet = np.linalg.slogdet(2 * np.pi * S)
    evidence = -0.5 * (y @ scipy.linalg.solve(S, y, assume_a="pos") + logdet)
    return Joint(gain @ y, prior - gain @ H @ prior, float(evidence), F)
