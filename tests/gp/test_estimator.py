"""The library's face: a fleet learns, newcomers profit, bad input is named, and more frames are exactly more frames."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fleetgp.arrays import Array
from fleetgp.errors import ConfigError
from fleetgp.gp.estimator import PFedHGP
from fleetgp.gp.hierarchy import Ranks

ROOT = Path(__file__).parents[2]


def machine(seed: int, frames: int) -> tuple[Array, Array]:
    """Two channels over a cycle in units of their own: 200 + 30 times a sine, and a slow cosine of size 0.01."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(0, 10, frames)
    slope = 0.2 * rng.standard_normal()
    Y = np.column_stack((200 + 30 * (np.sin(x) + slope), 0.01 * (np.cos(0.7 * x) - slope)))
    return x, Y + 0.05 * rng.standard_normal(Y.shape) * np.array([30, 0.01])


def small(**options: object) -> PFedHGP:
    return PFedHGP(Ranks(2, 1, 1), inducing=10, local_inducing=8, **options)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def fitted() -> PFedHGP:
    return small(rounds=10).fit({f"machine {i}": machine(i, 30) for i in range(4)})


def test_it_foresees_each_client_in_its_own_units_and_says_how_surely(fitted: PFedHGP) -> None:
    """New frames of the same machine: errors near the noise, and 90 % intervals that hold about so many."""
    x, Y = machine(1, 400)
    mean, cov = fitted.predict("machine 1", x, return_cov=True)
    scale = np.array([30, 0.01])
    assert np.sqrt(np.mean(((Y - mean) / scale) ** 2)) < 0.1
    z = (Y - mean) / np.sqrt(np.diagonal(cov, axis1=1, axis2=2))
    assert 0.8 < np.mean(np.abs(z) < 1.645) < 0.97
    np.testing.assert_array_equal(fitted.predict("machine 1", x), mean)
    assert np.all(np.linalg.eigvalsh(cov / np.outer(scale, scale)) > 0)


def test_it_is_the_same_fit_twice_and_whatever_the_order_of_clients() -> None:
    data = {f"machine {i}": machine(i, 12) for i in range(3)}
    a, b = small(rounds=2).fit(data), small(rounds=2).fit(dict(reversed(data.items())))
    np.testing.assert_array_equal(a.predict("machine 0", np.arange(5.0)), b.predict("machine 0", np.arange(5.0)))


def test_a_newcomer_of_six_readings_is_foreseen_better_with_the_fleet_than_alone(fitted: PFedHGP) -> None:
    x, Y = machine(9, 206)
    alone = PFedHGP(Ranks(0, 1, 1), inducing=10, local_inducing=8, rounds=10).fit({"new": (x[:6], Y[:6])})
    model = small(rounds=10).fit({f"machine {i}": machine(i, 30) for i in range(4)})
    model.add_client("new", x[:6], Y[:6])
    assert "new" in model.clients
    scale = np.array([30, 0.01])
    together, without = (np.sqrt(np.mean(((one.predict("new", x[6:]) - Y[6:]) / scale) ** 2)) for one in (model, alone))
    assert together < 0.5 * without
    model.add_client("silent", x[:0], Y[:0])
    assert np.sqrt(np.mean(((model.predict("silent", x) - Y) / scale) ** 2)) < without


def test_layers_sum_to_the_prediction_of_the_best_hyperparameters(fitted: PFedHGP) -> None:
    """Draws move the mean a little; layers are of the best values alone."""
    x = np.linspace(0, 10, 20)
    means, sds = fitted.layers("machine 2", x)
    total = fitted._readings.centre + means.sum(axis=0)
    np.testing.assert_allclose(total / [30, 0.01], fitted.predict("machine 2", x) / [30, 0.01], atol=0.05)
    assert np.all(sds > 0)


def test_further_frames_in_two_parts_are_those_frames_at_once() -> None:
    """partial_fit leaves hyperparameters: frames of known clients come to the same sums in any portions."""
    data = {f"machine {i}": machine(i, 15) for i in range(3)}
    x, Y = machine(7, 20)
    parts, whole = small(rounds=2).fit(data), small(rounds=2).fit(data)
    parts.partial_fit({"machine 0": (x[:8], Y[:8])}).partial_fit({"machine 0": (x[8:], Y[8:])})
    whole.partial_fit({"machine 0": (x, Y)})
    # another client learns of them too, through the fleet's belief
    for name in ("machine 0", "machine 2"):
        a, b = (one.predict(name, np.linspace(0, 10, 7)) / [30, 0.01] for one in (parts, whole))
        np.testing.assert_allclose(a, b, rtol=1e-6)


ODD = {
    "one frame": (np.zeros(1), np.ones((1, 2))),
    "repeated inputs": (np.full(9, 3.0), np.random.default_rng(0).standard_normal((9, 2))),
    "constant readings": (np.linspace(0, 1, 9), np.full((9, 2), 7.0)),
    "a channel all missing": (np.linspace(0, 1, 9), np.column_stack((np.arange(9.0), np.full(9, np.nan)))),
}


@pytest.mark.parametrize("ranks", [Ranks(2, 1, 1), Ranks(3, 4, 5)])
@pytest.mark.parametrize("case", ODD)
def test_odd_readings_and_more_latents_than_channels_leave_a_law(case: str, ranks: Ranks) -> None:
    x, Y = ODD[case]
    model = PFedHGP(ranks, inducing=6, local_inducing=5, rounds=3).fit({"odd": (x, Y), "even": machine(1, 12)})
    mean, cov = model.predict("odd", np.array([0.5, 1e9]), return_cov=True)
    assert np.all(np.isfinite(mean))
    for one in cov:
        sd = np.sqrt(np.diagonal(one))
        assert np.all(np.linalg.eigvalsh(one / np.outer(sd, sd)) > 0)
        # no surer than the noise that readings began with, scaled down by all that three rounds may
        assert np.all(sd > 1e-4 * model._readings.scale)


def test_several_inputs() -> None:
    """A plane wave over two inputs, to a fifth of its size."""
    rng = np.random.default_rng(0)
    data = {}
    for name in "abc":
        X = rng.uniform(0, 4, (60, 2))
        data[name] = X, np.sin(X[:, 0] + 0.5 * X[:, 1]) + 0.05 * rng.standard_normal(60)
    model = PFedHGP(Ranks(1, 1, 0), inducing=30, rounds=8).fit(data)
    X = rng.uniform(0.5, 3.5, (100, 2))
    assert np.sqrt(np.mean((model.predict("a", X)[:, 0] - np.sin(X[:, 0] + 0.5 * X[:, 1])) ** 2)) < 0.14


@pytest.mark.parametrize(
    ("data", "word"),
    [
        ({}, "no client"),
        ({"a": (np.zeros(3), np.zeros(4))}, "inputs of 3 frames and readings of 4"),
        ({"a": (np.array([0.0, np.nan]), np.zeros(2))}, "an input that is no number"),
        ({"a": (np.zeros(2), np.array([0.0, np.inf]))}, "infinite reading"),
        ({"a": (np.zeros(2), np.zeros(2)), "b": (np.zeros(2), np.zeros((2, 3)))}, "differ in numbers"),
        ({"a": (np.zeros((2, 2, 2)), np.zeros(2))}, "a table of frames"),
        ({"a": (np.zeros((9, 7)), np.zeros(9))}, "at most 6"),
    ],
)
def test_bad_data_are_named(data: dict[str, tuple[Array, Array]], word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        small().fit(data)


def test_bad_options_and_questions_are_named(fitted: PFedHGP) -> None:
    with pytest.raises(ConfigError, match="negative"):
        PFedHGP(Ranks(-1, 1, 1))
    with pytest.raises(ConfigError, match="one at least above 0"):
        PFedHGP(Ranks(0, 0, 0))
    with pytest.raises(ConfigError, match="between 1 and"):
        PFedHGP(inducing=0)
    with pytest.raises(ConfigError, match="call fit first"):
        small().predict("a", np.zeros(1))
    with pytest.raises(ConfigError, match="there are machine 0"):
        fitted.predict("machine x", np.zeros(1))
    with pytest.raises(ConfigError, match="2 inputs, and 1 were learnt from"):
        fitted.predict("machine 0", np.zeros((3, 2)))
    with pytest.raises(ConfigError, match="already a client"):
        fitted.add_client("machine 0", *machine(0, 3))


def test_the_example_runs_and_the_fleet_helps() -> None:
    told = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "library.py")], capture_output=True, text=True, timeout=200, check=True
    )
    line = next(line for line in told.stdout.splitlines() if "8 readings" in line)
    together, alone = (float(word.strip(",.")) for word in line.split() if word[0].isdigit() and "." in word)
    assert together < alone
