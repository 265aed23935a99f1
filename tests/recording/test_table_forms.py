"""Tables that are no plain CSV: Parquet of every type of cell, lines of JSON, text of other encodings, rows without times."""

from __future__ import annotations

import datetime as dt
import json
import math
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from fleetgp.errors import RecordingError
from fleetgp.recording.spec import RecordingSpec, parse
from fleetgp.recording.streams import streams
from fleetgp.recording.table import Record, Skipped

MODEST = settings(max_examples=60, deadline=None, derandomize=True)
START = dt.datetime(2026, 3, 4, 9, 15, 30, tzinfo=dt.UTC)
START_MS = 1_772_615_730_000
VALUES = st.one_of(st.none(), st.floats(-1e15, 1e15), st.just(math.nan))


def spec(*columns: str, zone: str = "UTC", time: str = "time", encoding: str = "") -> RecordingSpec:
    document = {"time": {"columns": [time], "zone": zone}, "file": {"encoding": encoding}}
    document |= {"channels": {name: {} for name in columns or ("a",)}}
    return parse(document, "test")


def records(path: Path, described: RecordingSpec, skipped: Skipped | None = None) -> list[Record]:
    (only,) = streams([path], described)
    return list(only.read(described, skipped))


def written(path: Path, **columns: Any) -> Path:
    parquet.write_table(pa.table(columns), path)
    return path


def same(found: Sequence[float], expected: Sequence[float | None]) -> bool:
    return [repr(value) for value in found] == [repr(math.nan if value is None else value) for value in expected]


@MODEST
@given(st.lists(st.tuples(VALUES, VALUES), min_size=1, max_size=40), st.sampled_from(["parquet", "jsonl", "csv"]))
def test_numbers_and_holes_come_back_as_they_were(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[float | None, float | None]], form: str
) -> None:
    path = tmp_path_factory.mktemp("form") / f"pump.{form}"
    times = [START_MS + 1000 * k for k in range(len(rows))]
    if form == "parquet":
        a, b = zip(*rows, strict=True)
        written(path, time=times, a=pa.array(a, pa.float64()), b=pa.array(b, pa.float64()))
    elif form == "jsonl":
        clean = [[None if v is None or math.isnan(v) else v for v in row] for row in rows]
        lines = [json.dumps({"time": t, "a": a, "b": b}) for t, (a, b) in zip(times, clean, strict=True)]
        path.write_text("\n".join(lines))
    else:
        lines = [
            f"{t},{'' if a is None else a},{'' if b is None else b}" for t, (a, b) in zip(times, rows, strict=True)
        ]
        path.write_text("\n".join(["time,a,b", *lines]))
    found = records(path, spec("a", "b"))
    assert [record.at_ms for record in found] == times
    for record, row in zip(found, rows, strict=True):
        assert same(record.values, row)


@pytest.mark.parametrize(
    ("time", "zone"),
    [
        (pa.array([START, START + dt.timedelta(seconds=1)], pa.timestamp("us", "UTC")), "Asia/Tokyo"),
        (pa.array([START, START + dt.timedelta(seconds=1)], pa.timestamp("s", "America/New_York")), "Asia/Tokyo"),
        (pa.array([START_MS * 1_000_000 + 123, START_MS * 1_000_000 + 10**9], pa.timestamp("ns", "UTC")), "UTC"),
        # a wall time, in the spec's zone
        (pa.array([dt.datetime(2026, 3, 4, 18, 15, 30), dt.datetime(2026, 3, 4, 18, 15, 31)]), "Asia/Tokyo"),
        (pa.array([START_MS // 1000, START_MS // 1000 + 1]), "Asia/Tokyo"),
        (pa.array([START_MS / 1000, START_MS / 1000 + 1]), "Asia/Tokyo"),
        (pa.array(["2026-03-04T09:15:30Z", "2026-03-04T09:15:31Z"]).dictionary_encode(), "Asia/Tokyo"),
    ],
)  # fmt: skip
def test_times_of_every_type_are_the_instants_they_were(tmp_path: Path, time: pa.Array, zone: str) -> None:
    path = written(tmp_path / "pump.parquet", time=time, a=[1, 2])
    assert [record.at_ms for record in records(path, spec(zone=zone))] == [START_MS, START_MS + 1000]


def test_cells_of_every_type_are_numbers_or_none(tmp_path: Path) -> None:
    path = written(
        tmp_path / "pump.parquet",
        time=[START_MS, None, START_MS + 2000],
        a=pa.array([7, None, -3], pa.int16()),
        on=[True, False, None],
        price=[Decimal("1.25"), None, Decimal("-0.50")],
        single=pa.array([0.1, 0.2, 0.3], pa.float32()),
        word=pa.array(["1.5", "x", "n/a"]).dictionary_encode(),
        deep=[{"b": {"c": 4.5}}, None, {"b": {"c": None}}],
        many=[[1, 2], [], [3]],
    )
    skipped = Skipped()
    first, last = records(path, spec("a", "on", "price", "single", "word", "deep.b.c", "many"), skipped)
    assert same(first.values, [7.0, 1.0, 1.25, float(pa.scalar(0.1, pa.float32()).as_py()), 1.5, 4.5, None])
    assert same(last.values, [-3.0, None, -0.5, float(pa.scalar(0.3, pa.float32()).as_py()), None, None, None])
    assert skipped == {"bad_time": 1, "not_a_number": 2}


@MODEST
@given(st.binary(max_size=400), st.booleans(), st.sampled_from([".parquet", ".jsonl", ".csv", ".mcap", ".log"]))
def test_any_bytes_are_rows_or_a_recording_error(
    tmp_path_factory: pytest.TempPathFactory, payload: bytes, is_marked: bool, ending: str
) -> None:
    path = tmp_path_factory.mktemp("any") / f"any{ending}"
    path.write_bytes({".parquet": b"PAR1", ".jsonl": b'{"time": 1, "a": 2}\n'}.get(ending, b"") * is_marked + payload)
    found: list[Record] | str
    try:
        found = records(path, spec())
    except RecordingError as err:
        found = str(err)
    assert str(path) in found if isinstance(found, str) else all(len(record.values) == 1 for record in found)


@pytest.mark.parametrize("cut", [1, 40, 300])
def test_a_cut_parquet_file_is_refused(tmp_path: Path, cut: int) -> None:
    path = written(tmp_path / "pump.parquet", time=[START_MS], a=[1.0])
    path.write_bytes(path.read_bytes()[:-cut])
    with pytest.raises(RecordingError, match=r"pump\.parquet cannot be read: "):
        records(path, spec())


def test_lines_of_json_are_flattened_and_what_is_none_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "pump.jsonl"
    lines = [
        {"meta": {"at": "2026-03-04T09:15:30Z"}, "a": 1, "rpm": [10, {"max": 12}], "on": True},
        {"meta": {"at": "2026-03-04T09:15:31Z"}, "a": None, "rpm": [11], "on": "x"},
    ]
    deep = "[" * 20 + "]" * 20
    path.write_text("\n".join([*map(json.dumps, lines), "[1]", '{"a": 1', "", f'{{"a": {deep}}}', "{}"]) + "\n")
    skipped = Skipped()
    first, second = records(path, spec("a", "rpm.0", "rpm.1.max", "on", time="meta.at"), skipped)
    assert first == Record(START_MS, (1.0, 10.0, 12.0, 1.0))
    assert same(second.values, [None, 11.0, None, None])
    assert second.heard == (0, 1, 3)  # null is a reading that is missing; a field that is not there is none at all
    assert skipped == {"bad_line": 3, "not_a_number": 1, "bad_time": 1}


def test_one_json_document_is_told_as_such(tmp_path: Path) -> None:
    path = tmp_path / "pump.json"
    path.write_text('[{"time": 1, "a": 2}]')
    with pytest.raises(RecordingError, match="one JSON document; write a line for each row"):
        records(path, spec())


@pytest.mark.parametrize(
    ("written_as", "said"), [("utf-16", ""), ("cp1252", "cp1252"), ("latin-1", "latin-1"), ("cp437", "cp437")]
)
def test_text_of_other_encodings_is_read_where_it_is_told(tmp_path: Path, written_as: str, said: str) -> None:
    path = tmp_path / "pump.csv"
    path.write_bytes("time,Außen °\n2026-03-04T09:15:30Z,21.5\n".replace("°", "ä").encode(written_as))
    assert records(path, spec("Außen ä", encoding=said)) == [Record(START_MS, (21.5,))]
    if said:
        with pytest.raises(RecordingError, match=r'say in a spec \(--spec\) what it is: \[file\] encoding = "cp1252"'):
            records(path, spec("Außen ä"))


def test_rows_without_times_come_as_the_spec_says(tmp_path: Path) -> None:
    path = tmp_path / "pump.csv"
    path.write_text("a,unit\n" + "".join(f"{k},{'xy'[k % 2]}\n" for k in range(8)))
    document = {
        "time": {"start": "2026-03-04T10:15:30", "every": "500ms", "zone": "Europe/Berlin"},
        "channels": {"a": {}},
    }
    x, y = streams([path], parse(document, "test"))
    for stream, first in ((x, 0), (y, 1)):  # each device has its own clock
        found = list(stream.read(parse(document, "test")))
        assert found == [Record(START_MS + 500 * k, (float(first + 2 * k),)) for k in range(4)]
        assert stream.name == "xy"[first]
    whole = parse({**document, "devices": {"column": ""}}, "test")
    assert [record.at_ms - START_MS for record in records(path, whole)] == [500 * k for k in range(8)]
