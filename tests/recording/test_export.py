"""Recordings as tables of readings: the numbers that messages told, read back by other libraries."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetgp.errors import RecordingError
from fleetgp.recording.export import Reading, fields, readings, write_csv, write_parquet
from fleetgp.recording.message import Gap, Message, Recorded

MODEST = settings(max_examples=40, deadline=None, derandomize=True)
AT_MS = 1_772_615_730_250
NUMBERS = itertools.count()
DOUBLES = st.floats(-1e15, 1e15, allow_nan=False)
OBJECTS = st.dictionaries(st.sampled_from(["t", "rh", "a.b", 'q"x', "°C"]), DOUBLES | st.none(), min_size=1)


@MODEST
@given(st.lists(OBJECTS, min_size=1, max_size=10), st.sampled_from(["csv", "csv.gz", "parquet"]))
def test_every_number_is_read_back_bit_for_bit(
    tmp_path_factory: pytest.TempPathFactory, sent: list[dict[str, float | None]], ending: str
) -> None:
    path = tmp_path_factory.getbasetemp() / f"table-{next(NUMBERS)}.{ending}"
    messages = [
        Message("a/b", json.dumps({"time": AT_MS + n, **values}).encode(), 10**18) for n, values in enumerate(sent)
    ]
    names = fields(readings(messages, {}))
    assert set(names) == {name for values in sent for name in values}
    write = write_parquet if ending == "parquet" else write_csv
    assert write(path, readings(messages, {}), names) == len(sent)

    table = pd.read_parquet(path) if ending == "parquet" else pd.read_csv(path, dtype=str)
    assert list(table.columns) == ["time", "device", *names]
    times = pd.to_datetime(table["time"], utc=True)
    assert [round(time.timestamp() * 1000) for time in times] == [AT_MS + n for n in range(len(sent))]
    for row, values in enumerate(sent):
        for name in names:
            found, told = float(table[name][row]), values.get(name)
            assert math.isnan(found) if told is None else found == told


def test_devices_fields_and_what_is_no_reading() -> None:
    sent: list[Recorded] = [
        Message("pump", b'{"t": 1, "on": true, "mode": "eco"}', AT_MS * 10**6),
        Message("esp/attic/temperature", b"21.4", AT_MS * 10**6 + 999_999),
        Message("alone", b"3", AT_MS * 10**6),
        Message("pump", b"9", AT_MS * 10**6, is_retained=True),
        Message("fleetgp/f/agents/a/health", b'{"at_ms": 1}', AT_MS * 10**6),
        Message("pump", b"\xff", AT_MS * 10**6),
        Gap(1, 2, "down"),
    ]
    left_out: dict[str, int] = {}
    assert list(readings(sent, left_out)) == [
        Reading(AT_MS, "pump", {"t": 1.0, "on": 1.0}),
        Reading(AT_MS, "esp/attic", {"temperature": 21.4}),
        Reading(AT_MS, "alone", {"value": 3.0}),
    ]
    assert left_out == {"field_text": 1, "retained": 1, "fleet": 1, "encoding": 1}


def test_parquet_is_written_by_row_groups(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    rows = (Reading(AT_MS + n, "d", {"x": float(n)}) for n in range(150_000))
    assert write_parquet(path, rows, ["x"]) == 150_000

    file = pq.ParquetFile(path)
    assert [file.metadata.row_group(n).num_rows for n in range(file.num_row_groups)] == [65_536, 65_536, 18_928]
    assert str(file.schema_arrow.field("time").type) == "timestamp[ms, tz=UTC]"
    assert file.read()["x"].to_pylist() == [float(n) for n in range(150_000)]


def test_too_many_fields_are_no_table() -> None:
    rows = [Reading(0, "d", {f"x{n}": 1.0}) for n in range(5000)]
    with pytest.raises(RecordingError, match="too many for a table"):
        fields(rows)


def test_a_table_is_never_written_over(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("mine")
    with pytest.raises(RecordingError, match="is there already"):
        write_csv(path, [], [])
    assert path.read_text() == "mine"
