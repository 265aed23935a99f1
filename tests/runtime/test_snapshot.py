"""Snapshots and folder locks: the old state or the new one, never a mixture, and one program to a folder."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fleetgp.errors import ServiceError, StorageError
from fleetgp.runtime import snapshot
from fleetgp.runtime.lock import FolderLock


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "state.bin"


def test_what_was_saved_is_loaded(path: Path) -> None:
    assert snapshot.load(path, version=1) is None
    for payload in (b"first", b"", bytes(range(256)) * 1000):
        snapshot.save(path, [payload], version=1)
        assert snapshot.load(path, version=1) == payload
    assert [file.name for file in path.parent.iterdir()] == ["state.bin"]


def test_another_version_is_named(path: Path) -> None:
    snapshot.save(path, [b"x"], version=3)
    with pytest.raises(StorageError, match=r"state\.bin is of version 3; this program reads version 2"):
        snapshot.load(path, version=2)


def test_damage_anywhere_is_found_and_the_file_named(path: Path) -> None:
    """Every byte flipped, and every length but the right one."""
    snapshot.save(path, [b"payload"], version=1)
    sound = path.read_bytes()
    damaged = [sound[:length] for length in range(len(sound))] + [sound + b"x"]
    damaged += [sound[:i] + bytes([sound[i] ^ 0x10]) + sound[i + 1 :] for i in range(len(sound))]
    for content in damaged:
        path.write_bytes(content)
        with pytest.raises(StorageError, match=r"state\.bin"):
            snapshot.load(path, version=1)


def test_a_file_left_by_a_crash_while_saving_does_not_matter(path: Path) -> None:
    snapshot.save(path, [b"old"], version=1)
    path.with_name("state.bin.new").write_bytes(b"half of it")
    assert snapshot.load(path, version=1) == b"old"
    snapshot.save(path, [b"new"], version=1)
    assert snapshot.load(path, version=1) == b"new"


def test_a_disk_that_refuses_leaves_the_old_one(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot.save(path, [b"old"], version=1)

    def refuse(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(StorageError, match=r"state\.bin: No space left"):
        snapshot.save(path, [b"new"], version=1)
    assert snapshot.load(path, version=1) == b"old"
    assert [file.name for file in path.parent.iterdir()] == ["state.bin"]


def test_places_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot save"):
        snapshot.save(tmp_path / "file" / "state.bin", [b"x"], version=1)
    with pytest.raises(StorageError, match="cannot read"):
        snapshot.load(tmp_path, version=1)


def test_a_damaged_file_is_set_aside_once(path: Path) -> None:
    for content in (b"one", b"two"):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
        assert snapshot.set_aside(path) == path.with_name("state.bin.damaged")
    assert not path.exists()
    assert path.with_name("state.bin.damaged").read_bytes() == b"two"
    with pytest.raises(StorageError, match="cannot rename"):
        snapshot.set_aside(path)


def test_a_folder_has_one_program(tmp_path: Path) -> None:
    folder = tmp_path / "data" / "agent"
    with FolderLock(folder, "agent"):
        with pytest.raises(ServiceError, match=rf"already used by agent \(pid {os.getpid()}\).*data\.dir"):
            FolderLock(folder, "bridge")
        FolderLock(tmp_path / "data" / "bridge", "bridge").release()
    lock = FolderLock(folder, "bridge")
    lock.release()
    lock.release()


def test_a_killed_program_leaves_its_folder_free(tmp_path: Path) -> None:
    script = (
        "import sys, pathlib; from fleetgp.runtime.lock import FolderLock\n"
        "lock = FolderLock(pathlib.Path(sys.argv[1]), 'agent'); print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"held\n"
        with pytest.raises(ServiceError, match=rf"agent \(pid {child.pid}\)"):
            FolderLock(tmp_path, "agent")
        child.send_signal(signal.SIGKILL)
        child.wait(10)
    FolderLock(tmp_path, "agent").release()


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ServiceError, match=r"cannot use the data folder .*file.*data\.dir"):
        FolderLock(tmp_path / "file" / "agent", "agent")
