"""Several recorded files as one: merged by time, damaged ones as far as they go."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleetgp.errors import RecordingError
from fleetgp.recording import mcap
from fleetgp.recording.message import Gap, Message
from simulator.sources import Sources

START = 1_700_000_000 * 10**9


def write(path: Path, seconds: range, topic: str = "t") -> list[Message]:
    messages = [Message(topic, b"%d" % s * 50, START + s * 10**9, 0, 1) for s in seconds]
    with mcap.McapWriter(path, {}) as writer:
        for message in messages:
            writer.write(message)
            writer.flush()
    return messages


def test_files_are_merged_by_their_times_in_whatever_order_they_are_named(tmp_path: Path) -> None:
    first, second = tmp_path / "1.mcap", tmp_path / "2.mcap"
    early, late = write(first, range(10)), write(second, range(5, 30, 2), "u")
    sources = Sources([second, first])
    assert list(sources.read()) == sorted([*late, *early], key=lambda m: m.received_ns)
    assert list(sources.read()) == sorted([*late, *early], key=lambda m: m.received_ns), "it can be read again"
    assert sources.last_ns == late[-1].received_ns
    assert sources.damages == []


def test_a_cut_file_is_read_up_to_the_cut_and_the_next_one_after_it(tmp_path: Path) -> None:
    said: list[str] = []
    first, second = tmp_path / "1.mcap", tmp_path / "2.mcap"
    early, late = write(first, range(20)), write(second, range(30, 40))
    first.write_bytes(first.read_bytes()[: first.stat().st_size // 3])
    sources = Sources([first, second], say=said.append)
    read = [one for one in sources.read() if isinstance(one, Message)]
    kept = read[: -len(late)]
    assert 0 < len(kept) < len(early)
    assert kept == early[: len(kept)]
    assert read[-len(late) :] == late
    told = list(said)
    list(sources.read())
    assert said == told, "said once, however often it is read"
    assert [words.partition(";")[0] for words in said] == sources.damages
    assert all(words.startswith(str(first)) for words in said)
    assert any("cut" in words for words in said)


def test_a_place_that_is_damaged_is_a_gap_and_what_is_behind_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "1.mcap"
    messages = write(path, range(20))
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 0xFF
    path.write_bytes(bytes(data))
    sources = Sources([path])
    read = list(sources.read())
    kept = [one for one in read if isinstance(one, Message)]
    assert set(kept) < set(messages)
    assert kept[-1] == messages[-1]
    assert any(isinstance(one, Gap) for one in read)
    assert sources.damages


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match=r"nothing\.mcap"):
        Sources([tmp_path / "nothing.mcap"])
