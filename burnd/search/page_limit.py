"""Limits the resident pages of search's mapped files, which count as memory of this process.

tantivy maps whole files to merge them, and files that were searched stay mapped. Without this, the first read of 2 GB
of logs takes 311 MB in all processes.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread

from burnd import memory

# Resident bytes of mapped files, including programs and libraries. A search waits for every page that was dropped.
READING, USUAL, SEARCHING = 40 << 20, 48 << 20, 192 << 20
_LOOK_S: Final = 0.2
_SEARCHED_S: Final = 10.0  # the next search is expected within this time


class PageLimit:
    """Drops pages beyond the limit while there is a writer and after a search."""

    def __init__(self, folder: Path, is_reading: Callable[[], bool], clock: Callable[[], float]) -> None:
        self._folder = folder
        self._is_reading = is_reading
        self._clock = clock
        self._thread = anyio.CapacityLimiter(1)
        self._used = anyio.Event()
        self._is_writing = False
        self._searched_at = float("-inf")

    def writing(self) -> None:
        self._is_writing = True
        self._used.set()

    def written(self) -> None:
        self._is_writing = False

    def searched(self) -> None:
        self._searched_at = self._clock()
        self._used.set()

    async def keep(self) -> None:
        while True:
            await self._used.wait()
            await anyio.sleep(_LOOK_S)
            size, is_searched = memory.file_bytes(), self._clock() - self._searched_at < _SEARCHED_S
            if size > (READING if self._is_reading() else SEARCHING if is_searched else USUAL):
                await anyio.to_thread.run_sync(memory.page_out, self._folder, limiter=self._thread)
            if not self._is_writing and not is_searched:
                self._used = anyio.Event()
