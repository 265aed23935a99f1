"""The example of docs/model.md runs as it stands and foresees what it is given."""

from pathlib import Path
from typing import Any

import numpy as np

PAGE = Path(__file__).parents[2] / "docs" / "model.md"


def test_the_example_of_the_model_page_runs() -> None:
    """A slow sine, foreseen from its last value alone: better than by half its step after 200 readings."""
    code = PAGE.read_text().split("```python")[1].split("```")[0]
    names: dict[str, Any] = {}
    exec(compile(code, str(PAGE), "exec"), names)
    forecast, last = names["forecast"], names["last"]
    assert abs(forecast.mean[0] - last[0]) < 0.1
    assert np.all(forecast.scale < 0.2)
