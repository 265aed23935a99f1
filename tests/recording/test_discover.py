"""What a file without a spec holds: its time and its numbers, and what is said where they cannot be found."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from fleetgp.errors import RecordingError
from fleetgp.recording import csv
from fleetgp.recording import discover as discovering
from fleetgp.recording.discover import Discovered
from fleetgp.recording.spec import RecordingSpec, TimeSpec
from fleetgp.recording.streams import streams
from fleetgp.schema import Channel
from fleetgp.wanted import Wanted

START = datetime(2026, 1, 28, 22, 30)
TIMES = [START + timedelta(hours=k) for k in range(60)]
START_MS = 1_769_639_400_000


def discover(paths: Sequence[Path], time: TimeSpec | None = None) -> Discovered:
    return discovering.discover(streams(paths), time)


def table(folder: Path, columns: dict[str, list[str]], name: str = "pump.csv") -> Path:
    path = folder / name
    rows = zip(*columns.values(), strict=True)
    path.write_text("\n".join([",".join(columns), *(",".join(row) for row in rows)]) + "\n")
    return path


VALUES = {"flow": [f"{k % 7}.5" for k in range(60)]}


def epoch(scale: float) -> list[str]:
    return [str(round((START_MS / 1000 + 3600 * k) * scale)) for k in range(60)]


@pytest.mark.parametrize(
    ("columns", "expected", "form"),
    [
        ({"time": [t.isoformat() for t in TIMES]}, ("time",), ""),
        ({"Timestamp": [f"{t:%Y-%m-%d %H:%M:%S}" for t in TIMES]}, ("Timestamp",), ""),
        ({"ts": epoch(1)}, ("ts",), ""),
        ({"timestamp": epoch(1e3)}, ("timestamp",), ""),
        ({"DATETIME": [f"{t:%d.%m.%Y %H:%M}" for t in TIMES]}, ("DATETIME",), "%d.%m.%Y %H:%M"),
        ({"date": [f"{t:%m/%d/%Y %H:%M}" for t in TIMES]}, ("date",), "%m/%d/%Y %H:%M"),
        ({"When": [t.isoformat() for t in TIMES]}, ("When",), ""),
        (
            {"Year": [f"{t.year}" for t in TIMES], "month": [f"{t.month}" for t in TIMES],
             "day": [f"{t.day}" for t in TIMES], "hour": [f"{t.hour}" for t in TIMES],
             "minute": [f"{t.minute}" for t in TIMES]},
            ("Year", "month", "day", "hour", "minute"), "",
        ),
        # a date that stands still within the day is not the time where a better column is there
        ({"date": [f"{t:%Y-%m-%d}" for t in TIMES], "at": [t.isoformat() for t in TIMES]}, ("at",), ""),
    ],
)  # fmt: skip
def test_the_time_is_found_and_read(
    tmp_path: Path, columns: dict[str, list[str]], expected: tuple[str, ...], form: str
) -> None:
    path = table(tmp_path, {"name": ["x"] * 60, **columns, **VALUES})
    found = discover([path])
    assert (found.time.columns, found.time.format, found.columns) == (expected, form, ("flow",))
    described = RecordingSpec(time=found.time, wanted=Wanted(channels=(Channel(name="flow"),)))
    rows = list(csv.read(path, described))
    assert [row.at_ms for row in rows] == [START_MS + 3_600_000 * k for k in range(60)]


def test_numbers_are_what_all_files_have_and_nearly_all_cells_are(tmp_path: Path) -> None:
    time = {"time": [t.isoformat() for t in TIMES]}
    columns = {
        **time, **VALUES, "wind": ["NW"] * 60, "mixed": ["1"] * 50 + ["off"] * 10, "hour": ["3"] * 60,
        "holes": ["NA", ""] * 25 + ["2"] * 10, "typo": ["4"] * 58 + ["4,"[:1], "x"],
    }  # fmt: skip
    found = discover([table(tmp_path, columns), table(tmp_path, {**columns, "own": ["1"] * 60}, "other.csv")])
    assert found.columns == ("flow", "holes", "typo")
    said = "\n".join(found.reasons)
    for words in ("wind: it is text, such as 'NW'", "mixed: it is text", "hour: it is part of", "own: not every file"):
        assert f"left out {words}" in said
    assert discover([tmp_path / "pump.csv"], TimeSpec(columns=("time",), zone="Europe/Berlin")) == Discovered(
        TimeSpec(columns=("time",), zone="Europe/Berlin"), ("flow", "holes", "typo"), found.reasons[1:4]
    )


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"sample": [str(k) for k in range(60)], **VALUES}, "no column of times that go forward, among sample, flow"),
        ({"date": [f"{t:%Y-%m-%d}" for t in TIMES], **VALUES}, "no column of times that go forward"),
        (
            {"date": [f"{t:%d/%m/%Y %H:%M}" for t in (START.replace(day=1, minute=k) for k in range(60))], **VALUES},
            "can be read as %d/%m/%Y %H:%M and as %m/%d/%Y %H:%M",
        ),
        ({"time": [t.isoformat() for t in TIMES], "wind": ["NW"] * 60}, "no column of numbers beside its time"),
        ({"time": [t.isoformat() for t in TIMES[::-1]], **VALUES}, "go back from row to row: sort the rows by time"),
        ({"date": [f"{t:%Y-%m-%d}" for t in TIMES], **VALUES}, "stand still: one column must hold the date and the"),
    ],
)
def test_what_cannot_be_found_is_said(tmp_path: Path, columns: dict[str, list[str]], says: str) -> None:
    with pytest.raises(RecordingError) as caught:
        discover([table(tmp_path, columns)])
    assert says in str(caught.value)
    assert "pump.csv" in str(caught.value)


@pytest.mark.parametrize(("text", "says"), [("", "is empty"), ("time|a\n1|2\n", r"separated by '\|'")])
def test_files_that_are_no_tables(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "pump.csv"
    path.write_text(text)
    with pytest.raises(RecordingError, match=says):
        discover([path])
    with pytest.raises(RecordingError, match="there is no file"):
        discover([tmp_path / "nobody.csv"])


def test_decimal_commas_and_other_encodings_are_told_as_such(tmp_path: Path) -> None:
    path = tmp_path / "pump.csv"
    path.write_text("Zeit,Druck\n" + "".join(f'2026-01-28 22:{k}:00,"{k},5"\n' for k in range(10, 60)))
    with pytest.raises(
        RecordingError, match="left out Druck: it has decimal commas, such as '10,5'; write points, or semicolons"
    ):
        discover([path])
    path.write_bytes("time,Außen\n".encode("latin-1"))
    with pytest.raises(RecordingError, match=r"it is not UTF-8 text \(byte 0xdf\); save it as CSV UTF-8"):
        discover([path])


def test_a_name_that_stands_twice_is_told(tmp_path: Path) -> None:
    path = tmp_path / "pump.csv"
    path.write_text("time,flow,flow\n" + "".join(f"{t.isoformat()},{t.hour},1\n" for t in TIMES))
    found = discover([path])
    assert found.columns == ("flow",)
    assert "column flow: the first of 2 of that name is read" in found.reasons


def test_the_owner_may_say_the_zone_or_the_form_and_leave_the_column_open(tmp_path: Path) -> None:
    path = table(tmp_path, {"date": [f"{t:%d/%m/%Y %H:%M}" for t in TIMES], **VALUES})
    said = TimeSpec(zone="Europe/Berlin", format="%d/%m/%Y %H:%M")
    assert discover([path], said).time == TimeSpec(columns=("date",), zone=said.zone, format=said.format)
    assert discovering.find_time(streams([path]), said)[0].columns == ("date",)
