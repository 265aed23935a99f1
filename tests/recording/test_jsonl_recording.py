"""Recordings as lines of JSON: ours lose nothing, those of others are read, damage is said."""

from __future__ import annotations

import gzip
import itertools
import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetgp.errors import RecordingError
from fleetgp.recording import jsonl
from fleetgp.recording.jsonl import write_jsonl
from fleetgp.recording.message import Gap, Message, Recorded
from fleetgp.recording.messages import kind_of, read_messages
from fleetgp.recording.moments import epoch_ns, iso

MODEST = settings(max_examples=60, deadline=None, derandomize=True)
TIMES = st.integers(0, 2**63 - 1)
MESSAGES = st.builds(
    Message,
    topic=st.text(max_size=20),
    payload=st.binary(max_size=100) | st.text(max_size=50).map(str.encode),
    received_ns=TIMES,
    published_ns=TIMES,
    qos=st.integers(0, 2),
    is_retained=st.booleans(),
    content_type=st.text(max_size=5),
)
GAPS = st.builds(Gap, TIMES, TIMES, st.text(max_size=20))
NUMBERS = itertools.count()
AT_NS = 1_772_615_730_250_118_530


@MODEST
@given(st.lists(MESSAGES | GAPS, max_size=20), st.sampled_from(["jsonl", "jsonl.gz"]))
def test_what_was_written_is_read(tmp_path_factory: pytest.TempPathFactory, sent: list[Recorded], ending: str) -> None:
    path = tmp_path_factory.getbasetemp() / f"lines-{next(NUMBERS)}.{ending}"
    assert write_jsonl(path, sent, {"broker": "here"}) == len(sent)

    assert list(jsonl.read(path)) == sent
    assert jsonl.session_of(path) == {"broker": "here"}
    assert path.read_bytes().startswith(b"\x1f\x8b") == (ending == "jsonl.gz")


def test_other_readers_of_json_see_what_is_meant(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    write_jsonl(path, [Message("a/b", b"21.4", AT_NS, qos=1), Message("c", b"\xff", AT_NS), Gap(1, 2, "down")])

    assert [json.loads(line) for line in path.read_text().splitlines()] == [
        {"topic": "a/b", "received": "2026-03-04T09:15:30.250118530Z", "qos": 1, "payload": "21.4"},
        {"topic": "c", "received": "2026-03-04T09:15:30.250118530Z", "payload_base64": "/w=="},
        {
            "gap": {
                "start": "1970-01-01T00:00:00.000000001Z",
                "end": "1970-01-01T00:00:00.000000002Z",
                "why": "down",
            }
        },
    ]


@pytest.mark.parametrize(
    ("line", "payload"),
    [
        ('{"topic":"a","payload":"21.4","timestamp":1772615730.250118530}', b"21.4"),
        ('{"time":"2026-03-04T10:15:30.250118530+01:00","topic":"a","payload":{"t": 1.50}}', b'{"t": 1.50}'),
        ('{"ts":1772615730250118530,"topic":"a","payload":21.40}', b"21.40"),
        ('{"received":"2026-03-04 09:15:30.25011853","topic":"a","payload":null,"x":[1]}', b""),
        ('{"tst":"2026-03-04T09:15:30.250118530Z+0000","topic":"a","qos":0,"payloadlen":2,"payload":"hi"}', b"hi"),
    ],
)
def test_lines_of_other_programs(tmp_path: Path, line: str, payload: bytes) -> None:
    """A payload that is JSON itself stays as it is written; a time keeps every digit."""
    path = tmp_path / "a.txt"
    path.write_text(line + "\n")

    assert kind_of(path) == "messages"
    assert list(read_messages(path)) == [Message("a", payload, AT_NS)]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"topic":"a","payload":"1","time":"soon"}', "bad_time"),
        ('{"topic":"a","payload":"1"}', "bad_time"),
        ('{"topic":"a","time":1772615730}', "bad_line"),
        ('{"payload":"1","time":1772615730}', "bad_line"),
        ('{"topic":"a","payload":"1","time":1772615730,"qos":7}', "bad_line"),
        ('{"topic":"a","payload_base64":"?","time":1772615730}', "bad_line"),
        ('{"topic":"a","payload":"abc","payloadlen":9,"time":1772615730}', "payload_cut"),
        ("not JSON", "bad_line"),
        ("[" * 100_000, "bad_line"),
    ],
)
def test_a_line_that_cannot_be_read_is_counted_or_raised(tmp_path: Path, line: str, reason: str) -> None:
    path = tmp_path / "a.jsonl"
    good = '{"topic":"a","payload":"1","time":1772615730}\n'
    path.write_text(good + line + "\n" + good)

    skipped: dict[str, int] = {}
    assert len(list(jsonl.read(path, skipped))) == 2
    assert skipped == {reason: 1}
    with pytest.raises(RecordingError, match="line 2"):
        list(jsonl.read(path))


@pytest.mark.parametrize("ending", ["jsonl", "jsonl.gz"])
def test_a_cut_file_gives_what_stands_before(tmp_path: Path, ending: str) -> None:
    sent = [Message("a/b", b"%d" % n, AT_NS + n) for n in range(50)]
    path, cut = tmp_path / f"a.{ending}", tmp_path / f"b.{ending}"
    write_jsonl(path, sent)
    data = path.read_bytes()
    for size in range(20, len(data), 7):
        cut.write_bytes(data[:size])
        skipped: dict[str, int] = {}
        found = list(jsonl.read(cut, skipped))
        assert found == sent[: len(found)]
        whole_lines = data[:size].endswith((b"\n", b"}"))
        assert skipped or whole_lines
        if skipped:
            with pytest.raises(RecordingError, match="damaged"):
                list(jsonl.read(cut))


def test_gzip_is_told_by_content(tmp_path: Path) -> None:
    path = tmp_path / "named-as-it-pleases"
    path.write_bytes(gzip.compress(jsonl.line_of(Message("a", b"1", 5)) + b"\n"))

    assert kind_of(path) == "messages"
    assert list(read_messages(path)) == [Message("a", b"1", 5)]


def test_a_recording_is_never_written_over(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    write_jsonl(path, [])
    with pytest.raises(RecordingError, match="is there already"):
        write_jsonl(path, [])


@MODEST
@given(st.integers(0, 2**63 - 1))
def test_times_keep_their_nanoseconds(at_ns: int) -> None:
    text = iso(at_ns)
    assert epoch_ns(text) == at_ns
    assert datetime.fromisoformat(text) == datetime.fromtimestamp(at_ns // 10**9, UTC).replace(
        microsecond=at_ns % 10**9 // 1000
    )


@pytest.mark.parametrize("text", ["", "soon", "2026-13-01", "-5", "1960-01-01T00:00:00Z", "2026-03-04T09:15:61Z"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"time|must be|month|second"):
        epoch_ns(text)
