"""Faults put into recordings: what is done is what was said, to no other byte, again and again the same."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetgp.errors import ConfigError
from fleetgp.recording.message import Gap, Message, Recorded
from simulator.fault_values import disturb, progress
from simulator.faults import Truth, inject, inject_into, parse, truth_path

START = 1_772_614_800_000_000_000  # 2026-03-04T09:00Z
S = 1_000_000_000
TABLE = Path(__file__).parents[2] / "docs" / "faults.md"


def payload(number: int) -> bytes:
    value = 20 + (number * 7919 % 101) / 10
    return f'{{"temperature": {value}, "engine": {{"rpm": {900 + number}}}, "time": {START // 10**6 + number * 1000}}}'.encode()


def recording(seconds: int = 600, names: tuple[str, ...] = ("pump-1", "pump-2")) -> list[Recorded]:
    """One message a second of each device."""
    return [
        Message(f"sensors/{name}", payload(number), START + number * S + index, START + number * S, 1)
        for number in range(seconds)
        for index, name in enumerate(names)
    ]


def injected(messages: list[Recorded], *texts: str, seed: int = 0) -> tuple[list[Recorded], dict[str, Any]]:
    faults = [fault for text in texts for fault in parse(text)]
    out, truth = inject_into(lambda: iter(messages), faults, seed)
    return list(out), (truth.document() if list(truth.faults) else {})


def received(messages: list[Recorded]) -> list[int]:
    return [one.received_ns for one in messages if isinstance(one, Message)]


def values(messages: list[Recorded], topic: str, name: str = "temperature") -> list[Any]:
    found = [json.loads(one.payload) for one in messages if isinstance(one, Message) and one.topic == topic]
    return [document.get(name, "absent") for document in found]


def test_no_fault_changes_nothing() -> None:
    messages = recording(20)
    out, _ = injected(messages)
    assert out == messages


def test_a_spike_of_three_standard_deviations_is_one_message_in_its_span() -> None:
    """numpy's standard deviation over the whole recording is the truth; every other byte is as it was."""
    messages = recording()
    out, truth = injected(messages, "spike:sensors/pump-1:temperature@2026-03-04T09:02+5min=3sd")
    changed = [i for i, (old, new) in enumerate(zip(messages, out, strict=True)) if old != new]
    told = truth["faults"][0]
    assert len(changed) == told["messages"] == 1
    assert told["indices"] == changed
    assert 120 <= changed[0] // 2 < 420
    sd = float(np.std([float(v) for v in values(messages, "sensors/pump-1")], ddof=1))
    old, new = messages[changed[0]], out[changed[0]]
    assert isinstance(old, Message)
    assert isinstance(new, Message)
    before, after = json.loads(old.payload), json.loads(new.payload)
    assert after["temperature"] - before["temperature"] == pytest.approx(3 * sd, rel=1e-9)
    assert told["size_by_topic"]["sensors/pump-1"] == pytest.approx(3 * sd, rel=1e-9)
    assert new.payload.split(b",", 1)[1] == old.payload.split(b",", 1)[1]


def test_an_offset_lasts_from_its_beginning_to_its_end_and_no_longer() -> None:
    messages = recording()
    out, truth = injected(messages, "offset:sensors/pump-2:engine.rpm@+1min+2min=5")
    shift = [
        json.loads(new.payload)["engine"]["rpm"] - json.loads(old.payload)["engine"]["rpm"]
        for old, new in zip(messages, out, strict=True)
        if isinstance(old, Message) and isinstance(new, Message) and old.topic == "sensors/pump-2"
    ]
    assert shift == [5 if 60 <= second < 180 else 0 for second in range(600)]
    assert truth["faults"][0]["from"] == "2026-03-04T09:01:00Z"
    assert truth["faults"][0]["until"] == "2026-03-04T09:03:00Z"
    assert values(out, "sensors/pump-1") == values(messages, "sensors/pump-1")


def test_a_drift_grows_in_a_straight_line_to_its_size() -> None:
    messages = recording(names=("pump-1",))
    out, _ = injected(messages, "drift:sensors/pump-1:temperature@+100s+200s=4")
    old, new = values(messages, "sensors/pump-1"), values(out, "sensors/pump-1")
    assert np.subtract(new, old) == pytest.approx([4 * (n - 100) / 200 if 100 <= n < 300 else 0 for n in range(600)])


def test_a_stuck_sensor_says_the_last_value_before_the_fault() -> None:
    messages = recording(names=("pump-1",))
    out, _ = injected(messages, "stuck:sensors/pump-1:temperature@+100s+50s")
    old, new = values(messages, "sensors/pump-1"), values(out, "sensors/pump-1")
    assert new == [old[99] if 100 <= n < 150 else old[n] for n in range(600)]
    at, _ = injected(messages, "stuck:sensors/pump-1:temperature@+100s+50s=21.5")
    assert values(at, "sensors/pump-1")[100:150] == [21.5] * 50


def test_noise_has_the_standard_deviation_that_was_said() -> None:
    messages = recording(4000, ("pump-1",))
    out, _ = injected(messages, "noise:sensors/pump-1:temperature=0.5")
    error = np.subtract(values(out, "sensors/pump-1"), values(messages, "sensors/pump-1"))
    # the standard error of a standard deviation of n is sd / sqrt(2 n)
    assert np.std(error) == pytest.approx(0.5, abs=4 * 0.5 / math.sqrt(8000))
    assert abs(np.mean(error)) < 4 * 0.5 / math.sqrt(4000)


def test_a_dropout_is_null_or_an_absent_field() -> None:
    messages = recording(20, ("pump-1",))
    out, _ = injected(messages, "dropout:sensors/pump-1:temperature@+5s+5s")
    assert values(out, "sensors/pump-1")[5:10] == [None] * 5
    out, truth = injected(messages, "dropout:sensors/pump-1:temperature@+5s+5s=removed")
    assert values(out, "sensors/pump-1")[4:11] == [*values(messages, "sensors/pump-1")[4:5], *["absent"] * 5,
                                                  *values(messages, "sensors/pump-1")[10:11]]  # fmt: skip
    assert truth["faults"][0]["indices"] == [5, 6, 7, 8, 9]


def test_plain_numbers_have_faults_too_and_a_removed_one_is_no_message() -> None:
    messages: list[Recorded] = [Message("esp/t", f"{n}.50".encode(), START + n * S) for n in range(10)]
    out, _ = injected(messages, "offset:esp/t@+3s+2s=1.25")
    assert [one.payload for one in out if isinstance(one, Message)][2:6] == [b"2.50", b"4.75", b"5.75", b"5.50"]
    out, truth = injected(messages, "dropout:esp/t@+3s+2s=removed")
    assert len(out) == 8
    assert truth["messages_out"] == 8
    assert truth["faults"][0]["indices"] == [3, 4]


def test_what_holds_no_such_number_is_left_alone_and_counted() -> None:
    messages: list[Recorded] = [
        Message("a", text, START + n * S)
        for n, text in enumerate(
            (b'{"x": 1}', b'{"y": 1}', b'{"x": null}', b'{"x": "on"}', b"\xff\x00", b"7", b'{"x": "3"}')
        )
    ]
    out, truth = injected(messages, "offset:a:x=1")
    assert [one.payload for one in out if isinstance(one, Message)] == [
        b'{"x": 2}', b'{"y": 1}', b'{"x": null}', b'{"x": "on"}', b"\xff\x00", b"7", b'{"x": "4"}'
    ]  # fmt: skip
    assert truth["faults"][0]["left_alone"] == {"no_field": 2, "no_number": 2, "unreadable": 1}


def test_dropped_shares_are_binomial_and_the_truth_names_each() -> None:
    messages = recording()
    out, truth = injected(messages, "drop:sensors/#@+1min+5min=20%", seed=3)
    gone = truth["faults"][0]["indices"]
    assert out == [one for index, one in enumerate(messages) if index not in set(gone)]
    assert all(60 <= index // 2 < 360 for index in gone)
    assert abs(len(gone) - 120) < 4 * math.sqrt(600 * 0.2 * 0.8)


def test_a_count_of_duplicates_is_that_many_right_behind_the_first() -> None:
    messages = recording()
    out, truth = injected(messages, "duplicate:sensors/pump-1@+1min+5min=7x")
    assert len(out) == len(messages) + 7
    twice = [index for index in range(1, len(out)) if out[index] == out[index - 1]]
    assert [out[index] for index in twice] == [messages[index] for index in truth["faults"][0]["indices"]]


def test_a_count_is_met_however_few_messages_the_span_holds() -> None:
    messages = recording(60, ("pump-1",))
    for seed in range(20):
        _, truth = injected(messages, "spike:sensors/pump-1:temperature@+10s+1s=5", seed=seed)
        assert truth["faults"][0]["indices"] in ([10], [11])


def test_reordered_messages_stay_within_their_window_and_receive_times_go_on() -> None:
    messages = recording(names=("pump-1",))
    out, truth = injected(messages, "reorder:sensors/pump-1@+1min..+2min=5")
    assert received(out) == received(messages)
    place = {one.payload: index for index, one in enumerate(messages) if isinstance(one, Message)}
    order = [place[one.payload] for one in out if isinstance(one, Message)]
    assert sorted(order) == list(range(600))
    assert max(abs(index - where) for where, index in enumerate(order)) <= 4
    moved = sorted(index for where, index in enumerate(order) if where != index)
    assert truth["faults"][0]["indices"] == moved != []
    assert all(60 <= index < 120 for index in truth["faults"][0]["indices"])


def test_late_messages_keep_their_own_time_and_arrive_in_order_of_arrival() -> None:
    messages = recording()
    out, truth = injected(messages, "late:sensors/pump-1=30s,10%", seed=1)
    assert received(out) == sorted(received(out))
    late = [one for one in out if isinstance(one, Message) and one.received_ns - one.published_ns > 10 * S]
    assert len(late) == truth["faults"][0]["messages"] > 30
    assert {one.received_ns - one.published_ns for one in late} == {30 * S}
    assert sorted(m.payload for m in out if isinstance(m, Message)) == sorted(
        m.payload for m in messages if isinstance(m, Message)
    )


def test_a_skewed_clock_moves_the_payloads_time_and_no_receive_time() -> None:
    messages = recording(names=("pump-2",))
    out, _ = injected(messages, "skew:sensors/pump-2=+3s,1000ppm")
    moved = np.subtract(values(out, "sensors/pump-2", "time"), values(messages, "sensors/pump-2", "time"))
    assert moved.tolist() == [3000 + n for n in range(600)]
    assert received(out) == received(messages)
    assert values(out, "sensors/pump-2") == values(messages, "sensors/pump-2")


def test_a_gap_stays_where_it_is() -> None:
    messages = recording(60, ("pump-1",))
    messages.insert(30, Gap(START + 30 * S - 5, START + 30 * S - 1, "away"))
    for text in ("reorder:#=7", "drop:#=30%", "duplicate:#", "late:#=100ms"):
        out, _ = injected(messages, text)
        place = next(index for index, one in enumerate(out) if isinstance(one, Gap))
        before = [one for one in out[:place] if isinstance(one, Message)]
        assert all(one.published_ns < START + 30 * S for one in before)
        assert all(one.published_ns >= START + 30 * S for one in out[place + 1 :] if isinstance(one, Message))


@given(
    seed=st.integers(0, 2**32),
    texts=st.lists(
        st.sampled_from(
            [
                "drop:#=20%",
                "duplicate:sensors/pump-1=20%",
                "reorder:#=6",
                "reorder:#=3s",
                "late:sensors/+=5s,30%",
                "skew:#=-2s",
                "noise:#:temperature=1sd",
                "spike:#:engine.rpm@+5s+10s=100,3x",
            ]
        ),
        max_size=4,
    ),
)
def test_the_same_seed_gives_the_same_faults_and_no_message_is_lost_or_made_unsaid(seed: int, texts: list[str]) -> None:
    messages = recording(30)
    first, truth = injected(messages, *texts, seed=seed)
    again, same = injected(messages, *texts, seed=seed)
    assert first == again
    assert truth == same
    counts = {told["kind"]: 0 for told in truth.get("faults", [])}
    for told in truth.get("faults", []):
        counts[told["kind"]] += told["messages"]
    assert len(first) == len(messages) + counts.get("duplicate", 0) - counts.get("drop", 0)
    assert received(first) == sorted(received(first))


def test_the_truth_is_written_beside_the_output(tmp_path: Path) -> None:
    faults = parse("drop:sensors/#=50%")
    out, truth = inject(iter(recording(10)), faults, 5)
    rest = list(out)
    truth.write(truth_path(tmp_path / "out.mcap"))
    document = json.loads((tmp_path / "out.mcap.truth.json").read_text())
    assert document["messages_out"] == len(rest)
    assert document["seed"] == 5
    assert document["faults"][0]["fault"] == "drop:sensors/#=50%"
    assert isinstance(truth, Truth)
    assert "drop:sensors/#=50%" in truth.lines()[0]


def test_arrays_are_disturbed_as_messages_are() -> None:
    """The same fault of the same numbers, once as messages and once as an array."""
    messages = recording(names=("pump-1",))
    old = np.array(values(messages, "sensors/pump-1"), dtype=float)
    times = np.arange(600.0)
    rng = np.random.default_rng(0)
    for text, kind, size in (("offset:#:temperature@+50s+100s=2", "offset", 2.0), ("drift:#:temperature@+50s+100s=2", "drift", 2.0),
                             ("stuck:#:temperature@+50s+100s", "stuck", 0.0), ("dropout:#:temperature@+50s+100s", "dropout", 0.0)):  # fmt: skip
        out, _ = injected(messages, text)
        new = np.array([math.nan if v is None else v for v in values(out, "sensors/pump-1")], dtype=float)
        np.testing.assert_allclose(disturb(old, progress(times, 50.0, 150.0), kind, size, rng), new, rtol=1e-14)  # type: ignore[arg-type]


def examples() -> list[str]:
    rows = [line for line in TABLE.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    return [row.rsplit("`", 2)[1] for row in rows if row.endswith("` |")]


@pytest.mark.parametrize("text", examples())
def test_every_example_of_the_page_does_something(text: str) -> None:
    names = ("pump-1", "pump-2", "pump-3")
    first = START + 3600 * S  # ten o'clock, as the page's example says
    messages: list[Recorded] = [
        Message(f"sensors/{name}", json.dumps({"temperature": 20 + n % 7, "pressure": 6.2, "vibration": n % 5, "current": n % 3,
                "time": first // 10**6 + n * 1000}).encode(), first + n * S, 0, 1)
        for n in range(4000) for name in names
    ] + [Message("esp/attic/temperature", b"19.5", first + 4000 * S)]  # fmt: skip
    out, truth = injected(messages, text)
    assert truth["faults"][0]["messages"] > 0
    assert out != messages


def test_there_is_an_example_of_every_kind() -> None:
    kinds = {parse(text)[0].kind for text in examples()}
    assert kinds == {
        "duplicate",
        "reorder",
        "late",
        "drop",
        "skew",
        "spike",
        "offset",
        "drift",
        "stuck",
        "noise",
        "dropout",
    }


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("spke:sensors/pump-1:t=3", 'did you mean "spike"'),
        ("spike", "expected KIND:TOPIC"),
        ("spike:sensors/pump-1:t", "needs a size"),
        ("spike:sensors/pump-1:t=3s", "no size '3s'"),
        ("spike:sensors/pump-1:t=5%,3x,1", "two sizes"),
        ("drop:sensors/#/x", "no topic"),
        ("drop:sens#", "no topic"),
        ("drop:a@yesterday", "no time"),
        ("drop:a@+5", "no span of time"),
        ("drop:a@+5min..+1min", "ends before"),
        ("drop:a=120%", "at most 100%"),
        ("drop:a=0x", "whole number"),
        ("drift:a:t@+5min=3", "its end"),
        ("late:a=5", "no size '5'"),
        ("late:a=-5s", "above 0"),
        ("reorder:a=1", "2 to 10000"),
        ("noise:a:t=0", "above 0"),
        ("skew:a=1e3s", "no size"),
        ("offset:a:t=1,2", "one size too many"),
        ("nofile.toml", "cannot be read"),
    ],
)
def test_what_is_wrong_with_a_fault_is_said_plainly(text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem.replace("(", r"\(")):
        parse(text)


def test_a_file_says_the_same_as_text(tmp_path: Path) -> None:
    file = tmp_path / "faults.toml"
    file.write_text(
        '[[fault]]\nkind = "offset"\ntopic = "a:b/c"\nfield = "switch:0.apower"\nfrom = 2026-03-04T09:00:05Z\nfor = "5s"\n'
        'size = 2.5\n[[fault]]\nkind = "drop"\ntopic = "#"\nfrom = "+8s"\nsize = "100%"\n'
    )
    messages: list[Recorded] = [Message("a:b/c", b'{"switch:0": {"apower": 1}}', START + n * S) for n in range(10)]
    out, _ = injected(messages, str(file))
    assert [json.loads(one.payload)["switch:0"]["apower"] for one in out if isinstance(one, Message)] == [1] * 5 + [
        3.5
    ] * 3


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ('[[fault]]\nkind = "drop"\ntopik = "#"', 'did you mean "topic"'),
        ("x = 1", "no such key"),
        ("", "expected one"),
        ("[[fault", "not TOML"),
    ],
)
def test_a_wrong_file_is_named(tmp_path: Path, content: str, problem: str) -> None:
    file = tmp_path / "faults.toml"
    file.write_text(content)
    with pytest.raises(ConfigError, match=problem):
        parse(str(file))


def test_a_size_in_standard_deviations_of_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="no number of nothing stands on"):
        injected(recording(5), "spike:sensors/pump-1:nothing=3sd")
