"""``fleetgp backtest FILE...``: any table of times and numbers runs, and what was chosen for it is said."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from simulated_streams import SPEC, records, write_csv

from fleetgp.errors import ConfigError, RecordingError
from fleetgp.recording.spec import load
from simulator import cli
from simulator.choosing import completed, lines
from simulator.devices import Device

ROOT = Path(__file__).resolve().parents[2]
DATA = Path(os.environ.get("BENCHMARK_DATA", ROOT.parent / "shared" / "data"))
# what an owner who knows these recordings would say: interval, channels, covariates, and phases of the calendar
REAL = {
    "beijing_air/PRSA_Data_Tiantan_*.csv.gz": (3600.0, "PM2.5 PM10 SO2 NO2 CO O3 TEMP PRES DEWP WSPM", "RAIN", "1d 7d"),
    "nab/data/realKnownCause/nyc_taxi.csv.gz": (1800.0, "value", "", "1d 7d"),
    "smart_building/room_f*.csv.gz": (None, "co2 humidity light temperature", "", "1d"),
    "skab/valve1/*.csv.gz": (1.0, None, None, ""),
}


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    return [write_csv(tmp_path / f"pump_{k}_2026.csv", records(Device("", k), 0, 120)) for k in range(2)]


def test_without_a_spec_a_backtest_says_what_it_chose_and_runs(
    files: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "report.json"
    assert cli.backtest([*map(str, files), "--json", str(target)]) == 0
    said = capsys.readouterr().out
    report = json.loads(target.read_text())
    assert said.startswith("chosen from the first 400 rows of each of 2 devices:\n")
    assert said.index("interval 1s: the readings come every 1 s") < said.index("persistence")  # before it runs
    assert list(report["channels"]) == ["temperature", "pressure", "vibration", "current"]
    assert report["frames"] == 240
    chosen = report["chosen"]
    assert chosen["time"]["columns"] == ["time"]
    assert chosen["stream"]["interval_s"] == 1.0
    assert all(f"  {reason}\n" in said for reason in chosen["reasons"])
    assert cli.backtest([*map(str, files), "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["chosen"] == chosen


def test_a_spec_that_lacks_keys_is_completed_and_one_that_lacks_none_is_left_alone(
    files: list[Path], tmp_path: Path
) -> None:
    spec = tmp_path / "spec.toml"
    spec.write_text(SPEC)
    described, choice = completed(files, spec)
    assert (described, choice.reasons, choice.origin) == (load(spec), (), "owner")
    assert lines(choice, 2) == []
    spec.write_text(SPEC.replace("lags = 2\n", "").replace('interval = "1s"', 'interval = "2s"'))
    described, choice = completed(files, spec)
    assert (described.schema.interval_s, described.schema.phases) == (2.0, ())
    assert [reason.split()[0] for reason in choice.reasons] == ["lags"]
    spec.write_text(SPEC.replace('columns = ["time"]', 'zone = "Asia/Tokyo"'))  # all but where the time stands
    described, choice = completed(files, spec)
    assert (described.time.columns, described.time.zone) == (("time",), "Asia/Tokyo")
    assert (described.schema, choice.origin, len(choice.reasons)) == (load(spec).schema, "owner", 1)
    spec.write_text('[time]\ncolumns = ["time"]\nzone = "Asia/Tokyo"\n')
    described, choice = completed(files, spec)
    assert described.time.zone == "Asia/Tokyo"
    assert described.schema.channel_names == ("temperature", "pressure", "vibration", "current")


def test_what_does_not_fit_is_said_with_the_spec_it_is_in(files: list[Path], tmp_path: Path) -> None:
    spec = tmp_path / "spec.toml"
    spec.write_text('[time]\ncolumns = ["time"]\n[stream]\nphases = ["1s"]\n')
    with pytest.raises(ConfigError, match=r"stream\.phases: a period needs two intervals.*spec\.toml"):
        completed(files, spec)
    files[0].write_text("time,a\n")
    with pytest.raises(RecordingError):
        completed(files[:1], None)


@pytest.mark.parametrize("pattern", REAL)
def test_real_recordings_are_understood(pattern: str) -> None:
    paths = sorted(DATA.glob(pattern))[:4]
    if not paths:
        pytest.skip(f"{DATA} has no {pattern}; BENCHMARK_DATA names the folder of recorded streams")
    interval_s, channels, covariates, phases = REAL[pattern]
    _, choice = completed(paths, None)
    schema = choice.schema
    assert interval_s in (None, schema.interval_s)
    assert " ".join(schema.channel_names) == (channels or " ".join(schema.channel_names))
    assert covariates is None or " ".join(c.name for c in schema.covariates) == covariates
    assert schema.phases == tuple({"1d": 86400.0, "7d": 604800.0}[word] for word in phases.split())
    assert len(schema.channels) < 4 or schema.feature_count <= 60 or not schema.inducing


def test_the_same_files_give_the_same_choice_in_any_order(files: list[Path]) -> None:
    assert completed(files, None)[1].schema == completed(files[::-1], None)[1].schema
    rng = np.random.default_rng(0)
    shuffled = [files[k] for k in rng.permutation(len(files))]
    assert completed(shuffled, None)[1].reasons == completed(files, None)[1].reasons
