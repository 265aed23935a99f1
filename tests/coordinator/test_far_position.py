"""Mixed channels along a position: an agent that means something else by it does not stretch the range of all others."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from numpy.testing import assert_allclose
from synthetic_agents import CONFIG, START_MS, bootstrap, close_round, open_round, told

from coordinator import mixed, rounds
from coordinator.state import PublishRound, State
from fleetgp.schema import Channel, Covariate, Schema

SCHEMA = Schema(
    channels=(Channel(name="force"), Channel(name="stroke")),
    covariates=(Covariate(name="angle", known_ahead=True),),
    interval_s=1.0,
    inducing=6,
    mixing="ilmm",
    position="angle",
)
# mean and standard deviation of a uniform position from 0 to 60
MEAN, SD = 30.0, 17.3


def after(state: State, sequence: int, **factors: float) -> tuple[State, str]:
    """A round in which agents tell a position in another unit each; and the word on it."""
    state = open_round(state)
    for name, factor in factors.items():
        message = bootstrap(
            name,
            schema=SCHEMA,
            sequence=sequence,
            count=100.0 * 8**sequence,
            mean=[1.0, 2.0, factor * MEAN],
            sd=[1.0, 1.0, factor * SD],
        )
        state, counts = rounds.step(state, told(message))
        assert counts == []
    state, effects = close_round(state)
    return state, next(effect.notice.note for effect in effects if isinstance(effect, PublishRound))


def place(state: State) -> tuple[float, float]:
    """Centre and scale of the position."""
    assert state.feature_map is not None
    return float(state.feature_map.scaling.centre[2]), float(state.feature_map.scaling.scale[2])


FRESH = rounds.init(CONFIG, START_MS)


@pytest.mark.parametrize("factor", [1000.0, -50.0])
def test_one_that_joins_with_another_unit_is_named_and_leaves_the_range_as_it_was(factor: float) -> None:
    state, note = after(FRESH, 1, a=1.0, b=1.0)
    assert note == "first basis"
    assert_allclose(place(state), (MEAN, SD), rtol=1e-9)
    before = state.mixture
    state, note = after(state, 2, odd=factor)
    assert note == "angle of odd lies far from the fleet's and does not count: another unit?"
    assert place(state) == pytest.approx((MEAN, SD))
    assert state.mixture == before
    # nor later, though it has read far more than all others; and it is not said again each round
    state, note = after(state, 3)
    assert (note, state.basis) == ("", 1)


def test_one_that_comes_with_the_first_does_not_make_the_range() -> None:
    state, note = after(FRESH, 1, a=1.0, b=1.0, odd=1000.0)
    assert_allclose(place(state), (MEAN, SD), rtol=1e-9)
    assert note.startswith("first basis; angle of odd lies far")


def test_most_of_the_fleet_may_move_and_one_that_stands_still_is_no_measure() -> None:
    state, _ = after(FRESH, 1, still=0.0, a=1.0, b=1.0)
    assert place(state)[1] > SD / 2
    state, note = after(state, 2, still=100.0, a=100.0, b=100.0)
    assert note == "new basis: the fleet's scale has moved"
    assert_allclose(place(state), (100 * MEAN, 100 * SD), rtol=1e-9)


def test_a_position_of_the_clock_is_the_same_for_all() -> None:
    clock = msgspec.structs.replace(SCHEMA, covariates=(), position="", phases=(60.0,))
    state = open_round(FRESH)
    for name, size in (("a", 1.0), ("b", 1000.0)):
        state, _ = rounds.step(state, told(bootstrap(name, schema=clock, mean=size, sd=size)))
    assert mixed.elsewhere(state) == ()
    state, _ = close_round(state)
    assert state.feature_map is not None
    assert np.all(state.feature_map.scaling.scale > 100)
