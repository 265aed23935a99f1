"""Recordings of messages as devices: whose each topic is, what is no reading, and when each was."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetgp.errors import RecordingError
from fleetgp.recording.discover import discover
from fleetgp.recording.jsonl import write_jsonl
from fleetgp.recording.message import Gap, Message, Recorded
from fleetgp.recording.spec import RecordingSpec, parse
from fleetgp.recording.streams import Stream, find, streams
from fleetgp.recording.table import Record, Skipped

ROOT = Path(__file__).resolve().parents[2]
PAYLOADS = Path(os.environ.get("BENCHMARK_DATA", ROOT.parent / "shared" / "data")).parent / "payloads"
START_NS = 1_772_615_730_000_000_000
START_MS = START_NS // 1_000_000


def spec(**channels: dict[str, str]) -> RecordingSpec:
    return parse({"channels": channels}, "test")


def said(topic: str, payload: object, k: int = 0, *, is_retained: bool = False) -> Message:
    text = payload if isinstance(payload, str) else json.dumps(payload)
    return Message(topic, text.encode(), START_NS + k * 10**9, is_retained=is_retained)


def recording(folder: Path, recorded: Sequence[Recorded], name: str = "broker.jsonl") -> Path:
    write_jsonl(folder / name, recorded)
    return folder / name


def named(found: Sequence[Stream]) -> dict[str, Stream]:
    return {stream.name: stream for stream in found}


def test_single_values_are_channels_of_the_device_above_them(tmp_path: Path) -> None:
    path = recording(
        tmp_path,
        [
            said("esp/attic/temperature", "20.5"),
            said("esp/attic/humidity", "51", 1),
            said("esp/attic/temperature", "nan", 10),
            said("esp/attic/name", "under the roof", 11),
        ],
    )
    (attic,) = streams([path])
    assert attic.name == "esp-attic"
    assert discover([attic]).columns == ("temperature", "humidity")
    skipped = Skipped()
    described = spec(humidity={}, temperature={})
    warm, damp, missing = attic.read(described, skipped)
    assert (warm.at_ms, warm.values[1], warm.heard) == (START_MS, 20.5, (1,))
    assert (damp.at_ms, damp.values[0], damp.heard) == (START_MS + 1000, 51.0, (0,))
    assert (repr(missing.values), missing.heard) == ("(nan, nan)", (1,))  # said to be missing, not silent
    assert skipped == {"no_number": 1}


def test_objects_are_devices_and_have_their_own_time_or_that_of_their_arrival(tmp_path: Path) -> None:
    path = recording(
        tmp_path,
        [
            said("plant/line/press", {"a": 1, "time": "2026-03-04T09:00:00Z"}),
            said("plant/line/mixer", {"a": 2, "b": {"c": 3}}, 1),
            said("plant/line/press", {"a": "x", "time": "2026-03-04T09:00:01Z"}, 2),
            said("plant/line/press", "{broken", 3),
            said("plant/line/mixer", {"b": {"c": 4}}, 4),
        ],
    )
    found, skipped = named(streams([path])), Skipped()
    readers = {name: stream.read(spec(a={}), skipped) for name, stream in found.items()}
    assert {name: list(records) for name, records in readers.items()} == {
        "press": [Record(1_772_614_800_000, (1.0,))],
        "mixer": [Record(START_MS + 1000, (2.0,))],
    }
    assert skipped == {"not_a_number": 1, "no_known_field": 2, "syntax": 1}


def test_what_is_no_reading_of_a_device_is_left_out_and_counted(tmp_path: Path) -> None:
    path = recording(
        tmp_path,
        [
            said("sensors/pump-1", {"a": 9}, is_retained=True),
            said("fleetgp/demo/agents/pump-1/predictions", {"a": 9}),
            said("sensors/pump-1", {"a": 1}),
            Gap(START_NS, START_NS + 1, "the broker was away"),
            said("zigbee2mqtt/x/availability", {"state": "online"}),
            said("sensors/pump-2", {"other": 1}),
            said("sensors/pump-1", {"a": 2}, 1),
        ],
    )
    assert [stream.name for stream in streams([path])] == ["pump-1", "pump-2"]
    (only,), skipped = streams([path], spec(a={})), Skipped()  # the other tells nothing of this spec
    assert only.name == "pump-1"
    assert [record.values for record in only.read(spec(a={}), skipped)] == [(1.0,), (2.0,)]
    assert skipped == {"retained": 1, "fleet": 1, "no_number": 1, "other_device": 1, "gap": 1}


def test_topics_that_a_spec_names_win(tmp_path: Path) -> None:
    """A topic of its own is read for every device; where all inputs have one there is one device."""
    path = recording(
        tmp_path,
        [
            said("weather", "7"), said("plant/a", {"flow": 1}, 1), said("plant/b", {"flow": 2}, 2), said("weather", "8", 3),
        ],
    )  # fmt: skip
    described = parse({"channels": {"flow": {}}, "covariates": {"outdoor": {"topic": "weather"}}}, "test")
    found = streams([path], described)
    readers = {stream.name: stream.read(described) for stream in found}
    heard = {name: [(r.at_ms - START_MS, r.heard) for r in records] for name, records in readers.items()}
    assert heard == {
        "a": [(0, (1,)), (1000, (0,)), (3000, (1,))],
        "b": [(0, (1,)), (2000, (0,)), (3000, (1,))],
    }
    all_named = spec(first={"topic": "plant/a", "field": "flow"}, second={"topic": "plant/b", "field": "flow"})
    (one,) = streams([path], all_named)
    assert one.name == "broker"
    assert [record.heard for record in one.read(all_named)] == [(0,), (1,)]


def test_a_recording_in_several_files_is_one_in_the_order_of_its_messages(tmp_path: Path) -> None:
    parts = [[said("a/x", {"v": k}, k) for k in ks] for ks in ((4, 5, 9), (0, 1, 7), (2, 3))]
    paths = [recording(tmp_path, part, f"part-{n}.jsonl") for n, part in enumerate(parts)]
    (only,) = streams(paths)
    assert [record.values[0] for record in only.read(spec(v={}))] == [0, 1, 2, 3, 4, 5, 7, 9]


def test_a_damaged_recording_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    path = recording(tmp_path, [said("a/x", {"v": k}, k) for k in range(5)])
    path.write_bytes(path.read_bytes()[:-20])
    (only,), skipped = streams([path]), Skipped()
    assert [record.values[0] for record in only.read(spec(v={}), skipped)] == [0, 1, 2, 3]
    assert sum(skipped.values()) == 1


def test_a_recording_without_devices_says_so(tmp_path: Path) -> None:
    path = recording(tmp_path, [said("a/status", "online"), said("fleetgp/x/fleet/round", {"a": 1})])
    with pytest.raises(RecordingError, match=r"no message of a device with a number in it; fleetgp recordings info"):
        streams([path])
    path = recording(tmp_path, [said("a/x", {"b": 1})], "other.jsonl")
    with pytest.raises(RecordingError, match="with a number of the spec in it"):
        streams([path], spec(a={}))


EXPECTED = {  # by the first level of the sample's topics: devices and some of their channels
    "zigbee2mqtt": {"bench_climate": "temperature humidity pressure", "door": "contact", "plug_3": "power voltage"},
    "tele": {"pump_house-SENSOR": "BME280.Temperature DS18B20-1.Temperature", "meter_a-SENSOR": "ENERGY.Power.0"},
    "homeassistant": {"homeassistant": "attic_temp hatch"},
    "greenhouse-n2": {"greenhouse-n2": "air_temperature soil_probe vent_open"},
    "homie": {"homie-5-boiler-1-water": "supply pump"},
}


@pytest.mark.skipif(not PAYLOADS.is_dir(), reason=f"no samples of payloads in {PAYLOADS}")
@pytest.mark.parametrize("first_level", EXPECTED)
def test_samples_of_real_programs_are_the_devices_that_their_owners_would_name(
    tmp_path: Path, first_level: str
) -> None:
    text = "\n".join(path.read_text() for path in sorted(PAYLOADS.glob("*.txt")))
    lines = re.findall(rf"^({first_level}/\S+) (.+)$", text, re.MULTILINE)
    lines += [(topic, "4") for topic, payload in lines if payload == "nan"]  # a probe that also speaks
    path = recording(tmp_path, [said(topic, payload, k) for k, (topic, payload) in enumerate(lines)])
    found = named(streams([path]))
    for device, channels in EXPECTED[first_level].items():
        header, rows = found[device].peek(100)
        assert set(channels.split()) <= set(header)
        assert rows


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    st.lists(
        st.tuples(st.sampled_from(["a/x", "a/y", "b/x", "b", "c/d/e"]), st.integers(0, 9), st.booleans()), min_size=1
    )
)
def test_every_message_is_a_reading_of_one_device_or_counted(
    tmp_path_factory: pytest.TempPathFactory, told: list[tuple[str, int, bool]]
) -> None:
    """Objects on any topics, interleaved at will: none lost, none twice, each device's in their order."""
    folder = tmp_path_factory.mktemp("any")
    messages = [said(topic, {"v": v}, k, is_retained=kept) for k, (topic, v, kept) in enumerate(told)]
    fresh = [message for message in messages if not message.is_retained]
    path = recording(folder, messages)
    if not fresh:
        with pytest.raises(RecordingError):
            streams([path])
        return
    found, skipped = find([path], None).streams, Skipped()
    readers = [stream.read(spec(v={}), skipped) for stream in found]
    read = {stream.name: list(records) for stream, records in zip(found, readers, strict=True)}
    assert len(found) == len({message.topic for message in fresh})
    assert Counter(r.at_ms for records in read.values() for r in records) == Counter(
        message.received_ns // 1_000_000 for message in fresh
    )
    assert all(records == sorted(records, key=lambda r: r.at_ms) for records in read.values())
    assert skipped.get("retained", 0) == len(messages) - len(fresh)
