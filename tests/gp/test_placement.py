"""Centres by sums alone: the k-means of all frames pooled, without a frame leaving its agent."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.cluster.vq import kmeans2
from scipy.spatial.distance import cdist

from fleetgp import features, placement
from fleetgp.features import Shape
from fleetgp.placement import LEAST_FRAMES, MOST_TOLD, REACH, STARTING_WEIGHT, Centres, Sums
from fleetgp.scaling import Scaling

Array = NDArray[np.float64]


def frames(seed: int, n: int, D: int = 3) -> Array:
    """Frames in three regimes."""
    rng = np.random.default_rng(seed)
    middles = np.array([[-3.0] * D, [0.0] * D, [3.0] * D])
    return middles[rng.integers(0, 3, n)] + 0.5 * rng.standard_normal((n, D))


def pooled(place: Array, parts: list[Array], least: int) -> Sums:
    total = Sums(np.zeros(len(place)), np.zeros_like(place))
    for X in parts:
        total = placement.merge(total, placement.assign(place, X, least))
    return total


@pytest.mark.parametrize("seed", range(4))
def test_steps_over_sums_are_lloyds_of_all_frames_pooled(seed: int) -> None:
    """With centres that weigh nothing yet; ten steps, against scipy's on all frames at once."""
    parts = [frames(10 * seed + k, 40 + 30 * k) for k in range(4)]
    everything = np.concatenate(parts)
    first = everything[np.random.default_rng(seed).choice(len(everything), 5, replace=False)]
    place = first
    for _ in range(10):
        place = placement.step(Centres(place, np.zeros(5)), pooled(place, parts, least=1)).place
    truth, _ = kmeans2(everything, first, iter=10, minit="matrix")
    np.testing.assert_allclose(place, truth, rtol=1e-10, atol=1e-10)  # sums of some hundred numbers in another order


@pytest.mark.parametrize("seed", range(3))
def test_order_and_grouping_of_agents_change_nothing_but_rounding(seed: int) -> None:
    parts = [frames(seed + k, 100) for k in range(3)]
    place = placement.start(6, 3).place
    a = pooled(place, parts, LEAST_FRAMES)
    b = pooled(place, parts[::-1], LEAST_FRAMES)
    np.testing.assert_array_equal(a.frames, b.frames)
    np.testing.assert_allclose(a.total, b.total, rtol=1e-12, atol=1e-12)


def test_centre_near_which_few_frames_lie_is_not_told() -> None:
    """The sum of one frame would be the frame: less than LEAST_FRAMES of one agent are neither counted nor summed."""
    place = np.array([[0.0], [10.0]])
    for few in range(8):
        X = np.concatenate((np.zeros((20, 1)), np.full((few, 1), 9.5)))
        sums = placement.assign(place, X)
        told = few if few >= LEAST_FRAMES else 0
        np.testing.assert_array_equal(sums.frames, [20.0, told])
        np.testing.assert_array_equal(sums.total, [[0.0], [9.5 * told]])


def test_no_frames_are_no_sums() -> None:
    sums = placement.assign(placement.start(4, 2).place, np.zeros((0, 2)))
    np.testing.assert_array_equal(sums.frames, np.zeros(4))


def test_a_step_weighs_what_was_known_against_what_is_told() -> None:
    centres = Centres(np.array([[1.0, 0.0], [5.0, 5.0]]), np.array([30.0, 2.0]))
    after = placement.step(centres, Sums(np.array([10.0, 0.0]), np.array([[50.0, 40.0], [0.0, 0.0]])))
    np.testing.assert_allclose(after.place[0], [80.0 / 40, 40.0 / 40], rtol=1e-15)
    assert after.weight[0] == 40.0


def test_centres_that_nobody_is_near_come_to_where_frames_are() -> None:
    """From the common start, far from all frames: after some rounds every regime has a centre, and most centres a frame."""
    parts = [frames(k, 400) for k in range(3)]
    centres = placement.start(9, 3)._replace(place=np.full((9, 3), 15.0) + np.arange(9)[:, None])
    for _ in range(25):
        centres = placement.step(centres, pooled(centres.place, parts, LEAST_FRAMES))
    apart = np.min(cdist(np.concatenate(parts), centres.place), axis=1)
    assert np.sqrt(np.mean(apart**2)) < 0.5 * np.sqrt(3)  # the spread of one regime
    assert np.sum(pooled(centres.place, parts, LEAST_FRAMES).frames > 0) >= 7


def test_one_agent_counts_for_no_more_than_its_share() -> None:
    """A quadrillion frames a thousand deviations out count as some thousand at the edge of what is believed."""
    sums = placement.bounded(Sums(np.array([1e15, 0.0]), np.array([[1e18, -1e18], [0.0, 0.0]])))
    np.testing.assert_allclose(sums.frames, [MOST_TOLD, 0.0])
    np.testing.assert_allclose(sums.total, [[REACH * MOST_TOLD, -REACH * MOST_TOLD], [0.0, 0.0]])
    honest = Sums(np.array([7.0, 500.0]), np.array([[7.0, -3.0], [1.0, 2.0]]))
    for was, now in zip(honest, placement.bounded(honest), strict=True):
        np.testing.assert_array_equal(was, now)


def test_centres_keep_their_raw_place_in_another_unit() -> None:
    rng = np.random.default_rng(3)
    old, new = (
        Scaling(np.array([1.0, 50.0]), np.array([2.0, 0.1])),
        Scaling(np.array([3.0, 49.9]), np.array([5.0, 0.3])),
    )
    centres = Centres(rng.standard_normal((5, 2)), np.full(5, 900.0))
    after = placement.carried(centres, old, new)
    np.testing.assert_allclose(new.centre + new.scale * after.place, old.centre + old.scale * centres.place, rtol=1e-12)
    np.testing.assert_array_equal(after.weight, STARTING_WEIGHT)  # so that they soon move


def test_centres_stay_within_reach_whatever_the_unit_becomes() -> None:
    after = placement.carried(
        placement.start(5, 1), Scaling(np.zeros(1), np.full(1, 1e30)), Scaling(np.ones(1), np.full(1, 1e-30))
    )
    assert np.all(np.abs(after.place) <= REACH)


@pytest.mark.parametrize(
    ("shape", "columns"),
    [
        (Shape(2, 2, 1), (4, 0, 1)),
        (Shape(2, 1, 1, 4), (3, 4, 2, 0, 1)),
        (Shape(9, 2, 0), (0, 1, 2, 3, 4, 5)),
        (Shape(1, 1, 8, 2), (9, 10, 1, 2, 3, 4)),
    ],
)
def test_columns_are_the_first_phase_then_covariates_then_lag_one(shape: Shape, columns: tuple[int, ...]) -> None:
    assert placement.columns(shape) == columns


def test_placed_inducing_inputs_are_the_centres_in_raw_units() -> None:
    shape = Shape(2, 2, 1, 2)
    scaling = Scaling(np.array([10.0, -5.0, 100.0]), np.array([2.0, 0.5, 30.0]))
    centres = placement.start(7, 5).place
    placed = placement.place("se", shape, scaling, centres)
    assert placed.columns == (5, 6, 4, 0, 1)
    truth = np.array([0.0, 0.0, 100.0, 10.0, -5.0]) + np.array([np.sqrt(0.5), np.sqrt(0.5), 30.0, 2.0, 0.5]) * centres
    np.testing.assert_allclose(placed.Z, truth, rtol=1e-12)
    np.testing.assert_allclose(placed.lengthscale, placement.unit(shape, scaling).scale * 0.8 * np.sqrt(5), rtol=1e-12)
    # standard inputs there: a calendar's sine has the spread of a sine
    at_ms = np.linspace(0.0, 86_400_000.0, 1000, endpoint=False)
    turn = np.cos(2 * np.pi * at_ms / 86_400_000.0)
    assert np.std(turn) == pytest.approx(features.PHASE_SD, rel=1e-9)


def test_gap_is_the_squared_distance_to_the_nearest_in_lengthscales() -> None:
    rng = np.random.default_rng(5)
    shape, scaling = Shape(2, 1, 0), Scaling(np.array([1.0, 2.0]), np.array([3.0, 0.1]))
    placed = placement.place("se", shape, scaling, rng.standard_normal((6, 2)))
    where = rng.standard_normal((9, 2))
    apart = cdist(where / placed.lengthscale, placed.Z / placed.lengthscale, "sqeuclidean")
    np.testing.assert_allclose(placement.gap(placed, where), apart.min(axis=1), rtol=1e-10)
