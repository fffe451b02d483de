"""How this process keeps house with memory: seldom looking for cycles, and giving back what it let go of."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import sys
from pathlib import Path

_OBJECTS_BEFORE_COLLECTING = 50_000
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8  # as glibc numbers them
_PAGEOUT = 21  # as Linux numbers it: unlike its elder sister DONTNEED, it never changes what is read


def collect_seldom() -> None:
    """What is imported never becomes garbage, and rows of a report or a log hold no cycles: looking for some after
    every 700 of them takes a fifth of the time of a report over many sessions."""
    gc.freeze()
    gc.set_threshold(_OBJECTS_BEFORE_COLLECTING)


def keep_little(large: int = 1 << 20) -> None:
    """To be called before there are threads: glibc would give each a pool of its own and keep what is freed in it.

    While a backlog is read, large pieces pass through several threads; with a pool for each the process grew with
    every piece. What is `large`, in bytes, is given back at once, and costs fresh pages every time it is needed again.
    Elsewhere than on glibc nothing is done.
    """
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_ARENA_MAX, 2)
        mallopt(_MMAP_THRESHOLD, large)
        mallopt(_TRIM_THRESHOLD, 4 * large)


def trim() -> None:
    """Gives back what lies free between things that are in use, as much does after a backlog's many batches."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def clear_away() -> None:
    """Looks for cycles however few there may be, and gives back what lies free then: some ten milliseconds."""
    gc.collect()
    trim()


def file_bytes() -> int:
    """How much of the files that are mapped here is in memory just now; 0 elsewhere than on Linux."""
    try:
        with open("/proc/self/statm", "rb") as sizes:
            return int(sizes.read().split()[2]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def page_out(folder: Path) -> None:
    """Gives back the pages of files in a folder that are mapped here: they are read again when they are needed."""
    if sys.platform != "linux":
        return
    wanted = os.fsencode(os.path.realpath(folder)) + b"/"  # as the kernel says it, whatever links lead there
    with contextlib.suppress(OSError), open("/proc/self/maps", "rb") as maps:
        for line in maps:
            place, _, _, _, _, *path = line.split(None, 5)
            if path and path[0].startswith(wanted):
                begin, end = (int(part, 16) for part in place.split(b"-"))
                ctypes.CDLL(None).madvise(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), _PAGEOUT)
