"""System calls of the spool, one of which fails or ends the process."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

RECORDS = [{"v": 1, "kind": "stamp", "n": n} for n in range(3)]


CALLS = ("mkdir", "open", "fchmod", "write", "fsync", "rename")


class Faulty:
    """`os` whose k-th changing call fails in the way of `fault`."""

    def __init__(self, k: int, fault: Callable[[str], Any]) -> None:
        self._left, self._fault = k, fault
        self.happened = False

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        if name not in CALLS:
            return real

        def call(*arguments: Any, **options: Any) -> Any:
            self._left -= 1
            if self._left == 0:
                self.happened = True
                self._fault(name)
            return real(*arguments, **options)

        return call
