"""Features against a plain loop over their layout, and the change of basis against features computed afresh."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetgp import features, inducing
from fleetgp.features import BLOCKS, PRIOR_SD, Basis, Shape
from fleetgp.scaling import Scaling
from fleetgp.schema import Channel, Covariate, Schema

RARE = settings(max_examples=40, deadline=None, derandomize=True)
SHAPES = st.builds(Shape, st.integers(1, 3), st.integers(1, 3), st.integers(0, 3), st.sampled_from([0, 2, 6]))
SEED = st.integers(0, 10**6)


def random_scaling(rng: np.random.Generator, inputs: int) -> Scaling:
    return Scaling(rng.standard_normal(inputs) * 10, 10 ** rng.uniform(-2, 2, inputs))


def random_basis(rng: np.random.Generator, shape: Shape, M: int = 0, local: int = 0) -> Basis:
    def some(size: int) -> inducing.Inducing | None:
        columns = tuple(range(min(2, shape.inputs)))
        Z = 10 * rng.standard_normal((size, len(columns)))
        return inducing.make("se", columns, Z, np.full(len(columns), 10.0)) if size else None

    return Basis(shape, random_scaling(rng, shape.channels + shape.covariates), some(M), some(local))


class Raw(NamedTuple):
    """Inputs of one frame by what they are: lags [L, Q], covariates [C], phases [P], held [Q + C]."""

    lags: np.ndarray
    covariates: np.ndarray
    phases: np.ndarray
    held: np.ndarray

    def inputs(self) -> np.ndarray:
        return np.concatenate((self.lags.ravel(), self.covariates, self.phases, self.held))


def random_raw(rng: np.random.Generator, shape: Shape) -> Raw:
    Q, L, C, P = shape
    turn = rng.uniform(0, 2 * np.pi, P)
    held = (rng.random(Q + C) < 0.3).astype(float)
    return Raw(rng.standard_normal((L, Q)) * 10, rng.standard_normal(C) * 10, np.cos(turn), held)


def by_hand(basis: Basis, raw: Raw) -> list[float]:
    """The linear block: bias, lag 1 of every channel, lag 2, ..., covariates, phases, held; one by one."""
    Q, (centre, scale) = basis.shape.channels, basis.scaling
    row = [PRIOR_SD["bias"]]
    for lag in raw.lags:
        row += [PRIOR_SD["lags"] * (lag[q] - centre[q]) / scale[q] for q in range(Q)]
    row += [PRIOR_SD["covariates"] * (v - centre[Q + c]) / scale[Q + c] for c, v in enumerate(raw.covariates)]
    return row + [PRIOR_SD["phases"] * v for v in raw.phases] + [PRIOR_SD["held"] * v for v in raw.held]


@RARE
@given(SEED, SHAPES, st.integers(0, 3), st.integers(0, 3))
def test_features_follow_their_layout_1e_12(seed: int, shape: Shape, M: int, local: int) -> None:
    """The linear block, then shared and local inducing features of the raw inputs; several frames at once, or none."""
    rng = np.random.default_rng(seed)
    basis = random_basis(rng, shape, M, local)
    raws = [random_raw(rng, shape) for _ in range(int(rng.integers(0, 4)))]
    inputs = np.array([raw.inputs() for raw in raws]).reshape(len(raws), shape.inputs)
    X = features.features(basis, inputs)
    assert X.shape == (len(raws), basis.size + basis.local_size)
    assert len(features.blocks(shape, M, local)) == basis.size + basis.local_size
    for raw, x in zip(raws, X, strict=True):
        np.testing.assert_allclose(x[: shape.linear], by_hand(basis, raw), rtol=1e-12)
    for layer, columns in ((basis.shared, slice(shape.linear, basis.size)), (basis.local, slice(basis.size, None))):
        if layer:
            np.testing.assert_allclose(X[:, columns], 0.2 * inducing.features(layer, inputs), rtol=1e-12)


@RARE
@given(SEED, SHAPES, st.integers(0, 3), st.integers(0, 3))
def test_every_feature_carries_the_standard_deviation_of_its_block(seed: int, shape: Shape, M: int, local: int) -> None:
    """The names of the blocks and the columns they own agree: an input of one scaled unit gives its block's PRIOR_SD."""
    basis = random_basis(np.random.default_rng(seed), shape, M, local)
    scaled = features.scale(shape, basis.scaling)
    X = features.features(basis, (scaled.centre + scaled.scale)[None])[0]
    for x, block in zip(X[: shape.linear], features.blocks(shape, M, local), strict=False):
        assert x == pytest.approx(PRIOR_SD[BLOCKS[int(block)]], rel=1e-9)


@RARE
@given(SEED, SHAPES, st.integers(1, 4), st.integers(1, 4), st.sampled_from([1.0, 1e3, 1e150]))
def test_the_residual_of_each_layer_is_what_its_features_leave_of_its_variance(
    seed: int, shape: Shape, M: int, local: int, far: float
) -> None:
    rng = np.random.default_rng(seed)
    basis = random_basis(rng, shape, M, local)
    X = features.features(basis, far * rng.standard_normal((5, shape.inputs)))
    r = features.residual(basis, X)
    assert np.all(r >= 0)
    F = basis.size
    np.testing.assert_allclose(r[:, 0], 0.04 - np.sum(X[:, shape.linear : F] ** 2, axis=1), atol=1e-9)
    np.testing.assert_allclose(r[:, 1], 0.04 - np.sum(X[:, F:] ** 2, axis=1), atol=1e-9)
    if far == 1e150:
        np.testing.assert_array_equal(r, PRIOR_SD["inducing"] ** 2)
    assert not features.residual(basis._replace(shared=None, local=None), X[:, : shape.linear]).any()


@RARE
@given(SEED, SHAPES, st.integers(0, 3), st.integers(0, 3))
def test_changed_features_are_those_computed_on_the_new_scale(seed: int, shape: Shape, M: int, local: int) -> None:
    """Inducing blocks that stay are in raw units and stay as they are."""
    rng = np.random.default_rng(seed)
    old = random_basis(rng, shape, M, local)
    new = old._replace(scaling=random_scaling(rng, shape.channels + shape.covariates))
    T = features.change(old, new)
    inputs = np.array([random_raw(rng, shape).inputs() for _ in range(3)])
    expected = features.features(new, inputs)
    # relative to the largest feature: centres 10 units apart on a scale of 0.01 cancel up to 1e4
    tolerance = 1e-12 * np.abs(expected).max() + 1e-10
    np.testing.assert_allclose(features.features(old, inputs) @ T.T, expected, rtol=1e-9, atol=tolerance)


@RARE
@given(SEED, SHAPES, st.integers(0, 2))
def test_changes_of_scale_chain_and_undo(seed: int, shape: Shape, M: int) -> None:
    rng = np.random.default_rng(seed)
    a = random_basis(rng, shape, M, M)
    b, c = (a._replace(scaling=random_scaling(rng, shape.channels + shape.covariates)) for _ in range(2))
    change = features.change
    # offsets up to 1e3 scales meet ratios up to 1e4
    np.testing.assert_allclose(change(b, c) @ change(a, b), change(a, c), rtol=1e-9, atol=1e-8)
    np.testing.assert_allclose(change(b, a) @ change(a, b), np.eye(a.size + a.local_size), atol=1e-8)


def test_inducing_features_that_come_or_go_are_carried_as_nothing() -> None:
    rng, shape = np.random.default_rng(1), Shape(1, 2, 1)
    with_both, without = random_basis(rng, shape, 3, 2), random_basis(rng, shape)
    T = features.change(without, with_both)
    assert T.shape == (with_both.size + 2, without.size)
    assert not T[shape.linear :].any()
    np.testing.assert_array_equal(features.change(with_both, without)[:, shape.linear :], 0.0)


def test_sameness_of_inducing_blocks_is_of_all_that_makes_them() -> None:
    one = inducing.make("se", (0,), np.arange(3.0)[:, None], np.ones(1))
    again = inducing.make("se", (0,), np.arange(3.0)[:, None], np.ones(1))
    others = [
        inducing.make("matern32", (0,), one.Z, one.lengthscale),
        inducing.make("se", (1,), one.Z, one.lengthscale),
        inducing.make("se", (0,), one.Z + 1e-9, one.lengthscale),
        inducing.make("se", (0,), one.Z, 2 * one.lengthscale),
        inducing.make("se", (0,), one.Z[:2], one.lengthscale),
        None,
    ]
    assert features.same(one, again)
    assert features.same(None, None)
    assert not any(features.same(one, other) or features.same(other, one) for other in others)


def calendar(phases: tuple[float, ...], harmonics: int = 3) -> Schema:
    return Schema(channels=(Channel(name="a"),), phases=phases, harmonics=harmonics)


@RARE
@given(
    st.integers(-(10**12), 4 * 10**12),
    st.lists(st.sampled_from([60.0, 3600.0, 86400.0, 604800.0]), max_size=4, unique=True),
)
def test_phases_are_cosines_and_sines_of_whole_turns(at_ms: int, periods: list[float]) -> None:
    """Against math.cos of the exact remainder: at a time of 2^41 ms no digit of a period's turn is lost."""
    schema = calendar(tuple(periods))
    expected = []
    for period in periods:
        turn = (at_ms % round(1000 * period)) / (1000 * period)
        for harmonic in (1, 2, 3):
            expected += [math.cos(2 * math.pi * harmonic * turn), math.sin(2 * math.pi * harmonic * turn)]
    got = features.phases(np.array([float(at_ms)]), schema)
    assert got.shape == (1, features.shape(schema).phases)
    np.testing.assert_allclose(got[0], expected, atol=1e-12)


def test_a_schema_says_its_shape() -> None:
    channels, covariates = tuple(Channel(name=f"c{i}") for i in range(3)), (Covariate(name="x"),)
    schema = Schema(channels=channels, covariates=covariates, lags=4, phases=(3600.0, 86400.0), harmonics=2)
    assert features.shape(schema) == Shape(3, 4, 1, 8)
    assert features.shape(schema).inputs == 4 * 3 + 1 + 8 + 3 + 1
    assert features.phases(np.zeros(2), calendar(())).shape == (2, 0)
