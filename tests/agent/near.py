"""Whether two states, or what came of two runs, are the same but for rounding."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import is_dataclass

import msgspec
import numpy as np

from edge_agent.state import Effect
from fleetgp.gp import posterior
from fleetgp.gp.posterior import Running


def assert_near(found: object, expected: object, where: str = "", rel: float = 1e-9) -> None:
    """Same types, same words and counts, and numbers within rel of the largest in their array."""
    assert type(found) is type(expected), where
    if isinstance(expected, np.ndarray):
        assert isinstance(found, np.ndarray)
        assert found.dtype == expected.dtype, where
        finite = np.abs(expected[np.isfinite(expected)])
        size = max(1.0, float(finite.max(initial=0.0)))
        np.testing.assert_allclose(found, expected, rtol=rel, atol=rel * size, err_msg=where)
    elif isinstance(expected, float):
        assert isinstance(found, float)
        is_same = found == expected or math.isclose(found, expected, rel_tol=rel, abs_tol=rel)
        assert is_same, f"{where}: {found!r}, not {expected!r}"
    elif isinstance(expected, msgspec.Struct) or is_dataclass(expected):
        names = (
            [f.name for f in msgspec.structs.fields(expected)]
            if isinstance(expected, msgspec.Struct)
            else vars(expected)
        )
        for name in names:
            assert_near(getattr(found, name), getattr(expected, name), f"{where}.{name}", rel)
    elif isinstance(expected, dict):
        assert isinstance(found, dict)
        assert list(found) == list(expected), where
        for key in expected:
            assert_near(found[key], expected[key], f"{where}[{key}]", rel)
    elif isinstance(
        expected, Running
    ):  # many frames are put into the covariance at once, one stays beside it for a while
        assert isinstance(found, Running)
        assert_near(posterior.whole(found), posterior.whole(expected), where, rel)
    elif isinstance(expected, tuple | list):
        assert isinstance(found, tuple | list)
        assert len(found) == len(expected), where
        for k, (one, other) in enumerate(zip(found, expected, strict=True)):
            assert_near(one, other, f"{where}[{k}]", rel)
    else:
        assert found == expected, where


def assert_same_effects(found: Sequence[Effect], expected: Sequence[Effect]) -> None:
    assert [type(effect) for effect in found] == [type(effect) for effect in expected]
    for k, (one, other) in enumerate(zip(found, expected, strict=True)):
        assert_near(one, other, f"effect {k}")
