"""``fleetgp detect``: a brain alone on recorded streams, its events and the score of every frame."""

from __future__ import annotations

import csv
import json
import os
from pathlib import Path
from typing import Any

import pytest
from simulated_streams import SPEC, START, TICK, predicted, records, write_csv

from edge_agent.state import AgentConfig
from fleetgp.errors import FleetError, RecordingError
from fleetgp.recording.jsonl import write_jsonl
from fleetgp.recording.message import Message
from fleetgp.recording.streams import as_messages
from fleetgp.recording.table import Record
from simulator import cli
from simulator.backtest import instant
from simulator.devices import Device, Fault, schema
from simulator.fleet import Plan

ROOT = Path(__file__).resolve().parents[2]
DATA = Path(os.environ.get("BENCHMARK_DATA", ROOT.parent / "shared" / "data"))
WSN = DATA / "wsn_labelled" / "single_hop.csv.gz"
FAULT = Fault(200, channel=1, size=15.0, period=1000)


@pytest.fixture
def rows() -> list[Record]:
    return list(records(Device("", 1, FAULT), 0, 300))


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    path = tmp_path / "spec.toml"
    path.write_text(SPEC)
    return path


def found(*args: object) -> dict[str, Any]:
    target = Path(str(args[0])).parent / "report.json"
    assert cli.detect([*map(str, args), "--json", str(target)]) == 0
    report: dict[str, Any] = json.loads(target.read_text())
    return report


def test_a_fault_is_found_when_and_where_it_was(tmp_path: Path, rows: list[Record], spec: Path) -> None:
    report = found(write_csv(tmp_path / "pump-7.csv", iter(rows)), "--spec", spec)
    (event,) = report["event_list"]
    assert event["device"] == "pump-7"
    assert max(event["blame"], key=event["blame"].get) == "pressure"
    start, end = (instant(event[key], "", "UTC") for key in ("start", "end"))
    assert start == START + 200 * TICK
    assert 205 <= (end - START) // TICK <= 220
    assert report["left_out"] == {}


def test_events_and_scores_are_those_of_an_agent_alone(tmp_path: Path, rows: list[Record], spec: Path) -> None:
    made, outcome = predicted(
        {"pump-7": iter(rows)}, Plan(agent=AgentConfig(agent_id="any", schema=schema(), is_live=False))
    )
    report = found(write_csv(tmp_path / "pump-7.csv", iter(rows)), "--spec", spec, "--scores", tmp_path / "scores.csv")
    last = {event.event_id: event for event in outcome.events}
    assert [event["peak_score"] for event in report["event_list"]] == [round(e.peak_score, 2) for e in last.values()]
    with (tmp_path / "scores.csv").open(newline="") as file:
        header, *lines = csv.reader(file)
    assert header == ["time", "score", "threshold", "is_alarmed"]
    assert [instant(line[0], "", "UTC") for line in lines] == [one.at_ms for one in made]
    assert [float(line[1]) for line in lines] == pytest.approx([one.score for one in made], rel=1e-3)
    assert [line[3] for line in lines] == [str(int(one.is_alarmed)) for one in made]
    assert report["devices"]["pump-7"]["frames"] == len(made)


def test_each_device_of_a_recording_is_for_itself(
    tmp_path: Path, rows: list[Record], spec: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Among others, and in another form, a device has the events that it has alone; the table names it."""
    alone = found(write_csv(tmp_path / "pump-7.csv", iter(rows)), "--spec", spec)
    write_csv(tmp_path / "pump-8.csv", records(Device("", 2), 0, 300))
    both = sorted(
        [m for name in ("pump-7", "pump-8") for m in as_messages(tmp_path / f"{name}.csv") if isinstance(m, Message)],
        key=lambda message: message.received_ns,
    )
    write_jsonl(tmp_path / "broker.jsonl", both)
    capsys.readouterr()
    report = found(tmp_path / "broker.jsonl", "--spec", spec, "--scores", tmp_path / "scores.csv")
    assert report["event_list"] == alone["event_list"]
    said = capsys.readouterr().out
    assert "1 event in 598 frames of 2 devices" in said
    assert [line.split()[2] for line in said.splitlines() if line.startswith("2026-")] == ["pump-7"]
    with (tmp_path / "scores.csv").open(newline="") as file:
        assert {line["device"] for line in csv.DictReader(file)} == {"pump-7", "pump-8"}


def test_without_a_spec_each_device_is_learnt_by_its_own_channels(tmp_path: Path, rows: list[Record]) -> None:
    """One that nothing can be chosen for is named, with the reason, and the others run."""
    times = [row.at_ms for row in rows]
    messages = []
    for k, at_ms in enumerate(times):
        pump = {"pressure": rows[k].values[1], "current": rows[k].values[3], "time": at_ms}
        fan = {"speed": 50 + rows[k].values[0], "time": at_ms}
        for name, fields in (("pump", pump), ("fan", fan), ("lamp", {"level": 3, "time": at_ms})):
            messages.append(Message(f"hall/{name}", json.dumps(fields).encode(), at_ms * 1_000_000))
    write_jsonl(tmp_path / "hall.jsonl", messages)
    report = found(tmp_path / "hall.jsonl")
    chosen = {name: device.get("chosen") for name, device in report["devices"].items()}
    names = {name: [c["name"] for c in one["stream"]["channels"]] for name, one in chosen.items() if one}
    assert names == {"pump": ["pressure", "current"], "fan": ["speed"]}
    assert "none of level changes" in report["devices"]["lamp"]["why"]
    assert "pump" in {event["device"] for event in report["event_list"]}


def test_what_cannot_be_done_is_said(tmp_path: Path, spec: Path) -> None:
    path = tmp_path / "pump.csv"
    path.write_text("time,temperature,pressure,vibration,current\n")
    with pytest.raises(RecordingError, match="these recordings hold no row"):
        cli.detect([str(path), "--spec", str(spec)])
    with pytest.raises(FleetError, match="there is no folder"):
        cli.detect([str(path), "--scores", str(tmp_path / "nowhere" / "scores.csv")])
    with pytest.raises(RecordingError, match="there is no file"):
        cli.detect([str(tmp_path / "nobody.csv")])


@pytest.mark.skipif(not WSN.exists(), reason=f"no labelled sensor network in {WSN} (BENCHMARK_DATA names the folder)")
def test_labelled_events_of_real_motes_are_found(tmp_path: Path) -> None:
    """Both of them, rows 2344-2460 of mote 1 and 2362-2393 of mote 4, as they begin.

    The humidity of mote 1 leaves its level two rows before its label does: an event may begin a minute before or after.
    """
    spec = tmp_path / "spec.toml"
    spec.write_text('[time]\nstart = "2010-05-09T00:00"\nevery = "5s"\n[channels]\nhumidity = {}\ntemperature = {}\n')
    target = tmp_path / "report.json"
    assert cli.detect([str(WSN), "--spec", str(spec), "--json", str(target)]) == 0
    report = json.loads(target.read_text())
    began = instant("2010-05-09", "", "UTC")
    for device, first in (("1", 2344), ("4", 2362)):
        starts = [
            (instant(event["start"], "", "UTC") - began) / 1000
            for event in report["event_list"]
            if event["device"] == device
        ]
        assert any(abs(start - 5 * (first - 1)) <= 60 for start in starts)
