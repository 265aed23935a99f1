"""Recordings of many files: each whole in itself, all together what was written, none written over."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from broker_bridge.rolling import Gone, Rolling, bytes_of
from fleetgp.errors import RecordingError
from fleetgp.recording import mcap
from fleetgp.recording.message import Gap, Message

RNG = random.Random(5)
MESSAGES = [Message(f"sensors/{n % 3}", RNG.randbytes(900), 1_000_000 + n, 0, n % 2) for n in range(600)]


def test_files_of_about_the_size_each_whole_together_all(tmp_path: Path) -> None:
    rolling = Rolling(tmp_path / "day.mcap", {"broker": "mqtt://b"}, 150_000)
    for message in MESSAGES:
        rolling.write(message)
        rolling.flush()
    rolling.mark_gap(Gap(1, 2, "away"))
    rolling.close()
    assert [path.name for path in rolling.files] == [f"day-{n:04}.mcap" for n in range(1, len(rolling.files) + 1)]
    assert len(rolling.files) >= 3
    assert rolling.bytes_written == sum(path.stat().st_size for path in rolling.files)
    assert all(mcap.verify(path).is_whole for path in rolling.files)
    assert all(150_000 <= path.stat().st_size < 300_000 for path in rolling.files[:-1])
    assert all(mcap.describe(path).session["broker"] == "mqtt://b" for path in rolling.files)
    assert [one for path in rolling.files for one in mcap.read(path)] == [*MESSAGES, Gap(1, 2, "away")]


@pytest.mark.parametrize("rotate_bytes", [None, 100_000])
def test_no_recording_is_written_over(tmp_path: Path, rotate_bytes: int | None) -> None:
    there = tmp_path / ("day.mcap" if rotate_bytes is None else "day-0001.mcap")
    there.write_bytes(b"mine")
    with pytest.raises(RecordingError, match="is there already"):
        Rolling.check(tmp_path / "day.mcap", rotate_bytes)
    with pytest.raises(RecordingError, match="is there already"):
        Rolling(tmp_path / "day.mcap", {}, rotate_bytes)
    assert there.read_bytes() == b"mine"


def test_sizes_as_people_write_them() -> None:
    assert [bytes_of(text) for text in ("100MB", "1.5 gb", "640k", "64000")] == [
        100_000_000,
        1_500_000_000,
        640_000,
        64_000,
    ]
    for wrong in ("", "MB", "10", "-5MB", "1e9", "100 cats", "nan", "5kk", "9999999GB"):
        with pytest.raises(ValueError, match=r".*"):
            bytes_of(wrong)


def test_a_file_with_all_the_topics_it_can_hold_is_followed_by_another(tmp_path: Path) -> None:
    """Also where nobody asked for several files; one that is there already is passed by, not written over."""
    (tmp_path / "day-0002.mcap").write_bytes(b"mine")
    rolling = Rolling(tmp_path / "day.mcap", {}, None)
    for n in range(70_000):
        rolling.write(Message(f"t/{n}", b"1", 1_000_000 + n))
        if rolling.is_full:
            rolling.flush()
    rolling.close()
    assert [path.name for path in rolling.files] == ["day.mcap", "day-0003.mcap"]
    assert [one.topic for path in rolling.files for one in mcap.read(path) if isinstance(one, Message)] == [
        f"t/{n}" for n in range(70_000)
    ]
    assert (tmp_path / "day-0002.mcap").read_bytes() == b"mine"


def test_a_file_that_is_removed_while_it_is_written_is_told_with_what_was_in_it(tmp_path: Path) -> None:
    rolling = Rolling(tmp_path / "deep" / "day.mcap", {}, None)
    for message in MESSAGES[:5]:
        rolling.write(message)
    assert rolling.flush() is None
    (tmp_path / "deep" / "day.mcap").unlink()
    (tmp_path / "deep").rmdir()
    assert rolling.flush() == Gone(tmp_path / "deep" / "day.mcap", 5, 1_000_000)
    rolling.write(MESSAGES[5])
    rolling.close()
    (left,) = rolling.files
    assert list(mcap.read(left)) == [MESSAGES[5]]
    assert rolling.messages_gone == 5


def test_a_file_that_is_moved_while_it_is_written_is_closed_where_it_is(tmp_path: Path) -> None:
    rolling = Rolling(tmp_path / "day.mcap", {}, None)
    rolling.write(MESSAGES[0])
    (tmp_path / "day.mcap").rename(tmp_path / "kept.mcap")
    assert rolling.flush() == Gone(tmp_path / "day.mcap", 0, 1_000_000)
    rolling.close()
    assert mcap.verify(tmp_path / "kept.mcap").is_whole
    assert list(mcap.read(tmp_path / "kept.mcap")) == [MESSAGES[0]]
    assert rolling.messages_gone == 0


def test_a_last_file_that_was_removed_is_no_recording(tmp_path: Path) -> None:
    rolling = Rolling(tmp_path / "day.mcap", {}, None)
    rolling.write(MESSAGES[0])
    (tmp_path / "day.mcap").unlink()
    with pytest.raises(RecordingError, match="was removed while it was written, and 1 messages with it"):
        rolling.close()
