"""Garbage collector, malloc settings, and returning free pages to the system."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import sys
from pathlib import Path

_OBJECTS_BEFORE_COLLECTING = 50_000
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8  # glibc's numbers
_PAGEOUT = 21  # MADV_PAGEOUT


def relax_gc() -> None:
    """Runs the cycle collector less often: explaining 5,000 turns takes 430 ms with its defaults, 365 ms with these."""
    gc.freeze()
    gc.set_threshold(_OBJECTS_BEFORE_COLLECTING)


def limit_malloc(large: int = 1 << 20) -> None:
    """Limits glibc to two arenas and returns blocks of `large` bytes at once. Must run before threads start.

    The first read of 800 MB peaks at 233 MB with this, `trim` and `collect`, at 404 MB without, and ends with 140 MB
    instead of 341.
    """
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_ARENA_MAX, 2)
        mallopt(_MMAP_THRESHOLD, large)
        mallopt(_TRIM_THRESHOLD, 4 * large)


def trim() -> None:
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def collect() -> None:
    gc.collect()
    trim()


def file_bytes() -> int:
    """0 except on Linux."""
    try:
        with open("/proc/self/statm", "rb") as sizes:
            return int(sizes.read().split()[2]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def page_out(folder: Path) -> None:
    """Drops resident pages of the mapped files in a folder. `search.page_limit` states what that saves."""
    if sys.platform != "linux":
        return
    prefix = os.fsencode(os.path.realpath(folder)) + b"/"  # the kernel lists resolved paths
    with contextlib.suppress(OSError), open("/proc/self/maps", "rb") as maps:
        for line in maps:
            addresses, _, _, _, _, *path = line.split(None, 5)
            if path and path[0].startswith(prefix):
                begin, end = (int(part, 16) for part in addresses.split(b"-"))
                ctypes.CDLL(None).madvise(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), _PAGEOUT)
