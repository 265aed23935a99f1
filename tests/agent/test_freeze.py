"""Frozen state: back bit for bit, and never another exception than PeerError from bytes that hold something else."""

from __future__ import annotations

import tracemalloc
from typing import NamedTuple

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetgp.arrays import Array
from fleetgp.errors import PeerError
from fleetgp.wire.freeze import PART, freeze, frozen, is_symmetric, thaw

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


@MODEST
@given(st.integers(0, 5), st.integers(1, 5), st.lists(DOUBLES, min_size=15, max_size=15), st.booleans())
def test_symmetric_matrices_are_kept_as_triangles_and_come_back_bit_for_bit(
    count: int, size: int, values: list[float], is_whole: bool
) -> None:
    """NaN, whatever its bits, and minus zero included; one bit beside the diagonal and all is kept."""
    matrix = np.empty((size, size))
    for i in range(size):
        for j in range(i, size):
            matrix[i, j] = matrix[j, i] = values[(3 * i + j) % 15]
    stack = np.tile(matrix, (2, count, 1, 1))
    stack.flags.writeable = True
    if is_whole and count and size > 1:
        stack[1, -1].view(np.int64)[0, -1] ^= 1
    back = thaw(freeze(Held(stack, Pair(stack, 0.0))), Held)
    assert bits(back.array) == bits(stack)
    assert bits(back.pair.left) == bits(stack)


def test_minus_zero_is_not_zero() -> None:
    """Equal numbers with other bits are not symmetric: both come back."""
    matrix = np.array([[1.0, 0.0], [-0.0, 1.0]])
    assert not is_symmetric(matrix)
    assert bits(thaw(freeze(Held(matrix, Pair(matrix, 0.0))), Held).array) == bits(matrix)


def test_a_symmetric_stack_takes_half_the_bytes() -> None:
    root = np.random.default_rng(0).standard_normal((4, 50, 50))
    matrices = np.array([one + one.T for one in root])
    assert is_symmetric(matrices)
    assert len(freeze(matrices)) < 8 * matrices.size * 51 / 100 + 100
    assert len(freeze(root)) > 8 * root.size


def test_parts_are_small_and_the_whole_is_what_freeze_gives() -> None:
    """However large the arrays: none is copied as a whole."""
    rng = np.random.default_rng(0)
    held = Held(rng.standard_normal((3, 2 * PART)), Pair(np.ones((2, 90, 90)), 1.0), {3: rng.standard_normal(7)}, "x")
    parts = [bytes(part) for part in frozen(held)]
    assert b"".join(parts) == freeze(held)
    assert max(map(len, parts)) <= 8 * PART
    assert len(parts) == 2 + 6 + 2 + 1


def test_freezing_part_by_part_takes_little_memory_however_large_the_arrays() -> None:
    held = Held(np.zeros((200, 5_000)), Pair(np.ones((4, 6, 150, 150)), 1.0))
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        size = sum(len(part) for part in frozen(held))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert size > 10_000_000
    assert peak - before < 1_000_000


def packed(outline: object, doubles: int = 4) -> bytes:
    """As ``freeze`` lays it out: an outline, then numbers."""
    content = msgspec.msgpack.encode(outline)
    return len(content).to_bytes(4, "little") + content + np.arange(float(doubles)).tobytes()


def test_an_outline_is_read_as_it_says() -> None:
    """Written down once more, independently of how it is written: whole, and as an upper triangle."""
    outline = {"array": [[2, 2], "upper", 1], "pair": [[[1], "whole", 0], 0.5]}
    held = thaw(packed(outline), Held)
    np.testing.assert_array_equal(held.array, [[1.0, 2.0], [2.0, 3.0]])
    np.testing.assert_array_equal(held.pair.left, [0.0])


@pytest.mark.parametrize(
    "array",
    [
        5,
        "text",
        [1.0, 2.0],
        {},
        [],
        [[1], "whole"],
        [[1], "lower", 0],
        [[1], "whole", 0, 0],
        [[1], "whole", -1],
        [[1], "whole", 4],
        [[5], "whole", 0],
        [[-1], "whole", 0],
        [["1"], "whole", 0],
        [1, "whole", 0],
        [[2**62, 2**62], "whole", 0],
        [[0, 2**63], "whole", 0],
        [[4], "upper", 0],
        [[1, 2], "upper", 0],
        [[3, 3], "upper", 0],
        [[0, 10**9, 10**9], "upper", 0],
        [[10**9, 10**9], "upper", 0],
    ],
)
def test_a_damaged_array_is_a_peer_error(array: object) -> None:
    payload = packed({"array": array, "pair": [[[0], "whole", 0], 0.0]})
    with pytest.raises(PeerError) as caught:
        thaw(payload, Held)
    assert caught.value.code == "syntax"


@pytest.mark.parametrize(
    "content", [b"", b"\xc1", b"\x81" * 10_000, b"\x91" * 100_000, b"\x82\xa5array" + b"\x91" * 100_000]
)
def test_bytes_of_something_else_are_a_peer_error(content: bytes) -> None:
    for payload in (content, len(content).to_bytes(4, "little") + content):
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
