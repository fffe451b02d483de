"""Gives back the pages of search's files that nobody needs: while they are mapped, they count as this process's own.

tantivy maps whole files when it merges them, in the end a tenth of all logs, and what was searched in stays mapped.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread

from burnd import memory

# So many bytes of files may be in memory, programs and libraries included. A backlog needs the memory for itself;
# who searches would wait for every page that was given back.
READING, USUALLY, SEARCHING = 40 << 20, 48 << 20, 192 << 20
_LOOK_S: Final = 0.2
_SEARCHED_S: Final = 10.0  # so long after a search the next one may come


class Lightness:
    """Told when there is a writer, which may be merging, and when somebody searches; else it rests."""

    def __init__(self, folder: Path, is_reading: Callable[[], bool], clock: Callable[[], float]) -> None:
        self._folder = folder
        self._is_reading = is_reading
        self._clock = clock
        self._thread = anyio.CapacityLimiter(1)
        self._stirred = anyio.Event()
        self._is_writing = False
        self._searched_at = float("-inf")

    def writing(self) -> None:
        self._is_writing = True
        self._stirred.set()

    def written(self) -> None:
        self._is_writing = False

    def searched(self) -> None:
        self._searched_at = self._clock()
        self._stirred.set()

    async def keep(self) -> None:
        """Works until cancelled."""
        while True:
            await self._stirred.wait()
            await anyio.sleep(_LOOK_S)
            if memory.file_bytes() > self._allowed():
                await anyio.to_thread.run_sync(memory.page_out, self._folder, limiter=self._thread)
            if not self._is_writing and not self._is_searched():
                self._stirred = anyio.Event()

    def _allowed(self) -> int:
        if self._is_reading():
            return READING
        return SEARCHING if self._is_searched() else USUALLY

    def _is_searched(self) -> bool:
        return self._clock() - self._searched_at < _SEARCHED_S
