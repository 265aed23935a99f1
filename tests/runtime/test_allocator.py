"""Memory that is given back: asked for where the C library is glibc, and nowhere else; and the system has it again."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys

import pytest

from fleetgp.runtime import allocator

# Blocks of half a megabyte come and go while small ones stay between them. By itself glibc keeps those blocks, once it has
# seen a larger one freed; prints by how many MB the program has grown when all large ones are gone.
CHURN = """
import sys
from fleetgp.runtime import allocator
from fleetgp.runtime.metrics import resident_megabytes
if sys.argv[1] == "small":
    assert allocator.keep_small()
bytearray(30_000_000)
before = resident_megabytes()
kept = []
for _ in range(5):
    blocks = []
    for _ in range(60):
        blocks.append(bytearray(500_000))
        kept.append(bytearray(2_000))
    del blocks
print(resident_megabytes() - before)
"""


def plain_environment() -> dict[str, str]:
    return {k: v for k, v in os.environ.items() if not k.startswith("MALLOC_") and k != "GLIBC_TUNABLES"}


@pytest.mark.skipif(not allocator.is_glibc(), reason="another C library has its own rules")
def test_blocks_that_were_freed_are_the_systems_again() -> None:
    grown = {}
    for word in ("default", "small"):
        command = [sys.executable, "-c", CHURN, word]
        grown[word] = float(subprocess.run(command, env=plain_environment(), capture_output=True, check=True).stdout)
    assert grown["default"] > 20.0
    assert grown["small"] < 3.0


HOLES = """
from fleetgp.runtime import allocator
from fleetgp.runtime.metrics import resident_megabytes
allocator.keep_small()
before = resident_megabytes()
blocks = [bytearray(20_000) for _ in range(1_500)]
kept = blocks[::100]
full = resident_megabytes()
del blocks
assert full - before > 25.0
allocator.give_back()
print(resident_megabytes() - before)
"""


@pytest.mark.skipif(not allocator.is_glibc(), reason="another C library has its own rules")
def test_holes_between_blocks_in_use_are_given_back() -> None:
    command = [sys.executable, "-c", HOLES]
    left = float(subprocess.run(command, env=plain_environment(), capture_output=True, check=True).stdout)
    assert left < 3.0


def test_other_c_libraries_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """musl answers with an error or nothing; one that has the name but not the function is no reason to fail either."""

    def unknown(name: str) -> str:
        raise ValueError("unrecognized configuration name")

    for found in (unknown, lambda name: None):
        monkeypatch.setattr(os, "confstr", found, raising=False)
        assert not allocator.keep_small()
        assert not allocator.give_back()
    monkeypatch.delattr(os, "confstr", raising=False)
    assert not allocator.keep_small()
    assert not allocator.give_back()


@pytest.mark.parametrize("error", [OSError("no such library"), None])
def test_a_library_without_the_function_is_left_alone(monkeypatch: pytest.MonkeyPatch, error: OSError | None) -> None:
    def load(name: str | None) -> object:
        if error is not None:
            raise error
        return object()

    for name in [one for one in os.environ if one.startswith("MALLOC_")]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(os, "confstr", lambda name: "glibc 2.36", raising=False)
    monkeypatch.setattr(ctypes, "CDLL", load)
    assert not allocator.keep_small()
    assert not allocator.give_back()


@pytest.mark.parametrize("name", ["MALLOC_ARENA_MAX", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES"])
def test_what_the_owner_chose_stands(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "4")
    assert not allocator.keep_small()
    assert not allocator.give_back()
