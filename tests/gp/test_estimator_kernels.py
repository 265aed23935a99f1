"""Composed kernels by the library's face: they foresee where words cannot, in any unit, and what they learnt can be read."""

from __future__ import annotations

import numpy as np
import pytest

from fleetgp.arrays import Array
from fleetgp.covariances import Covariance, Periodic, Product, Stationary
from fleetgp.errors import ConfigError
from fleetgp.gp.estimator import PFedHGP

PERIOD = 7.0
GUESS = Periodic(0, 6.8, 1.0) * Stationary("se", (0,), np.array([60.0]))


def wave(seed: int, x: Array) -> Array:
    """Two channels of one period, a device's own share in them."""
    angle, own = 2 * np.pi * x / PERIOD, 0.3 * np.random.default_rng(seed).standard_normal()
    return np.column_stack((np.sin(angle) + 0.4 * np.cos(2 * angle) + own * np.sin(angle + 1), np.cos(angle) - own))


def fleet(unit: float = 1.0) -> dict[str, tuple[Array, Array]]:
    told = {}
    for seed in range(3):
        rng = np.random.default_rng(seed)
        x = rng.uniform(0, 40, 40)
        told[f"device {seed}"] = x * unit, wave(seed, x) + 0.05 * rng.standard_normal((40, 2))
    return told


def learnt(kernel: Covariance | str, rounds: int = 12, unit: float = 1.0) -> PFedHGP:
    model = PFedHGP((2, 1, 0), inducing=12, local_inducing=4, kernel=kernel, rounds=rounds)  # type: ignore[arg-type]
    return model.fit(fleet(unit))


def test_a_periodic_kernel_foresees_three_cycles_ahead_where_a_word_knows_nothing() -> None:
    """Told a period that is 3 % off: after six cycles that is a fifth of one. A word falls back to the mean."""
    x = np.linspace(40, 61, 100)
    model, word = learnt(GUESS), learnt("se")
    ours, theirs = (np.sqrt(np.mean((one.predict("device 1", x) - wave(1, x)) ** 2)) for one in (model, word))
    assert ours < 0.3 * theirs
    found = model.learnt_kernel()
    assert isinstance(found, Product)
    assert isinstance(found.left, Periodic)
    # nearer than told; the server's steps are shorter every round, and twelve do not bring it home
    assert abs(found.left.period - PERIOD) < 0.75 * (PERIOD - 6.8)
    assert model.learnt_kernel("device 0").values.shape == (2,)


def test_a_grid_that_goes_with_the_period_does_not_leave_one_place_of_it() -> None:
    """24 whole periods and 25 inducing inputs: on an even grid all of them would be the same place of a cycle."""
    rng = np.random.default_rng(0)
    x = np.concatenate(([0.0, 24.0], rng.uniform(0, 24, 58)))
    data = {"a": (x, np.sin(2 * np.pi * x) + 0.5 * np.cos(4 * np.pi * x) + 0.05 * rng.standard_normal(60))}
    kernel = Periodic(0, 1.0, 1.0, surety=200.0)
    model = PFedHGP((0, 1, 0), inducing=25, local_inducing=1, kernel=kernel, rounds=1).fit(data)
    X = np.linspace(0, 1, 50)
    truth = np.sin(2 * np.pi * X) + 0.5 * np.cos(4 * np.pi * X)
    assert np.sqrt(np.mean((model.predict("a", X)[:, 0] - truth) ** 2)) < 0.1


def test_time_in_seconds_is_time_in_days() -> None:
    """A kernel is told in the unit of the inputs, and so is what was learnt of it."""
    x, day = np.linspace(0, 40, 9), 86400.0
    a = learnt(GUESS, rounds=2)
    b = learnt(Periodic(0, 6.8 * day, 1.0) * Stationary("se", (0,), np.array([60.0 * day])), rounds=2, unit=day)
    np.testing.assert_allclose(b.predict("device 2", x * day), a.predict("device 2", x), rtol=1e-5, atol=1e-6)
    X = np.linspace(0, 20, 5)[:, None]
    np.testing.assert_allclose(b.learnt_kernel().matrix(X * day, X * day), a.learnt_kernel().matrix(X, X), rtol=1e-6)
    words = [learnt("matern52", rounds=1, unit=unit).learnt_kernel().values for unit in (1.0, day)]
    np.testing.assert_allclose(words[1] - words[0], [0.0, np.log(day)], atol=1e-9)


def test_a_local_kernel_may_be_another_and_wrong_ones_are_named() -> None:
    model = PFedHGP((1, 1, 1), inducing=5, local_inducing=5, kernel="matern52", local_kernel=GUESS, rounds=1).fit(
        fleet()
    )
    assert isinstance(model.learnt_kernel(), Stationary)
    assert isinstance(model.learnt_kernel("device 0"), Product)
    with pytest.raises(ConfigError, match="looks at input 1, and the last one is 0"):
        PFedHGP(kernel=Stationary("se", (1,), np.ones(1))).fit(fleet())
    with pytest.raises(ConfigError, match="is none of se, matern32, matern52"):
        PFedHGP(kernel="rbf")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kernel", "word"),
    [
        (Stationary("rbf", (0,), np.ones(1)), "'rbf' is none of"),  # type: ignore[arg-type]
        (Stationary("se", (0,), np.ones(2)), "a vector of 1 lengthscales"),
        (Stationary("se", (0,), np.array([0.0])), "above 0"),
        (Stationary("se", (-1,), np.ones(1)), "names no inputs"),
        (Periodic(0, period=-1.0, lengthscale=1.0), "above 0"),
        (Periodic(0, period=7.0, lengthscale=np.inf) + Stationary("se", (0,), np.ones(1)), "above 0"),
        (Periodic(0, period=7.0, lengthscale=1.0) * 3, "3 is none of"),  # type: ignore[operator]
        (Periodic(0, period=7.0, lengthscale=1.0) * "se", "has no inputs"),  # type: ignore[operator]
        (None, "None is none of"),
    ],
)
def test_a_kernel_that_cannot_be_is_named(kernel: Covariance, word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        PFedHGP(kernel=kernel)
