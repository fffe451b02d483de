"""Looks at the folders that clients name, and never for long: where they lead, and of which repository they are."""

from __future__ import annotations

import os
from typing import Final

import anyio

from burnd.queries.view import Folder
from burnd.recording.projects import DetachedCall, key_of
from burnd.records.names import is_bounded

AT_ONCE: Final = 4
PATIENCE_S: Final = 2.0


def look_at(given: str) -> Folder:
    """What the disk says of a folder; blocking, for as long as the disk likes."""
    unseen = Folder.unseen(given)
    if not is_bounded(given):
        return unseen
    try:
        names = dict.fromkeys((*unseen.names, os.path.realpath(given)))
    except (OSError, ValueError):
        return unseen
    return Folder(tuple(names), tuple(key for name in names if (key := key_of(name))))


class Folders:
    """Waits for no folder longer than a moment: one may be on a dead network mount.

    While a look at it does not come back, a folder is not looked at again, and of many none any more: they are then
    known by what was recorded of them.
    """

    def __init__(self) -> None:
        self._free = anyio.CapacityLimiter(AT_ONCE)
        self._stuck: list[tuple[str, DetachedCall[Folder]]] = []

    async def look(self, given: str) -> Folder:
        async with self._free:
            if self._is_hopeless(given):
                return Folder.unseen(given)
            look = DetachedCall(lambda: look_at(given))
            try:
                return await look.result(PATIENCE_S)
            except TimeoutError:
                return Folder.unseen(given)
            finally:
                if not look.is_done:  # also where whoever asked has gone
                    self._stuck.append((given, look))

    def _is_hopeless(self, given: str) -> bool:
        self._stuck = [(folder, look) for folder, look in self._stuck if not look.is_done]
        return len(self._stuck) >= AT_ONCE or any(folder == given for folder, _ in self._stuck)
