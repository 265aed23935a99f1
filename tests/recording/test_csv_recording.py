"""CSV recordings as people keep them, whole, damaged and hostile; times in every zone."""

from __future__ import annotations

import gzip
import math
import os
import re
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetgp.errors import RecordingError
from fleetgp.recording.csv import Record, Skipped, names, read
from fleetgp.recording.spec import RecordingSpec, TimeSpec, load
from fleetgp.schema import ID_PATTERN, Channel, Covariate
from fleetgp.wanted import Wanted

MODEST = settings(max_examples=40, deadline=None, derandomize=True)
ROOT = Path(__file__).resolve().parents[2]
BEIJING = Path(os.environ.get("BENCHMARK_DATA", ROOT.parent / "shared" / "data")) / "beijing_air"


def spec(*columns: str, zone: str = "UTC", time: tuple[str, ...] = ("time",), form: str = "") -> RecordingSpec:
    channels = tuple(Channel(name=name) for name in columns or ("a", "b"))
    return RecordingSpec(time=TimeSpec(columns=time, zone=zone, format=form), wanted=Wanted(channels=channels))


def write(folder: Path, text: str | bytes, name: str = "pump.csv") -> Path:
    path = folder / name
    payload = text.encode() if isinstance(text, str) else text
    path.write_bytes(gzip.compress(payload) if name.endswith(".gz") else payload)
    return path


def complaint(path: Path, described: RecordingSpec) -> str:
    with pytest.raises(RecordingError) as caught:
        list(read(path, described))
    assert str(path) in str(caught.value)  # of ten files, the one that is wrong
    return str(caught.value)


def outcome(path: Path) -> list[Record] | str:
    """The rows, or what the RecordingError says; any other exception fails the test that asked."""
    try:
        return list(read(path, spec()))
    except RecordingError as err:
        return str(err)


TWO_ROWS = "time,b,a\n2026-03-04T09:00:00Z,1.5,2\n2026-03-04T10:00:00Z,NA,-3e2\n"


@pytest.mark.parametrize("name", ["pump.csv", "pump.csv.gz"])
@pytest.mark.parametrize(
    "text",
    [
        TWO_ROWS,
        "\ufeff" + TWO_ROWS,
        "\ufeff" + TWO_ROWS.replace("time,b,a", '"time","b","a"'),  # a byte order mark before a quote
        TWO_ROWS.replace("\n", "\r\n"),
        TWO_ROWS.replace("\n", "\n\n") + "\n",  # empty lines are no rows
        TWO_ROWS.replace("time,b,a", " time , b,a "),
        TWO_ROWS.replace("-3e2", '"-3e2",spare'),
        TWO_ROWS.replace("NA", " "),
        TWO_ROWS.removesuffix("\n"),
    ],
)
def test_columns_are_found_by_name_whatever_the_file_was_written_with(tmp_path: Path, name: str, text: str) -> None:
    skipped = Skipped()
    first, second = read(write(tmp_path, text, name), spec(), skipped)
    assert first == Record(1_772_614_800_000, (2.0, 1.5))
    assert second.at_ms == 1_772_618_400_000
    assert second.values[0] == -300.0
    assert math.isnan(second.values[1])
    assert skipped == {}


def test_an_input_may_have_another_name_than_its_column(tmp_path: Path) -> None:
    wanted = Wanted(channels=(Channel(name="flow", field="b"),), covariates=(Covariate(name="a"),))
    described = RecordingSpec(time=TimeSpec(columns=("time",)), wanted=wanted)
    assert next(read(write(tmp_path, TWO_ROWS), described)).values == (1.5, 2.0)


def test_what_cannot_be_used_is_left_out_and_counted(tmp_path: Path) -> None:
    text = (
        "time,a,b\n"
        "2026-03-04T09:00:00Z,1,2\n"
        "yesterday,1,2\n"
        "2026-03-04T10:00:00Z,1\n"
        "2026-03-04T11:00:00Z,\x00,1e300\n"
        "2026-03-04T12:00:00Z,inf,-nan\n"
        "2026-03-04T13:00:00Z,n/a,-\n"
    )
    skipped = Skipped()
    rows = list(read(write(tmp_path, text), spec(), skipped))
    assert [datetime.fromtimestamp(row.at_ms / 1000, UTC).hour for row in rows] == [9, 11, 12, 13]
    assert all(math.isnan(value) for row in rows[1:] for value in row.values)
    assert skipped == {"bad_time": 1, "short_row": 1, "not_a_number": 4}


@pytest.mark.parametrize(
    ("missing", "hint"),
    [
        ("PM2.5", "did you mean 'PM25'?"),
        ("temp", "did you mean 'TEMP'?"),
        ("Druck", "it has time, PM25, TEMP"),
    ],
)
def test_a_missing_column_names_the_nearest_one(tmp_path: Path, missing: str, hint: str) -> None:
    path = write(tmp_path, "time,PM25,TEMP\n2026-03-04,1,2\n")
    said = complaint(path, spec(missing))
    assert repr(missing) in said
    assert hint in said


def test_a_missing_time_column_is_named_too(tmp_path: Path) -> None:
    assert "'time'" in complaint(write(tmp_path, "timestamp,a,b\n1,2,3\n"), spec())


@pytest.mark.parametrize("text", ["", "\n"])
@pytest.mark.parametrize("name", ["pump.csv", "pump.csv.gz"])
def test_an_empty_file_is_said_to_be_empty(tmp_path: Path, text: str, name: str) -> None:
    assert "empty" in complaint(write(tmp_path, text, name), spec())


def test_a_file_of_names_alone_holds_no_rows(tmp_path: Path) -> None:
    assert list(read(write(tmp_path, "time,a,b\n"), spec())) == []


LONG = "time,a,b\n" + "".join(f"{1_772_614_800 + i},{math.sin(i)},{math.cos(i)}\n" for i in range(5000))


@pytest.mark.parametrize("cut", [1, 10, 100, 20_000])
def test_a_cut_gzip_gives_its_rows_and_then_says_that_it_is_cut(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "cut.csv.gz"
    path.write_bytes(gzip.compress(LONG.encode())[:-cut])
    complaint(path, spec())


@pytest.mark.parametrize("seed", range(20))
def test_a_gzip_with_a_flipped_byte_is_refused_not_misread(tmp_path: Path, seed: int) -> None:
    """Wherever the damage is, the checksum or the decoder notices it before the last row is taken for good."""
    payload = bytearray(gzip.compress(LONG.encode(), mtime=0))
    payload[20 + seed * (len(payload) - 30) // 20] ^= 0x55
    path = tmp_path / "damaged.csv.gz"
    path.write_bytes(bytes(payload))
    complaint(path, spec())


@pytest.mark.parametrize(
    "payload",
    [
        b"time,a,b\n1,\xff\xfe,3\n",
        b'time,a,b\n1,"' + b"x" * 200_000 + b"\n",
    ],
    ids=["not UTF-8", "a quote never closed"],
)
def test_a_damaged_file_is_refused_in_plain_words(tmp_path: Path, payload: bytes) -> None:
    assert "cannot be read" in complaint(write(tmp_path, payload), spec())


def test_a_file_that_is_not_there_or_not_what_its_name_says_is_refused(tmp_path: Path) -> None:
    complaint(tmp_path / "nobody.csv", spec())
    complaint(tmp_path, spec())
    plain = tmp_path / "plain.csv.gz"
    plain.write_text(TWO_ROWS)
    complaint(plain, spec())


def test_a_file_without_one_readable_time_is_refused_with_an_example(tmp_path: Path) -> None:
    """A wrong [time] form must not look like an empty recording."""
    path = write(tmp_path, "time,a,b\n04.03.2026 09:15,1,2\n04.03.2026 09:16,1,2\n")
    assert "04.03.2026 09:15" in complaint(path, spec())
    assert "'%d/%m/%Y'" in complaint(path, spec(form="%d/%m/%Y"))
    assert len(list(read(path, spec(form="%d.%m.%Y %H:%M")))) == 2


def test_a_file_with_another_delimiter_is_told_so(tmp_path: Path) -> None:
    for sign in ("\t", "|"):
        text = f"time{sign}a{sign}b\n1{sign}2{sign}3\n"
        assert f"separated by {sign!r}" in complaint(write(tmp_path, text), spec())


def test_semicolons_and_decimal_commas_read_as_the_same_numbers(tmp_path: Path) -> None:
    rows = [
        ("2026-03-04T09:15:30Z", "38.25", "-0.5"),
        ("2026-03-04T09:15:31Z", "NA", "1e3"),
        ("2026-03-04T09:15:32Z", "7", ".5"),
    ]
    commas = "\n".join(["time,a,b", *(",".join(row) for row in rows)]) + "\n"
    expected = list(map(repr, read(write(tmp_path, commas), spec())))
    points = commas.replace(",", ";")
    assert list(map(repr, read(write(tmp_path, points), spec()))) == expected
    assert list(map(repr, read(write(tmp_path, points.replace(".", ",")), spec()))) == expected


def test_commas_that_are_no_decimal_ones_stay(tmp_path: Path) -> None:
    """A number in thousands cannot be told from one with three decimals: it is no number, in a file of either kind."""
    for text in ("time;a;b\n1772615730;1.234,5;1,2,3\n", 'time,a,b\n1772615730,"1,234",x\n'):
        skipped = Skipped()
        assert all(math.isnan(value) for row in read(write(tmp_path, text), spec(), skipped) for value in row.values)
        assert skipped == {"not_a_number": 2}


def test_a_file_that_is_missing_is_said_to_be_missing(tmp_path: Path) -> None:
    assert complaint(tmp_path / "none.csv", spec()) == f"there is no file {tmp_path / 'none.csv'}"


def times(folder: Path, cells: list[str], described: RecordingSpec) -> list[int]:
    return [row.at_ms for row in read(write(folder, "time,a,b\n" + "".join(f"{c},1,2\n" for c in cells)), described)]


@pytest.mark.parametrize(
    "cell",
    ["2026-03-04T09:15:30Z", "2026-03-04 09:15:30", "1772615730", "1772615730000", "1772615730.0", "1772615730000000"],
)
def test_one_time_column_is_iso_or_a_count(tmp_path: Path, cell: str) -> None:
    assert times(tmp_path, [cell], spec()) == [1_772_615_730_000]


def test_digits_that_would_pass_for_a_date_are_a_count_and_eight_are_a_date(tmp_path: Path) -> None:
    assert times(tmp_path, ["1701112341234", "20260304"], spec()) == [1_701_112_341_234, 1_772_582_400_000]


def test_recordings_may_be_older_than_any_live_clock(tmp_path: Path) -> None:
    assert times(tmp_path, ["1969-12-31T23:00:00", "2100-01-01T00:00:00"], spec()) == [-3_600_000, 4_102_444_800_000]


def test_a_time_with_its_own_zone_needs_no_other(tmp_path: Path) -> None:
    described = spec(zone="Asia/Shanghai")
    assert times(tmp_path, ["2026-03-04T09:15:30+01:00", "2026-03-04T16:15:30"], described) == [1_772_612_130_000] * 2


ZONES = ["Europe/Berlin", "America/New_York", "Asia/Shanghai", "Australia/Lord_Howe", "America/St_Johns", "UTC"]


@MODEST
@given(
    st.sampled_from(ZONES),
    st.datetimes(datetime(2015, 1, 1), datetime(2030, 1, 1)),
    st.sampled_from([10, 15, 30, 60]),
    st.sampled_from(["iso", "columns", "form"]),
)
def test_local_times_of_a_year_come_back_as_the_instants_they_were(
    tmp_path_factory: pytest.TempPathFactory, zone: str, start: datetime, minutes: int, form: str
) -> None:
    """Written in a zone's wall time and read again: the same instants, also where the clock goes back or forth.

    The hour that a wall clock shows twice is told by its order, which takes rows at least as often as the clock's step:
    half an hour on Lord Howe.
    """
    minutes = min(minutes, 30) if zone == "Australia/Lord_Howe" else minutes
    # the days around each change of the clock, found by the zone itself, and the start
    day = start.replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=UTC)
    days = [day + timedelta(days=n) for n in range(366)]
    place = ZoneInfo(zone)
    changes = [a for a, b in pairwise(days) if a.astimezone(place).utcoffset() != b.astimezone(place).utcoffset()]
    instants = [when + timedelta(minutes=n) for when in [day, *changes] for n in range(0, 2 * 1440, minutes)]
    instants = sorted(set(instants))
    local = [instant.astimezone(place).replace(tzinfo=None) for instant in instants]
    folder = tmp_path_factory.mktemp("zone")
    if form == "columns":
        columns = ("year", "month", "day", "hour", "minute")
        text = ",".join((*columns, "a", "b")) + "\n"
        text += "".join(f"{t.year},{t.month},{t.day},{t.hour},{t.minute},1,2\n" for t in local)
        found = [row.at_ms for row in read(write(folder, text), spec(zone=zone, time=columns))]
    elif form == "iso":
        found = times(folder, [t.isoformat() for t in local], spec(zone=zone))
    else:
        found = times(folder, [t.strftime("%d.%m.%Y %H:%M") for t in local], spec(zone=zone, form="%d.%m.%Y %H:%M"))
    assert found == [round(instant.timestamp() * 1000) for instant in instants]


def test_calendar_columns_may_be_text_of_numbers_and_wrong_ones_are_counted(tmp_path: Path) -> None:
    text = "year,month,day,a,b\n2026,3,4,1,2\n2026.0,03,04.0,1,2\n2026,2,30,1,2\n2026,,4,1,2\n2026,1e999,4,1,2\n"
    skipped = Skipped()
    rows = list(read(write(tmp_path, text), spec(time=("year", "month", "day")), skipped))
    assert [row.at_ms for row in rows] == [1_772_582_400_000] * 2
    assert skipped == {"bad_time": 3}


def test_rows_come_in_the_files_own_order(tmp_path: Path) -> None:
    assert times(tmp_path, ["1772615732", "1772615730", "1772615731"], spec()) == [
        1_772_615_732_000,
        1_772_615_730_000,
        1_772_615_731_000,
    ]


@MODEST
@given(st.binary(max_size=300), st.booleans())
def test_any_bytes_are_rows_or_a_recording_error(
    tmp_path_factory: pytest.TempPathFactory, payload: bytes, has_header: bool
) -> None:
    path = tmp_path_factory.mktemp("any") / "any.csv"
    path.write_bytes(b"time,a,b\n" * has_header + payload)
    rows = outcome(path)
    assert str(path) in rows if isinstance(rows, str) else all(len(row.values) == 2 for row in rows)


def test_names_are_what_tells_files_apart() -> None:
    files = [Path(f"/data/PRSA_Data_{town}_20130301-20170228.csv.gz") for town in ("Tiantan", "Wanliu", "Shunyi")]
    assert names(files) == ["Tiantan", "Wanliu", "Shunyi"]
    assert names(files[:1]) == ["PRSA_Data_Tiantan_20130301-20170228"]  # alone there is nothing to tell it from
    assert names([Path("room_f4_01.csv"), Path("room_f4_02.csv"), Path("room_f5_01.csv")]) == [
        "f4_01",
        "f4_02",
        "f5_01",
    ]


def test_names_of_equal_and_odd_files_are_still_names() -> None:
    assert names([Path("a/pump.csv"), Path("b/pump.csv"), Path("c/pump.csv.gz")]) == ["a-pump", "b-pump", "c-pump"]
    assert names([Path("Büro 1.csv"), Path(".csv"), Path("x" * 200 + ".csv")])[:2] == ["B-ro-1", "agent"]
    assert names([]) == []


@MODEST
@given(
    st.lists(st.text(st.characters(exclude_characters="/\x00", codec="utf-8"), min_size=1, max_size=90), max_size=12)
)
def test_names_are_unique_and_usable_ids(stems: list[str]) -> None:
    """Whatever the files are called, as many ids as files, all different and safe in a topic."""
    found = names([Path("/data") / (stem + ".csv") for stem in stems])
    assert len(found) == len(set(found)) == len(stems)
    assert all(ID_PATTERN.fullmatch(name) for name in found)


@pytest.mark.skipif(
    not BEIJING.is_dir(), reason=f"no Beijing recordings in {BEIJING} (BENCHMARK_DATA names the folder)"
)
def test_a_real_station_is_read_whole() -> None:
    """Four years of hours without a hole, in Shanghai time; cells as a plain split of the lines gives them."""
    path = sorted(BEIJING.glob("*.csv.gz"))[0]
    described = load(ROOT / "examples" / "beijing.toml")
    skipped = Skipped()
    rows = list(read(path, described, skipped))
    with gzip.open(path, "rt") as file:
        header, *lines = [line.strip().replace('"', "").split(",") for line in file]
    assert len(rows) == len(lines) == 35_064
    assert rows[0].at_ms == round(datetime(2013, 2, 28, 16, tzinfo=UTC).timestamp() * 1000)
    assert {b.at_ms - a.at_ms for a, b in pairwise(rows)} == {3_600_000}
    assert skipped == {}
    for index, item in enumerate(described.inputs):
        column = header.index(item.name)
        for row, cells in zip(rows, lines, strict=True):
            assert (math.isnan(row.values[index]) and cells[column] == "NA") or row.values[index] == float(
                cells[column]
            )


@pytest.mark.skipif(
    not BEIJING.is_dir(), reason=f"no Beijing recordings in {BEIJING} (BENCHMARK_DATA names the folder)"
)
def test_the_real_stations_are_called_by_their_names() -> None:
    found = names(sorted(BEIJING.glob("*.csv.gz")))
    assert all(re.fullmatch("[A-Z][a-z]+", name) for name in found)
    assert len(found) == 10
