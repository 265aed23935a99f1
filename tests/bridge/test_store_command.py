"""``fleetgp store``: what it says, what it does, and what its files hold."""

from __future__ import annotations

import csv
import gzip
import json
import tracemalloc
from pathlib import Path

import pytest

from broker_bridge import store_command, store_files
from broker_bridge.store_command import moment_ms, run
from fleetgp.errors import ConfigError, FleetError, StorageError
from fleetgp.recording.spec import parse
from fleetgp.recording.streams import streams
from fleetgp.recording.table import Skipped
from fleetgp.runtime.settings import Settings, load
from fleetgp.store import sqlite_export
from fleetgp.store.base import Batch, Row
from fleetgp.store.sqlite import open_keeping, open_reader, open_writer
from fleetgp.store.sqlite_retention import Kept, retention

MINUTE, DAY = 60_000, 86_400_000
T0 = 1_767_225_600_000  # 2026-01-01

ROWS = [
    Row("reading", f"sensors/{name}", T0 + MINUTE * i, {"a": i / 7, "time": None if i % 5 else 2.0 * i}, T0 + 9, i)
    for i in range(700)
    for name in ("pump", "fan")
]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "h.sqlite"
    writer = open_writer(file, raw_days=900, rollup_days=1825)
    more = [Row("reading", "sensors/fan", T0 + 5, {"b": -1.0}, T0), Row("prediction", "pump", T0, {"a.mean": 1.0}, T0)]
    writer.write(Batch(rows=[*ROWS, *more]))
    for _ in range(3):
        writer.maintain(10**15)
    writer.close()
    return file


def said(capsys: pytest.CaptureFixture[str], *argv: object) -> dict[str, object]:
    """What a command that succeeds writes with --json -."""
    assert run([*map(str, argv), "--json", "-"]) == 0
    result: dict[str, object] = json.loads(capsys.readouterr().out)
    return result


def test_info_tells_size_kinds_spans_and_what_is_kept(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = said(capsys, "info", "--store", path, "--set", "store.event_days=30")
    assert told["rows"] == 1402
    assert told["file_mb"] == path.stat().st_size / 1e6
    kinds = {kind["kind"]: kind for kind in told["kinds"]}  # type: ignore[attr-defined]
    assert kinds["reading"] == {
        "kind": "reading", "series": 2, "rows": 1401, "first_ms": T0, "last_ms": T0 + 699 * MINUTE
    }  # fmt: skip
    assert [one["name"] for one in told["largest"]] == ["sensors/fan", "sensors/pump", "pump"]  # type: ignore[attr-defined]
    assert told["kept"]["event_days"] == 30  # type: ignore[index]
    assert run(["info", "--store", str(path), "--series", "1"]) == 0
    page = capsys.readouterr().out
    assert "sensors/fan" in page
    assert "... and 2 more (--series 3 lists all)" in page
    assert "2026-01-01 00:00" in page


@pytest.mark.parametrize("ending", sorted(store_files.ENDINGS))
def test_an_export_holds_every_row_in_order_of_time(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], ending: str
) -> None:
    """Each form is read again by a library of its own; times, devices and values are those of the rows."""
    file = tmp_path / f"out{ending}"
    told = said(capsys, "export", "--store", path, "-o", file, "--whole")
    expected = sorted(
        [(r.at_ms, r.series, r.sequence, r.values["a"], r.values["time"], None) for r in ROWS]
        + [(T0 + 5, "sensors/fan", None, None, None, -1.0)],
        key=lambda row: row[:2],
    )
    assert read_back(file) == expected
    assert (told["rows"], told["columns"], told["bytes"]) == (1401, ["a", "time", "b"], file.stat().st_size)
    assert [one.name for one in tmp_path.glob("*.part")] == []


def read_back(file: Path) -> list[tuple[object, ...]]:
    names = ["a", "time (channel)", "b"]
    if file.name.endswith(".parquet"):
        from pyarrow import parquet

        rows = parquet.read_table(file).to_pylist()
        return [
            (round(row["time"].timestamp() * 1000), row["device"], row["sequence"], *(row[name] for name in names))
            for row in rows
        ]
    text = (gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()).decode()
    if ".csv" in file.name:
        table = csv.DictReader(text.splitlines())
        number = [{key: value or None for key, value in row.items()} for row in table]
    else:
        number = [json.loads(line) for line in text.splitlines()]
    return [
        (
            moment_ms(row["time"], ""),
            row["device"],
            int(row["sequence"]) if row.get("sequence") is not None else None,
            *(float(row[name]) if row.get(name) is not None else None for name in names),
        )
        for row in number
    ]


def test_an_export_of_part_of_it_is_a_recording(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "out.csv"
    bounds = ("--from", "2026-01-01T01:00", "--to", "2026-01-01T03:00+00:00")
    told = said(capsys, "export", "--store", path, "-o", file, "--series", "sensors/pump", *bounds)
    assert told["rows"] == 121
    lines = file.read_text().splitlines()
    assert lines[0] == "time,device,a,time (channel)"
    assert lines[1] == f"2026-01-01T01:00:00.000Z,sensors/pump,{60 / 7},120.0"


def test_an_export_takes_bounded_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_export, "ROWS_AT_ONCE", 1_000)
    path = tmp_path / "h.sqlite"
    writer = open_writer(path, raw_days=900, rollup_days=1825)
    for first in range(0, 60_000, 10_000):
        writer.write(
            Batch(
                rows=[
                    Row("reading", "x", T0 + i, {"a": 0.5 * i, "b": 1.0 * i}, T0, i)
                    for i in range(first, first + 10_000)
                ]
            )
        )
    writer.close()
    peaks = []
    for end in (10_000, 60_000):
        file = tmp_path / f"{end}.csv"
        tracemalloc.start()
        some = sqlite_export.Part(end_ms=T0 + end - 1)
        assert store_files.write(file, ["a", "b"], sqlite_export.raw_rows(path, some, ["a", "b"])) == end
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.2 * peaks[0]


def test_rows_written_while_an_export_runs_do_not_disturb_it(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_export, "ROWS_AT_ONCE", 40)
    writer = open_writer(path, raw_days=900, rollup_days=1825)
    found = []
    for i, row in enumerate(sqlite_export.raw_rows(path, sqlite_export.Part(names=("sensors/pump",)), ["a"])):
        found.append(row)
        if i == 100:
            writer.write(Batch(rows=[Row("reading", "sensors/pump", T0 + 699 * MINUTE + 1, {"a": 5.0}, T0)]))
            writer.write(Batch(rows=[Row("reading", "sensors/pump", T0 + 1, {"a": 6.0}, T0)]))
    assert [row.sequence for row in found] == [*range(700), None]
    assert found[-1].values == (5.0,)


def test_prune_says_what_goes_and_waits_for_a_yes(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["prune", "--store", str(path), "--older-than", "2026-01-01T02:00", "--kind", "reading"]
    assert run(argv) == 1
    page = capsys.readouterr().out
    assert "reading sensors/pump: 120 rows and their summaries from 2026-01-01T00:00:00.000Z" in page
    assert "say --yes" in page
    assert run([*argv, "--dry-run"]) == 0
    assert open_reader(path).info().rows == 1402
    capsys.readouterr()
    told = said(capsys, *argv, "--yes", "--compact")
    assert told["dropped"] == {"reading": 241}
    assert told["bytes_after"] == path.stat().st_size
    assert open_reader(path).info().rows == 1402 - 241
    assert run([*argv, "--yes"]) == 0
    assert capsys.readouterr().out == "nothing is that old\n"


def test_a_backup_is_told(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = said(capsys, "backup", "--store", path, "-o", tmp_path / "copy.sqlite")
    assert told["rows"] == 1402 == open_reader(tmp_path / "copy.sqlite").info().rows


@pytest.mark.parametrize(
    ("argv", "problem"),
    [
        (["prune", "--yes"], "say what is to go"),
        (["prune", "--series", "sensors/pump", "--keep-summaries"], "goes with --older-than"),
        (["prune", "--older-than", "yesterday"], "expected a span such as 90d"),
        (["prune", "--series", "sensors/pmup"], "no series 'sensors/pmup'"),
        (["export", "-o", "out.xlsx"], "must end in one of .csv"),
        (["export", "-o", "out.csv", "--kind", "health"], "no health series"),
        (["export", "-o", "h.sqlite.csv", "--series", "nobody"], "no reading series 'nobody'"),
        (["info", "--set", "store.prediction_days=3000"], "store.prediction_rollup_days"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_sentence(path: Path, argv: list[str], problem: str) -> None:
    if "prediction_rollup" in problem:
        argv = [*argv, "--set", "store.prediction_rollup_days=5"]
        problem = "its rollups are kept for 5 days"
    with pytest.raises(FleetError, match=problem) as found:
        run([*argv, "--store", str(path)])
    assert "\n" not in str(found.value)


def test_an_export_writes_over_nothing_and_leaves_no_half(path: Path, tmp_path: Path) -> None:
    (tmp_path / "out.csv").write_text("mine")
    with pytest.raises(StorageError, match="is there already"):
        run(["export", "--store", str(path), "-o", str(tmp_path / "out.csv")])
    assert (tmp_path / "out.csv").read_text() == "mine"
    with pytest.raises(StorageError, match="cannot write"):
        run(["export", "--store", str(path), "-o", str(tmp_path / "no folder" / "out.csv")])


def test_moments_are_times_or_so_long_ago() -> None:
    assert moment_ms("2026-01-01", "--from") == T0
    assert moment_ms("2026-01-01T01:00:00.250+01:00", "--from") == T0 + 250
    assert moment_ms("2d", "--from", lambda: T0 / 1000 + 2 * 86_400) == T0
    with pytest.raises(ConfigError, match=r"--to.*2026-13-01"):
        moment_ms("2026-13-01", "--to")


def settings(**days: int) -> Settings:
    return load(None, {}, {f"store.{name}_days": str(value) for name, value in days.items()})


def test_what_is_kept_comes_of_the_settings_and_what_is_not_said_is_as_before() -> None:
    plain = retention(settings())
    assert plain.reading == plain.prediction == plain.health == Kept(90, 1825, 3650)
    assert (plain.event_days, plain.round_days) == (0, 0)
    short = retention(settings(raw=7, rollup=30, hour=1))
    assert short.reading == short.prediction == short.health == Kept(7, 30, 30)
    own = retention(settings(prediction=14, prediction_rollup=60, health=2000, event=365, round=9))
    assert own.reading == Kept(90, 1825, 3650)
    assert own.prediction == Kept(14, 60, 3650)
    assert own.health == Kept(2000, 2000, 3650)
    assert (own.event_days, own.round_days) == (365, 9)
    with pytest.raises(ConfigError, match=r"store\.rollup_days"):
        retention(settings(raw=100, rollup=50))


def test_the_bridge_opens_its_store_with_them(tmp_path: Path) -> None:
    path = tmp_path / "h.sqlite"
    writer = open_keeping(path, retention(settings(raw=10, prediction=2)))
    for kind in ("reading", "prediction"):
        writer.write(Batch(rows=[Row(kind, "x", T0 + DAY * i, {"v": 1.0}, T0) for i in range(21)]))  # type: ignore[arg-type]
    for _ in range(3):
        writer.maintain(10**15)
    reader = open_reader(path)
    assert [reader.series(kind)[0].rows for kind in ("reading", "prediction")] == [11, 3]  # type: ignore[arg-type]
    assert store_command.KINDS == ("reading", "prediction", "health", "event", "round")


@pytest.mark.parametrize("ending", [".csv.gz", ".jsonl", ".parquet"])
def test_an_export_of_several_series_is_a_recording_of_several_devices(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], ending: str
) -> None:
    file = tmp_path / f"out{ending}"
    said(capsys, "export", "--store", path, "-o", file)
    spec = parse({"channels": {"a": {}}, "time": {"columns": ["time"]}, "stream": {"interval": "1min"}}, "")
    found = {one.name: list(one.read(spec, Skipped())) for one in streams([file], spec)}
    assert sorted(found) == ["sensors-fan", "sensors-pump"]
    assert [(record.at_ms, record.values) for record in found["sensors-pump"]] == [
        (T0 + MINUTE * i, (i / 7,)) for i in range(700)
    ]
