"""Adam by its own laws: the size of its first step, where it ends, and that it forgets nothing of what it is given."""

from __future__ import annotations

import numpy as np

from fleetgp.gp import ascent
from fleetgp.wire.freeze import freeze, thaw

VALUES = {"a": np.array([3.0, -2.0]), "b": np.asarray(0.5)}


def test_a_first_step_has_the_size_of_the_rate_whatever_the_slope() -> None:
    slope = {"a": np.array([1e-3, -1e6]), "b": np.asarray(2.0)}
    moved, _ = ascent.step(VALUES, slope, ascent.still(VALUES), 0.1)
    np.testing.assert_allclose(moved["a"] - VALUES["a"], [0.1, -0.1], rtol=1e-4)
    np.testing.assert_allclose(moved["b"] - VALUES["b"], 0.1, rtol=1e-4)


def test_it_climbs_a_hill_to_its_top() -> None:
    values, momentum = dict(VALUES), ascent.still(VALUES)
    for k in range(400):
        slope = {"a": -np.array([1.0, 30.0]) * (values["a"] - 1.0), "b": -values["b"]}
        values, momentum = ascent.step(values, slope, momentum, 0.1 * 0.985**k)
    np.testing.assert_allclose(values["a"], 1.0, atol=1e-2)
    np.testing.assert_allclose(values["b"], 0.0, atol=1e-2)


def test_its_momentum_comes_back_from_a_snapshot_bit_for_bit() -> None:
    _, momentum = ascent.step(VALUES, {"a": np.array([0.3, 0.7]), "b": np.asarray(0.1)}, ascent.still(VALUES), 0.1)
    again = thaw(freeze(momentum), ascent.Momentum)
    assert again.steps == 1
    for name in VALUES:
        np.testing.assert_array_equal(again.mean[name], momentum.mean[name])
        np.testing.assert_array_equal(again.square[name], momentum.square[name])
