"""Frozen state: back bit for bit, and never another exception than PeerError from bytes that hold something else."""

from __future__ import annotations

from typing import NamedTuple

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetgp.arrays import Array
from fleetgp.errors import PeerError
from fleetgp.wire.freeze import freeze, thaw

MODEST = settings(max_examples=60, deadline=None, derandomize=True)


class Pair(NamedTuple):
    left: Array
    right: float


class Held(msgspec.Struct, frozen=True):
    array: Array
    pair: Pair
    by_tick: dict[int, Array] = {}
    name: str | None = None


DOUBLES = st.floats(allow_nan=True, allow_infinity=True)
SHAPES = st.lists(st.integers(0, 4), max_size=3)


@st.composite
def arrays(draw: st.DrawFn) -> Array:
    shape = tuple(draw(SHAPES))
    count = int(np.prod(shape))
    return np.array(draw(st.lists(DOUBLES, min_size=count, max_size=count)), dtype=np.float64).reshape(shape)


def bits(array: Array) -> tuple[tuple[int, ...], bytes]:
    return array.shape, array.tobytes()


@MODEST
@given(arrays(), arrays(), DOUBLES, st.dictionaries(st.integers(-(2**40), 2**40), arrays(), max_size=3))
def test_what_was_frozen_comes_back_bit_for_bit(
    array: Array, left: Array, right: float, more: dict[int, Array]
) -> None:
    """NaN, infinities, minus zero, empty and scalar arrays included; freezing again gives the same bytes."""
    held = Held(array, Pair(left, right), more, "x")
    payload = freeze(held)
    back = thaw(payload, Held)
    assert bits(back.array) == bits(array)
    assert bits(back.pair.left) == bits(left)
    assert np.float64(back.pair.right).tobytes() == np.float64(right).tobytes()
    assert {tick: bits(a) for tick, a in back.by_tick.items()} == {tick: bits(a) for tick, a in more.items()}
    assert freeze(back) == payload


def test_a_view_in_another_order_of_memory_comes_back_the_same() -> None:
    array = np.arange(12.0).reshape(3, 4).T[::2]
    assert bits(thaw(freeze(Held(array, Pair(array, 0.0))), Held).array) == bits(array)


def test_thawed_arrays_can_be_worked_on() -> None:
    back = thaw(freeze(Held(np.zeros(2), Pair(np.zeros(1), 0.0))), Held)
    back.array[0] = 1.0
    assert back.array[0] == 1.0


@pytest.mark.parametrize("array", [np.array([True]), np.arange(3), np.zeros(2, dtype=np.float32), np.array(["a"])])
def test_what_would_not_come_back_as_it_was_is_refused_loudly(array: Array) -> None:
    with pytest.raises(NotImplementedError):
        freeze(Held(array, Pair(np.zeros(1), 0.0)))


@pytest.mark.parametrize("number", [np.float64(1.5), np.int64(3), np.bool_(True)])
def test_numbers_of_numpy_are_refused_loudly(number: object) -> None:
    """They would come back as plain numbers: equal, but another state."""
    with pytest.raises(NotImplementedError):
        freeze({"x": number})


GOOD = freeze(Held(np.arange(6.0).reshape(2, 3), Pair(np.zeros(2), 1.5), {7: np.ones(1)}, "x"))


@pytest.mark.parametrize(
    "array",
    [
        5,
        "text",
        [1.0, 2.0],
        {},
        {"shape": [1]},
        {"shape": [1], "data": "12345678"},
        {"shape": [2], "data": b"12345678"},
        {"shape": [1], "data": b"1234567"},
        {"shape": ["1"], "data": b"12345678"},
        {"shape": 1, "data": b"12345678"},
        {"shape": [2**62, 2**62], "data": b""},
    ],
)
def test_a_damaged_array_is_a_peer_error(array: object) -> None:
    payload = msgspec.msgpack.encode({"array": array, "pair": [{"shape": [0], "data": b""}, 0.0]})
    with pytest.raises(PeerError) as caught:
        thaw(payload, Held)
    assert caught.value.code == "syntax"


@pytest.mark.parametrize(
    "payload", [b"", b"\xc1", b"\x81" * 10_000, b"\x91" * 100_000, b"\x82\xa5array" + b"\x91" * 100_000]
)
def test_bytes_of_something_else_are_a_peer_error(payload: bytes) -> None:
    with pytest.raises(PeerError):
        thaw(payload, Held)


def outcome(payload: bytes) -> Held | PeerError:
    try:
        return thaw(payload, Held)
    except PeerError as err:
        return err


@MODEST
@given(st.integers(0, len(GOOD) - 1), st.integers(0, 255), st.integers(0, len(GOOD)))
def test_frozen_bytes_changed_or_cut_are_read_or_refused(position: int, byte: int, cut: int) -> None:
    changed = bytearray(GOOD)
    changed[position] = byte
    for payload in (bytes(changed), GOOD[:cut]):
        found = outcome(payload)
        assert isinstance(found, PeerError) or isinstance(found.array, np.ndarray)
    assert isinstance(outcome(GOOD[:cut]), PeerError) == (cut < len(GOOD))
