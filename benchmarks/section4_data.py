"""The simulator of the pFedHGP paper's section 4, and the exact process with its true hyperparameters (models.md section 5)."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
import scipy.linalg

from fleetgp.arrays import Array

Scenario = Literal["A", "B", "C", "D"]
CLIENTS, Q, R = 6, 4, 2
SPAN, TESTS = 10.0, 200
NOISE_SD = 0.05
PHI, LOCAL_VAR = 0.3, 0.15
LENGTH_G, LENGTH_I = 2.0, 0.35
PERIOD, PERIODIC_LENGTH = 2.5, 1.0
INTERACTION = 0.5
SHARE, REST = 0.6, 0.8


class Device(NamedTuple):
    """One client: X [n], Y [n, Q] to learn from; Xs [200] and Ys [200, Q] to foresee; true loadings [Q, R]."""

    X: Array
    Y: Array
    Xs: Array
    Ys: Array
    Bg: Array
    Bd: Array
    Bl: Array

    @property
    def covariance(self) -> Array:
        """Q x Q covariance of the signal at one input, layers independent."""
        return np.asarray(self.Bg @ self.Bg.T + PHI * self.Bd @ self.Bd.T + LOCAL_VAR * self.Bl @ self.Bl.T)


def simulate(seed: int, scenario: Scenario, counts: tuple[int, ...]) -> list[Device]:
    """One run: as many clients as counts of training inputs; new functions, loadings, inputs and noise for every seed."""
    rng = np.random.default_rng(seed)
    Xs = np.linspace(0, SPAN, TESTS)
    X = [np.sort(rng.uniform(0, SPAN, n)) for n in counts]
    Bg = _loadings(rng)
    shared = np.split(_draw(rng, squared_exponential(np.concatenate((*X, Xs)), LENGTH_G)), np.cumsum(counts))
    devices = []
    for x, n, fg in zip(X, counts, shared[:-1], strict=True):
        Bd, Bl = _loadings(rng), _loadings(rng)
        points, g = np.concatenate((x, Xs)), np.concatenate((fg, shared[-1]))
        d = np.sqrt(PHI) * _draw(rng, deviation_kernel(points, scenario))
        if scenario == "D":
            d = SHARE * np.sqrt(PHI) * g + REST * d
        fl = np.sqrt(LOCAL_VAR) * _draw(rng, squared_exponential(points, LENGTH_I))
        f = g @ Bg.T + d @ Bd.T + fl @ Bl.T
        if scenario == "C":
            f += INTERACTION * (g @ Bg.T) * (fl @ Bl.T)
        y = f + NOISE_SD * rng.standard_normal(f.shape)
        devices.append(Device(x, y[:n], Xs, y[n:], Bg, Bd, Bl))
    return devices


def oracle(devices: list[Device], scenario: Scenario) -> list[tuple[Array, Array]]:
    """Mean [200, Q] and covariance [200, Q, Q] of each client's tests given all readings, by the exact process.

    In scenario C the interaction is left out: with it the process is not Gaussian.
    """
    n = [d.Y.size for d in devices]
    ends = np.cumsum([0, *n])
    K = np.diag(np.full(ends[-1], NOISE_SD**2))
    for i, a in enumerate(devices):
        for j, b in enumerate(devices):
            K[ends[i] : ends[i + 1], ends[j] : ends[j + 1]] += _between(a, a.X, b, b.X, scenario)
    L = scipy.linalg.cholesky(K, lower=True)
    z = scipy.linalg.solve_triangular(L, np.concatenate([d.Y.ravel() for d in devices]), lower=True)
    laws = []
    for a in devices:
        cross = np.concatenate([_between(b, b.X, a, a.Xs, scenario) for b in devices])
        V = scipy.linalg.solve_triangular(L, cross, lower=True)
        parts = V.reshape(len(V), TESTS, Q)
        cov = _signal(a, scenario) + NOISE_SD**2 * np.eye(Q) - np.einsum("wnq,wns->nqs", parts, parts)
        laws.append(((V.T @ z).reshape(TESTS, Q), cov))
    return laws


def squared_exponential(X: Array, length: float, Z: Array | None = None) -> Array:
    """Covariance [n, m] of variance 1."""
    gap = (X[:, None] - (X if Z is None else Z)[None]) / length
    return np.asarray(np.exp(-0.5 * gap * gap))


def deviation_kernel(X: Array, scenario: Scenario, Z: Array | None = None) -> Array:
    """Covariance [n, m] of the deviation at scale 1: in scenario B periodic, else that of the shared functions."""
    if scenario != "B":
        return squared_exponential(X, LENGTH_G, Z)
    gap = np.sin(np.pi * (X[:, None] - (X if Z is None else Z)[None]) / PERIOD) / PERIODIC_LENGTH
    return np.asarray(np.exp(-2 * gap * gap))


def _between(a: Device, X: Array, b: Device, Z: Array, scenario: Scenario) -> Array:
    """Noiseless covariance [n Q, m Q] of two clients' readings."""
    Ga, Gb, share = _common(a, scenario), _common(b, scenario), REST**2 if scenario == "D" else 1.0
    K = np.kron(squared_exponential(X, LENGTH_G, Z), Ga @ Gb.T)
    if a is b:
        K += share * PHI * np.kron(deviation_kernel(X, scenario, Z), a.Bd @ a.Bd.T)
        K += LOCAL_VAR * np.kron(squared_exponential(X, LENGTH_I, Z), a.Bl @ a.Bl.T)
    return np.asarray(K)


def _common(device: Device, scenario: Scenario) -> Array:
    """Loadings of the shared functions: in scenario D the deviation follows them in part."""
    return device.Bg + SHARE * np.sqrt(PHI) * device.Bd if scenario == "D" else device.Bg


def _signal(device: Device, scenario: Scenario) -> Array:
    """Q x Q covariance of the signal at one input."""
    G, share = _common(device, scenario), REST**2 if scenario == "D" else 1.0
    return np.asarray(G @ G.T + share * PHI * device.Bd @ device.Bd.T + LOCAL_VAR * device.Bl @ device.Bl.T)


def _loadings(rng: np.random.Generator) -> Array:
    return np.asarray(rng.standard_normal((Q, R)) / np.sqrt(R))


def _draw(rng: np.random.Generator, K: Array) -> Array:
    """R functions [n, R] with this covariance."""
    return np.asarray(np.linalg.cholesky(K + 1e-9 * np.eye(len(K))) @ rng.standard_normal((len(K), R)))
