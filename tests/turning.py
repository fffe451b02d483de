"""Watches that the event loop of a test turns: where burnd's own code holds it up, the daemon could not answer.

What a test does itself in between, or has burnd do for it there and then, is its own business.
"""

from __future__ import annotations

import asyncio
import functools
import sys
import threading
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import FrameType
from typing import Any, Self

from tests.server.wire import noise

_TESTS = Path(__file__).parent
_LOOK_EVERY_S = 0.25
LONGEST_S = 1.0


class Turning:
    """Watches the running loop during a block; `held_up` is the stack where it was blocked."""

    def __init__(self, longest_s: float, own: Path = _TESTS.parent / "burnd", not_below: Path = _TESTS) -> None:
        self.held_up = ""
        self._longest_s, self._own, self._not_below = longest_s, own, not_below
        self._over, self._turned = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._loop, self._ident = asyncio.get_running_loop(), threading.get_ident()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._turned.set()
        self._thread.join()

    def _watch(self) -> None:
        while True:
            turned = self._turned = threading.Event()
            if self._over.is_set():
                return
            self._loop.call_soon_threadsafe(turned.set)
            if not turned.wait(self._longest_s):
                self._look(sys._current_frames().get(self._ident))
            self._over.wait(_LOOK_EVERY_S)

    def _look(self, frame: FrameType | None) -> None:
        stack = traceback.extract_stack(frame)
        begun = max((n for n, one in enumerate(stack) if one.name == "_run_once"), default=0)
        inside = stack[begun:]  # of what the loop does just now
        if _is_in(inside, self._own) and not _is_in(inside, self._not_below):
            self.held_up = "".join(traceback.format_list(inside))


def _is_in(stack: list[traceback.FrameSummary], folder: Path) -> bool:
    return any(Path(one.filename).is_relative_to(folder) for one in stack)


def watched(test: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    """The test, which fails when burnd held its loop up."""

    @functools.wraps(test)
    async def turning(*given: Any, **named: Any) -> None:
        with Turning(LONGEST_S * noise()) as loop:
            await test(*given, **named)
        assert not loop.held_up, f"the event loop did not turn for a second and more in\n{loop.held_up}"

    return turning
