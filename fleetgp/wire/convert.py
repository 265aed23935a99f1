"""The only door between arrays and their bytes, and between symmetric matrices and their triangles."""

from __future__ import annotations

import math

import numpy as np

from fleetgp.arrays import Array
from fleetgp.errors import LocalError, PeerError
from fleetgp.wire.messages import Tensor

MAX_ELEMENTS = 1_000_000


def to_tensor(array: Array) -> Tensor:
    """Raw little-endian bytes of an array of doubles. Raises LocalError when a number in it is not finite."""
    values = np.asarray(array, dtype="<f8", order="C")
    if not np.all(np.isfinite(values)):
        raise LocalError("finite", f"an array of shape {values.shape} holds NaN or infinity")
    return Tensor(shape=values.shape, data=values.tobytes())


def to_array(tensor: Tensor, shape: tuple[int, ...], name: str) -> Array:
    """The array in a tensor, which must have this shape. Read-only. Raises PeerError with code ``shape`` or ``finite``."""
    if tensor.shape != shape:
        raise PeerError("shape", f"{name} has shape {tensor.shape}, expected {shape}")
    count = math.prod(shape)
    if count > MAX_ELEMENTS or len(tensor.data) != 8 * count:
        raise PeerError("shape", f"{name} of shape {shape} needs {8 * count} bytes, has {len(tensor.data)}")
    values = np.frombuffer(tensor.data, dtype="<f8").astype(np.float64, copy=False).reshape(shape)
    if not np.all(np.isfinite(values)):
        raise PeerError("finite", f"{name} holds NaN or infinity")
    return values


def to_triangles(matrices: Array) -> Array:
    """Upper triangles [Q, F(F+1)/2] of symmetric matrices [Q, F, F], row by row."""
    rows, columns = np.triu_indices(matrices.shape[-1])
    return np.ascontiguousarray(matrices[:, rows, columns])


def from_triangles(triangles: Array, size: int) -> Array:
    """Symmetric matrices [Q, F, F] from their upper triangles [Q, F(F+1)/2]; symmetric to the last bit."""
    rows, columns = np.triu_indices(size)
    matrices = np.zeros((triangles.shape[0], size, size))
    matrices[:, rows, columns] = triangles
    matrices[:, columns, rows] = triangles
    return matrices
