"""The bridge's brain: everything that can be stored is in the batch, and everything that cannot is counted by reason."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from bridge_messages import (
    EVENT,
    HEALTH,
    NOW_MS,
    OURS,
    PREDICTION,
    ROUND,
    SERVICE_HEALTH,
    SERVICE_STATUS,
    STATUS,
    Mail,
)
from hypothesis import example, given, settings
from hypothesis import strategies as st

from broker_bridge.batcher import LAYERS, QUARANTINE, Sorted, sort
from fleetgp.payloads.content import ClockPolicy
from fleetgp.store.base import Batch, Row
from fleetgp.store.sqlite import open_reader, open_writer
from fleetgp.wire import codec, topics
from fleetgp.wire.messages import Bootstrap, Message, Prediction

LAW = settings(max_examples=60, deadline=None, derandomize=True)

TOPIC = "sensors/pump-1"
DAY_MS = 86_400_000


def reading(payload: object, topic: str = TOPIC, **more: bool | int) -> Mail:
    body = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    return Mail(topic, body, **more)  # type: ignore[arg-type]


def is_empty(found: Sorted) -> bool:
    return found.batch() == Batch([], [], [], [], [])


# ---- readings


def test_reading_keeps_its_time_its_values_and_its_number() -> None:
    at_ms = NOW_MS - 1234
    found = sort([reading({"time": at_ms, "seq": 41, "t": 20.5, "door": "open", "p": None})], "live")
    assert found.rows == [Row("reading", TOPIC, at_ms, {"t": 20.5, "door": 1.0, "p": None}, NOW_MS, 41)]
    assert not found.counts


def test_reading_without_a_time_has_that_of_its_arrival() -> None:
    found = sort([reading(b"21.4", topic="sensors/attic/t")], "live")
    assert found.rows == [Row("reading", "sensors/attic/t", NOW_MS, {"value": 21.4}, NOW_MS, None)]


IMPOSSIBLE = {
    "from 1970": "1970-01-01T00:00:12Z",
    "from before 2020": "2019-12-31T23:59:59Z",
    "from 2100": "2100-01-01T00:00:00Z",
    "six minutes ahead": (NOW_MS + 360_000) / 1000,
    "before the epoch": "1899-12-30T00:00:00Z",
}


@pytest.mark.parametrize("claim", IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_reading_of_an_impossible_time_is_kept_aside_and_not_lost(claim: str | float) -> None:
    """At the time it came, under a name of its own, with its values, its number and the time it claimed."""
    content = {"time": claim, "seq": 5, "t": 20.5}
    found = sort([reading(content)], "live")
    assert found.counts == {"implausible_time": 1}
    assert f"{QUARANTINE}{TOPIC}" in found.details["implausible_time"]
    (row,) = found.rows
    assert (row.kind, row.series, row.at_ms, row.received_ms, row.sequence) == (
        "reading", f"quarantine:{TOPIC}", NOW_MS, NOW_MS, 5,
    )  # fmt: skip
    (believed,) = sort([reading(content)], "recording").rows
    assert dict(row.values) == {"t": 20.5, "claimed_at_ms": float(believed.at_ms)}
    assert believed.series == TOPIC


@pytest.mark.parametrize(
    ("policy", "claim_ms", "at_ms"),
    [
        ("live", NOW_MS + 299_000, NOW_MS + 299_000),
        ("live", NOW_MS - 5 * 365 * DAY_MS, NOW_MS - 5 * 365 * DAY_MS),
        ("recording", 1_362_096_000_000, 1_362_096_000_000),  # 2013
        ("recording", 4_102_444_800_000, 4_102_444_800_000),  # 2100
        ("receive", NOW_MS - 60_000, NOW_MS),
        ("receive", 12_000_000_000_000, NOW_MS),
    ],
)
def test_clock_policy_decides_whose_time_a_reading_has(policy: ClockPolicy, claim_ms: int, at_ms: int) -> None:
    found = sort([reading({"time": claim_ms, "t": 1.0})], policy)
    assert [(row.series, row.at_ms) for row in found.rows] == [(TOPIC, at_ms)]
    assert not found.counts


def test_retained_reading_is_counted_and_not_stored() -> None:
    """The broker's memory of a value looks like a new reading at every connect, and is none."""
    found = sort([reading({"t": 20.5}, is_retained=True), reading(b"", is_retained=True)], "live")
    assert is_empty(found)
    assert found.counts == {"retained": 2}
    assert TOPIC in found.details["retained"]


def test_fields_that_are_no_numbers_are_counted_and_leave_the_others_in() -> None:
    found = sort([reading({"t": 20.5, "name": "pump", "unit": "C", "far": 1e300})], "live")
    assert [dict(row.values) for row in found.rows] == [{"t": 20.5}]
    assert found.counts == {"field_text": 2, "field_range": 1}
    assert all(TOPIC in found.details[reason] for reason in found.counts)


UNREADABLE = {
    "no payload": (b"", "empty"),
    "not UTF-8": (b"\xff\xfe\x00", "encoding"),
    "not JSON": (b'{"t": 20.5', "syntax"),
    "NaN in JSON": (b'{"t": NaN}', "syntax"),
    "a number beyond doubles": (b'{"t": 1e999}', "range"),
    "nested 5,000 deep": (b'{"t":' + b"[" * 5000, "depth"),
    "50 MB": (b" " * 50_000_000, "size"),
    "text": (b"hello", "text"),
    "nothing of numbers": (b'{"name": "pump"}', "no_field"),
    "no fields": (b"{}", "no_field"),
    "a list": (b"[1, 2, 3]", "syntax"),
    "300 fields": (json.dumps({f"f{i}": i for i in range(300)}).encode(), "fields"),
}


@pytest.mark.parametrize(("payload", "reason"), UNREADABLE.values(), ids=UNREADABLE)
def test_unreadable_reading_is_counted_and_never_stops_the_others(payload: bytes, reason: str) -> None:
    found = sort([reading({"t": 1.0}), reading(payload, topic="sensors/odd"), reading({"t": 2.0})], "live")
    assert [dict(row.values) for row in found.rows] == [{"t": 1.0}, {"t": 2.0}]
    assert found.counts[reason] == 1
    assert found.details[reason].startswith("sensors/odd")
    assert set(found.counts) - {reason} <= {"field_text"}


@pytest.mark.parametrize("value", [b"nan", b"NaN", b"unavailable", b'{"value": null}'])
def test_reading_that_says_it_has_no_value_is_stored_as_missing(value: bytes) -> None:
    """A sensor that is there but blind is another thing than a sensor that is silent."""
    assert [dict(row.values) for row in sort([reading(value)], "live").rows] == [{"value": None}]


def test_order_of_arrival_is_kept() -> None:
    mail = [reading({"t": float(k), "seq": k}, topic=f"sensors/{k % 3}") for k in range(50)]
    assert [row.sequence for row in sort(mail, "live").rows] == list(range(50))


def test_negative_number_of_a_sender_does_not_cost_the_reading() -> None:
    """The store refuses a row with such a number, and its values with it."""
    (row,) = sort([reading({"seq": -1, "t": 20.5})], "live").rows
    assert (row.values["t"], row.sequence) == (20.5, None)


# ---- the fleet's own messages


def test_every_kind_of_message_of_ours_is_stored_as_it_was_said() -> None:
    found = sort([Mail(topic, codec.encode(message)) for topic, message in OURS.values()], "live")
    assert not found.counts
    assert found.statuses == [STATUS, SERVICE_STATUS]
    assert found.healths == [HEALTH, SERVICE_HEALTH]
    assert found.events == [EVENT]
    assert found.rounds == [ROUND]
    columns = {
        "t.mean": 20.0, "t.low": 19.0, "t.high": 21.5, "t.observed": 20.25, "t.z": 0.5,
        "p.mean": 1013.0, "p.low": 1010.0, "p.high": 1016.0, "p.observed": None, "p.z": None,
        "score": 1.5, "threshold": 8.0, "is_alarmed": 1.0,
    }  # fmt: skip
    assert found.rows == [
        Row("prediction", "pump-1", NOW_MS - 300, columns, NOW_MS),
        Row("health", "pump-1", NOW_MS - 50, {"rss_mb": 31.5, "frames": 12.0}, NOW_MS),
        Row("health", "coordinator", NOW_MS, {"round": 3.0}, NOW_MS),
    ]


def test_retained_presence_is_stored() -> None:
    """Of messages of ours the retained ones are presence, which holds until it is replaced."""
    topic, message = OURS["status"]
    assert sort([Mail(topic, codec.encode(message), is_retained=True)], "live").statuses == [STATUS]


@pytest.mark.parametrize(("topic", "message"), OURS.values(), ids=OURS)
def test_own_topics_refuse_what_does_not_belong_there(topic: str, message: Message) -> None:
    """Garbage, another message, a newer version, numbers that are none: each counted with its topic, nothing stored."""
    own = codec.encode(message)
    other = codec.encode(EVENT if message is not EVENT else ROUND)
    document = json.loads(own)
    cases = {
        b"\xff\xff": "syntax",
        b"hello": "syntax",
        b"[" * 5000: "depth",
        own[:-1]: "syntax",
        b"{}": "type",
        other: "tag",
        json.dumps(document | {"version": 99}).encode(): "version",
        json.dumps(document | {"at_ms": None}).encode(): "type",
        b" " * (codec.MAX_BYTES + 1): "size",
    }
    for payload, reason in cases.items():
        found = sort([Mail(topic, payload)], "live")
        assert is_empty(found), payload[:60]
        assert found.counts in ({reason: 1}, {"tag": 1} if reason == "type" else {}), payload[:60]
        assert found.details[next(iter(found.counts))].startswith(topic)


@pytest.mark.parametrize("value", ["1e999", "NaN", "null", '"high"'])
def test_prediction_with_a_number_that_is_none_is_left_out(value: str) -> None:
    """Whole: half a prediction would be a band without a middle."""
    topic, message = OURS["predictions"]
    payload = codec.encode(message).replace(b'"mean":20.0', f'"mean":{value}'.encode())
    assert value.encode() in payload
    found = sort([Mail(topic, payload), Mail(topic, codec.encode(message))], "live")
    assert len(found.rows) == 1
    assert sum(found.counts.values()) == 1


@pytest.mark.parametrize("kind", ["predictions", "events", "status", "health", "service status", "service health"])
def test_message_on_another_senders_topic_is_refused(kind: str) -> None:
    """An agent that speaks under another's name would write into the other's history."""
    topic, message = OURS[kind]
    other = topic.replace("pump-1", "pump-2").replace("services/coordinator", "services/bridge")
    found = sort([Mail(other, codec.encode(message))], "live")
    assert is_empty(found)
    assert found.counts == {"other_sender": 1}


@pytest.mark.parametrize("topic", [topic for topic, _ in OURS.values()])
def test_deleting_a_retained_message_is_no_message(topic: str) -> None:
    found = sort([Mail(topic, b""), Mail(topic, b"", is_retained=True)], "live")
    assert is_empty(found)
    assert not found.counts


@pytest.mark.parametrize(
    "topic",
    [
        "fleetgp/home/agents/pump 1/status",
        "fleetgp/home/agents/pump-1/diary",
        "fleetgp/home/agents/pump-1",
        "fleetgp/home/services/coordinator/predictions",
        "fleetgp/",
        "fleetgp/home/fleet/round/3",
    ],
)
def test_topic_of_ours_that_is_none_is_counted(topic: str) -> None:
    found = sort([Mail(topic, codec.encode(STATUS))], "live")
    assert is_empty(found)
    assert found.counts == {"unknown_topic": 1}
    assert found.details["unknown_topic"].startswith(topic)


@pytest.mark.parametrize("kind", ["bootstrap", "summary"])
def test_what_agents_tell_the_coordinator_is_not_history(kind: str) -> None:
    assert Bootstrap.FORM == "msgpack"
    found = sort([Mail(topics.agent("home", "pump-1", kind), b"\x80")], "live")
    assert is_empty(found)
    assert not found.counts


# ---- any mail whatever

SCALARS = (
    st.none() | st.booleans() | st.integers() | st.integers(-(10**400), 10**400) | st.floats() | st.text(max_size=12)
)  # fmt: skip
KEYS = st.sampled_from(["time", "Timestamp", "ts", "seq", "sequence", "t", "claimed_at_ms", ""]) | st.text(max_size=5)
DOCUMENTS = st.dictionaries(
    KEYS, st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3))
)
PAYLOADS = st.binary(max_size=40) | DOCUMENTS.map(lambda d: json.dumps(d).encode()) | st.sampled_from(
    [codec.encode(message) for _, message in OURS.values()]
)  # fmt: skip
TOPICS = st.sampled_from([topic for topic, _ in OURS.values()] + [TOPIC, "fleetgp", "", "a/b/c"]) | st.text(max_size=20)
MAIL = st.builds(Mail, TOPICS, PAYLOADS, st.booleans(), st.sampled_from([NOW_MS, 0, 4_102_444_800_000]))


@LAW
@given(st.lists(MAIL, max_size=12), st.sampled_from(["live", "recording", "receive"]))
@example([Mail(TOPIC, b'{"time": 1' + b"0" * 400 + b', "t": 1}')], "live")
@example([Mail(TOPIC, b'{"seq": 1' + b"0" * 400 + b', "t": 1}')], "live")
@example([Mail(TOPIC, b"1" + b"0" * 5000)], "receive")
def test_no_mail_whatever_stops_the_bridge(mail: list[Mail], policy: ClockPolicy) -> None:
    """Every message comes out once: as a row, as a document, counted, or as one of those that are not for the store."""
    found = sort(mail, policy)
    stored = [row for row in found.rows if row.kind != "health"]
    documents = (found.statuses, found.healths, found.events, found.rounds)
    left_out = sum(n for r, n in found.counts.items() if not r.startswith("field_") and r != "implausible_time")
    silent = [m for m in mail if m.topic.startswith("fleetgp/") and not m.payload and topics.parse(m.topic)]
    assert len(stored) + sum(map(len, documents)) + left_out + len(silent) == len(mail)
    assert set(found.details) == set(found.counts)
    for row in found.rows:
        assert row.values
        assert row.sequence is None or row.sequence >= 0
        assert all(value is None or value - value == 0 for value in row.values.values())


@LAW
@given(st.lists(MAIL, max_size=12), st.sampled_from(["live", "recording", "receive"]))
def test_messages_are_sorted_one_by_one(mail: list[Mail], policy: ClockPolicy) -> None:
    """What comes of a message does not depend on those beside it: batches may be cut anywhere, as redelivery does."""
    together = sort(mail, policy)
    apart = [sort([one], policy) for one in mail]
    for name in ("rows", "statuses", "healths", "events", "rounds"):
        assert getattr(together, name) == [item for one in apart for item in getattr(one, name)]
    assert together.counts == sum((one.counts for one in apart), start=type(together.counts)())


def test_whole_batch_is_taken_by_a_real_store(tmp_path: Path) -> None:
    """What the batcher lets through is what the store takes: rows of every kind, quarantined ones, odd numbers."""
    path = tmp_path / "history.sqlite"
    mail = [Mail(topic, codec.encode(message)) for topic, message in OURS.values()]
    mail += [
        reading({"time": NOW_MS - 1000 * k, "seq": k, "t": k / 7, "note": "text"}, topic=f"sensors/{k % 2}")
        for k in range(20)
    ]
    mail += [
        reading({"time": 12, "seq": 3, "t": 5.0}),
        reading({"seq": -4, "t": 6.0}),
        reading(b"nan", topic="sensors/door"),
    ]
    found = sort(mail, "live")
    writer = open_writer(path, raw_days=36500, rollup_days=36500)
    report = writer.write(found.batch())
    writer.close()
    assert report.written == len(found.rows) == 26
    assert dict(report.refused) == {}
    reader = open_reader(path)
    assert reader.sequences("sensors/0") == list(range(0, 20, 2))
    assert reader.sequences(f"quarantine:{TOPIC}") == [3]
    assert reader.events() == [EVENT]
    assert reader.rounds() == [ROUND]
    assert {status.name for status in reader.statuses()} == {"pump-1", "coordinator"}
    window = reader.window("reading", f"quarantine:{TOPIC}", ["t", "claimed_at_ms"], NOW_MS, NOW_MS)
    assert [window.mean["t"].tolist(), window.mean["claimed_at_ms"].tolist()] == [[5.0], [12_000.0]]
    reader.close()


def test_row_of_a_prediction_names_what_its_channels_are_called(tmp_path: Path) -> None:
    """Channel names are the owner's: also those with dots, spaces, or the words that columns end in."""
    names = ["score", "t.mean", "a b", "is_alarmed", "Ü"]
    law = PREDICTION.channels["t"]
    law = msgspec.structs.replace(law, layers=(20.0, 0.5, -0.25, 0.125))
    message = msgspec.structs.replace(PREDICTION, channels=dict.fromkeys(names, law))
    assert isinstance(message, Prediction)
    (row,) = sort([replace(Mail(OURS["predictions"][0], codec.encode(message)))], "live").rows
    parts = ("mean", "low", "high", "observed", "z", *LAYERS, "pull")
    assert set(row.values) == {f"{n}.{p}" for n in names for p in parts} | {"score", "threshold", "is_alarmed"}
    assert row.values["score"] == PREDICTION.score
    assert [row.values[f"t.mean.{part}"] for part in LAYERS] == [0.5, -0.25, 0.125]


@pytest.mark.parametrize("layers", [(), (1.0, 2.0, 3.0), (1.0,) * 5])
def test_a_prediction_without_layers_or_with_other_ones_is_stored_without(layers: tuple[float, ...]) -> None:
    law = msgspec.structs.replace(PREDICTION.channels["t"], layers=layers)
    message = msgspec.structs.replace(PREDICTION, channels={"t": law})
    (row,) = sort([replace(Mail(OURS["predictions"][0], codec.encode(message)))], "live").rows
    assert set(row.values) == {"score", "threshold", "is_alarmed", "t.mean", "t.low", "t.high", "t.observed", "t.z"}
