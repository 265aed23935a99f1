"""State of a brain to bytes and back, bit for bit: what snapshots and journals hold."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
import numpy as np

from fleetgp.errors import PeerError

T = TypeVar("T")


def _encode(value: Any) -> Any:
    if isinstance(value, np.ndarray) and value.dtype == np.float64:
        return {"shape": value.shape, "data": np.ascontiguousarray(value, dtype="<f8").tobytes()}
    raise NotImplementedError(f"{getattr(value, 'dtype', type(value).__name__)} would not come back as it was")


def _decode(kind: type[Any], value: Any) -> Any:
    data, shape = value["data"], tuple(value["shape"])
    return np.frombuffer(data, dtype="<f8").astype(np.float64).reshape(shape)


_ENCODER = msgspec.msgpack.Encoder(enc_hook=_encode)


def freeze(value: object) -> bytes:
    """Bytes of structs, named tuples, containers and arrays of doubles; NaN and infinities are kept."""
    return _ENCODER.encode(value)


def thaw(payload: bytes, kind: type[T]) -> T:
    """The value of this kind in these bytes. Raises PeerError with code ``syntax`` when they hold something else."""
    try:
        return msgspec.msgpack.decode(payload, type=kind, dec_hook=_decode)
    except (msgspec.DecodeError, KeyError, TypeError, ValueError, RecursionError) as err:
        raise PeerError("syntax", f"not a {kind.__name__}: {err}") from err
