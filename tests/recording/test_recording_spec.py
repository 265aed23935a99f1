"""What a recording's spec may say, and how it is told what is wrong with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleetgp.errors import ConfigError
from fleetgp.recording.spec import load

GOOD = """
[time]
columns = ["year", "month", "day", "hour"]
zone = "Asia/Shanghai"
[stream]
interval = "1h"
lags = 3
phases = []
inducing = 0
[channels]
"PM2.5" = { transform = "log1p", unit = "ug/m3", field = "PM25" }
O3 = {}
[covariates]
TEMP = {}
SETPOINT = { known_ahead = true }
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "spec.toml"
    path.write_text(text, encoding="utf-8")
    return path


def complaint(folder: Path, text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load(written(folder, text))
    assert "spec.toml" in str(caught.value)
    return str(caught.value)


def test_a_spec_says_time_stream_channels_and_covariates(tmp_path: Path) -> None:
    found = load(written(tmp_path, GOOD))
    assert found.time.columns == ("year", "month", "day", "hour")
    assert found.time.zone == "Asia/Shanghai"
    assert (found.schema.interval_s, found.schema.lags) == (3600.0, 3)
    assert [(c.name, c.transform, c.field) for c in found.schema.channels] == [
        ("PM2.5", "log1p", "PM25"),
        ("O3", "identity", ""),
    ]
    assert [(c.name, c.known_ahead) for c in found.schema.covariates] == [("TEMP", False), ("SETPOINT", True)]


@pytest.mark.parametrize(
    ("was", "now", "says"),
    [
        ("[time]", "[tme]", "time"),
        ('columns = ["year", "month", "day", "hour"]', "columns = 3", "array"),
        ('zone = "Asia/Shanghai"', 'zones = "Asia/Shanghai"', 'did you mean "zone"'),
        ('zone = "Asia/Shanghai"', 'zone = "Asia/Shangai"', "Europe/Berlin"),
        ('zone = "Asia/Shanghai"', 'zone = "Asia"', "Europe/Berlin"),  # a folder of zones, not a zone
        ('zone = "Asia/Shanghai"', 'zone = "../../etc/passwd"', "Europe/Berlin"),
        ('zone = "Asia/Shanghai"', f'zone = "{"x" * 300}"', "Europe/Berlin"),
        ('zone = "Asia/Shanghai"', 'format = "%Y"', "one column"),
        ('["year", "month", "day", "hour"]', "[]", "no column"),
        ('["year", "month", "day", "hour"]', '["year", "day", "month"]', "year, month, day"),
        ('["year", "month", "day", "hour"]', '["year", "month"]', "year, month, day"),
        ('["year", "month", "day", "hour"]', '"timestamp"', "array"),
        ("[covariates]", "[covariats]", "covariates"),
        ('interval = "1h"', 'interval = "1 parsec"', "1h"),
        ("O3 = {}", 'O3 = { transfrom = "log1p" }', "transform"),
        ("O3 = {}", "O3 = {}\nTEMP = {}", "twice"),
        ("lags = 3", "lags = 25", "24"),
        ("[stream]", "[stream", "TOML"),
    ],
)
def test_a_wrong_spec_is_told_what_is_wrong_and_where(tmp_path: Path, was: str, now: str, says: str) -> None:
    assert was in GOOD
    assert says in complaint(tmp_path, GOOD.replace(was, now))


@pytest.mark.parametrize(("text", "zone"), [("", "UTC"), ('[time]\nzone = "Europe/Berlin"\n', "Europe/Berlin")])
def test_the_columns_of_the_time_may_be_left_open(tmp_path: Path, text: str, zone: str) -> None:
    found = load(written(tmp_path, f"{text}[channels]\na = {{}}\n"))
    assert (found.time.columns, found.time.zone) == ((), zone)


def test_a_spec_that_is_not_there_or_no_text_is_told_as_such(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no file"):
        load(tmp_path / "nobody.toml")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="cannot be read"):
        load(tmp_path / "binary.toml")
    with pytest.raises(ConfigError, match="cannot be read"):
        load(tmp_path)
