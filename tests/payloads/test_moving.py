"""Times inside payloads moved: in their own form, there and back without a trace, and nothing else touched."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetgp.payloads import read
from fleetgp.payloads.json_spans import spans
from fleetgp.payloads.moving import move, move_time

MODEST = settings(max_examples=150, deadline=None, derandomize=True)
HOUR = 3_600_000
SHIFTS = st.integers(-300 * 24 * HOUR, 300 * 24 * HOUR)
MOMENTS = st.datetimes(datetime(2005, 1, 1), datetime(2200, 1, 1))
GOLDEN = Path(__file__).parents[1] / "wire" / "golden"
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.integers(-(2**40), 2**40)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@st.composite
def times(draw: st.DrawFn) -> object:
    """A time as devices write it: ISO text of any precision and zone, or a count in any unit, as a number or as text."""
    moment = draw(MOMENTS)
    form = draw(st.sampled_from(["iso", "s", "s text", "decimals", "ms", "us", "ns"]))
    seconds = int(moment.replace(tzinfo=UTC).timestamp())
    if form == "iso":
        precision = draw(st.sampled_from(["minutes", "seconds", "milliseconds", "microseconds"]))
        zone = draw(st.sampled_from(["", "Z", "+00:00", "+0530", "-03:00"]))
        return moment.isoformat(draw(st.sampled_from("T ")), precision) + zone
    if form == "decimals":
        return seconds + draw(st.integers(0, 99)) / 100
    scale = {"s": 1, "s text": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[form]
    count = seconds * scale + draw(st.integers(0, scale - 1))
    return str(count) if form == "s text" else count


@MODEST
@given(times(), st.dictionaries(st.text(), JSON, max_size=4), SHIFTS, st.sampled_from([None, 1]))
def test_there_and_back_is_the_same_byte_for_byte(
    time: object, fields: dict[str, object], shift_ms: int, indent: int | None
) -> None:
    payload = json.dumps({**fields, "time": time}, indent=indent).encode()
    there = move_time(payload, "a/b", shift_ms)
    assert move_time(there, "a/b", -shift_ms) == payload


@MODEST
@given(times(), st.dictionaries(st.sampled_from("abcdefg"), JSON, max_size=4), st.integers(-7000, 7000))
def test_the_time_moves_and_nothing_else(time: object, fields: dict[str, object], hours: int) -> None:
    """By the clock of the house's own reader and of json; whole hours, that every form can hold."""
    payload = json.dumps({**fields, "ts": time}).encode()
    there = move_time(payload, "a/b", hours * HOUR)

    before, after = json.loads(payload), json.loads(there)
    assert {**before, "ts": 0} == {**after, "ts": 0}
    assert type(before["ts"]) is type(after["ts"])
    small = [json.dumps({"x": 1, "ts": document["ts"]}).encode() for document in (before, after)]
    at_ms = [read(one).at_ms for one in small]
    assert at_ms[0] is not None
    assert at_ms[1] == at_ms[0] + hours * HOUR


@MODEST
@given(
    st.lists(
        st.tuples(st.sampled_from(["time", "TS", "x", 'a"time":', "at\\ms"]), times() | st.text() | st.none()),
        max_size=5,
    ),
    SHIFTS,
)
def test_flat_and_nested_objects_are_moved_alike(pairs: list[tuple[str, object]], shift_ms: int) -> None:
    """A list inside makes every value be looked at by its path; names that stand twice are moved twice."""
    inside = ", ".join(f"{json.dumps(name)} : {json.dumps(value)}" for name, value in pairs)
    flat, nested = (("{" + inside + end).encode() for end in ("}", ', "z":[]}' if pairs else '"z":[]}'))
    there = move(flat, "a/b", shift_ms), move(nested, "a/b", shift_ms)
    assert there[0].times == there[1].times
    assert json.loads(there[1].payload) == {**json.loads(there[0].payload), "z": []}


@pytest.mark.parametrize(
    ("topic", "payload", "moved"),
    [
        ("z/a", '{"t":1.50,"last_seen":"2026-03-04T09:15:27.104Z"}', '{"t":1.50,"last_seen":"2026-03-04T10:15:28.604Z"}'),
        ("z/a", '{"t":1e3,"last_seen":1772615727104}', '{"t":1e3,"last_seen":1772619328604}'),
        ("t/S", '{"Time":"2026-03-04T23:15:30","Total":4.210}', '{"Time":"2026-03-05T00:15:31","Total":4.210}'),
        ("s/e", '{"params":{"ts":1772615731.42,"a":{"id":0}}}', '{"params":{"ts":1772619332.92,"a":{"id":0}}}'),
        ("s/s", '{"aenergy":{"minute_ts":1772615700}}', '{"aenergy":{"minute_ts":1772619301}}'),
        ("h/last_updated", '"2026-03-04T09:15:30.920969+00:00"', '"2026-03-04T10:15:32.420969+00:00"'),
        ("i", 'cpu,h=a\\ b x=1,s="q = 5 7",y=2i 1772615730000000000\n', 'cpu,h=a\\ b x=1,s="q = 5 7",y=2i 1772619331500000000\n'),
        ("i", "m a=1 1772615730\n# m b=2 1772615730\nm c=3\nm d=4 1772615730", "m a=1 1772619331\n# m b=2 1772615730\nm c=3\nm d=4 1772619331"),
        ("t", '{"metrics":[{"fields":{"timestamp":5},"timestamp":1772615730}]}', '{"metrics":[{"fields":{"timestamp":5},"timestamp":1772619331}]}'),
        ("r", '{"gwts":"1772615731","ts":"1772615730","data":"02"}', '{"gwts":"1772619332","ts":"1772619331","data":"02"}'),
        ("c", '[{"bt":1772615700,"n":"a","t":-58,"v":1},{"n":"b","t":2,"v":1772615700}]', '[{"bt":1772619301,"n":"a","t":-58,"v":1},{"n":"b","t":2,"v":1772615700}]'),
        ("c", '[{"n":"a","t":1772615700,"v":1},{"n":"b","t":-4,"v":2}]', '[{"n":"a","t":1772619301,"v":1},{"n":"b","t":-4,"v":2}]'),
        ("\ufeff", '\ufeff{"ts":1772615730}', '\ufeff{"ts":1772619331}'),
    ],
)  # fmt: skip
def test_known_formats_an_hour_and_a_half_second_later(topic: str, payload: str, moved: str) -> None:
    assert move_time(payload.encode(), topic, HOUR + 1500).decode() == moved


def test_the_things_stack_has_four_times_and_a_counter_that_is_none() -> None:
    payload = (
        b'{"received_at":"2026-03-04T09:15:31.204118530Z","uplink_message":{"decoded_payload":{"time":1772615731},'
        b'"rx_metadata":[{"time":"2026-03-04T09:15:30.990Z","timestamp":2463457000}],"settings":{"time":'
        b'"2026-03-04T09:15:30Z"},"received_at":"2026-03-04T09:15:31.010Z"}}'
    )
    moved = move(payload, "v3/orchard@acme/devices/soil-04/up", 60_000)
    assert moved.times == 4
    assert moved.payload == payload.replace(b"T09:15:3", b"T09:16:3")


@pytest.mark.parametrize(
    "payload",
    [
        b"21.4", b"", b"ON", b"\x00\xff", b'{"t": NaN, "time": 1772615730}', b'{"time": 1772615730', b"[1,2,3]",
        b'{"time": 7, "t": 1}', b'{"time": "12:30"}', b'{"time": null}', b'{"time": [1772615730]}', b'{"ts": 1.7e9}',
        b'{"time": "2026-02-30T00:00:00"}', b'{"a": {"time": 1772615730}}', b"[" * 1000, b"hello a=b 17", b'{"time":true}',
    ],
)  # fmt: skip
def test_what_has_no_time_that_we_know_stays(payload: bytes) -> None:
    assert move(payload, "a/b", HOUR) == (payload, 0, "no_time")


def test_sparkplug_is_left_alone_and_says_so() -> None:
    assert move(b"\x08\xc2\xd8\x01", "spBv1.0/PlantA/DDATA/gw01/press4", HOUR) == (b"\x08\xc2\xd8\x01", 0, "sparkplug")


@pytest.mark.parametrize("path", sorted(GOLDEN.iterdir()), ids=lambda path: path.name)
def test_the_fleets_own_messages_move(path: Path) -> None:
    """Every golden message, JSON and MessagePack: each ``..._ms`` that tells a time, and nothing else."""
    kind, area = path.name.split("-")[0], "agents/a"
    kind = {"prediction": "predictions", "event": "events"}.get(kind, kind)
    topic = f"fleetgp/f/fleet/{kind}" if kind in ("model", "round", "tuning") else f"fleetgp/f/{area}/{kind}"
    payload = path.read_bytes()
    decoder: Any = msgspec.json if payload.startswith(b"{") else msgspec.msgpack

    before, after = decoder.decode(payload), decoder.decode(move_time(payload, topic, HOUR))
    expected = {
        name: value + HOUR if name.endswith("_ms") and isinstance(value, int) and value > 2**32 else value
        for name, value in before.items()
    }
    assert after == expected
    assert after["at_ms"] == before["at_ms"] + HOUR


@MODEST
@given(st.dictionaries(st.text(), JSON, max_size=4) | st.lists(JSON, max_size=4), st.sampled_from([None, 2]))
def test_values_are_found_where_they_stand(document: object, indent: int | None) -> None:
    """Each span holds what json finds under its path, and none is left out."""
    payload = json.dumps(document, indent=indent).encode()

    def leaves(value: object) -> int:
        if isinstance(value, dict):
            return sum(map(leaves, value.values()))
        return sum(map(leaves, value)) if isinstance(value, list) else 1

    count = 0
    for path, start, end, is_text in spans(payload):
        count += 1
        value: Any = document
        for key in path:
            value = value[json.loads(f'"{key}"') if isinstance(key, str) else key]
        text = payload[start:end].decode()
        assert json.loads(f'"{text}"' if is_text else text) == value
    assert count == leaves(document)
