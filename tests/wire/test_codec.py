"""The door of the wire: what is ours comes back unchanged, whatever else is a PeerError with the right code."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest
from golden_messages import GOLDEN, HEALTH, MODEL, PREDICTION, STATUS, SUMMARY, tensor
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetgp.errors import LocalError, PeerError
from fleetgp.wire.codec import MAX_BYTES, MAX_DEPTH, check_depth, decode, encode
from fleetgp.wire.messages import ChannelPrediction, FleetModel, Health, Message, Prediction, Summary, Tensor

FINITE = st.floats(allow_nan=False, allow_infinity=False)
TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=30)
WHOLE = st.integers(-(2**63), 2**63 - 1)
TENSORS = st.lists(FINITE, max_size=12).map(lambda numbers: tensor(len(numbers), numbers=tuple(numbers)))

HEALTHS = st.builds(
    Health,
    at_ms=WHOLE,
    name=TEXT,
    role=st.sampled_from(["agent", "coordinator", "bridge"]),
    figures=st.dictionaries(TEXT, FINITE, max_size=5),
    dropped=st.dictionaries(TEXT, WHOLE, max_size=5),
    note=TEXT,
)
PREDICTIONS = st.builds(
    Prediction,
    at_ms=WHOLE,
    agent=TEXT,
    sequence=WHOLE,
    channels=st.dictionaries(
        TEXT,
        st.builds(
            ChannelPrediction, mean=FINITE, low=FINITE, high=FINITE, observed=st.none() | FINITE, z=st.none() | FINITE
        ),
        max_size=4,
    ),
    score=FINITE,
    threshold=FINITE,
    is_alarmed=st.booleans(),
)
SUMMARIES = st.builds(
    Summary,
    at_ms=WHOLE,
    agent=TEXT,
    incarnation=WHOLE,
    sequence=WHOLE,
    round=WHOLE,
    origin=WHOLE,
    basis=WHOLE,
    signature=TEXT,
    precision=TENSORS,
    shift=TENSORS,
    count=TENSORS,
    noise_variance=TENSORS,
)


def refusal(payload: bytes, kind: type[Message]) -> str:
    """The code with which the door refuses; any other error, or none, fails the test."""
    with pytest.raises(PeerError) as caught:
        decode(payload, kind)
    return caught.value.code


def health(**fields: str) -> bytes:
    """A health report as JSON, with some fields as raw JSON text."""
    raw = {"type": '"health"', "version": "1", "at_ms": "1", "name": '"a"', "role": '"agent"', **fields}
    return ("{" + ",".join(f'"{name}":{text}' for name, text in raw.items()) + "}").encode()


def packed(message: Message, **fields: Any) -> bytes:
    """A message as MessagePack with some fields replaced by anything, past every check."""
    return msgspec.msgpack.encode({**msgspec.to_builtins(message, builtin_types=(bytes,)), **fields})


@given(st.one_of(HEALTHS, PREDICTIONS, SUMMARIES))
@settings(max_examples=150, deadline=None)
def test_whatever_we_say_comes_back_unchanged(message: Message) -> None:
    assert decode(encode(message), type(message)) == message


def test_the_samples_of_these_tests_are_sound() -> None:
    """Otherwise the refusals below would prove nothing."""
    assert decode(health(), Health) == Health(at_ms=1, name="a", role="agent")
    assert decode(packed(SUMMARY), Summary) == SUMMARY


@pytest.mark.parametrize("name", GOLDEN)
def test_cut_at_every_byte_is_a_syntax_error(name: str) -> None:
    payload, kind = encode(GOLDEN[name]), type(GOLDEN[name])
    assert {refusal(payload[:length], kind) for length in range(len(payload))} == {"syntax"}
    assert refusal(payload + b"x", kind) == "syntax"


@pytest.mark.parametrize("name", GOLDEN)
@pytest.mark.parametrize("value", [0x00, 0x5B, 0x80, 0xC1, 0xDD, 0xFF])
def test_any_single_byte_changed_is_read_or_refused(name: str, value: int) -> None:
    """Nothing but a message or a PeerError comes out, wherever the line garbles."""
    payload, kind = encode(GOLDEN[name]), type(GOLDEN[name])
    refused = 0
    for position in range(len(payload)):
        try:
            decode(payload[:position] + bytes([value]) + payload[position + 1 :], kind)
        except PeerError:
            refused += 1
    assert refused > 0


@given(st.binary(max_size=200))
@settings(max_examples=200, deadline=None)
def test_random_bytes_are_refused(payload: bytes) -> None:
    assert refusal(payload, Health) in {"syntax", "type", "tag", "depth"}
    assert refusal(payload, Summary) in {"syntax", "type", "tag", "depth"}


@pytest.mark.parametrize(
    ("number", "code"),
    [
        ("NaN", "syntax"),  # these three are not JSON at all
        ("Infinity", "syntax"),
        ("-Infinity", "syntax"),
        ("1e999", "finite"),
        ("-1e999", "finite"),
        ("1" + "0" * 400, "finite"),
        ("null", "type"),
        ('"1"', "type"),
    ],
)
def test_json_numbers_that_are_none(number: str, code: str) -> None:
    assert refusal(health(figures='{"x":' + number + "}"), Health) == code


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_messagepack_numbers_that_are_not_finite(number: float) -> None:
    included = {"pump-1": {"incarnation": 1, "sequence": 1, "factor": number}}
    assert refusal(packed(MODEL, included=included), FleetModel) == "finite"


@pytest.mark.parametrize("number", ["1" + "0" * 30, "-1" + "0" * 400, "1" + "0" * 5000, str(2**63), str(2**64 - 1)])
def test_whole_numbers_that_no_store_could_hold(number: str) -> None:
    assert refusal(health(at_ms=number), Health) == "range"
    assert refusal(health(dropped='{"x":' + number + "}"), Health) == "range"


@pytest.mark.parametrize("opening", ["[", '{"x":', '[{"x":'])
def test_json_nested_5000_deep(opening: str) -> None:
    assert refusal(health(extra=opening * 5000), Health) == "depth"
    closing = "".join("]" if sign == "[" else "}" for sign in reversed(opening) if sign in "[{")
    assert refusal(health(extra=opening * 5000 + "1" + closing * 5000), Health) == "depth"


@pytest.mark.parametrize("opening", [b"\x91", b"\x81\xa1x", b"\xdd\x00\x00\x00\x01"])
def test_messagepack_nested_5000_deep(opening: bytes) -> None:
    payload = b"\x82\xa4type\xa7summary\xa5extra" + opening * 5000 + b"\x01"
    # some interpreters can skip so deep a field; then it is refused for what it lacks
    assert refusal(payload, Summary) in ("depth", "type")


def test_depth_counts_brackets_outside_of_strings_only() -> None:
    check_depth(b"[" * MAX_DEPTH + b"]" * MAX_DEPTH)
    check_depth(b'["' + b"[{" * 1000 + b'\\"' + b"[" * 1000 + b'\\\\",[]]')
    check_depth(b"[" + b"[]," * 1000 + b"[]]")
    with pytest.raises(PeerError, match="depth"):
        check_depth(b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1))
    with pytest.raises(PeerError, match="depth"):
        check_depth(b'["\\\\", ' + b"[" * MAX_DEPTH)


@pytest.mark.parametrize(
    "payload",
    [b'"' + b'\\"' * 2_000_000, b"[]," * 2_000_000, b'"[' * 2_000_000, b"[" * 8_000_000, b"\\" * 4_000_000 + b"[" * 40],
    ids=["escapes", "pairs", "strings", "deep", "backslashes"],
)
@pytest.mark.timeout(30)
def test_depth_is_checked_in_linear_time(payload: bytes) -> None:
    """Megabytes made to slow the door down; a check of quadratic time would take hours."""
    assert refusal(payload, Health) in {"syntax", "type", "depth"}


def test_50_megabytes_are_not_even_looked_at() -> None:
    assert refusal(bytes(50_000_000), Summary) == "size"
    assert refusal(b"[" * 50_000_000, Health) == "size"
    assert refusal(health(note='"' + "x" * MAX_BYTES + '"'), Health) == "size"


@pytest.mark.parametrize(
    "claim", [b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff", b"\xdb\xff\xff\xff\xff"]
)
def test_a_claim_of_four_billion_items_takes_no_memory(claim: bytes) -> None:
    for field in (b"\xa5extra", b"\xa9precision", b"\xa9signature"):
        assert refusal(b"\x82\xa4type\xa7summary" + field + claim, Summary) in {"syntax", "type"}


def test_another_message_is_told_from_a_damaged_one() -> None:
    assert refusal(encode(STATUS), Health) == "tag"
    assert refusal(encode(MODEL), Summary) == "tag"
    assert refusal(health(type='"no such thing"'), Health) == "tag"
    assert refusal(b"{}", Health) == "tag"


@pytest.mark.parametrize("version", [0, -1, 2, 10**6])
def test_versions_that_we_cannot_read(version: int) -> None:
    assert refusal(health(version=str(version)), Health) == "version"
    assert refusal(packed(SUMMARY, version=version), Summary) == "version"


def test_a_newer_form_is_called_newer_even_where_its_fields_changed() -> None:
    """ "Wrong type" would send people looking for a fault; they need an update."""
    assert refusal(health(version="2", name='{"new":"form"}'), Health) == "version"
    assert refusal(packed(SUMMARY, version=2, precision=[1, 2]), Summary) == "version"


def test_unknown_fields_are_skipped() -> None:
    assert decode(health(novelty='{"a":[1,2,{"b":null}]}'), Health) == decode(health(), Health)
    assert decode(packed(SUMMARY, novelty={"a": [1, b"x"]}), Summary) == SUMMARY


@pytest.mark.parametrize(
    "fields", [{"name": "3"}, {"role": '"boss"'}, {"figures": "[]"}, {"dropped": '{"x":1.5}'}, {"version": '"1"'}]
)
def test_fields_of_a_wrong_type(fields: dict[str, str]) -> None:
    assert refusal(health(**fields), Health) == "type"


@pytest.mark.parametrize(
    "wrong",
    [
        {"shape": [2, "3"], "data": b"", "dtype": "<f8"},
        {"shape": [2], "data": b"", "dtype": ">f8"},
        {"shape": [2], "data": "text", "dtype": "<f8"},
        {"data": b""},
        [1.0, 2.0],
    ],
)
def test_tensors_of_a_wrong_form(wrong: object) -> None:
    assert refusal(packed(SUMMARY, precision=wrong), Summary) == "type"


def test_not_utf8() -> None:
    assert refusal(health().replace(b'"a"', b'"\xff\xfe"'), Health) == "syntax"
    assert refusal(health().replace(b'"a"', b'"\\ud800"'), Health) == "syntax"
    assert refusal(encode(SUMMARY).replace(b"pump-1", b"pump\xff\xfe"), Summary) == "syntax"
    assert refusal("{}".encode("utf-16"), Health) == "syntax"


@pytest.mark.parametrize(
    "wrong", [{"lags": 10**9}, {"lags": 0}, {"interval_s": 0.0}, {"interval_s": -1.0}, {"channels": []}]
)
def test_a_schema_that_nobody_could_use(wrong: dict[str, Any]) -> None:
    schema = {**msgspec.to_builtins(MODEL.schema), **wrong}
    assert refusal(packed(MODEL, schema=schema), FleetModel) == "schema"


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_we_never_send_what_is_not_finite(number: float) -> None:
    """JSON would turn it into null, silently."""
    odd = msgspec.structs.replace(PREDICTION.channels["temperature"], z=number)
    with pytest.raises(LocalError, match=r"finite: channels.temperature.z is"):
        encode(msgspec.structs.replace(PREDICTION, channels={"temperature": odd}))
    with pytest.raises(LocalError, match="finite"):
        encode(msgspec.structs.replace(HEALTH, figures={"x": number}))


def test_we_never_send_what_others_would_refuse() -> None:
    with pytest.raises(LocalError, match="range"):
        encode(msgspec.structs.replace(HEALTH, at_ms=2**63))
    with pytest.raises(LocalError, match="size"):
        encode(msgspec.structs.replace(SUMMARY, precision=Tensor(shape=(1,), data=bytes(MAX_BYTES))))


def test_a_full_size_summary_fits_through_the_door() -> None:
    """64 channels with 100 features: the largest that the schema and memory of a small device suggest."""
    wide = tensor(64, 5050, numbers=(1.0,) * (64 * 5050))
    assert len(encode(msgspec.structs.replace(SUMMARY, precision=wide))) < MAX_BYTES
