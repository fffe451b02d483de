"""Resolves folders that clients name: real path and repository."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import anyio

from burnd.queries.view import Folder
from burnd.recording.projects import DetachedCall, checkout_of, key_of
from burnd.records.names import is_bounded

AT_ONCE: Final = 4
TIMEOUT_S: Final = 2.0


def resolve(given: str) -> Folder:
    """Blocks as long as the disk does."""
    unseen = Folder.unseen(given)
    if not is_bounded(given):
        return unseen
    try:
        real = os.path.realpath(given)
        checkout = checkout_of(Path(real)) if os.path.isdir(real) else None
    except (OSError, ValueError):
        return unseen
    names = dict.fromkeys((*unseen.names, real))
    keys = tuple(key for name in names if (key := key_of(name)))
    return Folder(tuple(names), keys, None if checkout is None else str(checkout) != real)


class Folders:
    """Resolves folders with a timeout: one may be on a dead network mount.

    A folder whose call hangs is not tried again, and none is while too many hang.
    """

    def __init__(self) -> None:
        self._limiter = anyio.CapacityLimiter(AT_ONCE)
        self._stuck: list[tuple[str, DetachedCall[Folder]]] = []

    async def resolve(self, given: str) -> Folder:
        async with self._limiter:
            self._stuck = [(folder, call) for folder, call in self._stuck if not call.is_done]
            if len(self._stuck) >= AT_ONCE or any(folder == given for folder, _ in self._stuck):
                return Folder.unseen(given)
            call = DetachedCall(lambda: resolve(given))
            try:
                return await call.result(TIMEOUT_S)
            except TimeoutError:
                return Folder.unseen(given)
            finally:
                if not call.is_done:  # also if the caller was cancelled
                    self._stuck.append((given, call))
