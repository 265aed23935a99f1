"""The truth about faults explains every difference between what went in and what came out, and nothing else; and what no text
can mean is refused in plain words."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetgp.errors import ConfigError
from fleetgp.recording.message import Gap, Message, Recorded
from simulator.fault_spec import KEYS, TAKES
from simulator.faults import Truth, inject, inject_chosen, inject_into, numbered, parse

S = 1_000_000_000
START = 1_772_614_800 * S

Stories = list[dict[str, Any]]


@st.composite
def recordings(draw: st.DrawFn) -> list[Recorded]:
    """Messages of three devices, each with its number in it, some without the field or no JSON at all; now and then a gap."""
    at_ns = START
    found: list[Recorded] = []
    for n in range(draw(st.integers(1, 40))):
        at_ns += draw(st.integers(0, 3 * S))
        told: dict[str, Any] = {"n": n, "time": at_ns // 1_000_000, "x": draw(st.floats(-1e6, 1e6))}
        kind = draw(st.sampled_from(["whole", "whole", "whole", "bare", "word", "broken", "gap"]))
        if kind == "gap":
            found.append(Gap(at_ns, at_ns, "away"))
            continue
        if kind == "bare":
            del told["x"]
        elif kind == "word":
            told["x"] = "off"
        payload = b"{broken %d" % n if kind == "broken" else json.dumps(told).encode()
        found.append(Message(f"s/{draw(st.sampled_from('abc'))}", payload, at_ns, at_ns, draw(st.integers(0, 1))))
    return found


WHEN = st.sampled_from(["", "@+3s", "@+2s+10s", "@+0s..+20s", "@2026-03-04T09:00:05", "@+50s+1s"])
TOPIC = st.sampled_from(["#", "s/+", "s/a", "s/b", "t/a"])
NETWORK = st.sampled_from(
    ["drop=30%", "drop=3x", "duplicate", "duplicate=2x", "reorder=4", "reorder=3s", "late=4s,40%", "late=1s", "skew=+3s",
     "skew=-1s,50ppm"]
)  # fmt: skip
SENSOR = st.sampled_from(
    ["spike=5", "spike=5,3x", "spike=5,40%", "offset=-0.5", "stuck", "stuck=7", "noise=2", "dropout", "dropout=50%,removed",
     "dropout=2x"]
)  # fmt: skip


@st.composite
def texts(draw: st.DrawFn) -> str:
    is_sensor = draw(st.booleans())
    kind, equals, size = draw(SENSOR if is_sensor else NETWORK).partition("=")
    return f"{kind}:{draw(TOPIC)}{':x' if is_sensor else ''}{draw(WHEN)}{equals}{size}"


def injected(messages: Sequence[Recorded], text: str, seed: int) -> tuple[list[Recorded], Truth]:
    out, truth = inject(iter(messages), parse(text), seed)
    return list(out), truth


@given(recordings(), texts(), st.integers(0, 1000))
@settings(max_examples=400, deadline=None)
def test_every_difference_is_in_the_truth_and_what_is_not_in_it_is_as_it_was(
    recorded: list[Recorded], text: str, seed: int
) -> None:
    """Told apart by comparing what went in with what came out; the truth is not asked for what it did."""
    out, truth = injected(recorded, text, seed)
    told = truth.document()["faults"][0]
    messages = [one for one in recorded if isinstance(one, Message)]
    came = [one for one in out if isinstance(one, Message)]
    touched = set(told["indices"])
    before = Counter(messages)
    after = Counter(came)
    untouched = Counter(one for n, one in enumerate(messages) if n not in touched)
    assert untouched <= after, "what the truth does not name is there as it was"
    rest = after - untouched
    changed = [messages[n] for n in sorted(touched)]
    expected = {"drop": 0, "duplicate": 2 * len(touched)}.get(told["kind"], len(touched))
    assert sum(rest.values()) == expected, "and what is left are the messages that it names, in whatever shape"
    same = sum((rest & Counter(changed)).values())
    if told["kind"] in ("late", "reorder", "skew", "spike", "offset", "dropout"):
        # some change places with what is the same to the last byte and nanosecond, or are changed by less than a digit holds
        assert told["kind"] in ("reorder", "spike", "offset") or same == 0
    assert (truth.messages_in, truth.messages_out) == (len(messages), len(came))
    assert told["messages"] == len(touched) == sum(told["topics"].values())
    assert [one for one in out if isinstance(one, Gap)] == [one for one in recorded if isinstance(one, Gap)]
    assert bool(truth.idle()) == (not touched)
    assert before == after or touched


@given(recordings(), texts(), st.integers(0, 9))
@settings(max_examples=150, deadline=None)
def test_only_the_named_number_changes_and_by_what_was_asked(recorded: list[Recorded], text: str, seed: int) -> None:
    out, truth = injected(recorded, text, seed)
    told = truth.document()["faults"][0]
    if told["kind"] not in ("spike", "offset", "stuck", "noise", "dropout"):
        return
    messages = [one for one in recorded if isinstance(one, Message)]
    came = [one for one in out if isinstance(one, Message)]
    for n, (old, new) in enumerate(zip(messages, came, strict=True)):
        if n not in told["indices"]:
            assert old == new
            continue
        was, now = json.loads(old.payload), json.loads(new.payload)
        x_was, x_now = was.pop("x"), now.pop("x", None)
        assert was == now
        assert old._replace(payload=b"") == new._replace(payload=b"")
        if told["kind"] in ("spike", "offset"):
            assert x_now - x_was == pytest.approx(told["size"], abs=1e-6)
        if told["kind"] == "dropout":
            assert x_now is None


def test_of_a_count_messages_without_the_number_take_nothing_away() -> None:
    messages = [
        Message("s/a", json.dumps({"x": 1.0} if n % 5 == 4 else {"y": 1}).encode(), START + n * S) for n in range(50)
    ]
    out, truth = injected(messages, "spike:s/a:x=9,3x", 0)
    assert truth.document()["faults"][0]["indices"] == [4, 9, 14]
    told = [json.loads(one.payload).get("x") for one in out if isinstance(one, Message)]
    assert [x for x in told if x is not None] == [10] * 3 + [1] * 7
    assert truth.document()["faults"][0]["left_alone"] == {"no_field": 12}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("offset:s/z:x=1", "no message is on s/z; there are s/a, s/b"),
        ("drop:s/a@+1d", "none of the 10 messages on s/a came from 2026-03-05T09:00:00Z until the end"),
        ("drop:s/a@2020-01-01..2020-01-02", "until 2020-01-02T00:00:00Z; all messages are of 2026-03-04T09:00:00Z to"),
        ("spike:s/a:z=1", "of 10 messages it was left alone in 10 without such a field; fields there are x, time"),
        ("offset:s/b:x=1", "left alone in 10 where it is no number"),
        ("spike:s/a:x=2sd", "left alone in 1 where it never varies"),
        ("offset:s/a:x=1" + "0" * 99, ""),
        ("drop:s/a=0.0001%", "chance took none of 10 messages"),
        ("reorder:s/a@+1s+500ms=2", "of 1 in its span, none had another near it to change places with"),
    ],
)
def test_a_fault_that_changed_nothing_says_why_and_what_there_is(text: str, why: str) -> None:
    messages: list[Recorded] = []
    for n in range(10):
        messages.append(Message("s/a", b'{"x": 5, "time": 1772614800000}', START + n * S))
        messages.append(Message("s/b", b'{"x": "off"}', START + n * S))
    out, truth = inject_into(lambda: iter(messages), parse(text), 0)
    assert len(list(out)) > 0
    assert bool(truth.idle()) == bool(why)
    assert all(why in words and text in words for words in truth.idle())


def test_a_number_too_large_to_be_written_is_left_alone() -> None:
    big = Message("s/a", b'{"x": 1.7e308}', START)
    out, truth = injected([big, big], "noise:s/a:x=1" + "0" * 100, 3)
    written = [json.loads(one.payload)["x"] for one in out if isinstance(one, Message)]
    assert all(math.isfinite(value) for value in written)
    assert truth.faults[0].messages == 2


def test_a_part_of_a_recording_has_the_numbers_and_times_of_the_whole() -> None:
    messages = [Message("s/a", json.dumps({"x": n}).encode(), START + n * S) for n in range(100)]
    part = (item for item in numbered(iter(messages)) if item[0] >= 60)
    out, truth = inject_chosen(part, START, parse("offset:s/a:x@+58s+5s=1000"), 0)
    assert [json.loads(one.payload)["x"] for one in out][:5] == [1060, 1061, 1062, 63, 64]  # type: ignore[union-attr]
    assert truth.document()["faults"][0]["indices"] == [60, 61, 62]
    same, again = inject_into(
        lambda: iter(messages), parse("offset:s/a:x@+58s+5s=1000"), 0, lambda one: one in messages[60:]
    )
    assert len(list(same)) == 40
    assert again.document() == truth.document()


PIECES = st.lists(
    st.sampled_from(
        [*TAKES, ":", "::", "@", "=", "+", "..", ",", "#", "+/x", "s/a", "x", "5", "-1", "٣", "1e5", "nan", "inf", "20%", "0%",
         "9" * 400, "3sd", "50ppm", "2x", "removed", "30s", "5min", "+1d", "+99999999d", "2026-03-04T09:00", "0001-01-01",
         "9999-12-31T23:59:59-14:00", "2026-03-04T09:00:00+99:00", "10:00", ".toml", "\0", "\udcff", " "]
    ),
    max_size=9,
).map("".join)  # fmt: skip


@given(st.one_of(PIECES, st.text(max_size=30), texts()))
@settings(max_examples=800, deadline=None)
def test_any_text_is_a_fault_that_can_be_put_in_or_refused_in_words(text: str) -> None:
    messages = [
        Message("s/a", json.dumps({"x": n % 7, "time": START // 10**6 + n}).encode(), START + n * S) for n in range(5)
    ]
    said = ""
    out: list[Recorded] = []
    try:
        changed, truth = inject_into(lambda: iter(messages), parse(text), 0)
        out = list(changed)
        said = json.dumps(truth.document(), allow_nan=False) + "".join(truth.lines())
    except ConfigError as err:
        said = str(err)
    assert len(said) > len("--inject: ")
    for one in out:
        assert isinstance(one, Message)
        assert 0 < one.received_ns < 2**63
        assert 0 <= one.published_ns < 2**63
        assert isinstance(json.loads(one.payload), dict)


VALUES = st.one_of(
    st.sampled_from(['"drop"', '"spike"', '"s/a"', '"x"', '"+5s"', '"3sd"', '"20%"', "[]", "{}", "true", "nan", "inf", "-0.0"]),
    st.integers().map(str),
    st.sampled_from(["2026-03-04T09:00:00Z", "2026-03-04", "10:00:00", "0001-01-01T00:00:00Z", "[" * 3000]),
)  # fmt: skip


@given(
    st.dictionaries(st.sampled_from([*KEYS, "other"]), VALUES, max_size=6),
    st.sampled_from(["[[fault]]", "[fault]", ""]),
)
@settings(max_examples=300, deadline=None)
def test_any_file_is_read_or_refused_in_words(
    tmp_path_factory: pytest.TempPathFactory, table: dict[str, str], head: str
) -> None:
    file = tmp_path_factory.getbasetemp() / "any.toml"
    Path(file).write_text("\n".join([head, *(f"{key} = {value}" for key, value in table.items())]))
    said = ""
    try:
        said = parse(str(file))[0].kind
    except ConfigError as err:
        said = str(err)
    assert said in TAKES or "--inject" in said or "any.toml" in said


def test_a_seed_below_zero_is_refused() -> None:
    with pytest.raises(ConfigError, match="--seed"):
        injected([], "drop:#", -1)
