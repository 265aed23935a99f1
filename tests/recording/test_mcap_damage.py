"""Damaged MCAP recordings: what is returned is right, what was lost is said, nothing but RecordingError is raised."""

from __future__ import annotations

import io
import itertools
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mcap.records import Chunk
from mcap.stream_reader import StreamReader

from fleetgp.errors import RecordingError
from fleetgp.recording.mcap import McapWriter, read, recover, verify
from fleetgp.recording.message import Gap, Message, Recorded

MODEST = settings(max_examples=300, deadline=None, derandomize=True)
CHUNKS, PER_CHUNK = 6, 5
SENT = [
    Message(f"pump/{n % 2}", b"%d " % n + random.Random(n).randbytes(8), 1000 + n, qos=n % 2)
    for n in range(CHUNKS * PER_CHUNK)
]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A recording of six chunks of five messages."""
    path = tmp_path_factory.mktemp("whole") / "a.mcap"
    with McapWriter(path, {"broker": "here"}) as writer:
        for number, message in enumerate(SENT, start=1):
            writer.write(message)
            if number % PER_CHUNK == 0:
                writer.flush()
    assert list(read(path)) == SENT
    return path.read_bytes()


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("damaged") / "b.mcap"


def chunk_offsets(data: bytes) -> list[int]:
    """Where each chunk's compressed data begin, found with the library."""
    chunks = [r for r in StreamReader(io.BytesIO(data), emit_chunks=True).records if isinstance(r, Chunk)]
    return [data.index(chunk.data) for chunk in chunks]


def messages(recorded: list[Recorded]) -> list[Message]:
    return [item for item in recorded if isinstance(item, Message)]


def test_a_file_cut_at_any_byte_gives_what_stands_before(whole: bytes, damaged: Path) -> None:
    best = 0
    for size in range(1, len(whole)):
        damaged.write_bytes(whole[:size])
        if size < 8:
            with pytest.raises(RecordingError, match="not an MCAP file"):
                list(recover(damaged))
            continue
        scan = recover(damaged)
        found = list(scan)
        assert found == SENT[: len(found)]
        assert len(found) % PER_CHUNK == 0
        assert len(found) >= best
        assert scan.damage_count
        assert scan.good_bytes <= size
        best = len(found)
    assert best == len(SENT)


@MODEST
@given(st.data())
def test_flipped_bytes_never_give_a_wrong_message(whole: bytes, damaged: Path, data: st.DataObject) -> None:
    """Whatever byte anywhere: each message returned is one that was written, in its order, and the loss is counted."""
    changed = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 3))):
        changed[data.draw(st.integers(0, len(whole) - 1))] ^= data.draw(st.integers(1, 255))
    damaged.write_bytes(changed)

    scan = recover(damaged)
    found = messages(list(scan))
    positions = [SENT.index(message) for message in found]
    assert positions == sorted(set(positions))
    if scan.is_closed and scan.end.get("messages") == str(len(SENT)) and scan.end.get("gaps") == "0":
        assert len(found) + scan.lost == len(SENT)
    if bytes(changed) != whole and len(found) < len(SENT):
        assert scan.damage_count
        with pytest.raises(RecordingError):
            list(read(damaged))


@MODEST
@given(st.binary(max_size=300), st.booleans())
def test_bytes_that_are_no_recording_are_refused(damaged: Path, noise: bytes, has_magic: bool) -> None:
    damaged.write_bytes((b"\x89MCAP0\r\n" if has_magic else b"") + noise)
    with pytest.raises(RecordingError):
        list(read(damaged))
    try:
        assert messages(list(recover(damaged))) == []
    except RecordingError:
        assert not has_magic


@pytest.mark.parametrize("victim", range(CHUNKS))
def test_a_damaged_chunk_is_left_out_and_its_span_is_said(whole: bytes, damaged: Path, victim: int) -> None:
    changed = bytearray(whole)
    changed[chunk_offsets(whole)[victim] + 20] ^= 0x55
    damaged.write_bytes(changed)

    scan = recover(damaged)
    found = list(scan)
    lost = range(victim * PER_CHUNK, (victim + 1) * PER_CHUNK)
    assert messages(found) == [message for number, message in enumerate(SENT) if number not in lost]
    assert scan.lost == PER_CHUNK
    assert [damage.lost for damage in scan.damages] == [PER_CHUNK]
    between = [Gap(999 + lost.start, 1000 + lost.stop, "5 messages lost where the file is damaged")]
    assert [item for item in found if isinstance(item, Gap)] == (between if 0 < victim < CHUNKS - 1 else [])
    assert scan.is_closed


@pytest.mark.parametrize("change", [1, 2**16, 2**40])
def test_a_wrong_length_of_a_chunk_loses_that_chunk_alone(whole: bytes, damaged: Path, change: int) -> None:
    """Its record's own length field, so that what follows is not where it says."""
    start = chunk_offsets(whole)[2] - 53
    assert whole[start] == 6
    length = int.from_bytes(whole[start + 1 : start + 9], "little") ^ change
    damaged.write_bytes(whole[: start + 1] + length.to_bytes(8, "little") + whole[start + 9 :])

    scan = recover(damaged)
    assert messages(list(scan)) == SENT[:10] + SENT[15:]
    assert scan.lost == PER_CHUNK


def test_a_hole_of_zeros_in_the_middle(whole: bytes, damaged: Path) -> None:
    """A block that the file system lost: from within chunk 2 to within chunk 4."""
    offsets = chunk_offsets(whole)
    start, end = offsets[1] + 10, offsets[3] + 10
    damaged.write_bytes(whole[:start] + bytes(end - start) + whole[end:])

    scan = recover(damaged)
    assert messages(list(scan)) == SENT[:5] + SENT[20:]
    assert scan.lost == 15


def test_bytes_after_the_end_lose_nothing_and_are_said(whole: bytes, damaged: Path) -> None:
    damaged.write_bytes(whole + b"garbage")

    verdict = verify(damaged)
    assert not verdict.is_whole
    assert verdict.messages == len(SENT)
    assert [damage.why for damage in verdict.damages] == ["7 bytes follow its end; no message is lost"]


@pytest.mark.parametrize("between", [b"", b"garbage"])
def test_a_recording_put_behind_another_is_read_too_and_said(whole: bytes, damaged: Path, between: bytes) -> None:
    """As ``cat`` makes them; three, for each begins to count anew."""
    damaged.write_bytes(whole + between + whole + between + whole)
    scan = recover(damaged)
    assert messages(list(scan)) == SENT * 3
    assert [damage.why for damage in scan.damages] == ["another recording follows its end, which is read too"] * 2
    assert (scan.lost, scan.is_closed) == (0, True)
    with pytest.raises(RecordingError, match="another recording follows"):
        list(read(damaged))


def test_a_large_message_that_is_cut_takes_no_other_with_it(damaged: Path, tmp_path: Path) -> None:
    small = [Message("a", b"1", n) for n in range(20)]
    with McapWriter(tmp_path / "large.mcap", {}) as writer:
        for item in [*small, Message("big", random.Random(1).randbytes(300_000), 30)]:
            writer.write(item)
    damaged.write_bytes((tmp_path / "large.mcap").read_bytes()[:200_000])
    assert messages(list(recover(damaged))) == small


def test_a_damaged_index_loses_nothing_and_is_said(whole: bytes, damaged: Path) -> None:
    changed = bytearray(whole)
    changed[-60] ^= 1
    damaged.write_bytes(changed)

    verdict = verify(damaged)
    assert verdict.messages == len(SENT)
    assert len(verdict.damages) == 1
    assert "index at its end is damaged" in verdict.damages[0].why


def test_an_empty_file_is_said(damaged: Path) -> None:
    damaged.write_bytes(b"")
    for reading in (read, recover):
        with pytest.raises(RecordingError, match="is empty"):
            list(reading(damaged))


def test_a_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="there is no file"):
        list(read(tmp_path / "no.mcap"))


def test_what_is_recovered_and_written_again_is_whole(whole: bytes, damaged: Path, tmp_path: Path) -> None:
    """Every cut of a file, saved again, verifies; with the gap of a chunk lost in the middle told in it."""
    changed = bytearray(whole)
    changed[chunk_offsets(whole)[2] + 20] ^= 0x55
    damaged.write_bytes(changed)
    saved = tmp_path / "saved.mcap"
    with McapWriter(saved, {}) as writer:
        for item in recover(damaged):
            if isinstance(item, Gap):
                writer.mark_gap(item)
            else:
                writer.write(item)

    verdict = verify(saved)
    assert verdict.is_whole
    assert (verdict.messages, verdict.gaps) == (25, 1)
    assert list(itertools.islice(read(saved), 10, 11)) == [Gap(1009, 1015, "5 messages lost where the file is damaged")]
