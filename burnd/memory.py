"""How this process keeps house with memory: seldom looking for cycles, and giving back what it let go of."""

from __future__ import annotations

import contextlib
import ctypes
import gc

_OBJECTS_BEFORE_COLLECTING = 50_000
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8  # as glibc numbers them


def collect_seldom() -> None:
    """What is imported never becomes garbage, and rows of a report or a log hold no cycles: looking for some after
    every 700 of them takes a fifth of the time of a report over many sessions."""
    gc.freeze()
    gc.set_threshold(_OBJECTS_BEFORE_COLLECTING)


def keep_little(large: int = 256 << 10) -> None:
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
