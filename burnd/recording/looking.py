"""A look at a disk that may never answer: in a thread that nobody has to wait for, not even the end of the process."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

import anyio

T = TypeVar("T")


class Look(Generic[T]):
    """Begun at once. A worker thread of anyio's would not do: the process does not end before those do."""

    def __init__(self, work: Callable[[], T]) -> None:
        self.has_ended = False
        self._work = work
        self._seen: list[T] = []
        self._error: Exception | None = None
        self._bell = anyio.Event()
        self._loop = asyncio.get_running_loop()
        threading.Thread(target=self._run, name="look", daemon=True).start()

    async def within(self, seconds: float) -> T:
        """What it sees. Raises TimeoutError when that takes longer; it then goes on by itself."""
        with anyio.fail_after(seconds):
            await self._bell.wait()
        if self._error is not None:
            raise self._error
        return self._seen[0]

    def _run(self) -> None:
        try:
            self._seen.append(self._work())
        except Exception as error:  # noqa: BLE001 - it is raised again where somebody waits
            self._error = error
        self.has_ended = True
        with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
            self._loop.call_soon_threadsafe(self._bell.set)
