"""Reading from a time on by the index of a file: nothing of then or later is missed, what is earlier is not even read."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from fleetgp.recording import mcap
from fleetgp.recording.message import Gap, Message, Recorded

S = 10**9
START = 1_790_000_000 * S


def write(path: Path, recorded: Sequence[Recorded], every: int) -> None:
    with mcap.McapWriter(path, {"site": "hall"}) as writer:
        for number, one in enumerate(recorded):
            writer.mark_gap(one) if isinstance(one, Gap) else writer.write(one)
            if number % every == every - 1:
                writer.flush()


def later(recorded: Sequence[Recorded], begin_ns: int) -> list[Recorded]:
    return [one for one in recorded if (one.start_ns if isinstance(one, Gap) else one.received_ns) >= begin_ns]


@given(
    seconds=st.lists(st.integers(0, 200), min_size=1, max_size=60),
    every=st.integers(1, 7),
    begin_s=st.integers(-10, 210),
    is_sorted=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_all_from_a_time_on_is_read_whatever_the_order(
    tmp_path_factory: object, seconds: list[int], every: int, begin_s: int, is_sorted: bool
) -> None:
    path = tmp_path_factory.mktemp("from") / "a.mcap"  # type: ignore[attr-defined]
    times = sorted(seconds) if is_sorted else seconds
    recorded: list[Recorded] = [Message(f"t/{n % 3}", b"%d" % n, START + s * S, 0, n % 2) for n, s in enumerate(times)]
    recorded.insert(len(recorded) // 2, Gap(START + times[len(times) // 2] * S, START + 201 * S, "away"))
    write(path, recorded, every)
    begin_ns = START + begin_s * S
    scan = mcap.recover(path, begin_ns)
    read = list(scan)
    assert later(read, begin_ns) == later(recorded, begin_ns)
    assert read == recorded[scan.passed_over :], "what is passed over stands before all that is read, and is counted"
    assert scan.damage_count == 0


def test_what_is_earlier_is_not_read(tmp_path: Path) -> None:
    """A broken byte there is not even seen; the same file read from its start tells of it."""
    path = tmp_path / "day.mcap"
    rng = random.Random(1)
    recorded = [Message("t", rng.randbytes(1000), START + n * S) for n in range(3000)]
    write(path, recorded, 100)
    data = bytearray(path.read_bytes())
    data[len(data) // 4] ^= 0xFF
    path.write_bytes(bytes(data))
    whole, part = mcap.recover(path), mcap.recover(path, START + 2000 * S)
    assert later(list(part), START + 2000 * S) == recorded[2000:]
    assert part.passed_over == 2000
    assert part.damage_count == 0
    assert len(list(whole)) < 3000 + 1
    assert whole.damage_count > 0


def test_a_cut_file_has_no_index_and_is_read_from_its_start(tmp_path: Path) -> None:
    path = tmp_path / "cut.mcap"
    recorded = [Message("t", b"x" * 50, START + n * S) for n in range(100)]
    write(path, recorded, 10)
    path.write_bytes(path.read_bytes()[:-30])
    scan = mcap.recover(path, START + 50 * S)
    assert [one for one in scan if isinstance(one, Message)] == recorded
    assert scan.passed_over == 0


def test_an_index_of_other_places_is_not_believed(tmp_path: Path) -> None:
    """Two files put together by ``cat``: the index at the end counts from the second one's start."""
    first, second = tmp_path / "1.mcap", tmp_path / "2.mcap"
    early = [Message("t", b"%d" % n * 9, START + n * S) for n in range(100)]
    write(first, early, 10)
    write(second, [one._replace(received_ns=one.received_ns + 1000 * S) for one in early], 10)
    both = tmp_path / "both.mcap"
    both.write_bytes(first.read_bytes() + second.read_bytes())
    read = list(mcap.recover(both, START + 1050 * S))
    assert read[:100] == early
