"""``fleetgp backtest FILE --as-recorded``: exit status, tables and JSON, and plain words where it cannot be done."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from wire_streams import Wire

from fleetgp.errors import ConfigError, RecordingError
from fleetgp.recording.mcap import McapWriter
from fleetgp.recording.message import Gap, Message, Recorded
from simulator.cli import backtest
from simulator.faults import inject, parse


@pytest.fixture(scope="module")
def messages() -> list[Recorded]:
    return Wire(1, {"a": 0.0, "b": 9.0}, 10.0, loss=0.0).run(20.0)


def written(messages: list[Recorded], file: Path) -> Path:
    writer = McapWriter(file, {})
    for one in messages:
        if isinstance(one, Gap):
            writer.mark_gap(one)
        else:
            writer.write(one)
    writer.close()
    return file


def test_the_report_for_people_and_for_machines(
    messages: list[Recorded], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = written(messages, tmp_path / "fleet.mcap")
    assert backtest([str(file), "--as-recorded", "--json", str(tmp_path / "out.json")]) == 0
    said = capsys.readouterr().out
    document = json.loads((tmp_path / "out.json").read_text())
    count = sum(isinstance(one, Message) and one.topic.endswith("/predictions") for one in messages)
    assert f"{count} of {count} predictions" in said
    assert document["as_recorded"] is True
    assert document["predictions"]["same"] == count > 30
    assert set(document["agents"]) == {"wire/a", "wire/b"}
    assert document["models"]["same"] >= 1


def test_a_fleet_that_would_say_something_else_now_is_exit_status_1(
    messages: list[Recorded], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One reading is another: what followed from it does not come out, what did not is as it was."""
    changed, _ = inject(iter(messages), parse("spike:s/a:x@+8s+1s=0.75,1x"), 0)
    file = written(list(changed), tmp_path / "changed.mcap")
    assert backtest([str(file), "--as-recorded", "--json", "-"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["as_recorded"] is False
    assert document["agents"]["wire/a"]["predictions"]["different"] > 5
    assert "channels.x.observed was" in document["predictions"]["first_difference"]
    assert document["agents"]["wire/b"]["predictions"]["different"] == 0


def test_an_agent_that_was_there_before_the_recording_is_named(
    messages: list[Recorded], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    begin_ns = next(one.received_ns for one in messages if isinstance(one, Message)) + 8_000_000_000
    kept = [
        one
        for one in messages
        if isinstance(one, Message) and (one.received_ns >= begin_ns or one.topic.endswith("/status"))
    ]
    backtest([str(written(kept, tmp_path / "late.mcap")), "--as-recorded"])
    said = capsys.readouterr().out
    assert "not run again: it had made" in said
    assert "coordinator of wire: not run again: the recording begins with round" in said


def test_what_cannot_be_run_again_is_said_plainly(messages: list[Recorded], tmp_path: Path) -> None:
    sensors = [one for one in messages if isinstance(one, Message) and one.topic.startswith("s/")]
    file = written(sensors, tmp_path / "sensors.mcap")
    with pytest.raises(RecordingError, match="no agent speaks in this recording"):
        backtest([str(file), "--as-recorded"])
    with pytest.raises(ConfigError, match="leave out --start, --mode alone"):
        backtest([str(file), "--as-recorded", "--start", "2026-01-01", "--mode", "alone"])


def test_gaps_are_told(messages: list[Recorded], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    last = messages[-1]
    assert isinstance(last, Message)
    gap = Gap(last.received_ns, last.received_ns + 2_000_000_000, "no broker")
    backtest([str(written([*messages, gap], tmp_path / "gap.mcap")), "--as-recorded"])
    assert "the recording has a gap of 2.0 s: no broker" in capsys.readouterr().out
