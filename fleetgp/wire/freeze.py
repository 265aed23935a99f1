"""State of a brain to bytes and back, bit for bit: what snapshots and journals hold.

Bytes: the length of the outline (uint32, little-endian), the outline in MessagePack, in which an array is its shape, its form
and the place of its numbers, and then the numbers of all arrays (little-endian doubles). A stack of symmetric matrices is kept
as its upper triangles. Made part by part, so that a large state is never there twice.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Any, Literal, TypeVar

import msgspec
import numpy as np

from fleetgp.arrays import Array
from fleetgp.errors import PeerError

T = TypeVar("T")

_LENGTH = struct.Struct("<I")
# doubles to a part: 64 kB, which is taken from memory that is there already and given back to it
PART = 8192
MOST_DOUBLES = 32_000_000


class _Frozen(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """An array in the outline. at: index of its first double among those of all arrays."""

    shape: tuple[int, ...]
    form: Literal["whole", "upper"]
    at: int


class _Outline:
    """Takes arrays out of what is encoded, and keeps them in their order."""

    def __init__(self) -> None:
        self.arrays: list[tuple[Array, bool]] = []
        self._doubles = 0

    def place(self, value: Any) -> Any:
        if not isinstance(value, np.ndarray) or value.dtype != np.float64:
            raise NotImplementedError(f"{getattr(value, 'dtype', type(value).__name__)} would not come back as it was")
        is_upper = is_symmetric(value)
        self.arrays.append((value, is_upper))
        at, size = self._doubles, value.shape[-1] if is_upper else 0
        self._doubles += value.size // size**2 * _triangle(size) if is_upper else value.size
        return _Frozen(value.shape, "upper" if is_upper else "whole", at)


def is_symmetric(array: Array) -> bool:
    """Whether an array is a stack of matrices that are symmetric to the last bit, and large enough for that to matter."""
    if array.ndim < 2 or array.shape[-1] != array.shape[-2] or array.shape[-1] < 2 or not array.size:
        return False
    bits = np.ascontiguousarray(array, dtype="<f8").view(np.int64)
    # matrix by matrix: the first that is not symmetric tells
    return all(np.array_equal(one, one.T) for one in bits.reshape(-1, *array.shape[-2:]))


def frozen(value: object) -> Iterator[bytes | memoryview]:
    """The bytes of ``freeze``, part by part. A part is to be used before the next is asked for."""
    outline = _Outline()
    content = msgspec.msgpack.encode(value, enc_hook=outline.place)
    yield _LENGTH.pack(len(content))
    yield content
    for array, is_upper in outline.arrays:
        yield from _triangles(array) if is_upper else _whole(array)


def freeze(value: object) -> bytes:
    """Bytes of structs, named tuples, containers and arrays of doubles; NaN and infinities are kept.

    Raises NotImplementedError on what would not come back as it was.
    """
    return b"".join(frozen(value))


def thaw(payload: bytes, kind: type[T]) -> T:
    """The value of this kind in these bytes. Raises PeerError with code ``syntax`` when they hold something else."""
    try:
        (length,) = _LENGTH.unpack_from(payload)
        end = _LENGTH.size + length
        if end > len(payload) or (len(payload) - end) % 8:
            raise ValueError("its arrays are cut short")
        doubles = np.frombuffer(payload, dtype="<f8", offset=end) if len(payload) > end else np.zeros(0)
        outline = memoryview(payload)[_LENGTH.size : end]
        return msgspec.msgpack.decode(outline, type=kind, dec_hook=lambda _, value: _thawed(value, doubles))
    except (msgspec.DecodeError, KeyError, TypeError, ValueError, RecursionError, OverflowError, struct.error) as err:
        raise PeerError("syntax", f"not a {kind.__name__}: {err}") from err


def _whole(array: Array) -> Iterable[memoryview]:
    """The numbers of an array in C order; of one that lies so, without a copy."""
    flat = np.ascontiguousarray(array, dtype="<f8").reshape(-1)
    return (flat[begin : begin + PART].data.cast("B") for begin in range(0, len(flat), PART))


def _triangles(array: Array) -> Iterator[memoryview]:
    rows, columns = np.triu_indices(array.shape[-1])
    for matrix in array.reshape(-1, *array.shape[-2:]):
        yield np.asarray(matrix[rows, columns], dtype="<f8").data.cast("B")


def _thawed(value: Any, doubles: Array) -> Array:
    """The array that an outline speaks of. Raises ValueError or a DecodeError where there is none."""
    frozen = msgspec.convert(value, _Frozen)
    if frozen.at < 0 or any(n < 0 for n in frozen.shape):
        raise ValueError("an array is nowhere")
    if frozen.form == "whole":
        return _taken(doubles, frozen.at, _product(frozen.shape)).astype(np.float64).reshape(frozen.shape)
    if len(frozen.shape) < 2 or frozen.shape[-1] != frozen.shape[-2]:
        raise ValueError(f"{frozen.shape} is no stack of square matrices")
    size, count = frozen.shape[-1], _product(frozen.shape[:-2])
    if max(count, 1) * size**2 > MOST_DOUBLES:
        raise ValueError(f"{frozen.shape} is too large")
    triangles = _taken(doubles, frozen.at, count * _triangle(size)).reshape(count, _triangle(size))
    rows, columns = np.triu_indices(size)
    result = np.empty((count, size, size))
    for matrix, triangle in zip(result, triangles, strict=True):
        matrix[rows, columns] = triangle
        matrix[columns, rows] = triangle
    return result.reshape(frozen.shape)


def _taken(doubles: Array, at: int, count: int) -> Array:
    if at + count > len(doubles):
        raise ValueError("an array is cut short")
    return doubles[at : at + count]


def _triangle(size: int) -> int:
    return size * (size + 1) // 2


def _product(shape: tuple[int, ...]) -> int:
    result = 1
    for n in shape:
        result *= n
    return result
