"""Looks at the folders that clients name, and never for long: where they lead, and of which repository they are."""

from __future__ import annotations

import os
from typing import Final

import anyio
import anyio.to_thread

from burnd.queries.view import Folder
from burnd.recording.projects import remote_of

AT_ONCE: Final = 4
PATIENCE_S: Final = 2.0


def look_at(given: str) -> Folder:
    """What the disk says of a folder; blocking, for as long as the disk likes."""
    unseen = Folder.unseen(given)
    try:
        names = dict.fromkeys((*unseen.names, os.path.realpath(given)))
    except (OSError, ValueError):
        return unseen
    return Folder(tuple(names), tuple(key for name in names if (key := remote_of(name))))


class Folders:
    """Looks in a thread that nobody waits for longer than a moment: a folder may be on a dead network mount.

    While such a look does not come back, its folder is not looked at again, and of many none any more: they are then
    known by what was recorded of them.
    """

    def __init__(self) -> None:
        self._threads = anyio.CapacityLimiter(AT_ONCE)
        self._stuck: list[_Look] = []

    async def look(self, given: str) -> Folder:
        self._stuck = [look for look in self._stuck if not look.ended]
        if len(self._stuck) >= AT_ONCE or any(look.given == given for look in self._stuck):
            return Folder.unseen(given)
        look = _Look(given)
        with anyio.move_on_after(PATIENCE_S):
            return await anyio.to_thread.run_sync(look.run, limiter=self._threads, abandon_on_cancel=True)
        if look.begun:
            self._stuck.append(look)
        return Folder.unseen(given)


class _Look:
    def __init__(self, given: str) -> None:
        self.given = given
        self.begun = self.ended = False

    def run(self) -> Folder:
        self.begun = True
        try:
            return look_at(self.given)
        finally:
            self.ended = True
