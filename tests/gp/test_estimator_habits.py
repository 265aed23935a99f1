"""What users of scikit-learn expect of an estimator, and what odd data it takes or names."""

from __future__ import annotations

from multiprocessing.reduction import ForkingPickler

import numpy as np
import pytest
import scipy.stats

from fleetgp.arrays import Array
from fleetgp.errors import ConfigError
from fleetgp.gp.estimator import PFedHGP


def line(seed: int, frames: int) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    x = rng.uniform(0, 5, frames)
    return x, np.column_stack((np.sin(x), 50 * np.cos(x))) + rng.standard_normal((frames, 2)) * np.array([0.1, 5])


@pytest.fixture(scope="module")
def fitted() -> PFedHGP:
    return PFedHGP((1, 1, 1), inducing=6, local_inducing=4, rounds=3).fit({"a": line(0, 20), "b": line(1, 20)})


def test_scores_are_the_printed_formulas_over_readings_that_are_there(fitted: PFedHGP) -> None:
    x, Y = line(2, 30)
    Y[::3, 0] = np.nan
    mean, cov = fitted.predict("a", x, return_cov=True)
    r2, seen = [], np.isfinite(Y)
    for q in range(2):
        y, m = Y[seen[:, q], q], mean[seen[:, q], q]
        r2.append(1 - np.sum((y - m) ** 2) / np.sum((y - y.mean()) ** 2))
    assert fitted.score("a", x, Y) == pytest.approx(np.mean(r2), rel=1e-12)
    law = scipy.stats.norm(mean, np.sqrt(np.diagonal(cov, axis1=1, axis2=2)))
    assert fitted.log_density("a", x, Y) == pytest.approx(np.mean(law.logpdf(Y)[seen]), rel=1e-12)
    # a channel that does not vary has no R^2, and nothing has no density
    assert fitted.score("a", x, np.column_stack((Y[:, 0], np.ones(30)))) == pytest.approx(r2[0], rel=1e-12)
    assert np.isnan(fitted.score("a", x[:1], Y[1:2]))
    assert np.isnan(fitted.log_density("a", x, np.full((30, 2), np.nan)))


def test_options_are_told_and_set_as_scikit_learn_has_it() -> None:
    model = PFedHGP((2, 1, 0), kernel="matern32", rounds=5)
    again = PFedHGP(**model.get_params())  # type: ignore[arg-type]
    assert again.get_params() == model.get_params()
    assert model.set_params(rounds=2, seed=9) is model
    assert model.get_params()["rounds"] == 2
    assert repr(model) == (
        "PFedHGP(ranks=(2, 1, 0), inducing=25, local_inducing=25, kernel='matern32', local_kernel=None, rounds=2, seed=9)"
    )
    with pytest.raises(ConfigError, match="is no option"):
        model.set_params(round=3)
    with pytest.raises(ConfigError, match="at least 1"):
        model.set_params(rounds=0)
    with pytest.raises(ConfigError, match="must be three"):
        PFedHGP((1, 2))  # type: ignore[arg-type]
    for options in ({"ranks": 2}, {"ranks": "abc"}, {"rounds": "9"}, {"inducing": 2.5}, {"seed": None}):
        with pytest.raises(ConfigError, match="whole number"):
            PFedHGP(**options)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="a dictionary from a client's name"):
        PFedHGP().fit([np.zeros((3, 1))])  # type: ignore[arg-type]


def carried(model: PFedHGP) -> PFedHGP:
    """As a pool of processes carries it."""
    result: PFedHGP = ForkingPickler.loads(ForkingPickler.dumps(model))
    return result


def test_a_fleet_carried_to_another_process_foresees_and_learns_on_as_before(fitted: PFedHGP) -> None:
    again, x = carried(fitted), np.linspace(0, 5, 7)
    np.testing.assert_array_equal(again.predict("a", x), fitted.predict("a", x))
    twice = carried(fitted)
    for one in (again, twice):
        one.partial_fit({"a": line(3, 5)}).add_client("c", *line(4, 6))
    np.testing.assert_array_equal(again.predict("c", x), twice.predict("c", x))


@pytest.mark.parametrize("D", [1, 2])
def test_a_client_without_a_frame_is_foreseen_by_the_others_and_learns_when_frames_come(D: int) -> None:
    X = np.linspace(-1, 1, 12 * D).reshape(12, D)
    Y = np.column_stack((X[:, 0], -X[:, 0]))
    data = {"a": (X, Y), "b": (X[:0], Y[:0])}
    model = PFedHGP((1, 1, 1), inducing=5, local_inducing=4, rounds=4).fit(data)
    mean, cov = model.predict("b", X, return_cov=True)
    assert np.all(np.linalg.eigvalsh(cov) > 0)
    before = np.sqrt(np.mean((mean - Y) ** 2))
    model.partial_fit({"b": (X[::2], Y[::2])})
    assert np.sqrt(np.mean((model.predict("b", X) - Y) ** 2)) < 0.5 * before
    assert model.predict("b", X[:0]).shape == (0, 2)


def test_a_client_far_outside_of_the_inducing_inputs_is_unsure_and_spoils_nobody_elses(fitted: PFedHGP) -> None:
    """Its own noise learns what features cannot say: the law there stays as wide as its readings vary."""
    model, x = carried(fitted), np.linspace(0, 5, 9)
    far, Y = line(5, 12)
    model.add_client("far", far + 1e6, Y)
    mean, cov = model.predict("far", far + 1e6, return_cov=True)
    sd = np.sqrt(np.diagonal(cov, axis1=1, axis2=2))
    assert np.all(np.isfinite(mean))
    assert np.all(np.abs(Y - mean) < 5 * sd)
    np.testing.assert_allclose(model.predict("a", x), fitted.predict("a", x), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("pair", "word"),
    [
        ((["one", "two"], [1.0, 2.0]), "no table of numbers"),
        (([0.0, 1.0],), "a pair of inputs and readings"),
        ((np.zeros((0, 2)), np.zeros((0, 1))), "no client has a frame"),
        ((np.zeros((3, 0)), np.zeros((3, 1))), "no input"),
        ((np.zeros(3), np.zeros((3, 0))), "1 to"),
    ],
)
def test_what_is_no_data_is_named(pair: tuple[Array, Array], word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        PFedHGP(rounds=1).fit({"a": pair})


def test_readings_of_other_channels_are_not_scored(fitted: PFedHGP) -> None:
    with pytest.raises(ConfigError, match="3 channels, and 2 were learnt from"):
        fitted.score("a", np.zeros(4), np.zeros((4, 3)))
    with pytest.raises(ConfigError, match="is no client"):
        fitted.log_density("z", np.zeros(4), np.zeros((4, 2)))
