"""The examples of docs/model.md run as they stand and foresee what they are given."""

from pathlib import Path
from typing import Any

import numpy as np

PAGE = Path(__file__).parents[2] / "docs" / "model.md"


def ran(heading: str) -> dict[str, Any]:
    """What the first example under a heading leaves."""
    code = PAGE.read_text().split(heading)[1].split("```python")[1].split("```")[0]
    names: dict[str, Any] = {}
    exec(compile(code, str(PAGE), "exec"), names)
    return names


def test_the_example_of_composed_kernels_foresees_a_week_ahead() -> None:
    names = ran("## With loadings")
    truth = np.sin(2 * np.pi * (names["days"][:10] + 60) / 7) + 0.1
    assert np.sqrt(np.mean((names["ahead"][:, 0] - truth) ** 2)) < 0.3
    assert abs(names["found"].left.period - 7) < 0.1


def test_the_example_of_the_model_page_runs() -> None:
    """A slow sine, foreseen from its last value alone: better than by half its step after 200 readings."""
    names = ran("## By hand")
    forecast, last = names["forecast"], names["last"]
    assert abs(forecast.mean[0] - last[0]) < 0.1
    assert np.all(forecast.scale < 0.2)
