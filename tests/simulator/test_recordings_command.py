"""``fleetgp recordings``: what it prints, what it writes, and its exit status, on files of every form."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from fleetgp.cli import main
from fleetgp.recording.jsonl import session_of, write_jsonl
from fleetgp.recording.mcap import McapWriter, describe, read
from fleetgp.recording.message import Gap, Message, Recorded
from fleetgp.recording.messages import read_messages

AT_NS = 1_772_615_730_000_000_000
SECOND = 10**9
SENT: list[Recorded] = [
    Message(f"pump/{n % 2}", b'{"t": %d.5}' % n, AT_NS + n * SECOND, AT_NS if n % 3 else 0, qos=1, content_type="x")
    for n in range(60)
]
SENT.insert(30, Gap(AT_NS + 29 * SECOND, AT_NS + 30 * SECOND, "the broker was away"))


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    path = tmp_path / "whole.mcap"
    with McapWriter(path, {"broker": "mqtt://here"}) as writer:
        for number, item in enumerate(SENT):
            if isinstance(item, Gap):
                writer.mark_gap(item)
            else:
                writer.write(item)
            if number % 10 == 9:
                writer.flush()
    return path


@pytest.fixture
def cut(whole: Path, tmp_path: Path) -> Path:
    path = tmp_path / "cut.mcap"
    path.write_bytes(whole.read_bytes()[: whole.stat().st_size // 2])
    return path


def told(capsys: pytest.CaptureFixture[str], *arguments: str | Path, status: int = 0) -> Any:
    """What the command says as JSON; its words are then on the error stream, if anywhere."""
    capsys.readouterr()
    assert main(["recordings", *map(str, arguments), "--json", "-"]) == status
    return json.loads(capsys.readouterr().out)


def said(capsys: pytest.CaptureFixture[str], *arguments: str | Path, status: int = 0) -> str:
    capsys.readouterr()
    assert main(["recordings", *map(str, arguments)]) == status
    captured = capsys.readouterr()
    return captured.out + captured.err


def test_list_tells_forms_times_and_state(
    whole: Path, cut: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_jsonl(tmp_path / "b.jsonl.gz", SENT)
    (tmp_path / "notes.txt").write_text("buy milk")
    (tmp_path / "t.csv").write_text("time,t\n2026-03-04T09:15:30,1\n")
    (tmp_path / "log.txt").write_text("2026-03-04T09:15:30+0000 a/b 1\n")

    files = {row["file"]: row for row in told(capsys, "list", tmp_path)["files"]}
    assert {name: (row["form"], row["state"]) for name, row in files.items()} == {
        "b.jsonl.gz": ("messages", "whole"),
        "cut.mcap": ("mcap", "cut"),
        "log.txt": ("mosquitto", "whole"),
        "t.csv": ("csv", ""),
        "whole.mcap": ("mcap", "closed"),
    }
    for name in ("whole.mcap", "b.jsonl.gz"):
        row = files[name]
        assert (row["messages"], row["first_ns"], row["last_ns"]) == (60, AT_NS, AT_NS + 59 * SECOND)
    assert "2026-03-04 09:15:30  2026-03-04 09:16:29" in said(capsys, "list", tmp_path)
    assert "no recordings" in said(capsys, "list", str(_made(tmp_path / "empty")))


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def test_info_tells_topics_rates_gaps_and_session(whole: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = told(capsys, "info", whole)
    assert report["messages"] == 60
    assert report["seconds"] == 59
    assert {name: topic["messages"] for name, topic in report["topics"].items()} == {"pump/0": 30, "pump/1": 30}
    assert report["gaps"] == [
        {"start_ns": AT_NS + 29 * SECOND, "end_ns": AT_NS + 30 * SECOND, "why": "the broker was away"}
    ]
    assert report["session"]["broker"] == "mqtt://here"
    text = said(capsys, "info", whole)
    assert "60 messages, 1.02/s" in text
    assert "the broker was away" in text


def test_verify_says_whole_or_where_not(whole: Path, cut: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = told(capsys, "verify", whole)
    assert report["is_whole"]
    assert report["sha256"] == describe(whole).end["sha256"]

    report = told(capsys, "verify", cut, status=1)
    saved = report["messages"]
    assert 0 < saved < 60
    assert report["lost"] is None
    text = said(capsys, "verify", cut, status=1)
    assert "it is cut" in text
    assert f"saves {saved} messages" in text


def test_recover_saves_a_whole_file(cut: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved = tmp_path / "saved.mcap"
    report = told(capsys, "recover", cut, "-o", saved)
    assert list(read(saved)) == SENT[: report["messages"] + report["gaps"]]
    assert describe(saved).session["recovered_from"] == "cut.mcap"
    assert told(capsys, "verify", saved)["is_whole"]
    assert "is there already; --force" in said(capsys, "recover", cut, "-o", saved, status=2)


def test_recover_of_nothing_writes_nothing(tmp_path: Path, whole: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stump = tmp_path / "stump.mcap"
    stump.write_bytes(whole.read_bytes()[:60])
    assert "nothing can be saved" in said(capsys, "recover", stump, "-o", tmp_path / "out.mcap", status=2)
    assert not (tmp_path / "out.mcap").exists()


def test_convert_there_and_back_loses_nothing(whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = whole
    for name in ("a.jsonl", "b.jsonl.gz", "c.mcap"):
        report = told(capsys, "convert", path, tmp_path / name)
        assert (report["messages"], report["gaps"], report["left_out"]) == (60, 1, {})
        path = tmp_path / name
        assert list(read_messages(path)) == SENT
    assert session_of(tmp_path / "b.jsonl.gz")["broker"] == "mqtt://here"
    assert describe(path).end["sha256"] == describe(whole).end["sha256"]
    assert not list(tmp_path.glob(".part-*"))


def test_convert_to_a_table_of_what_was_asked_for(
    whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "t.csv"
    choice = ["--topic", "+/1", "--from", "+10s", "--to", "2026-03-04T09:15:50"]
    report = told(capsys, "convert", whole, output, *choice)
    with output.open() as file:
        rows = list(csv.DictReader(file))
    assert rows[0] == {"time": "2026-03-04T09:15:41.000Z", "device": "pump/1", "t": "11.5"}
    assert [float(row["t"]) for row in rows] == [11.5, 13.5, 15.5, 17.5, 19.5]
    assert report["left_out"] == {"other times": 50, "other topics": 5}


def test_convert_of_a_log_without_times(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, output = tmp_path / "log.txt", tmp_path / "a.jsonl"
    log.write_text("a/b 1\na/b 2\n")
    assert "no times in its lines" in said(capsys, "convert", log, output, status=2)
    assert not output.exists()
    told(capsys, "convert", log, output, "--start", "2026-03-04T09:15:30", "--every", "5s")
    assert list(read_messages(output)) == [Message("a/b", b"1", AT_NS), Message("a/b", b"2", AT_NS + 5 * SECOND)]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["convert", "whole.mcap", "out.xyz"], "must end in one of .mcap"),
        (["convert", "whole.mcap", "out.csv", "--from", "soon"], "'soon' is no time"),
        (["convert", "whole.mcap", "out.csv", "--topic", "a#"], "--topic"),
        (["convert", "whole.mcap", "out.csv", "--topic", "nothing"], "no message with a number"),
        (["convert", "whole.mcap", "cut.mcap"], "is there already; --force"),
        (["convert", "cut.mcap", "out.jsonl"], "fleetgp recordings recover"),
        (["convert", "no.mcap", "out.jsonl"], "there is no file"),
        (["info", "no.mcap"], "there is no file"),
        (["list", "nowhere"], "there is no folder"),
        (["convert", "whole.mcap", "out.csv", "--start", "2026-03-04"], "needs both --start and --every"),
    ],
)
@pytest.mark.usefixtures("whole", "cut")
def test_what_cannot_be_done_is_said_in_a_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    words: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    text = said(capsys, *arguments, status=2)
    assert words in text
    assert text.count("\n") == 1
    assert not list(tmp_path.glob("out.*"))
    assert not list(tmp_path.glob(".part-*"))


def test_tables_become_messages_and_messages_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """CSV to MCAP to Parquet to CSV: the numbers are those of the first file."""
    table = tmp_path / "pump.csv"
    lines = [f"2026-03-04T09:{n:02}:00.000Z,{20.5 + n / 7},{n}" for n in range(50)]
    table.write_text("\n".join(["time,temp,rpm", *lines, ""]))
    path = table
    for name in ("a.mcap", "b.parquet", "c.csv"):
        assert told(capsys, "convert", path, tmp_path / name)["messages"] == 50
        path = tmp_path / name
    with path.open() as file:
        rows = list(csv.DictReader(file))
    assert [f"{row['time']},{row['temp']},{row['rpm']}" for row in rows] == [
        ",".join([time, repr(float(temp)), rpm]) for time, temp, rpm in (line.split(",") for line in lines)
    ]
    assert set(pq.read_table(tmp_path / "b.parquet")["device"].to_pylist()) == {"pump"}


def test_a_spec_chooses_and_names_the_columns(whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = tmp_path / "spec.toml"
    spec.write_text('[channels]\nwarmth = { field = "t" }\n')
    told(capsys, "convert", whole, tmp_path / "a.csv", "--spec", spec)
    assert (tmp_path / "a.csv").read_text().splitlines()[:2] == [
        "time,device,warmth",
        "2026-03-04T09:15:30.000Z,pump/0,0.5",
    ]
    spec.write_text("[channels]\ncold = {}\n")
    assert "no field 'cold'" in said(capsys, "convert", whole, tmp_path / "b.csv", "--spec", spec, status=2)


def test_faults_are_put_in_and_the_truth_is_beside(
    whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "a.jsonl"
    report = told(capsys, "convert", whole, output, "--inject", "offset:pump/1:t@+10s+10s=100", "--seed", "3")
    found = [item for item in read_messages(output) if isinstance(item, Message)]
    off = [n for n, (item, sent) in enumerate(zip(found, read(whole), strict=False)) if item != sent and n < 30]
    assert off == [11, 13, 15, 17, 19]
    assert json.loads(found[11].payload) == {"t": 111.5}
    assert json.loads(Path(report["truth"]).read_text())["faults"]


def test_faults_go_into_what_is_chosen_and_one_that_meets_nothing_is_told(
    capsys: pytest.CaptureFixture[str], whole: Path, tmp_path: Path
) -> None:
    only = ("--topic", "pump/0", "--from", "+10s", "--to", "+30s")
    report = told(capsys, "convert", whole, tmp_path / "some.jsonl", *only, "--inject", "offset:#:t=100")
    truth = json.loads(Path(report["truth"]).read_text())
    assert report["messages"] == 10
    assert report["left_out"] == {"other times": 40, "other topics": 10}
    assert [fault["messages"] for fault in truth["faults"]] == [10]
    written = [
        json.loads(one.payload)["t"] for one in read_messages(Path(report["output"])) if isinstance(one, Message)
    ]
    assert written == [n + 100.5 for n in range(10, 30, 2)]
    words = said(capsys, "convert", whole, tmp_path / "none.jsonl", *only, "--inject", "offset:pump/1:t=100", status=1)
    assert "offset:pump/1:t=100 changed nothing: no message is on pump/1; there are pump/0" in words
