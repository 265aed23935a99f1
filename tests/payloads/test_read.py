"""Payloads of real devices' kinds and hostile ones: each a content that makes sense or a PeerError, never anything else."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetgp.errors import PeerError
from fleetgp.payloads import MAX_PAYLOAD, Content, read
from fleetgp.payloads.content import LARGEST
from fleetgp.payloads.json import MAX_FIELDS

MODEST = settings(max_examples=60, deadline=None, derandomize=True)

CODES = {"size", "empty", "encoding", "syntax", "depth", "fields", "text", "range"}
REJECTED = {"text", "range", "time", "name"}


def values(payload: bytes | str) -> dict[str, float | None]:
    return dict(read(payload.encode() if isinstance(payload, str) else payload).values)


def outcome(payload: bytes) -> Content | PeerError:
    """What reading comes to; any other exception than PeerError fails the test that asked."""
    try:
        return read(payload)
    except PeerError as err:
        return err


def refusal(payload: bytes) -> str:
    with pytest.raises(PeerError) as caught:
        read(payload)
    return caught.value.code


@pytest.mark.parametrize(
    ("payload", "number"),
    [
        ("26.8", 26.8),
        (" 17.3\r\n", 17.3),
        ("-4e-3", -0.004),
        ("ON", 1.0),
        ("OFF", 0.0),
        ("true", 1.0),
        ('"off"', 0.0),
        ('"21.5"', 21.5),
        ("open", 1.0),
        ("closed", 0.0),
        ("nan", None),
        ("-nan", None),  # what printf makes of some sensors' failures
        ("unavailable", None),
        ('"unknown"', None),
        ("null", None),
        ('""', None),
    ],
)
def test_a_plain_scalar_is_the_one_field_called_value(payload: str, number: float | None) -> None:
    content = read(payload.encode())
    assert content == Content(values={"value": number})


@pytest.mark.parametrize(
    ("payload", "code"),
    [
        (b"", "empty"),
        (b" \r\n", "empty"),
        (b"1e999", "range"),
        (b"-inf", "range"),
        (b"1e16", "range"),
        (b"Online", "text"),
        (b"21,5", "text"),
        (b"1_000", "text"),
        (b"\x00", "text"),
        (b"12 34", "text"),
        (b"0" * 65 + b"7", "text"),  # longer than a scalar can be; a part of it would be another number
        (b"[I][sensor:094]: \x1b[0;36mstate\x1b[0m", "syntax"),
        (b"\xff\xfe\x00", "encoding"),
        (b'{"t": NaN}', "syntax"),
        (b'{"t": Infinity}', "syntax"),
        (b'{"t": 21.5,', "syntax"),
        (b"{'t': 21.5}", "syntax"),
        (b'{"t": 1e999}', "range"),
        (b'{"t": 1, "name": "caf\xe9"}', "syntax"),
        (b'{"\xff": 1}', "syntax"),
        (b"[1,2,3]", "syntax"),
        (b'{"t":1}{"t":2}', "syntax"),
        (b'{"a":' * 5000 + b"1" + b"}" * 5000, "depth"),
        (b"[" * 5000 + b"]" * 5000, "depth"),
        (b"[" * 900_000, "depth"),
        (b'{"a":' * 9 + b"1" + b"}" * 9, "depth"),
        (b"x" * 50_000_000, "size"),
        (b'{"t":"' + b"x" * MAX_PAYLOAD + b'"}', "size"),
        (b'{"t":' + b"1" * 5000 + b"}", "range"),  # an integer longer than Python turns into text
        (json.dumps({f"k{i}": i for i in range(MAX_FIELDS + 1)}).encode(), "fields"),
        (json.dumps({"rows": list(range(MAX_FIELDS + 1))}).encode(), "fields"),
    ],
)
def test_what_cannot_be_read_is_refused_by_a_clear_reason(payload: bytes, code: str) -> None:
    assert refusal(payload) == code


@pytest.mark.parametrize("payload", [b"y" * 900_000, b'{"t":"' + b"y" * 900_000, b"1" * 3000, b"\xff" * 900_000])
def test_refusals_stay_short_whatever_they_refuse(payload: bytes) -> None:
    """A reason goes to logs and screens: it quotes a little of the payload, never all of it."""
    with pytest.raises(PeerError) as caught:
        read(payload)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("payload", "found", "rejected"),
    [
        # numbers in text, with a decimal comma, beyond all sense, said to be missing, switched
        ('{"temperature":"21,5"}', {}, {"text": 1}),
        ('{"temperature":"21.5"}', {"temperature": 21.5}, {}),
        ('{"t":1e16,"u":"1e400","v":3}', {"v": 3.0}, {"range": 2}),
        ('{"t":123456789012345678901234567890}', {}, {"range": 1}),
        ('{"t":null,"u":"unavailable"}', {"t": None, "u": None}, {}),
        ('{"contact":false,"state":"ON","mode":"eco"}', {"contact": 0.0, "state": 1.0}, {"text": 1}),
        # a key twice: the last one counts, as in every common reader
        ('{"t":21.5,"t":99}', {"t": 99.0}, {}),
        # objects and lists inside are flattened
        ('{"a":{"a":{"a":{"a":{"a":1}}}}}', {"a.a.a.a.a": 1.0}, {}),
        (
            '{"ENERGY":{"Power":[210,0,47]}}',
            {"ENERGY.Power.0": 210.0, "ENERGY.Power.1": 0.0, "ENERGY.Power.2": 47.0},
            {},
        ),
        ('{"switch:0":{"apower":61.7}}', {"switch:0.apower": 61.7}, {}),
        ('{"a":{},"b":[]}', {}, {}),
        ("{}", {}, {}),
        # names that no store or screen can hold
        ('{"":1,"  ":2,"a\\u0000":3,"' + "x" * 300 + '":4,"ok":5}', {"ok": 5.0}, {"name": 4}),
        ('\ufeff{"t":3}', {"t": 3.0}, {}),  # a byte order mark, as some gateways put before text
    ],
)
def test_fields_of_a_json_object(payload: str, found: dict[str, float | None], rejected: dict[str, int]) -> None:
    content = read(payload.encode())
    assert dict(content.values) == found
    assert dict(content.rejected) == rejected


def test_a_meter_of_many_kinds_of_fields() -> None:
    """A plug with a text state, nested update and its own time: numbers are kept, words counted, time is no field."""
    payload = (
        '{"state":"ON","power":38.4,"voltage":231,"energy":12.91,"update":{"state":"idle","installed":33},'
        '"last_seen":"2026-03-04T09:15:27.104Z","seq":17}'
    )
    content = read(payload.encode())
    assert content.values == {"state": 1.0, "power": 38.4, "voltage": 231.0, "energy": 12.91, "update.installed": 33.0}
    assert content.at_ms == 1_772_615_727_104
    assert content.sequence == 17
    assert content.rejected == {"text": 1}


def test_time_and_count_are_looked_for_at_the_top_only() -> None:
    content = read(b'{"params":{"ts":1772615731.42,"seq":4},"t":1}')
    assert content.at_ms is None
    assert content.sequence is None
    assert content.values == {"params.ts": 1772615731.42, "params.seq": 4.0, "t": 1.0}


@pytest.mark.parametrize("count", ["true", "1.5", '"7"', "-1", "9223372036854775808", "null"])
def test_only_a_whole_number_from_0_within_64_bits_is_a_count(count: str) -> None:
    assert read(f'{{"seq":{count},"t":1}}'.encode()).sequence is None


def test_the_first_time_that_can_be_read_counts_and_others_are_no_fields() -> None:
    content = read(b'{"time":"not set","ts":1772615730,"last_seen":1,"t":2}')
    assert content.at_ms == 1_772_615_730_000
    assert content.values == {"t": 2.0}
    assert content.rejected == {"time": 1}


def test_a_time_said_to_be_missing_is_no_field_and_no_complaint() -> None:
    content = read(b'{"time":null,"t":2}')
    assert content == Content(values={"t": 2.0})


def check_sensible(payload: bytes) -> None:
    """The law of the door: a PeerError with a known code, or a content of finite values and a time in range."""
    content = outcome(payload)
    if isinstance(content, PeerError):
        assert content.code in CODES
        return
    assert set(content.rejected) <= REJECTED
    assert len(content.values) <= MAX_FIELDS
    for value in content.values.values():
        assert value is None or (isinstance(value, float) and math.isfinite(value) and abs(value) <= LARGEST)
    assert content.at_ms is None or abs(content.at_ms) < 2**53
    assert content.sequence is None or (type(content.sequence) is int and 0 <= content.sequence < 2**63)


@MODEST
@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(payload: bytes) -> None:
    check_sensible(payload)


KEYS = st.sampled_from(["t", "time", "Timestamp", "ts", "seq", "at_ms", "last_seen", ""]) | st.text(max_size=8)
JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(min_value=-(10**400), max_value=10**400)
    | st.floats(allow_nan=True)
    | st.text(max_size=30)
    | st.sampled_from(
        ["1e999", "-nan", "2026-03-04T09:15:30", "9999-12-31T23:59:59-12:00", "0001-01-01", "1701112341234"]
    ),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


@MODEST
@given(JSON_VALUES)
def test_any_json_is_read_or_refused(document: object) -> None:
    check_sensible(json.dumps(document).encode())


@MODEST
@given(st.dictionaries(KEYS, JSON_VALUES, max_size=5), st.data())
def test_json_with_a_few_bytes_changed_is_read_or_refused(document: dict[str, object], data: st.DataObject) -> None:
    payload = bytearray(json.dumps(document).encode())
    for _ in range(3):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    check_sensible(bytes(payload))


@MODEST
@given(st.floats(allow_nan=False, allow_infinity=False, min_value=-LARGEST, max_value=LARGEST))
def test_a_number_means_the_same_in_every_form(number: float) -> None:
    """Plain text, JSON number, JSON text: one double, to the last bit."""
    text = repr(number)
    assert values(text) == {"value": number}
    assert values(json.dumps({"t": number})) == {"t": number}
    assert values(json.dumps({"t": text})) == {"t": number}
