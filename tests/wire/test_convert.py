"""Arrays to bytes and back, against struct.unpack and plain loops."""

from __future__ import annotations

import math
import struct

import numpy as np
import pytest
from golden_messages import tensor

from fleetgp.errors import LocalError, PeerError
from fleetgp.wire.convert import MAX_ELEMENTS, from_triangles, to_array, to_tensor, to_triangles
from fleetgp.wire.messages import Tensor


def refusal(sent: Tensor, shape: tuple[int, ...]) -> str:
    with pytest.raises(PeerError) as caught:
        to_array(sent, shape, "shift")
    assert "shift" in caught.value.detail
    return caught.value.code


def test_bytes_are_little_endian_doubles_in_c_order() -> None:
    array = np.array([[1.0, -2.5, 1e300], [0.1, -0.0, 5e-324]])
    sent = to_tensor(array)
    assert sent == Tensor(shape=(2, 3), data=struct.pack("<6d", 1.0, -2.5, 1e300, 0.1, -0.0, 5e-324))
    assert to_tensor(np.asfortranarray(array)) == sent
    assert to_tensor(array.astype(">f8")) == sent
    assert to_tensor(np.repeat(array, 2, axis=0)[::2]) == sent


@pytest.mark.parametrize("shape", [(), (0,), (1,), (3, 0), (2, 3), (2, 3, 4)])
def test_every_shape_comes_back_bit_for_bit(shape: tuple[int, ...]) -> None:
    array = np.random.default_rng(7).standard_normal(shape)
    sent = to_tensor(np.asarray(array))
    assert sent.shape == shape
    received = to_array(sent, shape, "x")
    assert received.shape == shape
    assert received.tobytes() == np.asarray(array).tobytes()


def test_what_was_received_cannot_be_changed_by_accident() -> None:
    received = to_array(tensor(2, numbers=(1.0, 2.0)), (2,), "x")
    with pytest.raises(ValueError, match="read-only"):
        received[0] = 3.0


@pytest.mark.parametrize("shape", [(2, 2), (4, 1), (1, 4), (-4,), (-2, -2), (4, 1, 1), (), (5,), (2**62, 4)])
def test_another_shape_than_agreed(shape: tuple[int, ...]) -> None:
    assert refusal(Tensor(shape=shape, data=bytes(32)), (4,)) == "shape"


@pytest.mark.parametrize("length", [0, 8, 31, 33, 40, 320])
def test_another_number_of_bytes_than_the_shape_needs(length: int) -> None:
    assert refusal(Tensor(shape=(4,), data=bytes(length)), (4,)) == "shape"


def test_more_elements_than_a_device_could_hold() -> None:
    count = MAX_ELEMENTS + 1
    assert refusal(Tensor(shape=(count,), data=bytes(8 * count)), (count,)) == "shape"


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("position", [0, 3])
def test_numbers_that_are_not_finite_inside_raw_bytes(number: float, position: int) -> None:
    numbers = [1.0, 2.0, 3.0, 4.0]
    numbers[position] = number
    assert refusal(tensor(4, numbers=tuple(numbers)), (4,)) == "finite"
    with pytest.raises(LocalError, match="finite"):
        to_tensor(np.array(numbers))


def test_triangles_hold_each_pair_once_row_by_row() -> None:
    matrices = np.array([[[1.0, 2.0, 3.0], [2.0, 4.0, 5.0], [3.0, 5.0, 6.0]]])
    assert to_triangles(matrices).tolist() == [[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]]
    assert from_triangles(np.array([[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]]), 3).tolist() == matrices.tolist()


@pytest.mark.parametrize("size", [1, 2, 7])
def test_symmetric_matrices_come_back_bit_for_bit(size: int) -> None:
    half = np.random.default_rng(size).standard_normal((3, size, size))
    matrices = half + half.transpose(0, 2, 1)
    restored = from_triangles(to_triangles(matrices), size)
    assert np.array_equal(restored, matrices)
    assert np.array_equal(restored, restored.transpose(0, 2, 1))
