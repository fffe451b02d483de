"""Which release of a harness wrote something, as numbers that can be compared."""

from __future__ import annotations

from functools import lru_cache


@lru_cache(maxsize=256)
def release(version: str | None) -> tuple[int, ...] | None:
    """The numbers of a program's version; None where there is none to be read."""
    if not version:
        return None
    numbers = version.split("-", 1)[0].split(".")
    return tuple(map(int, numbers)) if all(n.isdecimal() and len(n) < 10 for n in numbers) else None
