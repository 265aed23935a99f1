"""The journal: what was appended is there after any crash, up to a torn tail that is cut off and counted."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetgp.errors import StorageError
from fleetgp.runtime.journal import MAX_RECORD_BYTES, Journal


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "agent" / "journal.bin"


@given(st.lists(st.binary(max_size=100), max_size=20))
def test_records_come_back_in_order(tmp_path_factory: pytest.TempPathFactory, records: list[bytes]) -> None:
    path = tmp_path_factory.mktemp("journal") / "journal.bin"
    journal = Journal(path)
    for record in records:
        journal.append(record)
    assert list(journal.read()) == records
    assert journal.size_bytes == path.stat().st_size
    journal.close()
    again = Journal(path)
    assert (list(again.read()), again.torn_bytes) == (records, 0)
    again.close()


def test_cut_at_every_byte_keeps_what_was_whole_before(path: Path) -> None:
    """And goes on from there: the next record follows the last sound one."""
    journal = Journal(path)
    ends = [journal.size_bytes]
    records = [b"first", b"", b"third record"]
    for record in records:
        journal.append(record)
        ends.append(journal.size_bytes)
    journal.close()
    whole = path.read_bytes()
    for length in range(len(whole) + 1):
        path.write_bytes(whole[:length])
        mended = Journal(path)
        kept = sum(end <= length for end in ends[1:])
        assert list(mended.read()) == records[:kept]
        assert mended.torn_bytes == length - (ends[kept] if length >= ends[0] else 0)
        mended.append(b"next")
        assert list(mended.read()) == [*records[:kept], b"next"]
        mended.close()


def test_a_flipped_bit_ends_the_journal_there(path: Path) -> None:
    journal = Journal(path)
    for record in (b"first", b"second", b"third"):
        journal.append(record)
    journal.close()
    content = path.read_bytes()
    path.write_bytes(content.replace(b"second", b"secone"))
    mended = Journal(path)
    assert list(mended.read()) == [b"first"]
    assert mended.torn_bytes == len(content) - mended.size_bytes > 0
    mended.close()


def test_reset_forgets_everything(path: Path) -> None:
    journal = Journal(path)
    journal.append(b"old")
    journal.reset()
    assert list(journal.read()) == []
    journal.append(b"new")
    journal.close()
    journal.close()
    again = Journal(path)
    assert list(again.read()) == [b"new"]
    again.close()


def test_a_killed_process_loses_no_record(path: Path) -> None:
    """kill -9 right after the append returned."""
    script = (
        "import sys, pathlib; from fleetgp.runtime.journal import Journal\n"
        "journal = Journal(pathlib.Path(sys.argv[1]))\n"
        "for number in range(500): journal.append(b'record %d' % number)\n"
        "print('done', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"done\n"
        child.send_signal(signal.SIGKILL)
        child.wait(10)
    journal = Journal(path)
    assert list(journal.read()) == [b"record %d" % number for number in range(500)]
    journal.close()


def test_a_full_disk_refuses_the_record_and_keeps_the_others(path: Path) -> None:
    """A real limit of the system on the size of files: the write stops half way, as on a full disk."""
    journal = Journal(path)
    journal.append(b"kept")
    before = journal.size_bytes
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (before + 100, hard))
    try:
        with pytest.raises(StorageError, match=r"cannot write to the journal .*journal\.bin"):
            journal.append(bytes(5000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)
    assert journal.size_bytes == before == path.stat().st_size
    journal.append(b"later")
    assert list(journal.read()) == [b"kept", b"later"]
    journal.close()


def test_other_peoples_files_are_left_alone(tmp_path: Path) -> None:
    for content in (b"x", b"some other file entirely"):
        path = tmp_path / "journal.bin"
        path.write_bytes(content)
        with pytest.raises(StorageError, match="is not a journal of FleetGP"):
            Journal(path)
        assert path.read_bytes() == content
    with pytest.raises(StorageError, match="cannot open the journal"):
        Journal(tmp_path)


def test_opening_in_vain_leaks_no_descriptor(tmp_path: Path) -> None:
    path = tmp_path / "journal.bin"
    path.write_bytes(b"some other file")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        with pytest.raises(StorageError):
            Journal(path)
    assert len(os.listdir("/proc/self/fd")) == before


def test_records_beyond_reason(path: Path) -> None:
    journal = Journal(path)
    with pytest.raises(ValueError, match="at most"):
        journal.append(bytes(MAX_RECORD_BYTES + 1))
    assert list(journal.read()) == []
    journal.close()
