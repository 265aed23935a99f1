"""The linear block against a plain loop, and the change of basis against features computed afresh."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetgp import features
from fleetgp.scaling import Scaling, apply

SHAPES = (st.integers(0, 10**6), st.integers(1, 3), st.integers(1, 3), st.integers(0, 3))


def random_scaling(rng: np.random.Generator, inputs: int) -> Scaling:
    return Scaling(rng.standard_normal(inputs) * 10, 10 ** rng.uniform(-2, 2, inputs))


def features_of(scaling: Scaling, lags: np.ndarray, covariates: np.ndarray) -> np.ndarray:
    """From raw values, by the definition: bias, then lag 1 of every channel, lag 2, ..., then covariates."""
    Q = lags.shape[1]
    row = [features.PRIOR_SD["bias"]]
    for lag in lags:
        row += [features.PRIOR_SD["lags"] * (lag[q] - scaling.centre[q]) / scaling.scale[q] for q in range(Q)]
    for c, value in enumerate(covariates):
        row.append(features.PRIOR_SD["covariates"] * (value - scaling.centre[Q + c]) / scaling.scale[Q + c])
    return np.array(row)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(*SHAPES)
def test_linear_features_follow_their_layout(seed: int, channels: int, lags: int, covariates: int) -> None:
    rng = np.random.default_rng(seed)
    raw_lags, raw_covariates = rng.standard_normal((lags, channels)), rng.standard_normal(covariates)
    scaling = random_scaling(rng, channels + covariates)
    channel = Scaling(scaling.centre[:channels], scaling.scale[:channels])
    covariate = Scaling(scaling.centre[channels:], scaling.scale[channels:])
    x = features.linear(apply(channel, raw_lags), apply(covariate, raw_covariates))
    assert len(x) == features.size(channels, lags, covariates)
    np.testing.assert_allclose(x, features_of(scaling, raw_lags, raw_covariates), rtol=1e-14)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(*SHAPES)
def test_changed_features_are_those_computed_on_the_new_scale(
    seed: int, channels: int, lags: int, covariates: int
) -> None:
    rng = np.random.default_rng(seed)
    old, new = (random_scaling(rng, channels + covariates) for _ in range(2))
    T = features.change(old, new, channels, lags)
    for _ in range(3):
        raw = rng.standard_normal((lags, channels)) * 10, rng.standard_normal(covariates) * 10
        expected = features_of(new, *raw)
        # relative to the largest feature: centres 10 units apart on a scale of 0.01 cancel up to 1e4
        np.testing.assert_allclose(T @ features_of(old, *raw), expected, atol=1e-12 * np.abs(expected).max() + 1e-10)


@settings(max_examples=20, deadline=None, derandomize=True)
@given(*SHAPES)
def test_changes_of_scale_chain_and_undo(seed: int, channels: int, lags: int, covariates: int) -> None:
    rng = np.random.default_rng(seed)
    a, b, c = (random_scaling(rng, channels + covariates) for _ in range(3))

    def change(old: Scaling, new: Scaling) -> np.ndarray:
        return features.change(old, new, channels, lags)

    # offsets up to 1e3 scales meet ratios up to 1e4
    np.testing.assert_allclose(change(b, c) @ change(a, b), change(a, c), rtol=1e-9, atol=1e-8)
    np.testing.assert_allclose(change(b, a) @ change(a, b), np.eye(1 + lags * channels + covariates), atol=1e-8)
