"""``fleetgp backtest``: files in, a report out; the same files the same report; what is wrong said before the work."""

from __future__ import annotations

import json
import re
from argparse import Namespace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from simulated_streams import SPEC, START, TICK, records, write_csv

from fleetgp.errors import ConfigError, FleetError, RecordingError
from fleetgp.recording.csv import Record
from simulator import cli
from simulator.backtest import backtest, instant, show
from simulator.backtest_tables import tables, verdict
from simulator.devices import Device


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    return [write_csv(tmp_path / f"pump_{k}_2026.csv", records(Device("", k), 0, 70)) for k in range(3)]


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    path = tmp_path / "spec.toml"
    path.write_text(SPEC)
    return path


def arguments(files: list[Path], described: Path, **changes: Any) -> Namespace:
    chosen = {
        "files": files,
        "spec": described,
        "model": [],
        "mode": None,
        "start": None,
        "end": None,
        "join": [],
        "round": "10s",
    }
    return Namespace(**{**chosen, "json": None, "tuning": "on", **changes})


def lasting(report: dict[str, Any]) -> dict[str, Any]:
    """A report without how fast it was made."""
    return {key: value for key, value in report.items() if key not in ("seconds", "frames_per_second")}


def iso(tick: int) -> str:
    return datetime.fromtimestamp((START + tick * TICK) / 1000, UTC).isoformat()


def test_a_report_says_what_was_done(files: list[Path], spec: Path) -> None:
    report = backtest(arguments(files, spec))
    assert list(report["agents"]) == ["0", "1", "2"]
    assert list(report["channels"]) == ["temperature", "pressure", "vibration", "current"]
    assert report["frames"] == 210
    assert (
        report["overall"]["n"] == 3 * 68 * 4
    )  # the first row is not predicted, the first prediction is before its errors
    assert report["rounds_closed"] == 6
    assert report["bytes_per_round"] > 1000
    assert report["left_out"] == {}
    assert 0.8 < report["overall"]["coverage90"] < 1
    assert report["overall"]["rmse"] < report["overall"]["rmse_persistence"]


def test_the_same_files_give_the_same_report_in_any_order(files: list[Path], spec: Path) -> None:
    first = lasting(backtest(arguments(files, spec)))
    assert lasting(backtest(arguments(files, spec))) == first
    assert lasting(backtest(arguments(files[::-1], spec))) == first


def test_alone_there_are_no_rounds_and_other_predictions(files: list[Path], spec: Path) -> None:
    alone, fleet = backtest(arguments(files, spec, mode="alone")), backtest(arguments(files, spec))
    assert alone["rounds_closed"] == 0
    assert alone["bytes_per_round"] is None
    assert alone["overall"]["rmse"] != fleet["overall"]["rmse"]
    # persistence has nothing to learn from anybody, but counts on the same frames
    assert alone["overall"]["rmse_persistence"] == fleet["overall"]["rmse_persistence"]


def test_start_end_and_join_choose_rows_as_they_say(files: list[Path], spec: Path) -> None:
    """Start is in, end is out; the joiner's first frame is at its time."""
    chosen = arguments(files, spec, start=iso(10), end=iso(60), join=[f"1={iso(40)}"])
    report = backtest(chosen)
    assert report["frames"] == 50 + 20 + 50
    assert report["agents"]["1"]["n"] == 4 * 19  # predicted from its first row on, counted from its second
    assert report["agents"]["0"]["n"] == 4 * 48


def test_the_first_days_of_a_joiner_are_in_report_and_tables(
    files: list[Path], spec: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All frames of a run of seconds are among the first three days; nobody else is listed."""
    report = backtest(arguments(files, spec, join=[f"1={iso(40)}"]))
    assert list(report["joiners"]) == ["1"]
    assert report["joiners"]["1"]["first_3_days"] == report["joiners"]["1"]["first_30_days"] == report["agents"]["1"]
    show(report, None)
    said = capsys.readouterr().out
    # longer stretches are no lines of their own where the recording has ended before
    assert re.findall(rf"^1 +(\d+) days +{4 * 29} ", said, re.MULTILINE) == ["3"]


def test_first_days_begin_at_start_where_the_join_is_before(tmp_path: Path, spec: Path) -> None:
    """An agent first exists at --start then: a row 3.5 days after it is not in the first three, whatever --join said."""
    times = [START + round(day * 86_400_000) for day in (0, 2.0, 3.5, 40)]  # the last frame stays open
    rows = [Record(at_ms, (20.0 + k, 1.0, 1.0, 1.0)) for k, at_ms in enumerate(times)]
    lead = [Record(START + k * TICK, (20.0, 1.0, 1.0, 1.0)) for k in range(1, 4)]
    path = write_csv(tmp_path / "0.csv", iter(sorted([*rows, *lead])))
    name = next(iter(backtest(arguments([path], spec))["agents"]))
    report = backtest(arguments([path], spec, start=iso(0), join=[f"{name}=2020-01-01"]))
    days = report["joiners"][name]
    assert days["first_7_days"]["n"] - days["first_3_days"]["n"] == 4
    assert days["first_30_days"] == report["agents"][name]


def test_the_report_scores_the_law_for_every_table(files: list[Path], spec: Path) -> None:
    """Every prediction tells its law; agent by channel sums to the whole."""
    report = backtest(arguments(files, spec))
    cells = [found for agent in report["by_agent_channel"].values() for found in agent.values()]
    assert sum(found["n_law"] for found in cells) == report["overall"]["n_law"] == report["overall"]["n"]
    pooled = sum(found["nll"] * found["n_law"] for found in cells) / report["overall"]["n_law"]
    assert report["overall"]["nll"] == pytest.approx(pooled, rel=1e-12)
    assert report["overall"]["coverage50"] < report["overall"]["coverage80"] < report["overall"]["coverage95"] <= 1


def test_tables_fit_a_hundred_columns_whatever_names_and_numbers(files: list[Path], spec: Path) -> None:
    report = backtest(arguments(files, spec, join=[f"1={iso(40)}"]))
    wild = {**report["overall"], "n": 9_999_999, "rmse": 123456.0, "rmse_persistence": 1e30, "nll": -1e5, "crps": 1e150}
    own = {"unit": "furlongs per fortnight", "rmse": 1e150, "rmse_persistence": 0.0, "mae": 123456.7, "crps": None}
    name = "a very long name of some agent or channel"
    report["agents"][name] = wild
    report["channels"][name] = {**wild, "original": {**own, "crps_left_out": "why"}}
    report["joiners"][name] = report["joiners"]["1"]
    lines = tables(report)
    assert max(map(len, lines)) <= 100
    assert not any("inf" in line.replace("infinite", "") or "nan" in line for line in lines)
    joined = next(line for line in lines if " 3 days" in line and line.startswith("a very"))
    assert float(joined.split()[-4]) == pytest.approx(
        100 * report["joiners"]["1"]["first_3_days"]["coverage50"], abs=0.06
    )


def test_rows_and_cells_left_out_are_in_the_report(files: list[Path], spec: Path) -> None:
    with files[0].open("a") as file:
        file.write("never,1,2,3,4\n1\n")
    assert backtest(arguments(files, spec))["left_out"] == {"bad_time": 1, "short_row": 1}


def test_a_reading_outside_its_transform_is_in_the_report(files: list[Path], spec: Path) -> None:
    spec.write_text(SPEC.replace("current = {}", 'current = { transform = "log1p" }'))
    with files[0].open("a") as file:
        file.write(f"{START + 70 * TICK},1,2,3,-4\n")
    assert backtest(arguments(files, spec))["left_out"] == {"outside_transform": 1}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"start": "yesterday"}, "--start"),
        ({"end": "2026-13-01"}, "--end"),
        ({"join": ["1"]}, "AGENT=TIME"),
        ({"join": ["nobody=2026-01-01"]}, "0, 1, 2"),
        ({"join": ["1=soon"]}, "--join"),
        ({"round": "often"}, "--round"),
        ({"round": "0s"}, "--round"),
        ({"spec": Path("nobody.toml")}, "nobody.toml"),
        ({"json": "no/such/folder/report.json"}, "no/such/folder"),
        ({"start": "2030-01-01"}, "--start and --end"),
        ({"start": "2026-03-05", "end": "2026-03-04"}, "--start and --end"),
    ],
)
def test_arguments_that_cannot_work_are_told_in_plain_words(
    files: list[Path], spec: Path, changes: dict[str, Any], says: str
) -> None:
    with pytest.raises(FleetError, match=says):
        backtest(arguments(files, spec, **changes))


def test_a_file_that_cannot_be_read_is_named(files: list[Path], spec: Path, tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match=r"nobody\.csv"):
        backtest(arguments([*files, tmp_path / "nobody.csv"], spec))


def test_times_without_a_zone_are_in_the_recordings(files: list[Path]) -> None:
    assert instant("2026-03-04T17:15:30", "--start", "Asia/Shanghai") == START
    assert instant("2026-03-04T09:15:30Z", "--start", "Asia/Shanghai") == START
    assert instant("2026-03-04", "--start", "Asia/Shanghai") == START - (17 * 3600 + 15 * 60 + 30) * 1000


def test_the_command_prints_a_table_and_writes_the_report(
    files: list[Path], spec: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "out.json"
    assert cli.backtest([*map(str, files), "--spec", str(spec), "--round", "10s", "--json", str(target)]) == 0
    said = capsys.readouterr().out
    report = json.loads(target.read_text())
    assert f"{report['overall']['rmse']:.4f}" in said
    assert all(name in said for name in ("temperature", "overall", "210 frames", "6 rounds"))
    assert cli.backtest([*map(str, files), "--spec", str(spec), "--round", "10s", "--json", "-"]) == 0
    assert lasting(json.loads(capsys.readouterr().out)) == lasting(report)


def test_a_report_of_channels_that_never_came_is_a_table_too(
    files: list[Path], spec: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in files:
        lines = [line.rsplit(",", 1)[0] + ",NA" for line in path.read_text().splitlines()[1:]]
        path.write_text("\n".join(["time,temperature,pressure,vibration,current", *lines]) + "\n")
    report = backtest(arguments(files, spec))
    assert report["channels"]["current"]["n"] == 0
    assert report["channels"]["current"]["rmse"] is None
    assert report["overall"]["n"] > 0
    show(report, None)
    assert "current" in capsys.readouterr().out


def test_a_report_that_cannot_be_written_is_told(tmp_path: Path, files: list[Path], spec: Path) -> None:
    report = backtest(arguments(files[:1], spec))
    with pytest.raises(ConfigError, match="--json"):
        show(report, str(tmp_path))


def test_a_spec_whose_interval_is_not_the_files_is_warned_of(files: list[Path], spec: Path) -> None:
    """Else rows are silently taken for duplicates, or most frames for gaps."""
    assert backtest(arguments(files, spec))["warnings"] == []
    spec.write_text(spec.read_text().replace('interval = "1s"', 'interval = "10s"'))
    told = backtest(arguments(files, spec))["warnings"]
    assert len(told) == len(files)
    assert all("every 1 s" in line and "interval is 10 s" in line for line in told)


def test_events_are_listed_with_time_and_channel(tmp_path: Path, spec: Path, files: list[Path]) -> None:
    """A jump written into a file comes back as an event of its agent and channel at its time."""
    lines = files[0].read_text().splitlines()
    column = lines[0].split(",").index("temperature")
    cells = lines[-30].split(",")
    cells[column] = str(float(cells[column]) + 500)
    lines[-30] = ",".join(cells)
    files[0].write_text("\n".join(lines) + "\n")
    report = backtest(arguments(files, spec))
    assert report["events"] == len(report["event_list"]) >= 1
    worst = max(report["event_list"], key=lambda event: event["peak_score"])
    assert max(worst["blame"], key=worst["blame"].get) == "temperature"


def test_recordings_without_a_row_are_said_to_hold_none(tmp_path: Path, spec: Path) -> None:
    """Not blamed on --start and --end, which nobody gave."""
    empty = write_csv(tmp_path / "pump.csv", iter(()))
    with pytest.raises(RecordingError, match="hold no row"):
        backtest(arguments([empty], spec))


@pytest.mark.parametrize("turned", [slice(None, None, -1), slice(None)])
def test_rows_in_no_order_are_refused(files: list[Path], spec: Path, turned: slice) -> None:
    """The second case swaps every pair: half of the steps go back."""
    head, *rows = files[0].read_text().splitlines()
    rows = rows[turned] if turned.step else [row for k in range(0, 70, 2) for row in (rows[k + 1], rows[k])]
    files[0].write_text("\n".join([head, *rows]) + "\n")
    with pytest.raises(RecordingError, match="the times of 0 go back from row to row: sort its rows by time"):
        backtest(arguments(files, spec))


def test_rows_that_stand_twice_are_counted_and_no_matter_of_the_interval(files: list[Path], spec: Path) -> None:
    head, *rows = files[0].read_text().splitlines()
    files[0].write_text("\n".join([head, *(row for row in rows for _ in range(2))]) + "\n")
    report = backtest(arguments(files, spec))
    assert report["warnings"] == []
    assert report["left_out"] == {"duplicate": 70 * 4}


def figure(rmse: float | None, persistence: float | None) -> dict[str, Any]:
    return {"rmse": rmse, "rmse_persistence": persistence, "coverage90": None if rmse is None else 0.912}


def test_the_verdict_says_what_is_better_and_names_what_is_worse() -> None:
    same, worse, none = figure(1.0, 1.001), figure(1.5, 1.0), figure(None, None)
    report = {"overall": figure(0.75, 1.0), "agents": {"a": same, "b": worse}, "channels": {"c": none, "d": worse}}
    assert verdict(report)[:2] == [
        "on the whole   error 25.0 % smaller than saying 'as it was'; 91.2 % of readings in their 90 % band",
        "worse for      b 50 %, d 50 %",
    ]
    assert len(verdict({**report, "agents": {}, "channels": {"c": none, "a": same}})) == 1
    assert "error 50.0 % LARGER" in verdict({**report, "overall": worse})[0]
    assert verdict({**report, "overall": none}) == []
    many = verdict({**report, "agents": {f"n{k}": worse for k in range(10)}})[1]
    assert many.endswith("n7 50 % and 3 more")
    assert len(many) <= 120
