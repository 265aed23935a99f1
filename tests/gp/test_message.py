"""An agent's term against the n x n matrix it never forms: P = F^T S^-1 F, h = F^T S^-1 y, S = s2 K + F diag(phi) F^T."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg
from dense_fleet import Stream, random_stream
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetgp.gp import message
from fleetgp.gp.message import Term
from fleetgp.gp.statistics import Statistics

RARE = settings(max_examples=50, deadline=None, derandomize=True)


def dense(stream: Stream, Phi: np.ndarray, local: np.ndarray) -> Term:
    """By the definition; Phi [Q, F, F] prior covariance of the deviation, local [Q, F_local] variances of the local layer."""
    F = Phi.shape[-1]
    P, h = [], []
    for q, noise_var in enumerate(stream.noise_var):
        seen = np.isfinite(stream.Y[:, q])
        X, Xl, y = stream.X[seen, :F], stream.X[seen, F:], stream.Y[seen, q]
        S = np.diag(noise_var * stream.k[seen, q]) + X @ Phi[q] @ X.T + Xl @ np.diag(local[q]) @ Xl.T
        solved = scipy.linalg.solve(S, np.column_stack((X, y)), assume_a="pos") if len(y) else np.zeros((0, F + 1))
        P.append(X.T @ solved[:, :-1])
        h.append(X.T @ solved[:, -1])
    return Term(np.array(P), np.array(h))


def diagonals(variances: np.ndarray) -> np.ndarray:
    return variances[..., None] * np.eye(variances.shape[-1])


def nothing_local(channels: int = 1) -> np.ndarray:
    return np.zeros((channels, 0))


def assert_same(a: Term, b: Term, rtol: float = 1e-8) -> None:
    for x, y in zip(a, b, strict=True):
        # the law's tolerance, relative to the largest entry: either side solves systems of condition up to 1e6
        np.testing.assert_allclose(x, y, rtol=0, atol=rtol * (1 + np.abs(y).max()))


@RARE
@given(st.integers(0, 10**6), st.integers(0, 15), st.integers(1, 3), st.integers(1, 5), st.integers(0, 4))
def test_the_term_is_the_dense_likelihood_of_the_shared_weights_1e_8(
    seed: int, frames: int, channels: int, size: int, local: int
) -> None:
    """Deviation and local layer marginalised out; fewer frames than features included, none at all too."""
    rng = np.random.default_rng(seed)
    stream = random_stream(rng, frames, channels, size + local)
    phi, local_var = 10 ** rng.uniform(-3, 1, (channels, size)), 10 ** rng.uniform(-3, 1, (channels, local))
    term = message.summarise(stream.statistics(), stream.noise_var, phi, local_var)
    assert_same(term, dense(stream, diagonals(phi), local_var))


def long_quiet_stream(noise_var: float) -> tuple[Statistics, np.ndarray]:
    """A day at 1 Hz of inputs that repeat each other, one that never moves, and next to no noise."""
    rng = np.random.default_rng(2)
    X = rng.standard_normal((300, 6)) * [0.5, 0.25, 0.25, 0.25, 0.25, 0.0]
    X[:, 0] = 0.5
    X[:, 3] = X[:, 2]
    stream = Stream(X, X @ rng.standard_normal((6, 1)), np.ones((300, 1)), np.array([noise_var]))
    return Statistics(*(100.0 * x for x in stream.statistics())), stream.noise_var


@pytest.mark.parametrize("noise_var", [1e-4, 1e-8, 1e-12])
def test_however_quiet_a_stream_its_term_stays_positive_semidefinite(noise_var: float) -> None:
    """The coordinator refuses a term that is not; F^T F / s2 up to 1e16 must not be subtracted from its like."""
    sums, noise = long_quiet_stream(noise_var)
    phi = np.array([1.0, 0.01, 0.01, 0.01, 0.01, 0.01])
    term = message.summarise(sums, noise, phi[None], nothing_local())
    eigenvalues = np.linalg.eigvalsh(term.precision[0])
    # P has no eigenvalue above 1 / min phi = 100; a few last bits of that may be negative
    assert eigenvalues[0] >= -1e-12
    assert eigenvalues[-1] <= 100 * (1 + 1e-9)
    # what was never excited says nothing, to the last bit
    assert not term.precision[0, 5].any()
    assert not term.precision[0, :, 5].any()
    assert term.shift[0, 5] == 0.0


@pytest.mark.parametrize("factor", [1e-200, 1e-310, 5e-324, 0.0])
def test_a_term_of_what_is_all_but_forgotten_says_all_but_nothing(factor: float) -> None:
    """A channel dead for months: sums fade through the smallest doubles to zero, and the summary is still made."""
    sums, noise = long_quiet_stream(1e-4)
    term = message.summarise(Statistics(*(factor * x for x in sums)), noise, np.ones((1, 6)), nothing_local())
    assert np.abs(term.precision).max() < 1e-150
    assert np.abs(term.shift).max() < 1e-150


def test_no_amount_of_data_tells_more_than_the_deviation_lets_through() -> None:
    """As n grows the term tends to N(v; w, diag(phi)): precision 1 / phi, mean the weights themselves."""
    rng = np.random.default_rng(3)
    X, w, phi = rng.standard_normal((50, 3)), rng.standard_normal((3, 1)), np.array([1.0, 0.1, 0.01])
    sums = Stream(X, X @ w, np.ones((50, 1)), np.ones(1)).statistics()
    term = message.summarise(Statistics(*(1e9 * x for x in sums)), np.ones(1), phi[None], nothing_local())
    # s2 (F^T F)^-1 / phi is left, at most 1e-7
    np.testing.assert_allclose(term.precision[0], np.diag(1 / phi), rtol=1e-6, atol=1e-5)
    np.testing.assert_allclose(np.linalg.solve(term.precision[0], term.shift[0]), w[:, 0], rtol=1e-6)


@RARE
@given(st.integers(0, 10**6), st.integers(1, 12), st.integers(1, 3), st.integers(1, 4))
def test_a_rebased_term_is_the_likelihood_computed_afresh_on_the_new_basis(
    seed: int, frames: int, channels: int, size: int
) -> None:
    """The deviation's prior stays what it was in the old weights: diag(phi) becomes T^-T diag(phi) T^-1."""
    rng = np.random.default_rng(seed)
    stream = random_stream(rng, frames, channels, size)
    phi = 10 ** rng.uniform(-2, 0, size)
    T = np.eye(size) + 0.3 * rng.standard_normal((size, size))
    ratio = 10 ** rng.uniform(-1, 1, channels)
    term = message.summarise(
        stream.statistics(), stream.noise_var, np.tile(phi, (channels, 1)), nothing_local(channels)
    )
    rebased = message.rebase(term, T, ratio)
    for q in range(channels):
        afresh = Stream(
            stream.X @ T.T,
            stream.Y[:, q : q + 1] * ratio[q],
            stream.k[:, q : q + 1],
            stream.noise_var[q : q + 1] * ratio[q] ** 2,
        )
        T_inv = np.linalg.inv(T)
        expected = dense(afresh, (ratio[q] ** 2 * T_inv.T @ np.diag(phi) @ T_inv)[None], nothing_local())
        assert_same(Term(rebased.precision[q : q + 1], rebased.shift[q : q + 1]), expected)


def test_ageing_keeps_what_a_term_says_and_takes_of_its_weight() -> None:
    stream = random_stream(np.random.default_rng(4), 12, 1, 3)
    term = message.summarise(stream.statistics(), stream.noise_var, np.ones((1, 3)), nothing_local())
    aged = message.scaled(term, 0.25)
    mean, before = (np.linalg.solve(one.precision[0], one.shift[0]) for one in (aged, term))
    np.testing.assert_allclose(mean, before, rtol=1e-9)
    np.testing.assert_allclose(np.linalg.inv(aged.precision[0]), 4 * np.linalg.inv(term.precision[0]), rtol=1e-9)


def test_half_a_term_is_that_of_half_the_data_under_twice_the_own_layers() -> None:
    """The identity a covariance intersection rests on; half the data alone would say more than half a term."""
    stream = random_stream(np.random.default_rng(6), 12, 2, 5)
    phi, local = np.tile([1.0, 0.1, 0.01], (2, 1)), np.full((2, 2), 0.3)
    half = Statistics(*(0.5 * x for x in stream.statistics()))
    whole = message.summarise(stream.statistics(), stream.noise_var, phi, local)
    doubled = message.summarise(half, stream.noise_var, 2 * phi, 2 * local)
    assert_same(doubled, message.scaled(whole, 0.5), rtol=1e-10)
    excess = message.summarise(half, stream.noise_var, phi, local).precision - 0.5 * whole.precision
    assert np.linalg.eigvalsh(excess).max() > 0.1
