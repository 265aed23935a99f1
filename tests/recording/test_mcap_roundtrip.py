"""MCAP recordings: what was written is what is read, by us and by the mcap library; nothing is written over."""

from __future__ import annotations

import itertools
import os
import random
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mcap.reader import make_reader
from mcap.writer import CompressionType, Writer

from fleetgp.errors import RecordingError
from fleetgp.recording.mcap import McapWriter, describe, read, recover, verify
from fleetgp.recording.message import Gap, Message, Recorded

MODEST = settings(max_examples=60, deadline=None, derandomize=True)
TIMES = st.integers(0, 2**63 - 1)
MESSAGES = st.builds(
    Message,
    topic=st.text(min_size=1, max_size=20) | st.just("$fleetgp/gap"),
    payload=st.binary(max_size=200) | st.just(b'{"t":1}'),
    received_ns=TIMES,
    published_ns=TIMES,
    qos=st.integers(0, 2),
    is_retained=st.booleans(),
    content_type=st.sampled_from(["", "application/json", "holds"]),
)
GAPS = st.builds(Gap, TIMES, TIMES, st.text(max_size=20))
NUMBERS = itertools.count()

CHILD = """
import sys
from pathlib import Path
from fleetgp.recording.mcap import McapWriter
from fleetgp.recording.message import Message
writer = McapWriter(Path(sys.argv[1]), {})
for number in range(10**9):
    writer.write(Message("a/b", b"%d" % number, number))
    if number % 1000 == 999:
        writer.flush()
        print(number, flush=True)
"""


def write(path: Path, recorded: list[Recorded]) -> None:
    with McapWriter(path, {"broker": "mqtt://host"}) as writer:
        for item in recorded:
            if isinstance(item, Message):
                writer.write(item)
            else:
                writer.mark_gap(item)


@MODEST
@given(st.lists(MESSAGES | GAPS, max_size=30))
def test_what_was_written_is_read(tmp_path_factory: pytest.TempPathFactory, recorded: list[Recorded]) -> None:
    path = tmp_path_factory.getbasetemp() / f"round-{next(NUMBERS)}.mcap"
    write(path, recorded)

    assert list(read(path)) == recorded
    assert list(recover(path)) == recorded
    verdict = verify(path)
    assert verdict.is_whole
    assert (verdict.messages, verdict.gaps) == (
        sum(isinstance(item, Message) for item in recorded),
        sum(isinstance(item, Gap) for item in recorded),
    )


def test_the_mcap_library_reads_what_we_write(tmp_path: Path) -> None:
    """Channels, both times, payloads, statistics and metadata, over many chunks, by its index and with its CRC checks."""
    path = tmp_path / "a.mcap"
    sent = [Message(f"s/{n % 3}", b'{"n":%d}' % n, 10**18 + n, n % 2 and 10**18, n % 3, n == 0) for n in range(10_000)]
    write(path, [*sent])

    with path.open("rb") as file:
        reader = make_reader(file, validate_crcs=True)
        summary = reader.get_summary()
        assert summary is not None
        assert summary.statistics is not None
        assert summary.statistics.message_count == 10_000
        assert len(summary.chunk_indexes) == summary.statistics.chunk_count > 5
        found = [
            (channel.topic, message.data, message.log_time, message.publish_time, int(channel.metadata["qos"]))
            for _, channel, message in reader.iter_messages()
        ]
        told = {item.name: item.metadata for item in reader.iter_metadata()}
    assert found == [(m.topic, m.payload, m.received_ns, m.published_ns or m.received_ns, m.qos) for m in sent]
    assert told["fleetgp.session"]["broker"] == "mqtt://host"
    assert told["fleetgp.end"]["messages"] == "10000"


@pytest.mark.parametrize("is_chunked", [True, False])
@pytest.mark.parametrize("compression", [CompressionType.NONE, CompressionType.ZSTD])
def test_files_of_other_programs_are_read(tmp_path: Path, compression: CompressionType, is_chunked: bool) -> None:
    path = tmp_path / "other.mcap"
    with path.open("wb") as file:
        writer = Writer(file, compression=compression, use_chunking=is_chunked)
        writer.start(profile="x", library="y")
        writer.add_attachment(1, 2, "photo", "image/png", b"abc")
        channel = writer.register_channel("pump", "json", 0)
        for number in range(3):
            writer.add_message(channel, 100 + number, b'{"a":1}', 100 + number % 2, sequence=7)
        writer.finish()

    assert list(read(path)) == [
        Message("pump", b'{"a":1}', 100),
        Message("pump", b'{"a":1}', 101),
        Message("pump", b'{"a":1}', 102, published_ns=100),
    ]
    assert verify(path).is_whole


def test_a_recording_is_never_written_over(tmp_path: Path) -> None:
    path = tmp_path / "a.mcap"
    write(path, [Message("a", b"1", 1)])
    before = path.read_bytes()

    with pytest.raises(RecordingError, match="is there already"):
        McapWriter(path, {})
    assert path.read_bytes() == before


def test_a_folder_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="No such file"):
        McapWriter(tmp_path / "no" / "a.mcap", {})


def test_a_full_disk_is_said_and_leaves_what_was_written(tmp_path: Path) -> None:
    """A limit on the size of files refuses a write half-way, as a full disk does."""
    path = tmp_path / "a.mcap"
    writer = McapWriter(path, {})
    sent = [Message("a", random.Random(n).randbytes(1000), n) for n in range(200)]
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    try:
        with pytest.raises(RecordingError, match="File too large"):
            list(map(writer.write, sent))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    found = list(recover(path))
    assert len(found) > 50
    assert found == sent[: len(found)]

    writer.close()  # there is room again: the chunk that was refused had been kept
    assert list(read(path))[: len(found) + 1] == sent[: len(found) + 1]


def test_a_killed_writer_leaves_what_it_flushed(tmp_path: Path, eventually: Callable[..., None]) -> None:
    path = tmp_path / "killed.mcap"
    child = subprocess.Popen([sys.executable, "-c", CHILD, str(path)], stdout=subprocess.PIPE)
    assert child.stdout is not None
    flushed = [int(child.stdout.readline()) for _ in range(20)][-1]
    os.kill(child.pid, signal.SIGKILL)
    child.wait(10)
    flushed = [flushed, *map(int, child.stdout.read().split())][-1]  # what it said before it died
    child.stdout.close()

    scan = recover(path)
    found = list(scan)
    assert found[: flushed + 1] == [Message("a/b", b"%d" % n, n) for n in range(flushed + 1)]
    assert len(found) <= flushed + 1 + 1000
    assert not scan.is_closed
    assert scan.lost == 0
    with pytest.raises(RecordingError, match="it is cut"):
        list(read(path))


def test_a_description_counts_by_topic(tmp_path: Path) -> None:
    path = tmp_path / "a.mcap"
    write(
        path, [Message("a", b"12", 5, is_retained=True), Gap(5, 7, "down"), Message("b", b"1", 7), Message("a", b"", 9)]
    )

    told = describe(path)
    assert {name: tuple(topic) for name, topic in told.topics.items()} == {"a": (2, 1, 2, 5, 9), "b": (1, 0, 1, 7, 7)}
    assert (told.messages, told.payload_bytes, told.first_ns, told.last_ns) == (3, 3, 5, 9)
    assert told.gaps == (Gap(5, 7, "down"),)
    assert told.session["broker"] == "mqtt://host"
    assert told.is_whole
