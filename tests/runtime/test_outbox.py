from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleetgp.errors import StorageError
from fleetgp.runtime.clock import FakeClock
from fleetgp.runtime.outbox import Outbox

NOW_MS = 1_760_000_000_000
DAY_S = 86400.0


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(NOW_MS)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "agent" / "outbox.sqlite"


@pytest.fixture
def outbox(path: Path, clock: FakeClock) -> Iterator[Outbox]:
    outbox = Outbox(path, max_bytes=1000, max_age_s=DAY_S, clock=clock)
    yield outbox
    outbox.close()


def payloads(outbox: Outbox) -> list[bytes]:
    return [entry.payload for entry in outbox.head(1000)]


def truth(path: Path) -> tuple[int, int]:
    """Messages and bytes as another program counts them in the file."""
    with sqlite3.connect(path) as db:
        count, size = db.execute(
            "SELECT COUNT(*), COALESCE(SUM(LENGTH(topic) + LENGTH(payload)), 0) FROM entries"
        ).fetchone()
    return count, size


def test_messages_wait_in_order_until_done(outbox: Outbox) -> None:
    ids = [outbox.put("t/a", payload) for payload in (b"1", b"2", b"3")]
    assert [entry.payload for entry in outbox.head(2)] == [b"1", b"2"]
    outbox.done(ids[1])
    outbox.done(ids[1])
    assert payloads(outbox) == [b"1", b"3"]
    assert outbox.depth == 2


def test_head_can_be_asked_for_a_range_of_ids(outbox: Outbox) -> None:
    first, second, third = (outbox.put("t", payload) for payload in (b"1", b"2", b"3"))
    assert [entry.id for entry in outbox.head(9, after=first)] == [second, third]
    assert [entry.id for entry in outbox.head(9, until=second)] == [first, second]
    assert outbox.last_id() == third


def test_an_id_is_never_used_twice(outbox: Outbox) -> None:
    """A late confirmation of a message that is gone must not remove another one."""
    old = outbox.put("t", b"old")
    outbox.done(old)
    new = outbox.put("t", b"new")
    outbox.done(old)
    assert new > old
    assert payloads(outbox) == [b"new"]


def test_a_newer_message_of_the_same_key_replaces_the_waiting_one(outbox: Outbox) -> None:
    outbox.put("t", b"round 1", key="summary")
    outbox.put("t", b"event")
    outbox.put("t", b"round 2", key="summary")
    assert payloads(outbox) == [b"event", b"round 2"]
    assert outbox.counters()["outbox_coalesced"] == 1


def test_an_older_retained_value_never_follows_a_newer_one(outbox: Outbox) -> None:
    outbox.put("a/status", b"online", retain=True)
    outbox.put("b/status", b"online", retain=True)
    outbox.put("a/status", b"offline", retain=True)
    waiting = outbox.head(9)
    assert [(entry.topic, entry.payload, entry.is_retained) for entry in waiting] == [
        ("b/status", b"online", True),
        ("a/status", b"offline", True),
    ]


def test_a_full_outbox_drops_the_oldest_and_counts(outbox: Outbox, path: Path) -> None:
    for number in range(30):
        outbox.put("t", bytes([number]) * 99)
    assert payloads(outbox) == [bytes([number]) * 99 for number in range(20, 30)]
    assert outbox.counters()["outbox_dropped"] == 20
    assert (outbox.depth, outbox.bytes) == truth(path) == (10, 1000)


def test_a_message_that_can_never_fit_is_refused_and_drops_nothing(outbox: Outbox) -> None:
    outbox.put("t", b"small")
    with pytest.raises(StorageError, match="does not fit"):
        outbox.put("t", bytes(1000))
    assert payloads(outbox) == [b"small"]


def test_old_messages_expire_and_are_counted(outbox: Outbox, clock: FakeClock, path: Path) -> None:
    outbox.put("t", b"old")
    clock.advance(DAY_S / 2)
    outbox.put("t", b"young")
    clock.advance(DAY_S / 2 + 1)
    assert payloads(outbox) == [b"young"]
    assert outbox.counters()["outbox_expired"] == 1
    assert (outbox.depth, outbox.bytes) == truth(path)


def test_messages_from_before_the_clock_was_set_do_not_expire_when_it_is(path: Path) -> None:
    """A device without a battery clock boots in 1970; its messages are minutes old, whatever their stamp says."""
    clock = FakeClock(60_000)
    outbox = Outbox(path, max_age_s=DAY_S, clock=clock)
    outbox.put("t", b"before the time was known")
    clock.advance(NOW_MS / 1000)
    assert payloads(outbox) == [b"before the time was known"]
    outbox.close()


def test_everything_is_there_after_reopening(outbox: Outbox, path: Path, clock: FakeClock) -> None:
    outbox.put("t", b"1", retain=True, key="k")
    outbox.put("t", b"2")
    outbox.close()
    again = Outbox(path, clock=clock)
    assert [(e.topic, e.payload, e.is_retained, e.at_ms) for e in again.head(9)] == [
        ("t", b"1", True, NOW_MS),
        ("t", b"2", False, NOW_MS),
    ]
    assert (again.depth, again.bytes) == truth(path)
    again.close()


def test_what_was_put_survives_a_killed_process(path: Path, clock: FakeClock) -> None:
    program = (
        "import sys, itertools\n"
        "from fleetgp.runtime.clock import SystemClock\n"
        "from fleetgp.runtime.outbox import Outbox\n"
        "outbox = Outbox(sys.argv[1], clock=SystemClock())\n"
        "for number in itertools.count():\n"
        "    outbox.put('t', b'%d' % number)\n"
        "    print(number, flush=True)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if int(line) >= 200:
                break
        os.kill(process.pid, signal.SIGKILL)
        last_told = int((line + process.stdout.read()).split()[-1])
    outbox = Outbox(path, clock=clock)
    kept = [int(payload) for payload in (entry.payload for entry in outbox.head(100_000))]
    assert kept[: last_told + 1] == list(range(last_told + 1))
    outbox.close()


def test_a_damaged_file_is_set_aside_and_a_fresh_one_begun(path: Path, clock: FakeClock) -> None:
    path.parent.mkdir()
    path.write_bytes(b"this was a database once" * 100)
    outbox = Outbox(path, clock=clock)
    outbox.put("t", b"fresh")
    assert payloads(outbox) == [b"fresh"]
    assert outbox.counters()["outbox_damaged"] == 1
    assert path.with_name("outbox.sqlite.damaged").read_bytes().startswith(b"this was")
    outbox.close()


def test_a_disk_that_refuses_is_a_storage_error_and_changes_nothing(outbox: Outbox, path: Path) -> None:
    outbox.put("t", b"kept")
    with sqlite3.connect(path) as db:
        db.execute(
            "CREATE TRIGGER full BEFORE INSERT ON entries BEGIN SELECT RAISE(ABORT, 'database or disk is full'); END"
        )
    with pytest.raises(StorageError, match="disk is full"):
        outbox.put("t", b"lost", key="k")
    assert payloads(outbox) == [b"kept"]
    assert (outbox.depth, outbox.bytes) == truth(path)


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path, clock: FakeClock) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(StorageError, match="cannot open the outbox"):
        Outbox(tmp_path / "file" / "outbox.sqlite", clock=clock)
