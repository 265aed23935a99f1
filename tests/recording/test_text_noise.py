"""Text recordings that are none: whatever bytes come, readers count or raise RecordingError, and memory stays bounded."""

from __future__ import annotations

import contextlib
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fleetgp.errors import RecordingError
from fleetgp.recording import jsonl, mcap, mosquitto
from fleetgp.recording.jsonl import write_jsonl
from fleetgp.recording.message import Message, Recorded
from fleetgp.recording.messages import kind_of, read_messages

MODEST = settings(max_examples=200, deadline=None, derandomize=True)
BINARY = {b"\x89MCAP": "mcap", b"PAR1": "parquet"}
PIECES = st.lists(
    st.sampled_from(
        [
            b'{"topic":"a","payload":', b'"1"', b',"time":', b"1772615730", b'"2026-03-04T09:15:30Z"', b"}", b"\n", b" ", b"\t",
            b"2026-03-04T09:15:30+0000", b"1772615730.000000001", b"9999999999.9", b"a/b", b"0 1 ", b"\xff", b"{", b"\x1f\x8b",
            b'{"gap":{"start":"0","end":"x"}}', b'"payload_base64":"AA=="', b"null", b"\x00", b"99999999999999999999",
        ]
    )
    | st.binary(max_size=5),
    max_size=30,
).map(b"".join)  # fmt: skip


@pytest.fixture(scope="module")
def noise(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("noise") / "file"


@MODEST
@given(PIECES)
@example(b"\x89MCAP")
@example(b"PAR1" + b"{" * 9)
def test_noise_is_counted_or_refused(noise: Path, data: bytes) -> None:
    noise.write_bytes(data)
    # hypothesis finds the first bytes of other forms in the code, where it has been imported
    binary = next((kind for begin, kind in BINARY.items() if data.startswith(begin)), None)
    assert kind_of(noise) in ((binary,) if binary else ("csv", "jsonl", "messages", "mosquitto"))
    for read in (jsonl.read, mosquitto.read, read_messages):
        skipped: dict[str, int] = {}
        found: list[Recorded] = []
        with contextlib.suppress(RecordingError):
            found = list(read(noise, skipped))
        assert all(count > 0 for count in skipped.values())
        if found and not skipped:
            assert list(read(noise)) == found
        with contextlib.suppress(RecordingError):
            list(read(noise))


@pytest.mark.parametrize("form", ["mcap", "jsonl", "jsonl.gz"])
def test_a_long_recording_takes_no_more_memory_than_a_short_one(tmp_path: Path, form: str) -> None:
    def peak(count: int) -> float:
        path = tmp_path / f"{count}.{form}"
        messages: Iterator[Message] = (Message(f"a/{n % 5}", b"x" * 100, n * 10**6) for n in range(count))
        tracemalloc.start()
        if form == "mcap":
            with mcap.McapWriter(path, {}) as writer:
                for message in messages:
                    writer.write(message)
        else:
            write_jsonl(path, messages)
        assert sum(1 for _ in read_messages(path)) == count
        bytes_at_peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return bytes_at_peak

    peak(100)  # imports and caches
    assert peak(20_000) < peak(5_000) + 300_000
