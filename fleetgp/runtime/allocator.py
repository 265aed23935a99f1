"""What the C library does with memory that is given back: by default glibc keeps much of it, for a program that needs it again.

glibc takes larger blocks from the system one by one and gives each back as it is freed, but raises the size from which it
does so, up to 32 MB, whenever such a block is freed; from then on blocks of a megabyte come and go among small ones, and leave
holes that nothing fills. And every thread gets a heap of its own. Neither suits a program of 50 MB that runs for years.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from typing import cast

# numbers of malloc.h; changing a threshold also ends its growing by itself
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
LARGE_BYTES = 128 * 1024  # where glibc itself begins


def is_glibc() -> bool:
    try:
        return "glibc" in (os.confstr("CS_GNU_LIBC_VERSION") or "")
    except (AttributeError, ValueError, OSError):  # another C library (musl, macOS), or none of the kind
        return False


def keep_small() -> bool:
    """Give freed memory back early and keep to one heap; call it before threads begin. False where nothing was changed.

    What the environment says (``MALLOC_MMAP_THRESHOLD_`` and its like) is the owner's choice and stands.
    """
    mallopt = None if _is_owners_choice() else _function("mallopt", ctypes.c_int, ctypes.c_int)
    if mallopt is None:
        return False
    wanted = ((_MMAP_THRESHOLD, LARGE_BYTES), (_TRIM_THRESHOLD, LARGE_BYTES), (_ARENA_MAX, 1))
    results = [mallopt(number, value) for number, value in wanted]
    return all(results)


def give_back() -> bool:
    """Give back what is free between blocks in use, which takes milliseconds. False where the C library does not know how."""
    trim = None if _is_owners_choice() else _function("malloc_trim", ctypes.c_size_t)
    return trim is not None and bool(trim(0))


def _is_owners_choice() -> bool:
    return any(name.startswith("MALLOC_") for name in os.environ) or "GLIBC_TUNABLES" in os.environ


def _function(name: str, *arguments: type[ctypes.c_int | ctypes.c_size_t]) -> Callable[..., int] | None:
    """A function of glibc that returns an int; None where there is none."""
    if not is_glibc():
        return None
    try:
        function = getattr(ctypes.CDLL(None), name)
    except (AttributeError, OSError):
        return None
    function.argtypes, function.restype = arguments, ctypes.c_int
    return cast(Callable[..., int], function)
