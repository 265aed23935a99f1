"""``fleetgp recordings`` on what people really have: tables, logs of PowerShell, hostile names, lines that are none."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from influx_servers import InfluxServer

from fleetgp.cli import main
from fleetgp.errors import RecordingError
from fleetgp.recording.mcap import McapWriter
from fleetgp.recording.message import Message
from fleetgp.recording.messages import read_messages
from fleetgp.recording.streams import streams
from fleetgp.runtime.influx import Access, Client
from simulator.recordings import recordings

AT_NS = 1_772_615_730_000_000_000
SECOND = 10**9


def told(capsys: pytest.CaptureFixture[str], *arguments: str | Path, status: int = 0) -> Any:
    """What the command says as JSON."""
    capsys.readouterr()
    assert main(["recordings", *map(str, arguments), "--json", "-"]) == status
    return json.loads(capsys.readouterr().out)


def said(capsys: pytest.CaptureFixture[str], *arguments: str | Path, status: int = 0) -> str:
    capsys.readouterr()
    assert main(["recordings", *map(str, arguments)]) == status
    return capsys.readouterr().out


def table(path: Path, device: str = "") -> Path:
    rows = [f"2026-03-04T09:{n:02}:00.000Z,{device + ',' if device else ''}{n}.5" for n in range(40)]
    path.write_text("\n".join([f"time,{'device,' if device else ''}temp", *rows, ""]))
    return path


def test_a_table_is_described_and_checked_as_the_messages_it_would_send(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = table(tmp_path / "pump.csv")
    report = told(capsys, "info", path)
    assert (report["messages"], report["seconds"], list(report["topics"])) == (40, 39 * 60, ["sensors/pump"])
    assert "40 messages, 1 in 1:00 min" in said(capsys, "info", path)
    path.write_text(path.read_text() + "yesterday,1\n2026-03-04T10:00:00.000Z,warm\n")
    report = told(capsys, "verify", path, status=1)
    assert (report["messages"], report["damages"]) == (41, ["rows without a readable time: 1"])
    assert report["notes"] == ["left out: cells that are no number 1"]


def test_columns_that_are_left_out_of_a_table_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "air.csv"
    path.write_text("time,wind,temp\n" + "".join(f"2026-03-04T09:{n:02}:00Z,NNW,{n}\n" for n in range(40)))
    assert told(capsys, "convert", path, tmp_path / "air.mcap")["left_out"] == {"columns": 1}
    assert "columns that hold no numbers 1" in said(capsys, "info", path)


def test_a_device_column_of_one_value_names_the_device_through_every_form(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """CSV to MCAP to Parquet to CSV, each under another file's name."""
    path = table(tmp_path / "monday.csv", "press-4")
    for name in ("a.mcap", "b.parquet", "c.csv"):
        told(capsys, "convert", path, tmp_path / name)
        path = tmp_path / name
        assert [stream.name for stream in streams([path])] == ["press-4"]
    assert set(pq.read_table(tmp_path / "b.parquet")["device"].to_pylist()) == {"press-4"}
    with path.open() as file:
        assert [row["temp"] for row in csv.DictReader(file)] == [f"{n}.5" for n in range(40)]


def test_one_value_of_a_column_that_may_mean_anything_names_no_device(tmp_path: Path) -> None:
    path = tmp_path / "tank.csv"
    path.write_text("time,unit,temp\n" + "".join(f"2026-03-04T09:{n:02}:00Z,°C,{n}\n" for n in range(40)))
    assert [stream.name for stream in streams([path])] == ["tank"]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-8-sig"])
@pytest.mark.parametrize("name", ["lines.jsonl", "log.txt"])
def test_what_powershell_wrote_is_read(tmp_path: Path, encoding: str, name: str) -> None:
    """``>`` there makes UTF-16 with a mark and lines that end in CR LF."""
    sent = [Message("hall/größe", b"%d" % n, AT_NS + n * SECOND) for n in range(30)]
    line = (
        '{"topic":"hall/größe","received":%d,"payload":"%d"}'
        if name == "lines.jsonl"
        else "%d.000000000\thall/größe\t%d"
    )
    scale = 1 if name == "lines.jsonl" else SECOND
    text = "".join(line % (one.received_ns // scale, n) + "\n" for n, one in enumerate(sent))
    mark = "\ufeff" if encoding == "utf-16-le" else ""
    (tmp_path / name).write_bytes((mark + text.replace("\n", "\r\n")).encode(encoding))
    assert list(read_messages(tmp_path / name)) == sent


def test_a_line_that_is_none_stops_nothing_and_is_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.jsonl"
    lines = [f'{{"topic": "a", "time": {AT_NS + n}, "payload": "{n}"}}' for n in range(5)]
    path.write_text("\n".join([*lines[:2], '{"topic": "a", "ti', *lines[2:], '{"topic": "a']))
    report = told(capsys, "convert", path, tmp_path / "out.mcap")
    assert (report["messages"], report["left_out"]) == (5, {"bad_line": 1, "cut_line": 1})
    text = said(capsys, "verify", path, status=1)
    assert "lines that cannot be read: 1" in text
    assert "last lines cut short: 1" in text


def test_a_log_without_qos_and_retained_flag_says_so_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "log.txt"
    path.write_text("".join(f"2026-03-04T09:15:{n:02}+0000 a/b {n}\nmore\n" for n in range(10)))
    for action in ("info", "verify"):
        text = said(capsys, action, path)
        assert text.count("no QoS and no retained flag") == 1
        assert "10 lines begin with no time" in text
    report = told(capsys, "convert", path, tmp_path / "out.jsonl")
    assert (report["messages"], report["continued"], report["left_out"]) == (10, 10, {})
    assert "no retained flag" in report["note"]
    path.write_text("".join(f"2026-03-04T09:15:{n:02}+0000 a/b 1 0 {n}\n" for n in range(10)))
    assert "retained flag" not in said(capsys, "info", path)


def test_names_of_others_cannot_steer_a_terminal_and_a_clock_set_back_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.mcap"
    with McapWriter(path, {"broker": "\x1b]0;mine\x07"}) as writer:
        for n, at_ns in enumerate([5, 6, 7, 3, 4]):
            writer.write(Message("evil\x1b[2J\n" if n % 2 else "größe 1", b"1", AT_NS + at_ns))
    text = said(capsys, "info", path)
    assert "\x1b" not in text
    assert "evil\\x1b[2J\\n" in text
    assert "größe 1" in text
    assert "1 messages were received earlier than the one before them" in text


def test_a_list_reads_an_index_and_claims_no_more(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.mcap"
    with McapWriter(path, {}) as writer:
        for n in range(500):
            writer.write(Message(f"t/{n}", b"%d" % n, AT_NS + n))
    damaged = bytearray(path.read_bytes())
    damaged[400] ^= 1
    path.write_bytes(damaged)
    assert told(capsys, "list", tmp_path)["files"][0]["state"] == "closed"
    assert not told(capsys, "verify", path, status=1)["is_whole"]
    (tmp_path / "b.mcap").write_bytes(damaged[:300])
    assert "cut, or being written" in said(capsys, "list", tmp_path)


def test_most_topics_are_shown_and_the_others_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.mcap"
    with McapWriter(path, {}) as writer:
        for n in range(1000):
            writer.write(Message(f"t/{n % 500}", b"1", AT_NS + n))
        writer.write(Message("t/7", b"1", AT_NS + 1000))
    text = said(capsys, "info", path)
    assert "and 300 more topics" in text
    assert "t/7  " in text
    assert len(told(capsys, "info", path)["topics"]) == 500


@pytest.mark.influx
def test_an_influxdb_is_converted_as_a_file_is(
    influxd: InfluxServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [f"kiln,site={s} load={i}.25 {AT_NS + i * SECOND}" for i in range(20) for s in "ab"]
    Client(Access(influxd.url, "fleetgp")).write(lines)
    source, query = f"{influxd.url}/fleetgp", ["--query", "SELECT * FROM kiln"]
    report = told(capsys, "convert", source, tmp_path / "kiln.csv", *query, "--from", "+5s")
    assert (report["messages"], report["left_out"]) == (30, {"other times": 10})
    with (tmp_path / "kiln.csv").open() as file:
        rows = [(row["device"], float(row["load"])) for row in csv.DictReader(file)]
    assert rows == [(s, i + 0.25) for i in range(5, 20) for s in "ab"]
    told(capsys, "convert", source, tmp_path / "kiln.mcap", *query, "--topic", "sensors/a")
    assert [stream.name for stream in streams([tmp_path / "kiln.mcap"])] == ["a"]
    with pytest.raises(RecordingError, match="no message that was asked for"):
        recordings(["convert", source, str(tmp_path / "none.mcap"), "--query", "SELECT * FROM nothing"])
    assert "say which rows" in main_error(capsys, source, tmp_path / "x.mcap")
    assert "is of a database" in main_error(capsys, tmp_path / "kiln.csv", tmp_path / "x.mcap", *query)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kiln.csv", "kiln.mcap"]


def main_error(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    capsys.readouterr()
    assert main(["recordings", "convert", *map(str, arguments)]) == 2
    return capsys.readouterr().err
