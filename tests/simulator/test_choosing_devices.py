"""Which devices of a recording make a fleet, and that what is played, told and counted says no more than is so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fleetgp.recording.jsonl import write_jsonl
from fleetgp.recording.message import Message
from simulator import cli
from simulator.choosing import readable, understood
from simulator.demo import promised
from simulator.feeder import recorded
from simulator.left_out import WORDS, words

START_MS = 1_772_615_730_000
PUMPS = [f"pump-{k + 1}" for k in range(6)]


def reading(device: str, k: int, fields: dict[str, Any]) -> Message:
    return Message(device, json.dumps(fields).encode(), (START_MS + 1000 * k) * 1_000_000)


@pytest.fixture
def hall(tmp_path: Path) -> Path:
    """Three climate sensors, one of which also tells its battery, a plug, and a lamp of single values."""
    messages = []
    for k in range(60):
        climate = {"temperature": 20 + (k * 7 % 11) / 10, "humidity": 50 + (k * 5 % 13)}
        messages += [reading(f"hall/{name}", k, climate) for name in ("north", "south")]
        messages.append(reading("hall/east", k, {**climate, "battery": 80 + k % 3}))
        messages.append(reading("hall/plug", k, {"power": 30 + k % 7}))
        messages.append(Message("hall/lamp/level", str(k % 5).encode(), (START_MS + 1000 * k) * 1_000_000))
    write_jsonl(tmp_path / "hall.jsonl", messages)
    return tmp_path / "hall.jsonl"


def test_devices_that_tell_the_same_make_the_fleet_and_others_are_named(
    hall: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = understood([hall], None)
    assert [stream.name for stream in found.streams] == ["north", "south", "east"]
    assert found.choice.schema.channel_names == ("temperature", "humidity")
    said = "\n".join(found.choice.reasons)
    assert "5 devices by their topics: north, south, east, plug, lamp" in said
    assert "left out plug: tells power, not what 3 others tell" in said
    assert "left out lamp: tells level" in said
    assert "left out battery: not every" in said
    assert cli.backtest([str(hall), "--json", "-"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert list(report["agents"]) == ["east", "north", "south"]
    assert report["left_out"] == {"other_device": 120}  # the plug's and the lamp's; they are named as well


def test_a_spec_chooses_other_devices(hall: Path, tmp_path: Path) -> None:
    spec = tmp_path / "spec.toml"
    spec.write_text("[channels]\npower = {}\n")
    found = understood([hall], spec)
    assert [stream.name for stream in found.streams] == ["plug"]
    assert found.choice.schema.channel_names == ("power",)


def test_what_is_played_is_what_was_heard(hall: Path, tmp_path: Path) -> None:
    """A message of one channel is played as one: it says nothing of the other."""
    spec = tmp_path / "spec.toml"
    spec.write_text('[channels]\nlevel = { topic = "hall/lamp/level" }\npower = { topic = "hall/plug" }\n')
    streams, described = readable([hall], spec)
    assert [stream.name for stream in streams] == ["hall"]
    dues = list(recorded({s.name: s.read(described) for s in streams}, ["level", "power"], 2.0))
    assert [dict(due.values) for due in dues[:4]] == [{"power": 30.0}, {"level": 0.0}, {"power": 31.0}, {"level": 1.0}]
    assert [due.after_s for due in dues[:4]] == [0.0, 0.0, 0.5, 0.5]
    assert len(dues) == 120


@pytest.mark.parametrize(
    ("seconds", "says"),
    [
        (None, "6 simulated pumps, 4 channels, once a second; pump-3 gets a fault after 30 s, pump-6 joins after 45 s"),
        (90.0, "6 simulated pumps, 4 channels, once a second; pump-3 gets a fault after 30 s, pump-6 joins after 45 s"),
        (40.0, "5 simulated pumps, 4 channels, once a second; pump-3 gets a fault after 30 s"),
        (20.0, "5 simulated pumps, 4 channels, once a second"),
    ],
)
def test_a_demo_promises_what_its_time_has_room_for(seconds: float | None, says: str) -> None:
    assert promised(PUMPS, seconds) == says


def test_counts_say_what_they_count() -> None:
    assert words({"late": 3, "short_row": 1200}) == "left out: late readings 3, rows cut short 1,200"
    assert words({"new_reason": 2}) == "left out: new_reason 2"
    assert all(len(text.split()) > 1 for text in WORDS.values())
