"""Files to streams: one a device, whatever the file; names that tell them apart; tables as the messages that devices send."""

from __future__ import annotations

import gzip
import json
import math
import os
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from fleetgp.errors import RecordingError
from fleetgp.payloads import read as read_payload
from fleetgp.recording.message import Message
from fleetgp.recording.spec import RecordingSpec, parse
from fleetgp.recording.streams import as_messages, find, streams
from fleetgp.recording.table import Record, Skipped

ROOT = Path(__file__).resolve().parents[2]
DATA = Path(os.environ.get("BENCHMARK_DATA", ROOT.parent / "shared" / "data"))
WSN = DATA / "wsn_labelled" / "single_hop.csv.gz"
START_MS = 1_772_615_730_000
SPEC = parse({"time": {"columns": ["time"]}, "channels": {"a": {}}}, "test")


def devices(**changes: object) -> RecordingSpec:
    return parse({"time": {"columns": ["time"]}, "channels": {"a": {}}, "devices": changes}, "test")


def table(path: Path, column: str, names: str, *, is_one_clock: bool = False) -> Path:
    """Rows 0, 1, 2, ... of devices by their letters; the value is the row's number. is_one_clock: no time comes twice."""
    path.parent.mkdir(exist_ok=True)
    ticks = [k if is_one_clock else names[:k].count(name) for k, name in enumerate(names)]
    lines = [f"{START_MS + 1000 * tick},{name},{k}\n" for k, (tick, name) in enumerate(zip(ticks, names, strict=True))]
    path.write_text(f"time,{column},a\n" + "".join(lines))
    return path


@pytest.mark.parametrize("column", ["device", "Sensor ID", "moteid", "Node", "station_id"])
@pytest.mark.parametrize(
    ("names", "is_one_clock"),
    [("abcabcabcabc", False), ("abcabcabcabc", True), ("aaaabbbbcccc", False), ("abbcccaabcab", True)],
)
def test_rows_of_several_devices_are_a_stream_each(tmp_path: Path, column: str, names: str, is_one_clock: bool) -> None:
    found = find([table(tmp_path / "all.csv", column, names, is_one_clock=is_one_clock)], None)
    assert [stream.name for stream in found.streams] == list("abc")
    assert f"3 devices in all.csv: by its column {column}" in found.reasons[0]
    for stream in found.streams:
        rows_of = [k for k, name in enumerate(names) if name == stream.name]
        ticks = rows_of if is_one_clock else range(len(rows_of))
        expected = [Record(START_MS + 1000 * n, (float(k),)) for n, k in zip(ticks, rows_of, strict=True)]
        assert list(stream.read(SPEC)) == expected
        header, rows = stream.peek(2)
        assert header == ["time", "a"]
        assert [list(row) for row in rows] == [[str(r.at_ms), f"{r.values[0]:.0f}"] for r in expected[:2]]


def test_a_column_that_names_no_device_leaves_the_table_whole(tmp_path: Path) -> None:
    every_row_another = table(tmp_path / "pump.csv", "id", "abcdefghijkl")
    always_one = table(tmp_path / "fan.csv", "station", "s" * 12)
    other_name = table(tmp_path / "mill.csv", "shift", "ab" * 6)
    renamed = table(tmp_path / "press.csv", "device", "aaaaaabbbbbb", is_one_clock=True)
    for path in (every_row_another, always_one, other_name, renamed):
        (only,) = streams([path])
        assert only.name == path.stem
        assert len(list(only.read(SPEC))) == 12
    assert [stream.name for stream in streams([other_name], devices(column="shift"))] == ["a", "b"]
    (whole,) = streams([table(tmp_path / "x.csv", "device", "ab" * 6)], devices(column=""))
    assert whole.name == "x"
    with pytest.raises(RecordingError, match="no column 'shift'"):
        streams([always_one], devices(column="shift"))


def test_a_row_that_names_no_device_is_counted_once(tmp_path: Path) -> None:
    path = table(tmp_path / "all.csv", "device", "ababab")
    path.write_text(path.read_text() + f"{START_MS},,9\n")
    found, skipped = streams([path]), Skipped()
    assert [len(list(records)) for records in [stream.read(SPEC, skipped) for stream in found]] == [3, 3]
    assert skipped == {"no_device": 1}


def test_names_are_unique_over_all_files_and_say_where_they_are_from(tmp_path: Path) -> None:
    paths = [table(tmp_path / f"valve{n}" / "8.csv", "x", "abab") for n in (1, 2)]
    assert [stream.name for stream in streams(paths)] == ["valve1-8", "valve2-8"]
    days = [table(tmp_path / f"log_{day}.csv", "mote", "121212") for day in ("mon", "tue")]
    assert [stream.name for stream in streams(days)] == ["mon-1", "mon-2", "tue-1", "tue-2"]
    mixed = [*days[:1], table(tmp_path / "1.csv", "x", "abab"), table(tmp_path / "Büro 3.csv", "x", "abab")]
    assert [stream.name for stream in streams(mixed)] == ["1", "2", "1-2", "B-ro-3"]


@pytest.mark.skipif(not WSN.exists(), reason=f"no labelled sensor network in {WSN} (BENCHMARK_DATA names the folder)")
def test_a_real_table_of_four_motes_without_times_is_four_streams() -> None:
    described = parse(
        {"time": {"start": "2010-05-09T00:00", "every": "5s"}, "channels": {"humidity": {}, "temperature": {}}}, "test"
    )
    found = streams([WSN], described)
    assert [stream.name for stream in found] == ["1", "2", "3", "4"]
    with gzip.open(WSN, "rt") as file:
        lines = [line.strip().split(",") for line in file][1:]
    readers = [stream.read(described) for stream in found]
    for stream, records in zip(found, readers, strict=True):
        expected = [(float(cells[3]), float(cells[4])) for cells in lines if cells[1] == stream.name]
        read = list(records)
        assert [record.values for record in read] == expected
        assert {b.at_ms - a.at_ms for a, b in pairwise(read)} == {5000}
    assert sum(Counter(cells[1] for cells in lines).values()) == 18_914


def test_a_table_is_the_messages_that_its_devices_would_send(tmp_path: Path) -> None:
    path = tmp_path / "all.csv"
    path.write_text(
        "time,device,a,b,note\n"
        f"{START_MS},x,1,2,n\n{START_MS + 500},y,3,,n\n{START_MS + 1000},x,NA,5e-7,n\n{START_MS + 1500},y,7,8,n\n"
        f"{START_MS + 2000},x,1,2,n\n{START_MS + 2500},y,9,9,n\n"
    )
    found = [message for message in as_messages(path) if isinstance(message, Message)]
    assert [message.topic for message in found] == ["sensors/x", "sensors/y"] * 3
    assert [message.received_ns for message in found] == [(START_MS + 500 * k) * 1_000_000 for k in range(6)]
    assert json.loads(found[2].payload) == {"a": None, "b": 5e-7, "time": START_MS + 1000, "seq": 1}
    contents = [read_payload(message.payload) for message in found]
    assert [content.at_ms for content in contents] == [START_MS + 500 * k for k in range(6)]
    assert [content.sequence for content in contents] == [0, 0, 1, 1, 2, 2]
    only = parse({"time": {"columns": ["time"]}, "channels": {"flow": {"field": "b"}}}, "test")
    assert json.loads(next(as_messages(path, only)).payload) == {"flow": 2.0, "time": START_MS, "seq": 0}  # type: ignore[union-attr]


def test_tables_that_are_sent_together_are_told_apart(tmp_path: Path) -> None:
    paths = [table(tmp_path / f"valve{n}" / "8.csv", "x", "abab", is_one_clock=True) for n in (1, 2)]
    said = [{m.topic for m in as_messages(path, SPEC, paths) if isinstance(m, Message)} for path in paths]
    assert said == [{"sensors/valve1-8"}, {"sensors/valve2-8"}]


def test_a_table_of_fields_that_come_one_by_one_is_sent_one_by_one(tmp_path: Path) -> None:
    path = tmp_path / "pump.jsonl"
    path.write_text("".join(json.dumps({"time": START_MS + k, "ab"[k % 2]: k}) + "\n" for k in range(6)))
    said = [json.loads(message.payload) for message in as_messages(path) if isinstance(message, Message)]
    assert said == [{"ab"[k % 2]: float(k), "time": START_MS + k, "seq": k} for k in range(6)]
    spec = parse({"time": {"columns": ["time"]}, "channels": {"a": {}, "b": {}}}, "test")
    first = next(streams([path], spec)[0].read(spec))
    assert (first.values[0], math.isnan(first.values[1]), first.heard) == (0.0, True, (0,))
