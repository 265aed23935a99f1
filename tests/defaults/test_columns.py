"""Which columns become channels and covariates, against columns whose nature is known."""

from __future__ import annotations

import numpy as np
import pytest
from first_readings import autoregression, device, told

from fleetgp.columns import First, sort_out
from fleetgp.errors import ConfigError
from fleetgp.schema import MAX_CHANNELS

N = 300
T = np.arange(float(N))
RNG = np.random.default_rng(8)
MOVING = autoregression(RNG, (0.8,), N)
COLUMNS = {
    "row": T + 1,
    "empty": np.full(N, np.nan),
    "constant": np.where(T % 3 == 0, np.nan, 4.5),
    "moving": MOVING,
    "valve": np.repeat(RNG.normal(size=N // 50), 50),  # holds for 50 rows
    "mode": RNG.integers(0, 3, N) * 10.0,
    "meter": np.cumsum(RNG.integers(1, 9, N)).astype(float),  # always goes up, but not by the same
    "dust": np.exp(1.3 * RNG.standard_normal(N)),
    "uniform": RNG.uniform(0, 100, N),
    "signed": np.exp(1.3 * RNG.standard_normal(N)) - 0.5,
}  # fmt: skip


def test_every_column_is_what_it_is() -> None:
    found = sort_out(list(COLUMNS), [device(T, *COLUMNS.values())])
    assert [c.name for c in found.channels] == ["moving", "meter", "dust", "uniform", "signed"]
    assert [c.name for c in found.covariates] == ["valve", "mode"]
    assert [c.name for c in found.channels if c.transform == "log1p"] == ["dust"]
    assert "counts rows, it goes up by 1 every" in told(found.reasons, "left out row")
    assert "holds no number" in told(found.reasons, "left out empty")
    assert "it is 4.5 in all these readings" in told(found.reasons, "left out constant")
    assert told(found.reasons, "covariate valve") == (
        "covariate valve: it holds 98 % of the time, so it is taken as something set, not something that moves by itself"
    )
    assert "takes the values 0, 10, 20 only" in told(found.reasons, "covariate mode")
    assert "spreads by factors" in told(found.reasons, "channel dust")
    assert told(found.reasons, "channels").startswith("channels moving, meter, dust, uniform, signed:")


def test_devices_are_looked_at_together() -> None:
    """What stands still on each device but differs between them has changed; a hole is no step."""
    parts = [device(T, np.full(N, level), MOVING) for level in (1.0, 2.0)]
    found = sort_out(["level", "moving"], parts)
    assert ([c.name for c in found.channels], [c.name for c in found.covariates]) == (["moving"], ["level"])
    holed = np.where(T % 2 == 0, np.nan, np.repeat([1.0, 2.0, 3.0, 4.0], N // 4))
    assert [c.name for c in sort_out(["set", "m"], [device(T, holed, MOVING)]).covariates] == ["set"]


def test_where_nothing_moves_by_itself_all_that_changes_is_a_channel() -> None:
    found = sort_out(["valve", "mode", "constant"], [device(T, *(COLUMNS[k] for k in ("valve", "mode", "constant")))])
    assert ([c.name for c in found.channels], found.covariates) == (["valve", "mode"], ())
    assert any(reason.startswith("all columns that change are channels") for reason in found.reasons)


def test_no_more_channels_than_a_schema_takes() -> None:
    names = [f"c{k}" for k in range(MAX_CHANNELS + 3)]
    found = sort_out(names, [device(T, *RNG.normal(size=(len(names), N)))])
    assert [c.name for c in found.channels] == names[:MAX_CHANNELS]
    assert told(found.reasons, "left out").startswith("left out c64, c65, c66: a schema takes 64 channels")


@pytest.mark.parametrize("parts", [[], [device(T, COLUMNS["constant"])]])
def test_where_nothing_changes_there_is_nothing_to_learn(parts: list[First]) -> None:
    with pytest.raises(ConfigError, match="channels: none of constant changes"):
        sort_out(["constant"], parts)
