"""Turns on their way to whoever follows them: each follower has a short queue, and nobody waits for a slow one."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import anyio

from burnd.index.change import Change
from burnd.records import Turn

QUEUE = 1000
Wanted = Callable[[Turn], bool]


class Landed(NamedTuple):
    """A turn that became visible; an open one may still grow."""

    turn: Turn
    open: bool


class Notice(NamedTuple):
    """Something else that whoever follows should know, as it is told."""

    what: dict[str, Any]


class Follower:
    """One client's queue. When it is full the oldest go, and are counted."""

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted
        self._waiting: deque[Landed | Notice] = deque(maxlen=QUEUE)
        self._missed = 0
        self._bell = anyio.Event()

    def tell(self, landed: Iterable[Landed | Notice]) -> None:
        for item in landed:
            if isinstance(item, Notice) or self._wanted(item.turn):
                self._missed += len(self._waiting) == QUEUE
                self._waiting.append(item)
        if self._waiting:
            self._bell.set()

    async def take(self) -> tuple[list[Landed | Notice], int]:
        """What landed since the last time, at least one, and how many were dropped before it."""
        await self._bell.wait()
        self._bell = anyio.Event()
        taken, missed = list(self._waiting), self._missed
        self._waiting.clear()
        self._missed = 0
        return taken, missed


class Feed:
    """Hands what the pipeline made visible to everybody who follows."""

    def __init__(self) -> None:
        self._followers: list[Follower] = []

    @contextmanager
    def following(self, wanted: Wanted) -> Iterator[Follower]:
        follower = Follower(wanted)
        self._followers.append(follower)
        try:
            yield follower
        finally:
            self._followers.remove(follower)

    def say(self, what: dict[str, Any]) -> None:
        """Tells everybody who follows, whatever turns they wanted."""
        for follower in self._followers:
            follower.tell([Notice(what)])

    def landed(self, change: Change) -> None:
        """Called by the pipeline after every batch: it must be quick, and cheap when nobody follows."""
        if not self._followers:
            return
        settled = (logged.entry for logged, _ in change.logged)
        landed = [Landed(entry, False) for entry in settled if isinstance(entry, Turn)]
        landed += [Landed(turn, False) for turn in change.closed]
        landed += [Landed(item.turn, True) for item in change.open]
        for follower in self._followers:
            follower.tell(landed)
